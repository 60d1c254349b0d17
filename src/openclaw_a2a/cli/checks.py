"""Looks for what keeps the gateway from working: checks as data, each with what to do about it."""

import os
import platform
import sys
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path

import anyio.to_thread
import httpx2
import msgspec
from rich.table import Table
from rich.text import Text

from openclaw_a2a.agents.openclaw_cli.command import OpenClawCliOptions
from openclaw_a2a.agents.openclaw_gateway.agent import OpenClawGatewayOptions
from openclaw_a2a.app.lifecycle import listen
from openclaw_a2a.cli.openclaw_probe import (
    Probe,
    find_program,
    is_supported,
    probe_gateway,
    run_program_turn,
)
from openclaw_a2a.cli.render.terminal import (
    print_data,
    print_page,
    strip_control_characters,
    styled_text,
)
from openclaw_a2a.model.errors import (
    GatewayError,
    PortTaken,
    Problem,
    StoreLocked,
)
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.net.http_client import SyncHttpClient
from openclaw_a2a.settings import (
    AgentSettings,
    CheckedSettings,
    ServerSettings,
    StoreKind,
    StoreSettings,
    base_url,
)
from openclaw_a2a.settings.agents import OPENCLAW_ADAPTER
from openclaw_a2a.settings.openclaw_discovery import OpenClawInstallation, find_openclaw
from openclaw_a2a.store import create_store
from openclaw_a2a.tools.openclaw_plugin import PLUGIN_ID, check_plugin_access, plan_installation


class CheckStatus(Enum):
    """How a check ended."""

    OK = "ok"
    NOTE = "note"
    BROKEN = "broken"
    SKIPPED = "skipped"


class CheckResult(JsonStruct, frozen=True, omit_defaults=False):
    """What one check found; `fix` is the next step when there is one."""

    group: str
    name: str = msgspec.field(name="check")
    status: CheckStatus = msgspec.field(name="verdict")
    detail: str
    fix: str = ""


_OLDEST_PYTHON = (3, 11)
_ANSWER_S = 2.0
_MOST_BYTES = 4096
_COMMAND = "openclaw"
_INSTALL = "install it with: npm install -g openclaw"


async def run_checks(
    examined: CheckedSettings, problems: tuple[Problem, ...], run_agents: bool
) -> list[CheckResult]:
    """Every check. `problems` are all those of the settings; with `run_agents` each runs a turn."""
    settings = examined.loaded.settings
    stores = dict.fromkeys(
        [settings.store, *(one.task_store for one in settings.accounts if one.task_store)]
    )
    return [
        check_python(),
        *check_settings_file(examined, problems),
        *[await check_store(one) for one in stores],
        await anyio.to_thread.run_sync(check_port, settings.server),
        *await check_openclaw(examined, run_agents=run_agents),
        *await anyio.to_thread.run_sync(check_plugin, examined),
    ]


def check_python() -> CheckResult:
    """The interpreter is new enough."""
    is_new = sys.version_info[:2] >= _OLDEST_PYTHON
    return CheckResult(
        "gateway",
        "python",
        CheckStatus.OK if is_new else CheckStatus.BROKEN,
        platform.python_version(),
        "" if is_new else "install Python 3.11 or newer",
    )


def check_settings_file(
    examined: CheckedSettings, problems: tuple[Problem, ...]
) -> list[CheckResult]:
    """Every problem and warning of the settings."""
    loaded = examined.loaded
    found = [
        CheckResult(
            "gateway", "settings", CheckStatus.BROKEN, f"{one.path}: {one.message}", _CORRECT
        )
        for one in loaded.invalid(problems).problems
    ]
    found += [
        CheckResult("gateway", "settings", CheckStatus.NOTE, f"{one.path}: {one.message}")
        for one in loaded.warnings
        if one.path != "openclaw"
    ]
    where = str(loaded.path) if loaded.path else "none written; the defaults are used"
    return found or [CheckResult("gateway", "settings", CheckStatus.OK, where)]


_CORRECT = "correct it, then look again with: openclaw-a2a config check"


