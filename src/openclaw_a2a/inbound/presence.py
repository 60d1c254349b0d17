"""Which agents can answer now, and who they are: for the list of agents and the health page."""

from collections.abc import Iterable

import anyio
import msgspec

from openclaw_a2a.inbound.door import Door
from openclaw_a2a.inbound.http import Exchange
from openclaw_a2a.model.ids import AccountId, AgentId
from openclaw_a2a.model.message import Record
from openclaw_a2a.ports import Agent, KnowsItsState

_LOOK_S = 0.01


class Presence(Record, frozen=True, omit_defaults=False):
    """Whether the agent of an account can answer; `reason` says why it cannot."""

    account: AccountId
    agent: AgentId
    name: str
    is_available: bool
    reason: str | None = None


def trouble_of(agent: Agent) -> str | None:
    """Why the agent cannot answer now; None when it can, or does not know."""
    return agent.trouble() if isinstance(agent, KnowsItsState) else None


class Presences:
    """The agents behind the doors, as they are when somebody asks."""

    def __init__(self, doors: Iterable[Door]) -> None:
        self._doors = list(doors)

    def now(self) -> list[Presence]:
        """Every account's agent, in the order of the accounts."""
        return [self._presence(door) for door in self._doors]

    def troubles(self) -> tuple[str, ...]:
        """Why agents cannot answer now, each reason once."""
        found = [trouble_of(_agent(door)) for door in self._doors]
        return tuple(dict.fromkeys(trouble for trouble in found if trouble))

    async def settle(self, within_s: float) -> None:
        """Give agents that may be in trouble a moment to notice it."""
        agents = [_agent(door) for door in self._doors]
        if not any(isinstance(agent, KnowsItsState) for agent in agents):
            return
        for _ in range(round(within_s / _LOOK_S)):
            if any(trouble_of(agent) for agent in agents):
                return
            await anyio.sleep(_LOOK_S)

    async def list_agents(self, exchange: Exchange) -> None:
        """Answer with the public cards, and beside them who can answer now."""
        cards = b",".join(door.card.clean() for door in self._doors)
        states = msgspec.json.encode([shown(one) for one in self.now()])
        await exchange.answer(200, b'{"agents":[' + cards + b'],"states":' + states + b"}")

    def _presence(self, door: Door) -> Presence:
        account = door.account
        trouble = trouble_of(_agent(door))
        # Reasons name addresses of this machine; whoever needs a token here is not told them.
        reason = "it is not available" if trouble and door.callers.needs_token else trouble
        name = door.card.now().name
        return Presence(account.id, account.default_agent_id, name, trouble is None, reason)


def _agent(door: Door) -> Agent:
    return door.engine.agents.find(door.account.default_agent_id)


def shown(presence: Presence) -> dict[str, str | bool]:
    """A presence as the pages show it."""
    members: dict[str, str | bool] = {
        "account": presence.account,
        "agent": presence.agent,
        "name": presence.name,
        "available": presence.is_available,
    }
    return members if presence.reason is None else {**members, "reason": presence.reason}
