"""The agents of an OpenClaw gateway: who they are, where they work, what their cards say."""

from collections.abc import Sequence
from typing import Final

import httpx2
import msgspec

from openclaw_a2a.agents.openclaw_gateway.connect import GatewayAddress
from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.http_fallback import http_url, open_http_client
from openclaw_a2a.agents.openclaw_gateway.protocol import decode_object
from openclaw_a2a.model.card import AgentProfile, AgentSkill
from openclaw_a2a.model.errors import AgentError, AgentUnavailable
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.message import JsonStruct

_ASK_S: Final = 15.0
_MOST_AGENTS: Final = 1000
_MOST_CHARACTERS: Final = 2000
_MODEL_PREFIX: Final = "openclaw/"
_NO_AGENTS: Final = frozenset({"openclaw/default"})
"""Models that only stand for whichever agent is the default."""


class GatewayAgent(JsonStruct, frozen=True):
    """One agent of a gateway, as far as the gateway describes it."""

    id: str
    name: str = ""
    description: str = ""
    workspace: str = ""
    is_default: bool = False

    @property
    def profile(self) -> AgentProfile:
        """How its card describes it."""
        name = self.name or self.id
        description = self.description or f"The OpenClaw agent {name}."
        skill = AgentSkill(id="chat", name=name, description=description, tags=("openclaw", "chat"))
        return AgentProfile(name=name, description=description, skills=(skill,))


class OpenClawAgents:
    """The agents of one gateway as they were when it was last asked."""

    def __init__(self) -> None:
        self.agents: tuple[GatewayAgent, ...] = ()

    def find(self, agent_id: str) -> GatewayAgent | None:
        """The agent with this id, when the gateway has it."""
        wanted = agent_id.lower()
        return next((agent for agent in self.agents if agent.id.lower() == wanted), None)

    async def refresh(self, link: GatewayConnection) -> None:
        """Ask again; what was known stays when the gateway does not answer."""
        try:
            self.agents = await list_agents(link)
        except AgentError:
            return


async def list_agents(link: GatewayConnection) -> tuple[GatewayAgent, ...]:
    """The gateway's agents, its default first. Raises: AgentUnavailable, AgentFailed."""
    return decode_agents(await link.call("agents.list", {}, timeout_s=_ASK_S))


async def list_agents_over_http(address: GatewayAddress) -> tuple[GatewayAgent, ...]:
    """The same where only HTTP is open; it knows no more than ids. Raises: AgentUnavailable."""
    try:
        async with open_http_client(address, timeout_s=_ASK_S) as door:
            response = await door.get("/v1/models")
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise AgentUnavailable(
            f"OpenClaw at {http_url(address.url)} cannot be reached"
            f" ({str(error) or type(error).__name__}); start its gateway: openclaw gateway run."
        ) from None
    if response.status_code != 200:
        raise AgentUnavailable(_no_models(address, response.status_code))
    return decode_models(decode_object(response.content))


def only_agent(agents: Sequence[GatewayAgent], url: str) -> str:
    """The id of the one agent there is. Raises: AgentUnavailable when there are none or several."""
    if len(agents) == 1:
        return agents[0].id
    known = ", ".join(agent.id for agent in agents)
    found = f"has several agents ({known})" if known else "does not tell which agents it has"
    raise AgentUnavailable(
        f"OpenClaw at {url} {found}; say which one is meant with the agent's option agentId."
    )


def decode_agents(answer: Json) -> tuple[GatewayAgent, ...]:
    """The agents in an answer to `agents.list`; what cannot be read is left out."""
    default = _text(_member(answer, "defaultId"))
    agents = [_read_agent(entry, default) for entry in _entries(_member(answer, "agents"))]
    found = {agent.id: agent for agent in agents if agent.id}
    return tuple(sorted(found.values(), key=lambda agent: not agent.is_default))


def decode_models(answer: Json) -> tuple[GatewayAgent, ...]:
    """The agents in an answer to `GET /v1/models`; what cannot be read is left out."""
    names = [_text(_member(entry, "id")) for entry in _entries(_member(answer, "data"))]
    agents = [name for name in names if name.startswith(_MODEL_PREFIX) and name not in _NO_AGENTS]
    ids = dict.fromkeys(name.removeprefix(_MODEL_PREFIX) for name in agents)
    return tuple(GatewayAgent(agent_id) for agent_id in ids if agent_id)


def _read_agent(entry: Json, default: str) -> GatewayAgent:
    identity = _member(entry, "identity")
    agent_id = _text(_member(entry, "id"))
    given = _text(_member(entry, "description")) or _text(_member(identity, "description"))
    return GatewayAgent(
        id=agent_id,
        name=_text(_member(identity, "name")) or _text(_member(entry, "name")),
        description=given or _as_description(_text(_member(identity, "theme"))),
        workspace=_text(_member(entry, "workspace")),
        is_default=bool(agent_id) and agent_id == default,
    )


def _as_description(theme: str) -> str:
    """The theme of an identity as a sentence: `space lobster` is none by itself."""
    return f"An OpenClaw agent: {theme}." if theme else ""


def _member(value: Json, name: str) -> Json:
    try:
        return msgspec.convert(value, dict[str, Json]).get(name)
    except msgspec.ValidationError:
        return None


def _entries(value: Json) -> list[Json]:
    try:
        return msgspec.convert(value, list[Json])[:_MOST_AGENTS]
    except msgspec.ValidationError:
        return []


def _text(value: Json) -> str:
    return " ".join(value.split())[:_MOST_CHARACTERS] if isinstance(value, str) else ""


def _no_models(address: GatewayAddress, status: int) -> str:
    url = http_url(address.url)
    if status in {401, 403}:
        return (
            f"OpenClaw at {url} does not accept the token;"
            " set the agent's option token to the gateway.auth.token of OpenClaw's configuration."
        )
    return (
        f"OpenClaw at {url} answered {status} when asked for its agents; open its HTTP side with"
        " gateway.http.endpoints.chatCompletions.enabled: true, and check the agent's option url."
    )