async def check_store(settings: StoreSettings) -> CheckResult:
    """The store can be opened and written; nothing in it is changed."""
    if settings.kind is StoreKind.MEMORY or settings.path is None:
        return _store(CheckStatus.NOTE, "in memory; nothing survives a stop", "set store.kind")
    path = settings.path
    shown = f"{settings.kind.value}, {path}"
    if not path.exists():
        return _place_for(path, shown)
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        return _store(CheckStatus.BROKEN, f"{shown} cannot be written", f"chown or chmod {path}")
    try:
        steps = await anyio.to_thread.run_sync(_pending, settings)
        if steps:
            text = f"{shown} has an older schema; the next start upgrades it"
            return _store(
                CheckStatus.NOTE, text, "see it first with: openclaw-a2a db upgrade --plan"
            )
        await _open(settings)
    except StoreLocked:
        return _store(CheckStatus.OK, f"{shown}, in use by a gateway that runs")
    except GatewayError as error:
        detail, _ = _split(error.message)
        fix = "move the file away, or use another with store.path"
        return _store(CheckStatus.BROKEN, f"{settings.kind.value}: {detail}", fix)
    return _store(CheckStatus.OK, shown)


def _store(verdict: CheckStatus, detail: str, fix: str = "") -> CheckResult:
    return CheckResult("gateway", "store", verdict, detail, fix)


def _place_for(path: Path, shown: str) -> CheckResult:
    """The store is made by the first start: there must be a folder that takes it."""
    folder = next((one for one in path.parents if one.exists()), path.parent)
    if os.access(folder, os.W_OK):
        return _store(CheckStatus.OK, f"{shown}, made by the first start")
    return _store(CheckStatus.BROKEN, f"{folder} cannot be written", "set data to another folder")


def _pending(settings: StoreSettings) -> list[str]:
    if settings.kind is not StoreKind.SQLITE or settings.path is None:
        return []
    from openclaw_a2a.store.sqlite import migrate

    return migrate.plan_upgrade(settings.path)


async def _open(settings: StoreSettings) -> None:
    store = create_store(settings.kind.value, path=str(settings.path))
    await store.open()
    try:
        await store.check()
    finally:
        await store.close()


def check_port(server: ServerSettings) -> CheckResult:
    """The port is free, or our own gateway has it."""
    place = f"{server.host}:{server.port}"
    if server.port == 0:
        return CheckResult("gateway", "port", CheckStatus.OK, "any free port")
    try:
        listen(server.host, server.port).close()
    except PortTaken as error:
        version = _gateway_version(server)
        if version is not None:
            text = f"{place}, a gateway runs there (version {version})"
            return CheckResult("gateway", "port", CheckStatus.OK, text)
        fix = "stop what listens there, or set server.port"
        return CheckResult(
            "gateway", "port", CheckStatus.BROKEN, error.message.partition(";")[0], fix
        )
    except (OSError, OverflowError) as error:
        return CheckResult(
            "gateway", "port", CheckStatus.BROKEN, f"{place}: {error}", "set server.host"
        )
    return CheckResult("gateway", "port", CheckStatus.OK, f"{place} is free")


def _gateway_version(server: ServerSettings) -> str | None:
    """The version of the gateway that answers there; None when it is none of ours."""
    url = f"{base_url(server.host, server.port)}/healthz"
    try:
        with SyncHttpClient(timeout=_ANSWER_S, max_response_bytes=_MOST_BYTES) as http:
            body = http.get(url).raise_for_status().content
        answer = msgspec.json.decode(body, type=dict[str, str])
    except (httpx2.HTTPError, httpx2.InvalidURL, msgspec.MsgspecError):
        return None
    return answer.get("version") if answer.get("status") == "ok" else None


async def check_openclaw(examined: CheckedSettings, *, run_agents: bool) -> list[CheckResult]:
    """OpenClaw: its config, its program, and every gateway and command that agents use."""
    settings = examined.loaded.settings
    found = examined.loaded.openclaw or find_openclaw()
    ours = {name: one for name, one in settings.agents.items() if one.adapter == OPENCLAW_ADAPTER}
    by_command = {name: one for name, one in settings.agents.items() if one.adapter == _COMMAND}
    findings = _config(found, settings.agents)
    for name, agent in by_command.items():
        findings += await _by_command(name, agent, run_agents=run_agents)
    if not ours and (found is None or by_command):
        return findings
    findings.append(await _program())
    for (url, token), agents in _gateways(ours).items():
        turn_agents = tuple(filter(None, agents)) if run_agents else ()
        seen = await probe_gateway(url, token, turn_agents=turn_agents)
        findings += [*_gateway(url, seen), *[_agent(one, seen) for one in agents]]
    return findings


