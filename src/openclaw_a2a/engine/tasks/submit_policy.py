"""Decides whether a message of a peer may be given to its agent: rules, a callable, pairing.

SubmitPolicy.decide ──> allow: the message goes on
                    ├─> deny:  NotAllowed
                    └─> ask:   the task is held as `auth-required`, until `HeldTasks.decide`
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime
from enum import Enum

import msgspec

from openclaw_a2a.engine.audit_file import FAILED, OK, REFUSED
from openclaw_a2a.engine.audit_log import AuditLog
from openclaw_a2a.engine.engine import AccountRules
from openclaw_a2a.engine.scheduling.threads import DaemonThreads
from openclaw_a2a.engine.tasks.submit import SubmitRequest
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import NotAllowed
from openclaw_a2a.model.ids import (
    LOCAL_PEER,
    AccountId,
    AgentId,
    Json,
    JsonObject,
    MessageId,
    PeerName,
)
from openclaw_a2a.model.message import JsonStruct, Message, Part, Role
from openclaw_a2a.model.records import Hold, encode_json
from openclaw_a2a.model.skill import matches_any
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import Record, RecordStore

log = get_logger(__name__)

SKILL_KEYS = frozenset({"skillid", "skill"})
"""Metadata with which the sender of a message names a skill, in small letters, without `_` and
`-`: who reads it may be generous, too. A2A has no field for that."""

_PEER_KIND = "paired-peer"
_NEVER = datetime(9999, 1, 1, tzinfo=UTC)
_CALLABLE_TIMEOUT_S = 10.0
_CALLABLE_THREADS = 32
_CALLER_THREADS = 8
"""Of one caller: the messages of a few callers must not take the threads of all others."""
_SHOWN_NAME = 80
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

PAIRING_REASON = (
    "this is the first message of {caller}; the operator has to approve this caller first"
)


class Decision(Enum):
    """What becomes of a message."""

    ALLOW = "allow"
    DENY = "deny"
    ASK = "ask"


class PolicyRequest(msgspec.Struct, frozen=True):
    """A message that a peer sent, for a policy to decide on.

    `skill` is what the metadata of the message name, else ""; where they name several, `skills`
    are all. `has_odd_skill`: one is named by something else than a string. `size` is in bytes of
    JSON.
    """

    caller: PeerName
    account: AccountId
    agent: AgentId
    skill: str
    size: int
    at: datetime
    message: Message
    skills: tuple[str, ...] = ()
    has_odd_skill: bool = False


class PolicyDecision(msgspec.Struct, frozen=True):
    """A decision and the reason that the peer gets."""

    decision: Decision
    reason: str = ""


PolicyResult = PolicyDecision | Decision | str | None
PolicyCallable = Callable[[PolicyRequest], PolicyResult | Awaitable[PolicyResult]]
"""None: no opinion. It may be a coroutine function, else it runs in a thread; one that fails, or
takes longer than its time, denies."""


class PolicyRule(msgspec.Struct, frozen=True):
    """A decision for the messages that fit all of its conditions; an empty one fits any.

    Names are patterns with `*`. `hours` are those of the day in UTC, from the first up to the
    second, which may be the smaller one (over midnight).
    """

    decision: Decision
    callers: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    min_bytes: int = 0
    hours: tuple[int, int] | None = None
    days: tuple[str, ...] = ()
    reason: str = ""

    def matches(self, request: PolicyRequest) -> bool:
        """True when the rule decides this message."""
        names = (
            (self.callers, request.caller),
            (self.accounts, request.account),
            (self.agents, request.agent),
        )
        if not all(not patterns or matches_any(patterns, name) for patterns, name in names):
            return False
        if self.skills and not self._matches_skills(request):
            return False
        if request.size < self.min_bytes:
            return False
        at = request.at.astimezone(UTC)
        if self.days and _DAYS[at.weekday()] not in self.days:
            return False
        if self.hours is None:
            return True
        start, end = self.hours
        return start <= at.hour < end if start < end else at.hour >= start or at.hour < end

    def _matches_skills(self, request: PolicyRequest) -> bool:
        names = request.skills or (request.skill,)
        if self.decision is Decision.ALLOW:
            # A name that is allowed does not make others allowed that stand beside it.
            return not request.has_odd_skill and all(matches_any(self.skills, one) for one in names)
        return request.has_odd_skill or any(matches_any(self.skills, one) for one in names)


class PairedPeer(JsonStruct, frozen=True):
    """A peer that the operator has approved; its id is its name."""

    id: PeerName
    approved_at: datetime


class PairedPeers:
    """The peers that the operator has approved: stored, and in memory for every message.

    `is_shared`: other gateways may change them, so the store is asked for every message.
    """

    def __init__(
        self, records: RecordStore, now: Callable[[], datetime], *, is_shared: bool = False
    ) -> None:
        self._records = records
        self._now = now
        self._is_shared = is_shared
        self._peers: dict[PeerName, PairedPeer] = {}

    async def load(self) -> None:
        """Read the stored peers."""
        found = [
            msgspec.json.decode(record.body, type=PairedPeer)
            for record in await self._records.list_records(_PEER_KIND)
        ]
        self._peers = {peer.id: peer for peer in found}

    async def has(self, name: PeerName) -> bool:
        """True for a peer that was approved. Raises: StoreUnavailable."""
        # Whoever calls from this machine without a token is the operator.
        if name == LOCAL_PEER:
            return True
        if self._is_shared:
            return await self._records.read_record(_PEER_KIND, name) is not None
        return name in self._peers

    async def list_peers(self) -> list[PairedPeer]:
        """The approved peers, oldest first. Raises: StoreUnavailable."""
        if self._is_shared:
            await self.load()
        return sorted(self._peers.values(), key=lambda one: (one.approved_at, one.id))

    async def add(self, name: PeerName) -> None:
        """Approve a peer; durable when this returns."""
        peer = PairedPeer(name, self._now())
        await self._records.put_record(Record(_PEER_KIND, name, encode_json(peer), _NEVER))
        self._peers[name] = peer

    async def remove(self, name: PeerName) -> bool:
        """Take the approval back: the peer's next message has to be approved. False: none."""
        # First here: from now on no message of the peer passes, whatever the store does.
        self._peers.pop(name, None)
        return await self._records.delete_record(_PEER_KIND, name)


