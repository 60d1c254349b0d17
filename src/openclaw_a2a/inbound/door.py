"""One account's door: whose tasks, whose rules, which card, and what it may cost."""

from collections.abc import Callable

import msgspec

from openclaw_a2a.inbound.cards import LiveCard
from openclaw_a2a.inbound.http import Exchange
from openclaw_a2a.inbound.identity import Callers
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

    def push_desk(self) -> PushDesk:
        """Where push configurations are kept. Raises: PushNotSupported."""
        if self.push is None or not self.account.push_notifications:
            raise PushNotSupported(NO_PUSH)
        return self.push

    def admit(self, exchange: Exchange) -> Scope:
        """Who asks, limited to this account. Raises: Unauthenticated, NotAllowed, Overloaded."""
        principal = self.callers.identify(exchange)
        self.rate.take(principal)
        return Scope(principal, self.account.id)

    async def read_body(self, exchange: Exchange) -> bytes:
        """The body of a request. Raises: BodyTooLarge, BodyTooSlow, InvalidRequest."""
        return await exchange.body(self.account.max_body_bytes, self.patience)