def check_plugin(examined: CheckedSettings) -> list[CheckResult]:
    """OpenClaw's agents have our tools: the plugin is there, reaches us, and is let in."""
    settings, found = examined.loaded.settings, examined.loaded.openclaw or find_openclaw()
    if found is None or found.config_path is None or not found.is_readable:
        return []
    wiring = plan_installation(settings, found.config_path)
    is_wanted = settings.outbound.get("enabled") is True and settings.tools.http
    if wiring.is_linked:
        answer = check_plugin_access(wiring.found.options)
        if answer.problem:
            verdict = CheckStatus.BROKEN if answer.is_reached else CheckStatus.NOTE
            return [CheckResult("openclaw", "plugin", verdict, *_split(answer.problem))]
        offered = ", ".join(answer.tools) or "no tools"
        return [
            CheckResult("openclaw", "plugin", CheckStatus.OK, f"{PLUGIN_ID} is let in: {offered}")
        ]
    if not is_wanted:
        return []
    words = "OpenClaw's agents do not have our tools"
    fix = "to give them: openclaw-a2a connect openclaw"
    return [CheckResult("openclaw", "plugin", CheckStatus.NOTE, words, fix)]


def _config(
    found: OpenClawInstallation | None, agents: Mapping[AgentId, AgentSettings]
) -> list[CheckResult]:
    if found is not None:
        if not found.is_readable:
            return [
                CheckResult("openclaw", "config", CheckStatus.BROKEN, *_split(found.warnings[0]))
            ]
        notes = [
            CheckResult("openclaw", "config", CheckStatus.NOTE, *_split(one))
            for one in found.warnings
        ]
        place = str(found.config_path or found.url)
        return [CheckResult("openclaw", "config", CheckStatus.OK, place), *notes]
    if any(one.adapter in (OPENCLAW_ADAPTER, _COMMAND) for one in agents.values()):
        words = "not on this machine; the settings say all"
        return [CheckResult("openclaw", "config", CheckStatus.OK, words)]
    words = "no OpenClaw was found on this machine"
    if any(one.is_placeholder for one in agents.values()):
        words += "; an agent that echoes answers instead"
    fix = "to add one: openclaw-a2a connect openclaw"
    return [CheckResult("openclaw", "config", CheckStatus.NOTE, words, fix)]


async def _by_command(
    name: AgentId, agent: AgentSettings, *, run_agents: bool
) -> list[CheckResult]:
    """An agent that runs by the command, with the program that it names."""
    try:
        options = msgspec.convert(agent.options, OpenClawCliOptions)
    except msgspec.ValidationError:
        return []  # reported with the settings already
    check = f"agent {name}"
    program = await find_program(options.openclaw_path, options.env)
    if program is None:
        text = f"the program {options.openclaw_path} was not found"
        fix = f"{_INSTALL}, or correct openclawPath"
        return [CheckResult("openclaw", check, CheckStatus.BROKEN, text, fix)]
    if not run_agents:
        shown = f"{program.version or 'version unknown'}, {program.path}"
        return [CheckResult("openclaw", check, CheckStatus.OK, shown)]
    trouble = await run_program_turn(options, options.agent_id or name)
    if trouble:
        return [CheckResult("openclaw", check, CheckStatus.BROKEN, *_split(trouble))]
    return [CheckResult("openclaw", check, CheckStatus.OK, "answered a turn")]


async def _program() -> CheckResult:
    program = await find_program()
    if program is None:
        text = "openclaw is not on the PATH; its gateway may run all the same"
        return CheckResult("openclaw", "program", CheckStatus.NOTE, text, _INSTALL)
    shown = f"{program.version or 'version unknown'}, {program.path}"
    if not is_supported(program.version):
        fix = "update it with: openclaw update"
        return CheckResult("openclaw", "program", CheckStatus.BROKEN, f"{shown} is too old", fix)
    return CheckResult("openclaw", "program", CheckStatus.OK, shown)


