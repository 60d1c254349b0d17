"""Checks of OpenClaw: its config, its program, its gateways and agents, and our plugin in it."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from openclaw_a2a.agents.openclaw_cli.command import OpenClawCliOptions
from openclaw_a2a.agents.openclaw_gateway.agent import OpenClawGatewayOptions
from openclaw_a2a.cli.check_result import CheckResult, CheckStatus, split_advice
from openclaw_a2a.cli.openclaw_probe import (
    Probe,
    find_program,
    is_supported,
    probe_gateway,
    run_program_turn,
)
from openclaw_a2a.model.ids import AgentId, JsonObject
from openclaw_a2a.settings import (
    AgentSettings,
    CheckedSettings,
    RunningGateway,
)
from openclaw_a2a.settings.agents import OPENCLAW_ADAPTER
from openclaw_a2a.settings.openclaw_config import OpenClawInstallation, find_openclaw
from openclaw_a2a.tools.openclaw_plugin import PLUGIN_ID, check_plugin_access, plan_installation

_COMMAND = "openclaw"
_INSTALL = "install it with: npm install -g openclaw"
_UPDATE = "update it with: openclaw update"


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


def check_plugin(examined: CheckedSettings, own: RunningGateway | None) -> list[CheckResult]:
    """OpenClaw's agents have our tools: the plugin is there, reaches us, and is let in."""
    settings, found = examined.loaded.settings, examined.loaded.openclaw or find_openclaw()
    if found is None or found.config_path is None or not found.is_readable:
        return []
    wiring = plan_installation(settings, found.config_path)
    ours = [own.address if own else wiring.options["url"], wiring.options["url"]]
    if wiring.is_linked and (elsewhere := _check_plugin_url(wiring.found.options, ours)):
        return [elsewhere]
    if wiring.is_linked:
        answer = check_plugin_access(wiring.found.options)
        if answer.problem:
            make = CheckResult.broken if answer.is_reached else CheckResult.note
            return [make("openclaw", "plugin", *split_advice(answer.problem))]
        text = f"{PLUGIN_ID} is let in: {', '.join(answer.tools) or 'no tools'}"
        return [CheckResult.ok("openclaw", "plugin", text)]
    if settings.outbound.get("enabled") is not True or not settings.tools.http:
        return []
    text = "OpenClaw's agents do not have our tools"
    fix = "to give them: openclaw-a2a connect openclaw"
    return [CheckResult.note("openclaw", "plugin", text, fix)]


def _check_plugin_url(options: JsonObject, ours: list[str]) -> CheckResult | None:
    """The plugin calls a gateway, and it is not ours: neither the one that runs, nor the next."""
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
    return CheckResult.broken("openclaw", "plugin", text, fix)


def _config(
    found: OpenClawInstallation | None, agents: Mapping[AgentId, AgentSettings]
) -> list[CheckResult]:
    if found is not None:
        notes = [
            CheckResult.note("openclaw", "config", *split_advice(one)) for one in found.warnings
        ]
        if not found.is_readable:
            return [CheckResult.broken("openclaw", "config", *split_advice(found.warnings[0]))]
        place = str(found.config_path or found.url)
        return [CheckResult.ok("openclaw", "config", place), *notes]
    if any(one.adapter in (OPENCLAW_ADAPTER, _COMMAND) for one in agents.values()):
        text = "not on this machine; the settings say all"
        return [CheckResult.ok("openclaw", "config", text)]
    text = "no OpenClaw was found on this machine"
    if any(one.is_placeholder for one in agents.values()):
        text += "; an agent that echoes answers instead"
    fix = "to add one: openclaw-a2a connect openclaw"
    return [CheckResult.note("openclaw", "config", text, fix)]


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
        return [CheckResult.broken("openclaw", check, text, f"{_INSTALL}, or correct openclawPath")]
    if not run_agents:
        return [CheckResult.ok("openclaw", check, program.description)]
    trouble = await run_program_turn(options, options.agent_id or name)
    if trouble:
        return [CheckResult.broken("openclaw", check, *split_advice(trouble))]
    return [CheckResult.ok("openclaw", check, "answered a turn")]


async def _program() -> CheckResult:
    program = await find_program()
    if program is None:
        text = "openclaw is not on the PATH; its gateway may run all the same"
        return CheckResult.note("openclaw", "program", text, _INSTALL)
    if is_supported(program.version):
        return CheckResult.ok("openclaw", "program", program.description)
    return CheckResult.broken("openclaw", "program", f"{program.description} is too old", _UPDATE)


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
    if seen.is_starting:
        starting = CheckResult.note("openclaw", "gateway", f"{url} is starting", "look again")
        return [starting, _skipped("token", "the gateway is starting")]
    if not seen.is_reached:
        reached = CheckResult.broken("openclaw", "gateway", *split_advice(seen.trouble))
        return [reached, _skipped("token", "the gateway was not reached")]
    reached = CheckResult.ok("openclaw", "gateway", url)
    if not seen.is_in:
        return [reached, CheckResult.broken("openclaw", "token", *split_advice(seen.trouble))]
    version = CheckResult.ok("openclaw", "version", seen.version or "unknown")
    if not is_supported(seen.version):
        text = f"{seen.version} is too old"
        version = CheckResult.broken("openclaw", "version", text, _UPDATE)
    return [reached, CheckResult.ok("openclaw", "token", "accepted"), version]


def _agent(agent_id: str, seen: Probe) -> CheckResult:
    name = f"agent {agent_id}".strip()
    if seen.agents is None:
        if seen.is_in:
            return CheckResult.broken("openclaw", name, *split_advice(seen.trouble))
        why = "did not let us in" if seen.is_reached else "was not reached"
        return _skipped(name, f"the gateway {why}")
    known = [agent.id for agent in seen.agents]
    # Without a name the gateway's only agent is meant.
    if agent_id not in known and not (agent_id == "" and len(known) == 1):
        wanted = "has no such agent" if agent_id else "has several agents, and none is named"
        text = f"the gateway {wanted}; it has {', '.join(known) or 'none'}"
        fix = "restart the gateway, or correct openclaw.expose or the agent's agentId"
        return CheckResult.broken("openclaw", name, text, fix)
    if agent_id not in seen.answers:
        return CheckResult.ok("openclaw", name, "known to the gateway")
    if seen.answers[agent_id]:
        return CheckResult.broken("openclaw", name, *split_advice(seen.answers[agent_id]))
    return CheckResult.ok("openclaw", name, "answered a turn")


def _skipped(check: str, why: str) -> CheckResult:
    return CheckResult("openclaw", check, CheckStatus.SKIPPED, f"not checked: {why}")
