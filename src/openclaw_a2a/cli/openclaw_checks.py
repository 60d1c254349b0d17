"""Checks of OpenClaw: its config, its program, its gateways and agents, and our plugin in it.

Each check connects once, from outside: the gateway of the settings need not run.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from urllib.parse import urlsplit
from uuid import uuid4

import anyio
import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from openclaw_a2a.agents.openclaw_cli.agent import OpenClawRunner
from openclaw_a2a.agents.openclaw_cli.answer import parse_answer
from openclaw_a2a.agents.openclaw_cli.command import CliRequest, CliSession, OpenClawCliOptions
from openclaw_a2a.agents.openclaw_gateway.agent import OpenClawGatewayOptions
from openclaw_a2a.agents.openclaw_gateway.agent_directory import decode_agents
from openclaw_a2a.agents.openclaw_gateway.handshake import (
    OLDEST_OPENCLAW,
    ConnectFailed,
    GatewayAddress,
    Hello,
    open_connection,
)
from openclaw_a2a.agents.openclaw_gateway.protocol import (
    ErrorPayload,
    decode_frame,
    decode_object,
    encode_request,
    request_error,
)
from openclaw_a2a.cli.check_result import Check, CheckResult, split_advice
from openclaw_a2a.model.agent_event import Note
from openclaw_a2a.model.errors import AgentError, AgentUnavailable, SettingsInvalid
from openclaw_a2a.model.ids import AgentId, JsonObject
from openclaw_a2a.settings import AgentSettings, CheckedSettings, RunningGateway
from openclaw_a2a.settings.agents import OPENCLAW_ADAPTER
from openclaw_a2a.settings.openclaw_config import OpenClawInstallation, find_openclaw
from openclaw_a2a.settings.sources import process_environment
from openclaw_a2a.settings.tokens import resolve_token
from openclaw_a2a.tools.openclaw_plugin import PLUGIN_ID, check_plugin_access, plan_installation

_COMMAND = "openclaw"
_INSTALL = "install it with: npm install -g openclaw"
_UPDATE = "update it with: openclaw update"
_CONNECT_S = 6.0
_START_S = 20.0
_START_POLL_S = 0.3
_LIST_S = 10.0
_TURN_S = 120.0
_PROGRAM_S = 30.0
_PROMPT = "Answer with one word: ready."
_VERSION = re.compile(r"\b(\d{4})\.(\d{1,2})\.(\d{1,3})\b")


def _check(name: str) -> Check:
    return Check("openclaw", name)


async def check_openclaw(examined: CheckedSettings, *, run_agents: bool) -> list[CheckResult]:
    """OpenClaw: its config, its program, and every gateway and command that agents use.

    With `run_agents` each agent answers a short turn.
    """
    settings = examined.loaded.settings
    found = examined.loaded.openclaw or find_openclaw()
    ours = {name: one for name, one in settings.agents.items() if one.adapter == OPENCLAW_ADAPTER}
    by_command = {name: one for name, one in settings.agents.items() if one.adapter == _COMMAND}
    findings = _check_config(found, settings.agents)
    for name, agent in by_command.items():
        findings += await _check_command_agent(name, agent, run_agents=run_agents)
    if not ours and (found is None or by_command):
        return findings
    findings.append(await _check_program())
    for (url, token), agents in _gateways(ours).items():
        findings += await _check_gateway(url, token, agents, run_agents=run_agents)
    return findings


# -------------------------------------------------------------------- our plugin


def check_plugin(examined: CheckedSettings, own: RunningGateway | None) -> list[CheckResult]:
    """OpenClaw's agents have our tools: the plugin is installed, reaches us, and is accepted."""
    settings, found = examined.loaded.settings, examined.loaded.openclaw or find_openclaw()
    if found is None or found.config_path is None or not found.is_readable:
        return []
    check = _check("plugin")
    wiring = plan_installation(settings, found.config_path)
    ours = [own.address if own else wiring.options["url"], wiring.options["url"]]
    if wiring.is_linked and (elsewhere := _check_plugin_url(wiring.found.options, ours)):
        return [elsewhere]
    if wiring.is_linked:
        answer = check_plugin_access(wiring.found.options)
        if answer.problem:
            make = check.broken if answer.is_reached else check.note
            return [make(*split_advice(answer.problem))]
        return [check.ok(f"{PLUGIN_ID} is let in: {', '.join(answer.tools) or 'no tools'}")]
    if settings.outbound.get("enabled") is not True or not settings.tools.http:
        return []
    fix = "to give them: openclaw-a2a connect openclaw"
    return [check.note("OpenClaw's agents do not have our tools", fix)]


