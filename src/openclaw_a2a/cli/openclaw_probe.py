"""Looks at an OpenClaw from outside, once: its program, its gateway, its token, its agents."""

import re
import shutil
from collections.abc import Mapping
from contextlib import aclosing
from uuid import uuid4

import anyio
import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from openclaw_a2a.agents.openclaw_cli.answer import parse_answer
from openclaw_a2a.agents.openclaw_cli.command import CliRequest, CliSession, OpenClawCliOptions
from openclaw_a2a.agents.openclaw_cli.runner import OpenClawRunner
from openclaw_a2a.agents.openclaw_gateway.agent_directory import GatewayAgent, decode_agents
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
from openclaw_a2a.model.agent_event import Note
from openclaw_a2a.model.errors import AgentError, AgentUnavailable, SettingsInvalid
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.settings.sources import process_environment
from openclaw_a2a.settings.tokens import resolve_token

_CONNECT_S = 6.0
_START_S = 20.0
_START_POLL_S = 0.3
_LIST_S = 10.0
_TURN_S = 120.0
_PROGRAM_S = 30.0
_PROMPT = "Answer with one word: ready."
_VERSION = re.compile(r"\b(\d{4})\.(\d{1,2})\.(\d{1,3})\b")


class Program(msgspec.Struct, frozen=True):
    """The command `openclaw`: where it is, and its version when it prints one."""

    path: str
    version: str = ""

    @property
    def description(self) -> str:
        """Its version and path."""
        return f"{self.version or 'version unknown'}, {self.path}"


class Probe(msgspec.Struct, frozen=True):
    """What a gateway let us see. `trouble` says why there is no more, and what to do.

    `is_reached` is true when something that speaks as a gateway answered, `is_in` when it let us
    in; `is_starting` when it was not ready in time; `agents` is None when it would not list them.
    """

    is_reached: bool = False
    is_in: bool = False
    is_starting: bool = False
    version: str = ""
    agents: tuple[GatewayAgent, ...] | None = None
    trouble: str = ""
    answers: dict[str, str] = {}
    """With a real turn: for each agent that ran one, why it did not answer; empty when it did."""


async def find_program(
    name: str = "openclaw", variables: Mapping[str, str] | None = None
) -> Program | None:
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
        return Program(path)
    found = _VERSION.search((done.stdout + done.stderr).decode("utf-8", "replace"))
    return Program(path, found[0] if found else "")


async def run_program_turn(options: OpenClawCliOptions, agent_id: str) -> str:
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


def is_supported(version: str) -> bool:
    """True when this OpenClaw is new enough; also when its version is unknown."""
    numbers = _VERSION.search(version)
    oldest = _VERSION.search(OLDEST_OPENCLAW)
    if numbers is None or oldest is None:
        return True
    return tuple(map(int, numbers.groups())) >= tuple(map(int, oldest.groups()))


async def probe_gateway(url: str, token: str, *, turn_agents: tuple[str, ...] = ()) -> Probe:
    """Connect, list the agents and (for those in `turn_agents`) have each answer one short turn.

    `token` is a reference (see `read_token`) or empty.
    """
    text, lacking = "", ""
    try:
        text = resolve_token(token) if token else ""
    except SettingsInvalid as error:
        lacking = error.message
    deadline = anyio.current_time() + _START_S
    while True:
        try:
            with anyio.fail_after(_CONNECT_S):
                socket, hello = await open_connection(GatewayAddress(url, text))
            break
        except TimeoutError:
            return Probe(trouble=f"OpenClaw at {url} took too long to answer; look at its log.")
        except ConnectFailed as failure:
            # A gateway that is starting says so: that is no fault, and over in seconds.
            if failure.is_starting and anyio.current_time() < deadline:
                await anyio.sleep(_START_POLL_S)
                continue
            if failure.is_starting:
                return Probe(is_starting=True, trouble=failure.message)
            trouble = (failure.is_final and lacking) or failure.message
            return Probe(is_reached=failure.is_final, trouble=trouble)
    try:
        return await _list_and_ask(socket, hello, turn_agents)
    finally:
        # Shielded: an interrupted check closes too. Limited: closing is a handshake.
        with anyio.move_on_after(2.0, shield=True):
            await socket.close()


async def _list_and_ask(
    socket: ClientConnection, hello: Hello, turn_agents: tuple[str, ...]
) -> Probe:
    seen = Probe(is_reached=True, is_in=True, version=hello.server.version)
    try:
        agents = decode_agents(await _call(socket, "agents.list", {}, timeout_s=_LIST_S))
    except AgentError as error:
        return msgspec.structs.replace(seen, trouble=error.message)
    answers = {agent_id: await _turn(socket, agent_id) for agent_id in turn_agents}
    return msgspec.structs.replace(seen, agents=agents, answers=answers)


async def _turn(socket: ClientConnection, agent_id: str) -> str:
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
                # Events of other sessions come on the same connection.
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
