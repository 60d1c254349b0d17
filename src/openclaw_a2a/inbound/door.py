"""One account's door: whose tasks, whose rules, which card, and what it may cost."""

from collections.abc import Callable

import msgspec

from openclaw_a2a.inbound.cards import LiveCard
from openclaw_a2a.inbound.http import Exchange
from openclaw_a2a.inbound.identity import Callers
from openclaw_a2a.inbound.opt_desk import PlanningDoor, activate, is_activated
from openclaw_a2a.inbound.patience import Patience
from openclaw_a2a.inbound.push_configs import PushDesk
from openclaw_a2a.inbound.rate import RateLimit
from openclaw_a2a.inbound.streams import Streams
from openclaw_a2a.model.errors import PushNotSupported
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.runtime.engine import Engine
from openclaw_a2a.runtime.turn import AccountRules
from openclaw_a2a.settings import Account

NO_PUSH = "this agent sends no push notifications; stream or poll instead"


class ChainGuard(msgspec.Struct, frozen=True):
    """How far calls may have gone from agent to agent, and how chains call this gateway."""

    own_host: str = ""
    max_depth: int = 5


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a request at one account needs."""

    account: Account
    engine: Engine
    rules: AccountRules
    card: LiveCard
    callers: Callers
    rate: RateLimit
    streams: Streams
    patience: Patience
    new_id: Callable[[], str]
    push: PushDesk | None = None
    """Where push configurations are kept; None when none are."""
    guard: ChainGuard = ChainGuard()
    planning: PlanningDoor | None = None
    """Where objectives are kept; None when none are."""
    requires_activation: bool = True
    """True when only requests that activate the extension may use the methods of planning."""

    def push_desk(self) -> PushDesk:
        """Where push configurations are kept. Raises: PushNotSupported."""
        if self.push is None or not self.account.push_notifications:
            raise PushNotSupported(NO_PUSH)
        return self.push

    def planning_of(self, exchange: Exchange) -> PlanningDoor | None:
        """Where the message of this request may find an objective; None when it is a plain one."""
        return self.planning if is_activated(exchange) else None

    def message_id_maker(self, exchange: Exchange) -> Callable[[], str] | None:
        """Makes the id of a message that has none; None when it must have one."""
        return None if self.planning_of(exchange) is None else self.new_id

    def planning_methods(self, exchange: Exchange) -> PlanningDoor | None:
        """Who answers the methods of planning; None when there are none for this request."""
        return self.planning_of(exchange) if self.requires_activation else self.planning

    def admit(self, exchange: Exchange) -> Scope:
        """Who asks, limited to this account. Raises: Unauthenticated, NotAllowed, Overloaded."""
        if self.planning is not None:
            activate(exchange)
        principal = self.callers.identify(exchange)
        self.rate.take(principal)
        return Scope(principal, self.account.id)

    async def read_body(self, exchange: Exchange) -> bytes:
        """The body of a request. Raises: BodyTooLarge, BodyTooSlow, InvalidRequest."""
        return await exchange.body(self.account.max_body_bytes, self.patience)