def _gateways(agents: Mapping[AgentId, AgentSettings]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Each gateway by its address and token, with the ids of its agents that are offered."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for agent in agents.values():
        try:
            options = msgspec.convert(agent.options, OpenClawGatewayOptions)
        except msgspec.ValidationError:
            continue  # reported with the settings already
        key = options.socket_url, options.token
        found[key] = (*found.get(key, ()), options.agent_id)
    return found


def _gateway(url: str, seen: Probe) -> list[CheckResult]:
    detail, fix = _split(seen.trouble)
    if not seen.is_reached:
        reached = CheckResult("openclaw", "gateway", CheckStatus.BROKEN, detail, fix)
        return [reached, _skipped("token", "the gateway was not reached")]
    reached = CheckResult("openclaw", "gateway", CheckStatus.OK, url)
    if not seen.is_in:
        return [reached, CheckResult("openclaw", "token", CheckStatus.BROKEN, detail, fix)]
    version = CheckResult("openclaw", "version", CheckStatus.OK, seen.version or "unknown")
    if not is_supported(seen.version):
        text, step = f"{seen.version} is too old", "update it with: openclaw update"
        version = CheckResult("openclaw", "version", CheckStatus.BROKEN, text, step)
    return [reached, CheckResult("openclaw", "token", CheckStatus.OK, "accepted"), version]


def _agent(agent_id: str, seen: Probe) -> CheckResult:
    name = f"agent {agent_id}".strip()
    if seen.agents is None:
        detail, fix = _split(seen.trouble)
        if seen.is_in:
            return CheckResult("openclaw", name, CheckStatus.BROKEN, detail, fix)
        why = "did not let us in" if seen.is_reached else "was not reached"
        return _skipped(name, f"the gateway {why}")
    known = [agent.id for agent in seen.agents]
    # Without a name the gateway's only agent is meant.
    if agent_id not in known and not (agent_id == "" and len(known) == 1):
        wanted = "has no such agent" if agent_id else "has several agents, and none is named"
        text = f"the gateway {wanted}; it has {', '.join(known) or 'none'}"
        fix = "restart the gateway, or correct openclaw.expose or the agent's agentId"
        return CheckResult("openclaw", name, CheckStatus.BROKEN, text, fix)
    if agent_id not in seen.answers:
        return CheckResult("openclaw", name, CheckStatus.OK, "known to the gateway")
    if seen.answers[agent_id]:
        return CheckResult("openclaw", name, CheckStatus.BROKEN, *_split(seen.answers[agent_id]))
    return CheckResult("openclaw", name, CheckStatus.OK, "answered a turn")


def _skipped(check: str, why: str) -> CheckResult:
    return CheckResult("openclaw", check, CheckStatus.SKIPPED, f"not checked: {why}")


def _split(sentence: str) -> tuple[str, str]:
    """What is the case, and what to do about it, from a sentence that says both."""
    detail, _, fix = sentence.rstrip(".").rpartition("; ")
    return (detail, fix) if detail else (fix, "")


_MARKS = {
    CheckStatus.OK: ("✓", "+", "green"),
    CheckStatus.NOTE: ("!", "!", "yellow"),
    CheckStatus.BROKEN: ("✗", "x", "red"),
    CheckStatus.SKIPPED: ("·", "-", "dim"),
}


def print_checks(results: Iterable[CheckResult]) -> None:
    """Print results by group; on a terminal, details wrap within their column."""
    rows = list(results)
    width = max(len(row.name) for row in rows)
    group = None
    for row in rows:
        if row.group != group:
            print_data(("" if group is None else "\n") + row.group)
            group = row.group
        print_page([_line(row, width)])


def summarize_checks(results: Iterable[CheckResult]) -> str:
    """How many problems and notes there are, in one line."""
    statuses = [one.status for one in results]
    broken, notes = statuses.count(CheckStatus.BROKEN), statuses.count(CheckStatus.NOTE)
    if not broken and not notes:
        return "Everything is in order."
    words = [_count(broken, "problem"), _count(notes, "note")]
    return f"{', '.join(word for word in words if word)}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}" if number else ""


def _line(row: CheckResult, width: int) -> Table:
    pretty, plain, style = _MARKS[row.status]
    text = styled_text(row.detail)
    for line in strip_control_characters(row.fix).splitlines():
        text.append(f"\n{line}", "dim")
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(width=4 + width, no_wrap=True)
    table.add_column(overflow="fold")
    mark = Text.assemble("  ", (pretty if _can_print(pretty) else plain, style), f" {row.name}")
    table.add_row(mark, text)
    return table


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