class SubmitPolicy:
    """The rules in their order, then the callable, then pairing. Without a match: allow."""

    def __init__(
        self,
        audit: AuditLog,
        *,
        rules: Sequence[PolicyRule] = (),
        decide: PolicyCallable | None = None,
        skills: dict[AccountId, tuple[str, ...]] | None = None,
        paired: PairedPeers | None = None,
        timeout_s: float = _CALLABLE_TIMEOUT_S,
    ) -> None:
        """`skills` are those that messages to an account may name. `paired`: pairing is on.

        `timeout_s`: past it what `decide` has not decided is denied.
        """
        self._audit = audit
        self._rules = tuple(rules)
        self._callable = decide
        self._timeout_s = timeout_s
        self._threads = DaemonThreads(_CALLABLE_THREADS, each=_CALLER_THREADS)
        self._skills = skills or {}
        self.paired = paired

    async def check(
        self,
        request: SubmitRequest,
        rules: AccountRules,
        *,
        now: datetime,
        agents: Collection[AgentId] = (),
    ) -> Hold | None:
        """None for a message that may go on, else why its task is held. Raises: NotAllowed.

        `agents` are those to which it gives work besides the agent of the account.
        """
        message, scope = request.message, request.scope
        skills, has_odd_skill = _named_skills(message.metadata, request.metadata)
        asked = PolicyRequest(
            scope.principal,
            scope.account,
            rules.agent_id,
            skills[0] if skills else "",
            len(encode_json(message)),
            now,
            message,
            skills,
            has_odd_skill,
        )
        hold: Hold | None = None
        for agent in dict.fromkeys((rules.agent_id, *sorted(agents))):
            one = msgspec.structs.replace(asked, agent=agent)
            if (found := await self._decide(one)) is None:
                continue
            self._record(found, one, request)
            if found.decision is Decision.DENY:
                raise NotAllowed(_denied(found.reason))
            if found.decision is Decision.ASK and hold is None:
                hold = Hold(found.reason or "the operator has to approve this task")
        if hold is not None:
            return hold
        if self.paired is not None and not await self.paired.has(asked.caller):
            reason = PAIRING_REASON.format(caller=asked.caller)
            self._record(PolicyDecision(Decision.ASK, "pairing"), asked, request)
            return Hold(reason, pairs=True)
        return None

    async def check_change(
        self,
        scope: Scope,
        rules: AccountRules,
        params: Json,
        *,
        address: str,
        now: datetime,
        agents: Collection[AgentId] = (),
    ) -> None:
        """Decide about a peer's change of an objective, whose steps give work to these agents.

        A change cannot be held, so what would be is refused. Raises: NotAllowed.
        """
        message = Message(MessageId("change"), Role.USER, (Part.of_data(params),))
        request = SubmitRequest(scope, message, address=address)
        hold = await self.check(request, rules, now=now, agents=agents)
        if hold is not None:
            raise NotAllowed(f"{hold.reason}; send a message, which the operator can approve")

    async def _decide(self, request: PolicyRequest) -> PolicyDecision | None:
        allowed = self._skills.get(request.account)
        if allowed is not None and request.has_odd_skill:
            return PolicyDecision(Decision.DENY, "a skill has to be named by one string")
        for one in request.skills:
            if allowed is not None and not matches_any(allowed, one):
                # Quoted: the reason is shown to the operator, too.
                reason = f"skill {one[:_SHOWN_NAME]!a} is not offered here"
                return PolicyDecision(Decision.DENY, reason)
        for rule in self._rules:
            if rule.matches(request):
                return PolicyDecision(rule.decision, rule.reason)
        return None if self._callable is None else await self._ask_callable(self._callable, request)

    async def _ask_callable(
        self, call: PolicyCallable, request: PolicyRequest
    ) -> PolicyDecision | None:
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                if _is_async(call):
                    answer = call(request)
                else:
                    # It may block. What is still in its thread past the deadline is denied all the
                    # same: nobody takes its answer. Half of the time to begin, so that what waits
                    # behind calls that hang is over before those give their threads back.
                    answer = await self._threads.run(
                        request.caller, lambda: call(request), begin_within_s=self._timeout_s / 2
                    )
                if inspect.isawaitable(answer):
                    answer = await answer
            # The timeout does not see a coroutine that never waits.
            if asyncio.get_running_loop().time() >= deadline:
                raise TimeoutError
            if isinstance(answer, str):
                answer = Decision(answer)
            return PolicyDecision(answer) if isinstance(answer, Decision) else answer
        except Exception:  # one broad catch: code of the operator; what it cannot decide is denied
            log.exception("policy.callable_failed", caller=request.caller, account=request.account)
            return PolicyDecision(Decision.DENY, "the policy could not decide")

    def _record(
        self, found: PolicyDecision, request: PolicyRequest, submitted: SubmitRequest
    ) -> None:
        outcomes = {Decision.ALLOW: OK, Decision.DENY: REFUSED, Decision.ASK: "held"}
        # What is denied becomes no task.
        new = None if found.decision is Decision.DENY else submitted.new_task_id
        # What is held can be refused after this, for too many that are.
        is_allowed = found.decision is Decision.ALLOW
        record = self._audit.record if is_allowed else self._audit.record_refusal
        record(
            "policy-decided",
            request.caller,
            account=request.account,
            target=request.agent,
            task=submitted.message.task_id or new or "",
            address=submitted.address,
            policy=found.decision.value,
            outcome=outcomes.get(found.decision, FAILED),
            reason=found.reason,
        )


def _is_async(call: PolicyCallable) -> bool:
    """True for a coroutine function, or an object that is called like one."""
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__)


def _named_skills(*given: JsonObject | None) -> tuple[tuple[str, ...], bool]:
    """The skills that metadata name, and whether something else than a string names one."""
    named = [
        value
        for metadata in given
        for key, value in (metadata or {}).items()
        if key.strip().lower().replace("_", "").replace("-", "") in SKILL_KEYS and value is not None
    ]
    texts = [one.strip() for one in named if isinstance(one, str)]
    return tuple(dict.fromkeys(filter(None, texts))), len(texts) < len(named)


def _denied(reason: str) -> str:
    text = "the policy of this gateway does not allow this message"
    return f"{text}: {reason}" if reason else f"{text}; ask its operator"
