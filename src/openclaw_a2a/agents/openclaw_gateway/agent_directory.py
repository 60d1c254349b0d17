"""The agents of an OpenClaw gateway: their ids, names, descriptions and workspaces."""

from collections.abc import Sequence
from typing import Final

import httpx2
import msgspec

from openclaw_a2a.agents.openclaw_gateway.connect import GatewayAddress
from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.http_fallback import (
    http_url,
    open_http_client,
    token_rejected,
)
from openclaw_a2a.agents.openclaw_gateway.protocol import decode_object
from openclaw_a2a.model.card import AgentProfile, AgentSkill
from openclaw_a2a.model.errors import AgentError, AgentUnavailable
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.message import JsonStruct

_TIMEOUT_S: Final = 15.0
_MAX_AGENTS: Final = 1000
_MAX_CHARACTERS: Final = 2000
_MODEL_PREFIX: Final = "openclaw/"
_DEFAULT_MODEL: Final = "openclaw/default"
"""An alias of whichever agent is the default."""


class GatewayAgent(JsonStruct, frozen=True):
    """One agent of a gateway, as far as the gateway describes it."""

    id: str
    name: str = ""
    description: str = ""
    workspace: str = ""
    is_default: bool = False

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

    async def refresh(self, connection: GatewayConnection) -> None:
        """Read the list again; the known one stays when the gateway does not answer."""
        try:
            self.agents = await list_agents(connection)
        except AgentError:
            return


async def list_agents(connection: GatewayConnection) -> tuple[GatewayAgent, ...]:
    """The gateway's agents, its default first. Raises: AgentUnavailable, AgentFailed."""
    return decode_agents(await connection.call("agents.list", {}, timeout_s=_TIMEOUT_S))


async def list_agents_over_http(address: GatewayAddress) -> tuple[GatewayAgent, ...]:
    """The same over HTTP, which has ids only. Raises: AgentUnavailable."""
    url = http_url(address.url)
    try:
        async with open_http_client(address, timeout_s=_TIMEOUT_S) as client:
            response = await client.get("/v1/models")
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise AgentUnavailable(
            f"OpenClaw at {url} cannot be reached"
            f" ({str(error) or type(error).__name__}); start its gateway: openclaw gateway run."
        ) from None
    if response.status_code in {401, 403}:
        raise token_rejected(address)
    if response.status_code != 200:
        raise AgentUnavailable(
            f"OpenClaw at {url} answered {response.status_code} when asked for its agents; enable"
            " its HTTP API with gateway.http.endpoints.chatCompletions.enabled: true, and check"
            " the agent's option url."
        )
    return decode_models(decode_object(response.content))


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
    default = _text(_member(response, "defaultId"))
    agents = [_decode_agent(entry, default) for entry in _entries(_member(response, "agents"))]
    found = {agent.id: agent for agent in agents if agent.id}
    return tuple(sorted(found.values(), key=lambda agent: not agent.is_default))


def decode_models(response: Json) -> tuple[GatewayAgent, ...]:
    """The agents in a response to `GET /v1/models`; what cannot be decoded is left out."""
    names = [_text(_member(entry, "id")) for entry in _entries(_member(response, "data"))]
    models = [one for one in names if one.startswith(_MODEL_PREFIX) and one != _DEFAULT_MODEL]
    ids = dict.fromkeys(name.removeprefix(_MODEL_PREFIX) for name in models)
    return tuple(GatewayAgent(agent_id) for agent_id in ids if agent_id)


def _decode_agent(entry: Json, default: str) -> GatewayAgent:
    identity = _member(entry, "identity")
    agent_id = _text(_member(entry, "id"))
    description = _text(_member(entry, "description")) or _text(_member(identity, "description"))
    # The theme of an identity is a phrase (`space lobster`), not a sentence.
    theme = _text(_member(identity, "theme"))
    return GatewayAgent(
        id=agent_id,
        name=_text(_member(identity, "name")) or _text(_member(entry, "name")),
        description=description or (f"An OpenClaw agent: {theme}." if theme else ""),
        workspace=_text(_member(entry, "workspace")),
        is_default=bool(agent_id) and agent_id == default,
    )


def _member(value: Json, name: str) -> Json:
    try:
        return msgspec.convert(value, dict[str, Json]).get(name)
    except msgspec.ValidationError:
        return None


def _entries(value: Json) -> list[Json]:
    try:
        return msgspec.convert(value, list[Json])[:_MAX_AGENTS]
    except msgspec.ValidationError:
        return []


def _text(value: Json) -> str:
    return " ".join(value.split())[:_MAX_CHARACTERS] if isinstance(value, str) else ""
