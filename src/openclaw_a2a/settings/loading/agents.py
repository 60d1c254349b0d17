"""Reads the agents: adapter, options, the skills that others may call, and whom they may call."""

import math
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from openclaw_a2a.model.ids import AgentId, Json, JsonObject
from openclaw_a2a.model.skill import BUILT_IN, SKILL_NAME, Parameter, Skill
from openclaw_a2a.model.validation import ProblemCollector, join_path, read_list, read_section
from openclaw_a2a.settings.openclaw.agent_defaults import AgentDefaults
from openclaw_a2a.settings.schema.file_schema import AGENT_ID, AgentKeys, AgentToolKeys, names_of
from openclaw_a2a.settings.schema.sections import AgentSettings
from openclaw_a2a.settings.token_reference import absolute_reference


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
