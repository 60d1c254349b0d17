"""The agents of an OpenClaw gateway: their ids, names, descriptions and workspaces."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.model.card import AgentProfile, AgentSkill
from openclaw_a2a.model.errors import AgentError, AgentUnavailable
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.validation import as_list, as_object

_TIMEOUT_S: Final = 15.0
_MAX_AGENTS: Final = 1000
_MAX_CHARACTERS: Final = 2000
_MODEL_PREFIX: Final = "openclaw/"
_DEFAULT_MODEL: Final = "openclaw/default"  # an alias of whichever agent is the default


class GatewayAgent(JsonStruct, frozen=True):
    """One agent of a gateway, as far as the gateway describes it."""

    id: str
    name: str = ""
    description: str = ""
    workspace: str = ""

    @property
    def profile(self) -> AgentProfile:
        """Its name, description and skill on an agent card."""
        name = self.name or self.id
        description = self.description or f"The OpenClaw agent {name}."
        skill = AgentSkill(id="chat", name=name, description=description, tags=("openclaw", "chat"))
        return AgentProfile(name=name, description=description, skills=(skill,))


class OpenClawAgents:
    """The agents of one gateway, cached from the last `agents.list`."""

    def __init__(self) -> None:
        self.agents: tuple[GatewayAgent, ...] = ()

    def find(self, agent_id: str) -> GatewayAgent | None:
        """The agent with this id, if the gateway has it."""
        wanted = agent_id.lower()
        return next((agent for agent in self.agents if agent.id.lower() == wanted), None)

    def workspace(self, agent_id: str) -> str:
        """The agent's workspace folder; empty when it is not known."""
        known = self.find(agent_id)
        return known.workspace if known is not None else ""

    async def refresh(self, connection: GatewayConnection) -> None:
        """Read the list again; the known one stays when the gateway does not answer."""
        with suppress(AgentError):
            self.agents = await list_agents(connection)


async def list_agents(connection: GatewayConnection) -> tuple[GatewayAgent, ...]:
    """The gateway's agents, its default first. Raises: AgentUnavailable, AgentFailed."""
    return decode_agents(await connection.call("agents.list", {}, timeout_s=_TIMEOUT_S))


def only_agent(agents: Sequence[GatewayAgent], url: str) -> str:
    """The id of the only agent. Raises: AgentUnavailable when there are none or several."""
    if len(agents) == 1:
        return agents[0].id
    known = ", ".join(agent.id for agent in agents)
    found = f"has several agents ({known})" if known else "does not tell which agents it has"
    raise AgentUnavailable(
        f"OpenClaw at {url} {found}; say which one is meant with the agent's option agentId."
    )


def decode_agents(response: Json) -> tuple[GatewayAgent, ...]:
    """The agents in a response to `agents.list`; what cannot be decoded is left out."""
    default = _text(response, "defaultId")
    found: dict[str, GatewayAgent] = {}
    for entry in _entries(response, "agents"):
        identity = as_object(entry.get("identity"))
        agent_id = _text(entry, "id")
        # The theme of an identity is a phrase (`space lobster`), not a sentence.
        theme = _text(identity, "theme")
        described = _text(entry, "description") or _text(identity, "description")
        if agent_id:
            found[agent_id] = GatewayAgent(
                id=agent_id,
                name=_text(identity, "name") or _text(entry, "name"),
                description=described or (f"An OpenClaw agent: {theme}." if theme else ""),
                workspace=_text(entry, "workspace"),
            )
    return tuple(sorted(found.values(), key=lambda agent: agent.id != default))


def decode_models(response: Json) -> tuple[GatewayAgent, ...]:
    """The agents in a response to `GET /v1/models`; what cannot be decoded is left out."""
    names = [_text(entry, "id") for entry in _entries(response, "data")]
    models = [one for one in names if one.startswith(_MODEL_PREFIX) and one != _DEFAULT_MODEL]
    ids = dict.fromkeys(name.removeprefix(_MODEL_PREFIX) for name in models)
    return tuple(GatewayAgent(agent_id) for agent_id in ids if agent_id)


def _entries(response: Json, name: str) -> list[JsonObject]:
    entries = as_list(as_object(response).get(name))
    return [as_object(one) for one in entries[:_MAX_AGENTS]]


def _text(members: Json, name: str) -> str:
    value = as_object(members).get(name)
    return " ".join(value.split())[:_MAX_CHARACTERS] if isinstance(value, str) else ""
