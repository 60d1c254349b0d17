"""The agents of the settings: who answers, what they are called for, and whom they may call."""

import re
from pathlib import Path

import msgspec

from openclaw_a2a.model.ids import AgentId, Json, JsonObject
from openclaw_a2a.settings.keys import AGENT_ID, AgentKeys, AgentToolKeys, names_of
from openclaw_a2a.settings.offer import Offer
from openclaw_a2a.settings.report import Report, join
from openclaw_a2a.settings.shape import AgentSettings
from openclaw_a2a.settings.skills import read_skills
from openclaw_a2a.settings.strict import read_section
from openclaw_a2a.settings.token import anchored


def read_agents(
    values: JsonObject, offer: Offer, *, folder: Path, report: Report
) -> dict[AgentId, AgentSettings]:
    """The agents in order of their ids; without any, one that stands in."""
    agents = {
        AgentId(name): _agent(name, values[name], folder=folder, report=report)
        for name in sorted(values)
    }
    for agent_id, known in offer.agents.items():
        if agent_id in agents:
            agents[agent_id] = msgspec.structs.replace(agents[agent_id], profile=known.profile)
    return agents or {AgentId("main"): AgentSettings("echo", is_stand_in=True)}


def _agent(name: str, value: Json, *, folder: Path, report: Report) -> AgentSettings:
    path = join("agents", name)
    if not re.fullmatch(AGENT_ID, name):
        report.problem(path, "an agent's id is 1 to 64 of a-z 0-9 _ -", "name")
    values = report.as_object(path, value)
    adapter = values.get("adapter")
    if not isinstance(adapter, str) or not adapter.strip():
        message = "must name who answers, such as echo or command"
        report.problem(join(path, "adapter"), message, "required")
        adapter = "echo"
    tools = read_section(
        AgentToolKeys, join(path, "tools"), value=values.get("tools", {}), report=report
    )
    return AgentSettings(
        adapter.strip(),
        _options(values, folder),
        skills=read_skills(join(path, "skills"), values.get("skills", []), report=report),
        reaches=tools.agent_to_agent.allow,
    )


def _options(values: JsonObject, folder: Path) -> JsonObject:
    """What belongs to the adapter."""
    options = {key: value for key, value in values.items() if key not in names_of(AgentKeys)}
    if isinstance(token := options.get("token"), str):
        options["token"] = anchored(token, folder)
    return options
