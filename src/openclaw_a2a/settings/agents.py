"""Reads the agents: those of the settings with their skills, and those of OpenClaw's config."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from openclaw_a2a.model.ids import AgentId, Json, JsonObject
from openclaw_a2a.model.skill import BUILT_IN, SKILL_NAME, Parameter, Skill
from openclaw_a2a.model.validation import (
    ProblemCollector,
    is_object,
    join_path,
    object_at,
    read_list,
    read_section,
)
from openclaw_a2a.settings.file_schema import (
    AGENT_ID,
    AgentKeys,
    AgentToolKeys,
    OpenClawKeys,
    names_of,
)
from openclaw_a2a.settings.files import expand_path, is_loopback
from openclaw_a2a.settings.openclaw_discovery import (
    OpenClawAgent,
    OpenClawInstallation,
    find_openclaw,
    normalize_agent_id,
)
from openclaw_a2a.settings.sections import AgentSettings
from openclaw_a2a.settings.sources import Layers
from openclaw_a2a.settings.tokens import absolute_reference

OPENCLAW_ADAPTER = "openclaw-gateway"
_DEFAULT = "default"
_ACCOUNTS = ("channels", "a2a", "accounts")
_ACCOUNT_DEFAULTS: JsonObject = {
    "agentStyle": "task-generating",
    "maxBodyBytes": 26_214_400,
    "defaultInputModes": [
        *("text/plain", "application/json", "text/*", "application/xml", "application/yaml"),
        *("image/png", "image/jpeg", "image/gif", "image/webp"),
    ],
    "defaultOutputModes": ["text/plain", "application/json", "*/*"],
}


class AgentDefaults(msgspec.Struct, frozen=True):
    """The settings with the added agents, the OpenClaw they come from, and the agents by id."""

    layers: Layers
    installation: OpenClawInstallation | None = None
    agents: dict[AgentId, OpenClawAgent] = {}


def add_openclaw_agents(
    layers: Layers, *, environ: Mapping[str, str], collector: ProblemCollector
) -> AgentDefaults:
    """Add OpenClaw's agents when the settings name no agents, or have an `openclaw` section.

    Each gets an account of its own: the default agent `default`, the others one by their id. When
    accounts are configured and there is no section, only agents that those accounts name are added.
    Configured values always win.
    """
    values = layers.values
    has_section, has_agents = "openclaw" in values, bool(values.get("agents"))
    section = read_section(
        OpenClawKeys, "openclaw", value=values.get("openclaw", {}), collector=collector
    )
    if not section.enabled or (has_agents and not has_section):
        return AgentDefaults(layers)
    found = _find(section, layers.folder, environ=environ, collector=collector)
    if found is None:
        if has_section:
            _report_not_found(section, collector)
        return AgentDefaults(layers)
    for warning in found.warnings:
        collector.warning("openclaw", warning, "openclaw")
    exposed = _exposed(found, section, collector)
    configured = object_at(values, *_ACCOUNTS)
    if configured and not has_section:
        exposed = [one for one in exposed if _is_wanted(one, configured, found)]
    added = {agent.id: agent for agent in exposed if not _is_configured(agent.id, values)}
    lower: JsonObject = {
        "agents": {name: _openclaw_options(name, found, section) for name in added}
    }
    accounts = _accounts(added, configured, found, adds=has_section or not configured)
    lower["channels"] = {"a2a": {"accounts": accounts}}
    origin = f"OpenClaw ({found.config_path or section.url})"
    return AgentDefaults(_below(layers, lower, origin), found, added)


def _find(
    section: OpenClawKeys, folder: Path, *, environ: Mapping[str, str], collector: ProblemCollector
) -> OpenClawInstallation | None:
    path = None
    if section.config_path.strip():
        try:
            path = expand_path(section.config_path.strip(), folder)
        except ValueError as error:
            collector.problem("openclaw.configPath", f"cannot be used: {error}", "path")
            return None
    if section.url and not re.fullmatch(r"(wss?|https?)://[^\s/@]+(/\S*)?", section.url):
        message = "must be an address such as ws://127.0.0.1:18789"
        collector.problem("openclaw.url", message, "format")
        return None
    if section.token and not re.match(r"(env|file):.", section.token):
        message = "must be a reference, not the token itself: write env:NAME or file:PATH"
        collector.problem("openclaw.token", message, "secret")
        return None
    found = find_openclaw(path, environ=environ)
    if found is None and section.url and not path and not isinstance(section.expose, str):
        named = dict.fromkeys(normalize_agent_id(name) for name in section.expose)
        agents = tuple(OpenClawAgent(one) for one in named if one is not None)
        return OpenClawInstallation(None, section.url, None, "token", agents)
    return found


def _report_not_found(section: OpenClawKeys, collector: ProblemCollector) -> None:
    if collector.problems:
        return
    if section.url and not section.config_path:
        message = "must name the agents, because there is no OpenClaw config to read them from"
        collector.problem("openclaw.expose", message, "required")
        return
    message = "there is no OpenClaw config there; install OpenClaw or name its config"
    collector.problem("openclaw.configPath", message, "reference")


def _exposed(
    found: OpenClawInstallation, section: OpenClawKeys, collector: ProblemCollector
) -> list[OpenClawAgent]:
    if isinstance(section.expose, str):
        return list(found.agents)
    known = {agent.id: agent for agent in found.agents}
    wanted: list[OpenClawAgent] = []
    for index, name in enumerate(section.expose):
        agent = known.get(normalize_agent_id(name) or AgentId(""))
        if agent is not None:
            wanted.append(agent)
            continue
        message = f"OpenClaw has no agent {name}; its agents are {', '.join(known) or 'none'}"
        collector.problem(f"openclaw.expose[{index}]", message, "reference")
    return wanted


def _is_configured(agent_id: AgentId, values: JsonObject) -> bool:
    """True when the settings name an adapter for this id; further options alone do not count."""
    agents = object_at(values, "agents")
    configured = agents.get(agent_id, {})
    return not is_object(configured) or "adapter" in configured


def _is_wanted(agent: OpenClawAgent, configured: JsonObject, found: OpenClawInstallation) -> bool:
    """True when a configured account uses this agent, by name or as the default."""
    named = [one.get("defaultAgentId") for one in configured.values() if is_object(one)]
    return agent.id in named or (agent == found.default_agent and None in named)


def _openclaw_options(
    agent_id: AgentId, found: OpenClawInstallation, section: OpenClawKeys
) -> JsonObject:
    options: JsonObject = {"adapter": OPENCLAW_ADAPTER, "url": section.url or found.url}
    token = section.token or _found_token(found, section)
    if token:
        options["token"] = token
    options["agentId"] = agent_id
    return options


def _found_token(found: OpenClawInstallation, section: OpenClawKeys) -> str | None:
    """The config's token, unless the URL is another machine's: that one needs its own token."""
    is_here = is_loopback(urlsplit(section.url).hostname or "localhost")
    return found.token if not section.url or is_here else None


def _accounts(
    added: dict[AgentId, OpenClawAgent],
    configured: JsonObject,
    found: OpenClawInstallation,
    *,
    adds: bool,
) -> JsonObject:
    accounts: JsonObject = {}
    if not added:
        return accounts
    first = found.default_agent.id if found.default_agent.id in added else next(iter(added))
    for name, values in configured.items():
        if is_object(values) and not values.get("defaultAgentId"):
            accounts[name] = {"defaultAgentId": first}
    served = [one.get("defaultAgentId") or first for one in configured.values() if is_object(one)]
    for agent_id in added if adds else ():
        if agent_id not in served:
            name = _account_name(agent_id, first, {*configured, *accounts})
            accounts[name] = {"defaultAgentId": agent_id, **_ACCOUNT_DEFAULTS}
    return accounts


def _account_name(agent_id: AgentId, first: AgentId, taken: set[str]) -> str:
    if agent_id == first and _DEFAULT not in taken:
        return _DEFAULT
    usual = f"openclaw-{agent_id}"[:64]
    return usual if agent_id in taken or agent_id == _DEFAULT else agent_id


def _below(layers: Layers, lower: JsonObject, origin: str) -> Layers:
    """The layers with one more below them."""
    values, origins = dict(layers.values), dict(layers.origins)
    _merge_under(values, lower, origins=origins, origin=origin)
    return Layers(values, origins, layers.path)


def _merge_under(
    above: JsonObject, below: JsonObject, *, origins: dict[str, str], origin: str, path: str = ""
) -> None:
    for key, value in below.items():
        place = join_path(path, key)
        known = above.get(key)
        if key not in above and not is_object(value):
            above[key] = value
            origins[place] = origin
        elif is_object(value) and (key not in above or is_object(known)):
            above[key] = dict(known) if is_object(known) else {}
            _merge_under(above[key], value, origins=origins, origin=origin, path=place)


def read_skills(path: str, value: Json, *, collector: ProblemCollector) -> tuple[Skill, ...]:
    """The valid skills; everything wrong with any of them is a problem."""
    skills: dict[str, Skill] = {}
    for place, found in read_list(Skill, path, value=value, collector=collector):
        skill = msgspec.structs.replace(found, name=found.name.strip())
        _check_parameters(join_path(place, "input"), skill.input, collector)
        _check_parameters(join_path(place, "output"), skill.output, collector)
        if skill.name in BUILT_IN:
            message = f"{skill.name} is answered by the gateway itself; this one is never asked"
            collector.warning(place, f"{message}, remove it", "name")
        elif _is_name(join_path(place, "name"), skill.name, skills, collector):
            skills[skill.name] = skill
    return tuple(skills.values())


def _is_name(
    path: str, name: str, others: Mapping[str, Skill], collector: ProblemCollector
) -> bool:
    if not re.fullmatch(SKILL_NAME, name):
        message = "a skill's name is 1 to 128 of a-z A-Z 0-9 _ -; call it something else"
        collector.problem(path, message, "name")
    elif name in others:
        collector.problem(path, f"{name} is declared twice; remove one or rename it", "name")
    else:
        return True
    return False


def _check_parameters(
    path: str, parameters: Mapping[str, Parameter] | None, collector: ProblemCollector
) -> None:
    for name, parameter in (parameters or {}).items():
        _check_parameter(join_path(path, name), parameter, collector)


def _check_parameter(path: str, parameter: Parameter, collector: ProblemCollector) -> None:
    """Check what the types cannot express, recursively."""
    for key, bound in (("minimum", parameter.minimum), ("maximum", parameter.maximum)):
        if bound is not None and not math.isfinite(bound):
            collector.problem(
                join_path(path, key), "must be a number; leave it out for none", "type"
            )
    if parameter.enum == ():
        collector.problem(
            join_path(path, "enum"), "allows nothing; name a value or leave it out", "enum"
        )
    if parameter.pattern is not None:
        _check_pattern(join_path(path, "pattern"), parameter.pattern, collector)
    if parameter.items is not None:
        _check_parameter(join_path(path, "items"), parameter.items, collector)
    _check_parameters(join_path(path, "properties"), parameter.properties, collector)


def _check_pattern(path: str, pattern: str, collector: ProblemCollector) -> None:
    # The library that checks inputs decides what a pattern is; it is loaded only if one is used.
    import jsonschema_rs

    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern})
    except jsonschema_rs.ValidationError:
        message = "is not a regular expression; correct it, as in ^[a-z]+$"
        collector.problem(path, message, "pattern")


def read_agents(
    values: JsonObject, offer: AgentDefaults, *, folder: Path, collector: ProblemCollector
) -> dict[AgentId, AgentSettings]:
    """The agents, sorted by id; without any, a placeholder that echoes."""
    agents = {
        AgentId(name): _agent(name, values[name], folder=folder, collector=collector)
        for name in sorted(values)
    }
    for agent_id, known in offer.agents.items():
        if agent_id in agents:
            agents[agent_id] = msgspec.structs.replace(agents[agent_id], profile=known.profile)
    return agents or {AgentId("main"): AgentSettings("echo", is_placeholder=True)}


def _agent(name: str, value: Json, *, folder: Path, collector: ProblemCollector) -> AgentSettings:
    path = join_path("agents", name)
    if not re.fullmatch(AGENT_ID, name):
        collector.problem(path, "an agent's id is 1 to 64 of a-z 0-9 _ -", "name")
    values = collector.as_object(path, value)
    adapter = values.get("adapter")
    if not isinstance(adapter, str) or not adapter.strip():
        message = "must name who answers, such as echo or command"
        collector.problem(join_path(path, "adapter"), message, "required")
        adapter = "echo"
    tools = read_section(
        AgentToolKeys, join_path(path, "tools"), value=values.get("tools", {}), collector=collector
    )
    return AgentSettings(
        adapter.strip(),
        _options(values, folder),
        skills=read_skills(
            join_path(path, "skills"), values.get("skills", []), collector=collector
        ),
        allowed_targets=tools.agent_to_agent.allow,
    )


def _options(values: JsonObject, folder: Path) -> JsonObject:
    """The options of the adapter: every key that is not ours."""
    options = {key: value for key, value in values.items() if key not in names_of(AgentKeys)}
    if isinstance(token := options.get("token"), str):
        options["token"] = absolute_reference(token, folder)
    return options
