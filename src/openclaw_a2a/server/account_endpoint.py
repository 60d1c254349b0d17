"""The endpoint of one account: it admits requests.

Admission is authentication, the rate limit and fair turns between callers.
"""

import asyncio
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, Protocol, TypeVar

import msgspec

from openclaw_a2a.auth.peers import await_identity
from openclaw_a2a.auth.principal import Principal
from openclaw_a2a.engine.audit_log import About, audit_outcome
from openclaw_a2a.engine.engine import AccountRules, Engine
from openclaw_a2a.engine.scheduling.fair_queue import CallerPacer
from openclaw_a2a.http.asgi import HttpRequest
from openclaw_a2a.http.rate_limit import RequestAdmission
from openclaw_a2a.http.request_limits import LARGE_BODY_BYTES, RequestBodies
from openclaw_a2a.http.sse_stream import SseStreams
from openclaw_a2a.http.wire_log import WireLog
from openclaw_a2a.model.delivery import PushConfig
from openclaw_a2a.model.errors import (
    GatewayError,
    InvalidParams,
    IssuerUnavailable,
    Problem,
    PushNotSupported,
    Unauthenticated,
    UnsupportedOperation,
)
from openclaw_a2a.model.ids import LOCAL_PEER, TaskId
from openclaw_a2a.model.task import Task
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.net.safe_resolver import HostResolver
from openclaw_a2a.planning.service import PlanningService
from openclaw_a2a.planning.steps import EXTENSION_URIS
from openclaw_a2a.protocol.validation import check_value_count
from openclaw_a2a.protocol.versions import ProtocolVersion
from openclaw_a2a.server.cards import LiveCard
from openclaw_a2a.server.large_answers import LargeAnswers
from openclaw_a2a.server.push.configs import PushConfigService
from openclaw_a2a.settings import Account

PACED_BODY_BYTES = 16 * 1024
_LINK_LOOKUPS = 16  # at a time, for an account
_CALLER_LINK_LOOKUPS = 4
_MAX_ID = 128  # in the audit log
T = TypeVar("T")
_EXTENSION_HEADERS = (b"a2a-extensions", b"x-a2a-extensions")


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

    def identify(self, request: HttpRequest) -> Principal:
        """The caller. Raises: Unauthenticated, NotAllowed."""
        ...


class AccountEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that handling a request at one account needs.

    `body_setting` is the setting that limits bodies, for the error past it.
    `push` and `planning` are None when the gateway does not offer them; `streaming` is False when
    the card offers no streams. With `requires_activation` the planning methods exist only in
    requests that activate the extension. `wire_log` holds the newest requests for the dashboard.
    """

    account: Account
    engine: Engine
    rules: AccountRules
    card: LiveCard
    authenticator: Authenticator
    admission: RequestAdmission | None
    streams: SseStreams
    bodies: RequestBodies
    new_id: Callable[[], str]
    push: PushConfigService | None = None
    streaming: bool = True
    body_setting: str = ""
    chain_limits: ChainLimits = ChainLimits()
    planning: PlanningService | None = None
    list_pacer: CallerPacer = msgspec.field(default_factory=CallerPacer)
    body_pacer: CallerPacer = msgspec.field(default_factory=CallerPacer)
    large_answers: LargeAnswers = msgspec.field(default_factory=LargeAnswers)
    requires_activation: bool = True
    wire_log: WireLog | None = None
    link_resolver: HostResolver = msgspec.field(
        default_factory=lambda: HostResolver(_LINK_LOOKUPS, each=_CALLER_LINK_LOOKUPS)
    )

    async def admit(self, request: HttpRequest) -> Scope:
        """Authenticate and rate-limit a request; echo the extension that it activates.

        Raises: Unauthenticated, NotAllowed, Overloaded.
        """
        if self.planning is not None:
            for name in _EXTENSION_HEADERS:
                if name in request.headers:
                    given = dict.fromkeys(request.header_items(name))
                    if activated := [uri for uri in given if uri in EXTENSION_URIS]:
                        echo = (name, ", ".join(activated).encode("ascii"))
                        request.response_headers.append(echo)
        # The echo above is also how `planning_of` knows that this request activated the extension.
        try:
            principal = self.authenticator.identify(request)
        except IssuerUnavailable:
            principal = await await_identity(self.authenticator.identify, request)
        name = request.caller = principal.name
        request.caller_agents = principal.agents
        account, facts = self.account, request.facts
        admitted = facts.admitted
        if admitted is None or admitted[0] is not account or admitted[1] is not principal:
            principal.check_account(account.id, account.default_agent_id)
            facts.admitted = admitted = (account, principal, Scope(name, account.id))
        # After authentication: the limit is per caller, so unknown clients cannot use it up.
        # `local` is the operator's own machine, and the only caller there is.
        if self.admission is not None and name != LOCAL_PEER:
            await self.admission.admit(name)
        if self.wire_log is not None:
            self.wire_log.hold(request)
        return admitted[2]

    def check_caller(self, request: HttpRequest) -> None:
        """Check the credentials of an admitted request again.

        Raises: Unauthenticated, NotAllowed, Overloaded.
        """
        principal = self.authenticator.identify(request)
        if principal.name != request.caller:
            raise Unauthenticated("these credentials are those of somebody else by now")
        principal.check_account(self.account.id, self.account.default_agent_id)

    def planning_of(self, request: HttpRequest) -> PlanningService | None:
        """The planning service, if the request activated the extension.

        Call this after `admit`, which records the activation in the response headers.
        """
        is_activated = any(name in _EXTENSION_HEADERS for name, _ in request.response_headers)
        return self.planning if is_activated else None

    def planning_methods(self, request: HttpRequest) -> PlanningService | None:
        """The planning service, or None when this request cannot use it."""
        return self.planning_of(request) if self.requires_activation else self.planning

    async def read_body(self, request: HttpRequest) -> bytes:
        """The body of a request. Raises: as `HttpRequest.read_body`."""
        limit = self.account.max_body_bytes
        return await request.read_body(limit, self.bodies, setting=self.body_setting)

    async def decode_body(
        self, request: HttpRequest, decode: Callable[[bytes], T], body: bytes
    ) -> T:
        """What the body holds. All but small ones of one caller are decoded one after the other,
        with time for other requests in between: many small values take long.

        Raises: what `decode` raises.
        """
        if len(body) < PACED_BODY_BYTES:
            return decode(body)
        caller = request.caller or ""
        await self.body_pacer.wait(caller)
        began = time.perf_counter()
        try:
            if len(body) >= LARGE_BODY_BYTES:
                check_value_count(body, self.rules.max_values)
            decoded = decode(body)
        finally:
            worked = time.perf_counter() - began
            # Twice: what is decoded here is decoded again, into the type of its method.
            self.body_pacer.note(caller, 2 * worked)
            request.release_body()
        await asyncio.sleep(worked)
        return decoded

    def check_streaming(self) -> None:
        """Refuse a stream that the card does not offer. Raises: UnsupportedOperation."""
        if not self.streaming:
            raise UnsupportedOperation(
                "this agent does not stream, as its card says; send without a stream, and get the"
                " task to see how it stands"
            )

    def push_configs(self) -> PushConfigService:
        """The push configurations of the account. Raises: PushNotSupported."""
        if self.push is None or not self.account.push_notifications:
            raise PushNotSupported("this agent sends no push notifications; stream or poll instead")
        return self.push


class Codec(Protocol):
    """What operations need of the module of a protocol version."""

    VERSION: ProtocolVersion
    STREAMS_FINISHED_TASKS: bool
    FOLLOWS_PAUSED_TASKS: bool
    STREAMS_EARLY_ERRORS: bool
    AROUND_TASK: tuple[bytes, bytes]
    encode_sent_task: Callable[[bytes, int | None], bytes]
    encode_sent_message: Callable[[bytes], bytes]
    encode_task_result: Callable[[bytes, int | None], bytes]
    encode_task_pieces: Callable[[Task], Iterator[bytes]]
    encode_stream_body: Callable[[bytes], bytes]
    encode_push_config: Callable[[PushConfig], bytes]
    encode_push_list: Callable[[Sequence[PushConfig], str], bytes]


class AccountCall(msgspec.Struct, eq=False):
    """One authenticated request at an account.

    `codec` is the module of its protocol version. `planning` is set when the request activated
    the extension for objectives. `continued_task` is the task that the message of this call is
    for, once it is decoded.
    """

    EMPTY: ClassVar[bytes] = b"{}"
    """The result of an operation that has none."""

    http: HttpRequest
    endpoint: AccountEndpoint
    scope: Scope
    codec: Codec
    planning: PlanningService | None = None
    continued_task: TaskId | None = None

    @property
    def is_strict(self) -> bool:
        """True when 0.3 follows the protocol exactly, not the channel's contract."""
        return self.endpoint.account.strict03 and self.codec.VERSION is ProtocolVersion.V03

    def record(
        self,
        event: str,
        task_id: TaskId | None,
        error: BaseException | None = None,
        *,
        target: str = "",
    ) -> None:
        """Log in the audit log what this call changed, or failed to change."""
        audit = self.endpoint.engine.audit
        about = About(
            # Shortened: the ids in a refused request can be any text.
            task=(task_id or "")[:_MAX_ID],
            account=self.scope.account,
            address=self.http.client_address,
            target=target[:_MAX_ID],
            **audit_outcome(error),
        )
        record = audit.record if error is None else audit.record_refusal
        record(event, self.scope.principal, **about)

    def record_refused_message(self, error: GatewayError) -> None:
        """Log in the audit log that a message was refused."""
        task_id = self.continued_task
        event = "task-submitted" if task_id is None else "task-continued"
        self.record(event, task_id, error, target=self.endpoint.rules.agent_id)

    @contextmanager
    def recording_failure(
        self, event: str, task_id: TaskId | None, *, target: str = ""
    ) -> Generator[None]:
        """Log a failed change in the audit log if the block raises."""
        try:
            yield
        # Any exception, also a cancellation: something may have been changed already.
        except BaseException as error:
            self.record(event, task_id, error, target=target)
            raise

    def check_tenant(self, tenant: str | None) -> None:
        """Refuse a tenant: no interface on our cards names one. Raises: InvalidParams."""
        if tenant:
            problem = Problem("tenant", "is not known here; this agent has no tenants")
            raise InvalidParams(f"tenant {tenant[:80]!r} {problem.message}", problems=(problem,))
