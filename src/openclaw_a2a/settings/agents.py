"""Reads the agents: those of the settings with their skills, and those of OpenClaw's config."""

import math
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from openclaw_a2a.model.ids import AgentId, Json, JsonObject
from openclaw_a2a.model.skill import BUILT_IN_SKILLS, SKILL_NAME, Parameter, Skill
from openclaw_a2a.model.validation import (
    ProblemCollector,
    is_list,
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
from openclaw_a2a.settings.files import is_loopback
from openclaw_a2a.settings.openclaw_config import (
    OpenClawAgent,
    OpenClawInstallation,
    find_openclaw,
    normalize_agent_id,
)
from openclaw_a2a.settings.sections import AgentSettings
from openclaw_a2a.settings.sources import SettingsReader
from openclaw_a2a.settings.tokens import absolute_reference, is_reference, warn_if_shared

OPENCLAW_ADAPTER = "openclaw-gateway"
_DEFAULT = "default"
_ACCOUNT_DEFAULTS: JsonObject = {
    "agentStyle": "task-generating",
    "maxBodyBytes": 26_214_400,
    "defaultInputModes": [
        *("text/plain", "application/json", "text/*", "application/xml", "application/yaml"),
        *("image/png", "image/jpeg", "image/gif", "image/webp"),
    ],
    "defaultOutputModes": ["text/plain", "application/json", "*/*"],
}


class AddedAgents(msgspec.Struct, frozen=True):
    """The OpenClaw whose agents were added to the settings, and these agents by id."""

    installation: OpenClawInstallation | None = None
    agents: dict[AgentId, OpenClawAgent] = {}


def add_openclaw_agents(reader: SettingsReader) -> AddedAgents:
    """Add OpenClaw's agents when the settings name no agents, or have an `openclaw` section.

    Each gets an account of its own: the default agent `default`, the others one by their id. When
    accounts are configured and there is no section, only agents that those accounts name are added.
    Configured values always win.
    """
    values = reader.values
    has_section, has_agents = "openclaw" in values, bool(values.get("agents"))
    section = reader.read_section(OpenClawKeys, "openclaw")
    if not section.enabled or (has_agents and not has_section):
        return AddedAgents()
    found = _find(section, reader)
    if found is None:
        if has_section and not reader.problems:
            _report_not_found(section, reader)
        return AddedAgents()
    for warning in found.warnings:
        reader.warning("openclaw", warning, "openclaw")
    exposed = _exposed(found, section, reader)
    configured = object_at(values, "channels", "a2a", "accounts")
    if configured and not has_section:
        # Only agents that an account uses, by name or as the default.
        named = [one.get("defaultAgentId") for one in configured.values() if is_object(one)]
        default = found.default_agent if None in named else None
        exposed = [one for one in exposed if one.id in named or one == default]
    agents = object_at(values, "agents")
    added: dict[AgentId, OpenClawAgent] = {}
    for agent in exposed:
        options = agents.get(agent.id, {})
        if is_object(options) and "adapter" not in options:  # further options may be configured
            added[agent.id] = agent
    accounts = _accounts(added, configured, found, adds=has_section or not configured)
    lower: JsonObject = {
        "agents": {name: _openclaw_options(name, found, section) for name in added},
        "channels": {"a2a": {"accounts": accounts}},
    }
    reader.add_defaults(lower, f"OpenClaw ({found.config_path or section.url})")
    return AddedAgents(found, added)


def _find(section: OpenClawKeys, reader: SettingsReader) -> OpenClawInstallation | None:
    path = None
    if section.config_path.strip():
        path = reader.read_path("openclaw.configPath", section.config_path)
        if path is None:
            return None
    if section.url and not re.fullmatch(r"(wss?|https?)://[^\s/@]+(/\S*)?", section.url):
        message = "must be an address such as ws://127.0.0.1:18789"
        reader.problem("openclaw.url", message, "format")
        return None
    if section.token and not is_reference("openclaw.token", section.token, reader):
        return None
    found = find_openclaw(path, environ=reader.environ)
    if found is None and section.url and not path and not isinstance(section.expose, str):
        named = dict.fromkeys(normalize_agent_id(name) for name in section.expose)
        agents = tuple(OpenClawAgent(one) for one in named if one is not None)
        return OpenClawInstallation(None, section.url, None, "token", agents)
    return found


def _report_not_found(section: OpenClawKeys, collector: ProblemCollector) -> None:
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


def _openclaw_options(
    agent_id: AgentId, found: OpenClawInstallation, section: OpenClawKeys
) -> JsonObject:
    # The token of the config is for its own gateway; one on another machine needs its own.
    is_here = not section.url or is_loopback(urlsplit(section.url).hostname or "localhost")
    token = section.token or (found.token if is_here else None)
    options: JsonObject = {"adapter": OPENCLAW_ADAPTER, "url": section.url or found.url}
    return {**options, **({"token": token} if token else {}), "agentId": agent_id}


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
            taken = {*configured, *accounts}
            name = f"openclaw-{agent_id}"[:64]
            if agent_id == first and _DEFAULT not in taken:
                name = _DEFAULT
            elif agent_id not in taken and agent_id != _DEFAULT:
                name = agent_id
            accounts[name] = {"defaultAgentId": agent_id, **_ACCOUNT_DEFAULTS}
    return accounts


def _read_skills(path: str, value: Json, collector: ProblemCollector) -> tuple[Skill, ...]:
    """The valid skills; everything wrong with any of them is a problem."""
    skills: dict[str, Skill] = {}
    for place, found in read_list(Skill, path, value=value, collector=collector):
        name = found.name.strip()
        _check_parameters(join_path(place, "input"), found.input, collector)
        _check_parameters(join_path(place, "output"), found.output, collector)
        if name in BUILT_IN_SKILLS:
            message = f"{name} is answered by the gateway itself; this one is never asked"
            collector.warning(place, f"{message}, remove it", "name")
        elif not re.fullmatch(SKILL_NAME, name):
            message = "a skill's name is 1 to 128 of a-z A-Z 0-9 _ -; call it something else"
            collector.problem(join_path(place, "name"), message, "name")
        elif name in skills:
            message = f"{name} is declared twice; remove one or rename it"
            collector.problem(join_path(place, "name"), message, "name")
        else:
            skills[name] = msgspec.structs.replace(found, name=name)
    return tuple(skills.values())


def _check_parameters(
    path: str, parameters: Mapping[str, Parameter] | None, collector: ProblemCollector
) -> None:
    """Check what the types cannot express, recursively."""
    for name, parameter in (parameters or {}).items():
        place = join_path(path, name)
        for key, bound in (("minimum", parameter.minimum), ("maximum", parameter.maximum)):
            if bound is not None and not math.isfinite(bound):
                message = "must be a number; leave it out for none"
                collector.problem(join_path(place, key), message, "type")
        if parameter.enum == ():
            message = "allows nothing; name a value or leave it out"
            collector.problem(join_path(place, "enum"), message, "enum")
        if parameter.pattern is not None:
            _check_pattern(join_path(place, "pattern"), parameter.pattern, collector)
        if parameter.items is not None:
            _check_parameters(place, {"items": parameter.items}, collector)
        _check_parameters(join_path(place, "properties"), parameter.properties, collector)


def _check_pattern(path: str, pattern: str, collector: ProblemCollector) -> None:
    # The library that checks inputs decides what a pattern is; it is loaded only if one is used.
    import jsonschema_rs

    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern})
    except jsonschema_rs.ValidationError:
        message = "is not a regular expression; correct it, as in ^[a-z]+$"
        collector.problem(path, message, "pattern")


