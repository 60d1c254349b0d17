"""The endpoint of one account: its agent, rules, card, callers and limits."""

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
from openclaw_a2a.server.objectives_extension import (
    EXTENSION_HEADERS,
    activate_extension,
    is_extension_activated,
)
from openclaw_a2a.server.push.configs import PushConfigService
from openclaw_a2a.settings import Account


class ChainLimits(msgspec.Struct, frozen=True):
    """How this gateway is named in call chains, and how long they may be."""

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
    """Everything that handling a request at one account needs.

    `push` and `planning` are None when the gateway does not offer them. With
    `requires_activation` the planning methods exist only in requests that activate the extension.
    """

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
    chain_limits: ChainLimits = ChainLimits()
    planning: PlanningService | None = None
    requires_activation: bool = True

    def push_configs(self) -> PushConfigService:
        """The push configurations of the account. Raises: PushNotSupported."""
        if self.push is None or not self.account.push_notifications:
            raise PushNotSupported("this agent sends no push notifications; stream or poll instead")
        return self.push

    def planning_of(self, request: HttpRequest) -> PlanningService | None:
        """Where a message may belong to an objective; None unless the request activated it."""
        if self.planning is None or not request.response_headers:
            return None
        return self.planning if is_extension_activated(request) else None

    def planning_methods(self, request: HttpRequest) -> PlanningService | None:
        """What handles planning methods; None when this request cannot use them."""
        return self.planning_of(request) if self.requires_activation else self.planning

    def message_id_maker(self, request: HttpRequest) -> Callable[[], str] | None:
        """Makes a missing message id; None when the message must have one."""
        return None if self.planning_of(request) is None else self.new_id

    def admit(self, request: HttpRequest) -> Scope:
        """Authenticate and rate-limit a request.

        Raises: Unauthenticated, NotAllowed, Overloaded.
        """
        if self.planning is not None and not EXTENSION_HEADERS.isdisjoint(request.headers):
            activate_extension(request)
        principal = self.authenticator.identify(request)
        self.rate_limit.count(principal)
        return Scope(principal, self.account.id)

    async def read_body(self, request: HttpRequest) -> bytes:
        """The body of a request. Raises: BodyTooLarge, BodyTooSlow, InvalidRequest."""
        return await request.read_body(self.account.max_body_bytes, self.body_deadline)