def _check_plugin_url(options: JsonObject, ours: list[str]) -> CheckResult | None:
    """True when the plugin calls another gateway than ours, running or configured."""
    url = str(options.get("url", "")).rstrip("/")
    running, settings = ours
    if url == running:
        return None
    if url == settings:
        text = f"{PLUGIN_ID} calls {url}, and our gateway runs at {running}"
        fix = f"start the gateway without --port, or set server.port to {urlsplit(running).port}"
        fix = f"{fix} and run: openclaw-a2a connect openclaw"
    else:
        text = f"{PLUGIN_ID} calls {url or 'no address'}, and our gateway is at {running}"
        fix = "to point it here: openclaw-a2a connect openclaw"
    return _check("plugin").broken(text, fix)


# -------------------------------------------------------------------- config and command


def _check_config(
    found: OpenClawInstallation | None, agents: Mapping[AgentId, AgentSettings]
) -> list[CheckResult]:
    check = _check("config")
    if found is not None:
        if not found.is_readable:
            return [check.broken(*split_advice(found.warnings[0]))]
        notes = [check.note(*split_advice(one)) for one in found.warnings]
        return [check.ok(str(found.config_path or found.url)), *notes]
    if any(one.adapter in (OPENCLAW_ADAPTER, _COMMAND) for one in agents.values()):
        return [check.ok("not on this machine; the settings say all")]
    text = "no OpenClaw was found on this machine"
    if any(one.is_placeholder for one in agents.values()):
        text += "; an agent that echoes answers instead"
    return [check.note(text, "to add one: openclaw-a2a connect openclaw")]


class _Program(msgspec.Struct, frozen=True):
    """The command `openclaw`: where it is, and its version when it prints one."""

    path: str
    version: str = ""

    @property
    def description(self) -> str:
        """Its version and path."""
        return f"{self.version or 'version unknown'}, {self.path}"


async def _find_program(
    name: str = _COMMAND, variables: Mapping[str, str] | None = None
) -> _Program | None:
    """The command on the path, with its version; None when there is none.

    `variables` are added to our own.
    """
    environment = {**process_environment(None), **(variables or {})}
    path = shutil.which(name, path=environment.get("PATH"))
    if path is None:
        return None
    try:
        with anyio.fail_after(_PROGRAM_S):
            done = await anyio.run_process([path, "--version"], check=False, env=environment)
    except (OSError, TimeoutError):
        return _Program(path)
    found = _VERSION.search((done.stdout + done.stderr).decode("utf-8", "replace"))
    return _Program(path, found[0] if found else "")


def _is_supported(version: str) -> bool:
    """True when this OpenClaw is new enough; also when its version is unknown."""
    numbers = _VERSION.search(version)
    oldest = _VERSION.search(OLDEST_OPENCLAW)
    if numbers is None or oldest is None:
        return True
    return tuple(map(int, numbers.groups())) >= tuple(map(int, oldest.groups()))


async def _check_program() -> CheckResult:
    check, program = _check("program"), await _find_program()
    if program is None:
        return check.note("openclaw is not on the PATH; its gateway may run all the same", _INSTALL)
    if _is_supported(program.version):
        return check.ok(program.description)
    return check.broken(f"{program.description} is too old", _UPDATE)


async def _check_command_agent(
    name: AgentId, agent: AgentSettings, *, run_agents: bool
) -> list[CheckResult]:
    """An agent that runs by the command, with the program that it names."""
    try:
        options = msgspec.convert(agent.options, OpenClawCliOptions)
    except msgspec.ValidationError:
        return []  # reported with the settings already
    check = _check(f"agent {name}")
    program = await _find_program(options.openclaw_path, options.env)
    if program is None:
        text = f"the program {options.openclaw_path} was not found"
        return [check.broken(text, f"{_INSTALL}, or correct openclawPath")]
    if not run_agents:
        return [check.ok(program.description)]
    return [_turn_result(check, await _run_by_command(options, options.agent_id or name))]


async def _run_by_command(options: OpenClawCliOptions, agent_id: str) -> str:
    """Why an agent did not answer a short turn by the command; empty when it did."""
    session = CliSession(key=f"agent:{agent_id.lower()}:a2a:doctor")
    program = OpenClawRunner(options)
    try:
        async with aclosing(program.run(CliRequest(_PROMPT, session, agent_id))) as events:
            async for event in events:
                if not isinstance(event, Note):
                    parse_answer(event)
    except AgentError as error:
        return error.message
    return ""


def _turn_result(check: Check, trouble: str) -> CheckResult:
    return check.broken(*split_advice(trouble)) if trouble else check.ok("answered a turn")


# -------------------------------------------------------------------- gateways and their agents


def _gateways(agents: Mapping[AgentId, AgentSettings]) -> dict[tuple[str, str], list[str]]:
    """Each gateway by its address and token, with the ids of its agents that are offered."""
    found: dict[tuple[str, str], list[str]] = {}
    for agent in agents.values():
        try:
            options = msgspec.convert(agent.options, OpenClawGatewayOptions)
        except msgspec.ValidationError:
            continue  # reported with the settings already
        found.setdefault((options.socket_url, options.token), []).append(options.agent_id)
    return found