def read_agents(reader: SettingsReader, known: AddedAgents) -> dict[AgentId, AgentSettings]:
    """The agents, sorted by id; without any, a placeholder that echoes."""
    values = reader.read_object("agents")
    agents = {AgentId(name): _agent(name, values[name], reader) for name in sorted(values)}
    for agent_id, one in known.agents.items():
        if agent_id in agents:
            agents[agent_id] = msgspec.structs.replace(agents[agent_id], profile=one.profile)
    return agents or {AgentId("main"): AgentSettings("echo", is_placeholder=True)}


def _agent(name: str, value: Json, reader: SettingsReader) -> AgentSettings:
    path = join_path("agents", name)
    if not re.fullmatch(AGENT_ID, name):
        reader.problem(path, "an agent's id is 1 to 64 of a-z 0-9 _ -", "name")
    values = reader.as_object(path, value)
    adapter = values.get("adapter")
    if not isinstance(adapter, str) or not adapter.strip():
        message = "must name who answers, such as echo or command"
        reader.problem(join_path(path, "adapter"), message, "required")
        adapter = "echo"
    tools = read_section(
        AgentToolKeys, join_path(path, "tools"), value=values.get("tools", {}), collector=reader
    )
    skills = _read_skills(join_path(path, "skills"), values.get("skills", []), reader)
    replicas = values.get("replicas", [])
    if not is_list(replicas) or not all(isinstance(one, str) and one for one in replicas):
        message = "must be a list of names (store.replicaName)"
        reader.problem(join_path(path, "replicas"), message, "type")
        replicas = []
    without_replica = values.get("whenNoReplica", "refuse")
    if without_replica not in {"refuse", "queue"}:
        reader.problem(join_path(path, "whenNoReplica"), 'must be "refuse" or "queue"', "enum")
    # Every key that is not ours is an option of the adapter.
    options = {key: value for key, value in values.items() if key not in names_of(AgentKeys)}
    if isinstance(token := options.get("token"), str):
        options["token"] = absolute_reference(token, reader.folder)
        warn_if_shared(join_path(path, "token"), options["token"], reader)
    return AgentSettings(
        adapter.strip(),
        options,
        skills=skills,
        allowed_targets=tools.agent_to_agent.allow,
        folder=reader.folder,
        replicas=tuple(str(one) for one in replicas),
        when_no_replica="queue" if without_replica == "queue" else "refuse",
    )
