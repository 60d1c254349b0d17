"""Which agents can answer now, and who they are: for the list of agents and the health page."""

from collections.abc import Callable, Iterable

import anyio
import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.http.asgi import HttpRequest
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import AccountId, AgentId
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.ports import Agent, SupportsAvailability
from openclaw_a2a.server.account_endpoint import AccountEndpoint

_LOOK_S = 0.01


class AgentAvailability(JsonStruct, frozen=True, omit_defaults=False):
    """Whether the agent of an account can answer; `reason` says why it cannot."""

    account: AccountId
    agent: AgentId
    name: str
    is_available: bool
    reason: str | None = None


def unavailable_reason(agent: Agent) -> str | None:
    """Why the agent cannot answer now; None when it can, or does not know."""
    return agent.unavailable_reason() if isinstance(agent, SupportsAvailability) else None


class Availability:
    """The agents behind the doors, as they are when somebody asks."""

    def __init__(self, doors: Iterable[AccountEndpoint]) -> None:
        self._doors = list(doors)

    def current(self) -> list[AgentAvailability]:
        """Every account's agent, in the order of the accounts."""
        return [self._presence(door) for door in self._doors]

    def unavailable_reasons(self) -> tuple[str, ...]:
        """Why agents cannot answer now, each reason once."""
        found = [unavailable_reason(_agent(door)) for door in self._doors]
        return tuple(dict.fromkeys(trouble for trouble in found if trouble))

    async def wait_settled(self, within_s: float) -> None:
        """Give agents that may be in trouble a moment to notice it."""
        agents = [_agent(door) for door in self._doors]
        if not any(isinstance(agent, SupportsAvailability) for agent in agents):
            return
        for _ in range(round(within_s / _LOOK_S)):
            if any(unavailable_reason(agent) for agent in agents):
                return
            await anyio.sleep(_LOOK_S)

    async def list_agents(self, exchange: HttpRequest) -> None:
        """Answer with the public cards, and beside them who can answer now."""
        cards = b",".join(door.card.clean() for door in self._doors)
        states = msgspec.json.encode([availability_json(one) for one in self.current()])
        await exchange.respond(200, b'{"agents":[' + cards + b'],"states":' + states + b"}")

    def _presence(self, door: AccountEndpoint) -> AgentAvailability:
        account = door.account
        trouble = unavailable_reason(_agent(door))
        # Reasons name addresses of this machine; whoever needs a token here is not told them.
        reason = "it is not available" if trouble and door.authenticator.needs_token else trouble
        name = door.card.current().name
        return AgentAvailability(
            account.id, account.default_agent_id, name, trouble is None, reason
        )


def _agent(door: AccountEndpoint) -> Agent:
    return door.engine.agents.find(door.account.default_agent_id)


def availability_json(presence: AgentAvailability) -> dict[str, str | bool]:
    """A presence as the pages show it."""
    members: dict[str, str | bool] = {
        "account": presence.account,
        "agent": presence.agent,
        "name": presence.name,
        "available": presence.is_available,
    }
    return members if presence.reason is None else {**members, "reason": presence.reason}


class Health:
    """The two health pages."""

    def __init__(
        self,
        engines: Iterable[Engine],
        presences: Callable[[], list[AgentAvailability]],
        *,
        version: str,
    ) -> None:
        self._engines = list(engines)
        self._presences = presences
        self._version = version

    async def healthz(self, exchange: HttpRequest) -> None:
        """The process answers."""
        await exchange.respond(200, msgspec.json.encode({"status": "ok", "version": self._version}))

    async def readyz(self, exchange: HttpRequest) -> None:
        """Messages can be taken in: the store writes, and the gateway is not stopping.

        Agents that cannot answer are named and do not count: the others can, and so can they again.
        """
        reasons = [reason for engine in self._engines for reason in await _reasons(engine)]
        status = 503 if reasons else 200
        agents = [availability_json(one) for one in self._presences()]
        body = {"ready": not reasons, "reasons": reasons, "agents": agents}
        await exchange.respond(status, msgspec.json.encode(body))


async def _reasons(engine: Engine) -> list[str]:
    reasons = ["the gateway is stopping"] if engine.is_draining else []
    try:
        await engine.store.check()
    except GatewayError as error:
        reasons.append(error.message)
    return reasons