async def _check_gateway(
    url: str, token: str, agent_ids: Sequence[str], *, run_agents: bool
) -> list[CheckResult]:
    """The gateway answers, accepts our token, is new enough and has the agents.

    `token` is a reference (see `resolve_token`) or empty.
    """
    gateway, access = _check("gateway"), _check("token")
    agents = [(one, _check(f"agent {one}".strip())) for one in agent_ids]
    text, lacking = "", ""
    try:
        text = resolve_token(token) if token else ""
    except SettingsInvalid as error:
        lacking = error.message
    try:
        socket, hello = await _connect(GatewayAddress(url, text))
    except ConnectFailed as failure:
        why = "the gateway was not reached"
        if failure.is_starting:
            starting = gateway.note(f"{url} is starting", "look again")
            results = [starting, access.skipped("the gateway is starting")]
        elif not failure.is_final:
            results = [gateway.broken(*split_advice(failure.message)), access.skipped(why)]
        else:
            why = "the gateway did not let us in"
            refused = access.broken(*split_advice(lacking or failure.message))
            results = [gateway.ok(url), refused]
        return results + [check.skipped(why) for _, check in agents]
    try:
        version = _check("version").ok(hello.server.version or "unknown")
        if not _is_supported(hello.server.version):
            version = _check("version").broken(f"{hello.server.version} is too old", _UPDATE)
        found = await _check_agents(socket, agents, run_agents=run_agents)
        return [gateway.ok(url), access.ok("accepted"), version, *found]
    finally:
        # Shielded: an interrupted check closes too. Limited: closing is a handshake.
        with anyio.move_on_after(2.0, shield=True):
            await socket.close()


async def _connect(address: GatewayAddress) -> tuple[ClientConnection, Hello]:
    """Connect; a gateway that is starting has some time. Raises: ConnectFailed."""
    deadline = anyio.current_time() + _START_S
    while True:
        try:
            with anyio.fail_after(_CONNECT_S):
                return await open_connection(address)
        except TimeoutError:
            text = f"OpenClaw at {address.url} took too long to answer; look at its log."
            raise ConnectFailed(text) from None
        except ConnectFailed as failure:
            # A starting gateway reports that: no failure, and over in seconds.
            if not failure.is_starting or anyio.current_time() >= deadline:
                raise
        await anyio.sleep(_START_POLL_S)


async def _check_agents(
    socket: ClientConnection, agents: Sequence[tuple[str, Check]], *, run_agents: bool
) -> list[CheckResult]:
    try:
        listed = decode_agents(await _call(socket, "agents.list", {}, timeout_s=_LIST_S))
    except AgentError as error:
        return [check.broken(*split_advice(error.message)) for _, check in agents]
    known = [agent.id for agent in listed]
    results: list[CheckResult] = []
    for agent_id, check in agents:
        # Without a name the gateway's only agent is meant.
        if agent_id not in known and not (agent_id == "" and len(known) == 1):
            wanted = "has no such agent" if agent_id else "has several agents, and none is named"
            text = f"the gateway {wanted}; it has {', '.join(known) or 'none'}"
            fix = "restart the gateway, or correct openclaw.expose or the agent's agentId"
            results.append(check.broken(text, fix))
        elif agent_id and run_agents:
            results.append(_turn_result(check, await _run_turn(socket, agent_id)))
        else:
            results.append(check.ok("known to the gateway"))
    return results


async def _run_turn(socket: ClientConnection, agent_id: str) -> str:
    """Why the agent did not answer a short turn; empty when it did."""
    params: JsonObject = {
        "agentId": agent_id,
        "sessionKey": f"agent:{agent_id}:a2a:doctor",
        "message": _PROMPT,
        "idempotencyKey": str(uuid4()),
    }
    try:
        end = await _call(socket, "agent", params, timeout_s=_TURN_S)
    except AgentError as error:
        return error.message
    status = end.get("status")
    return "" if status == "ok" else f"its turn ended as {status}; look at OpenClaw's log."


async def _call(
    socket: ClientConnection, method: str, params: JsonObject, *, timeout_s: float
) -> JsonObject:
    """The last answer to a request. Raises: AgentFailed, AgentUnavailable."""
    request_id = str(uuid4())
    try:
        with anyio.fail_after(timeout_s):
            await socket.send(encode_request(request_id, method, params), text=True)
            while True:
                frame = decode_frame(await socket.recv(decode=False))
                # Events of other sessions arrive on the same connection.
                if frame is None or frame.id != request_id:
                    continue
                if not frame.ok:
                    raise request_error(method, frame.error or ErrorPayload())
                answer = decode_object(frame.payload)
                # A turn is answered twice under one id: when it is accepted, and when it has ended.
                if answer.get("status") != "accepted":
                    return answer
    except TimeoutError:
        text = f"OpenClaw did not answer {method} within {timeout_s:g} seconds; look at its log."
        raise AgentUnavailable(text) from None
    except ConnectionClosed:
        text = f"OpenClaw closed the connection instead of answering {method}; look at its log."
        raise AgentUnavailable(text) from None
