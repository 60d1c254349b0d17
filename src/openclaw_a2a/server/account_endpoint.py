"""One account's door: whose tasks, whose rules, which card, and what it may cost."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.tasks.turn_builder import AccountRules
from openclaw_a2a.http.asgi import HttpRequest
from openclaw_a2a.http.deadline import Deadline
from openclaw_a2a.http.rate_limit import RateLimit
from openclaw_a2a.http.sse_stream import SseStreams
from openclaw_a2a.model.errors import PushNotSupported
from openclaw_a2a.model.ids import PeerName
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.service import PlanningService
from openclaw_a2a.server.cards import LiveCard
from openclaw_a2a.server.objectives_extension import activate_extension, is_extension_activated
from openclaw_a2a.server.push.configs import PushConfigService
from openclaw_a2a.settings import Account

NO_PUSH = "this agent sends no push notifications; stream or poll instead"


class ChainLimits(msgspec.Struct, frozen=True):
    """How far calls may have gone from agent to agent, and how chains call this gateway."""

    own_host: str = ""
    max_depth: int = 5


class Authenticator(Protocol):
    """Knows the callers of an account."""

    @property
    def needs_token(self) -> bool:
        """True when callers must show a token."""
        ...

    def identify(self, request: HttpRequest) -> PeerName:
        """The caller's name. Raises: Unauthenticated, NotAllowed."""
        ...


class AccountEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a request at one account needs."""

    account: Account
    engine: Engine
    rules: AccountRules
    card: LiveCard
    authenticator: Authenticator
    rate_limit: RateLimit
    streams: SseStreams
    body_deadline: Deadline
    new_id: Callable[[], str]
    push: PushConfigService | None = None
    """Where push configurations are kept; None when none are."""
    chain_limits: ChainLimits = ChainLimits()
    planning: PlanningService | None = None
    """Where objectives are kept; None when none are."""
    requires_activation: bool = True
    """True when only requests that activate the extension may use the methods of planning."""

    def push_configs(self) -> PushConfigService:
        """Where push configurations are kept. Raises: PushNotSupported."""
        if self.push is None or not self.account.push_notifications:
            raise PushNotSupported(NO_PUSH)
        return self.push

    def planning_of(self, exchange: HttpRequest) -> PlanningService | None:
        """Where the message of this request may find an objective; None when it is a plain one."""
        return self.planning if is_extension_activated(exchange) else None

    def message_id_maker(self, exchange: HttpRequest) -> Callable[[], str] | None:
        """Makes the id of a message that has none; None when it must have one."""
        return None if self.planning_of(exchange) is None else self.new_id

    def planning_methods(self, exchange: HttpRequest) -> PlanningService | None:
        """Who answers the methods of planning; None when there are none for this request."""
        return self.planning_of(exchange) if self.requires_activation else self.planning

    def admit(self, exchange: HttpRequest) -> Scope:
        """Who asks, limited to this account. Raises: Unauthenticated, NotAllowed, Overloaded."""
        if self.planning is not None:
            activate_extension(exchange)
        principal = self.authenticator.identify(exchange)
        self.rate_limit.count(principal)
        return Scope(principal, self.account.id)

    async def read_body(self, exchange: HttpRequest) -> bytes:
        """The body of a request. Raises: BodyTooLarge, BodyTooSlow, InvalidRequest."""
        return await exchange.read_body(self.account.max_body_bytes, self.body_deadline)
