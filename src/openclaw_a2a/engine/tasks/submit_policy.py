"""Decides whether a message of a peer may be given to its agent: rules, a callable, pairing.

SubmitPolicy.decide ──> allow: the message goes on
                    ├─> deny:  NotAllowed
                    └─> ask:   the task is held as `auth-required`, until `HeldTasks.decide`
"""

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum

import msgspec

from openclaw_a2a.engine.audit_file import FAILED, OK, REFUSED
from openclaw_a2a.engine.audit_log import AuditLog, acting
from openclaw_a2a.engine.engine import AccountRules, Engine, SessionHold
from openclaw_a2a.engine.scheduling.threads import DaemonThreads
from openclaw_a2a.engine.tasks.active_task import Rejected
from openclaw_a2a.engine.tasks.journal import TaskProjection
from openclaw_a2a.engine.tasks.run import usable_text
from openclaw_a2a.engine.tasks.submit import (
    SubmitRequest,
    continue_task,
    hash_message,
    list_held,
)
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.agent_event import Approval
from openclaw_a2a.model.errors import (
    ApprovalNotFound,
    Conflict,
    CorruptRecord,
    NotAllowed,
    Overloaded,
    StoreUnavailable,
)
from openclaw_a2a.model.ids import (
    LOCAL_PEER,
    AccountId,
    AgentId,
    Json,
    JsonObject,
    MessageId,
    OwnerId,
    PeerName,
    TaskId,
)
from openclaw_a2a.model.message import JsonStruct, Message, Part, Role
from openclaw_a2a.model.records import (
    HeldMessage,
    Hold,
    StoredTask,
    TaskHead,
    decode_task,
    encode_json,
    read_held_message,
)
from openclaw_a2a.model.skill import matches_any
from openclaw_a2a.model.task import TaskState
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
_MAX_LISTED = 1000
_SHOWN_TEXT = 2000
_SHOWN_ITEMS = 20  # parts, and keys of metadata
_SHOWN_NAME = 80
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

PAIRING_REASON = (
    "this is the first message of {caller}; the operator has to approve this caller first"
)
DENIED_TEXT = "The operator of this gateway did not allow this task."
EXPIRED_TEXT = "Nobody decided about this task in time; send it again."


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
    """A decision and its reason, which the peer is told."""

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
        return None if self._callable is None else await self._ask_callable(request)

    async def _ask_callable(self, request: PolicyRequest) -> PolicyDecision | None:
        call = self._callable
        if call is None:
            return None
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


class HeldTasks:
    """The tasks of one engine that wait for the operator, listed and decided as approvals."""

    def __init__(self, engine: Engine, paired: PairedPeers | None) -> None:
        self._engine = engine
        self._paired = paired

    async def approvals(self) -> tuple[Approval, ...]:
        """The held tasks, the oldest first, as far as they can be shown."""
        waiting = await list_held(self._engine)
        # Where there are too many, the oldest of each caller: none hides those of the others.
        ranks: Counter[PeerName] = Counter()
        ranked: list[tuple[int, int]] = []
        for index, (head, _) in enumerate(waiting):
            ranked.append((ranks[head.scope.principal], index))
            ranks[head.scope.principal] += 1
        shown = sorted(index for _, index in sorted(ranked)[:_MAX_LISTED])
        return tuple([await self._describe(*waiting[index]) for index in shown])

    async def _describe(self, head: TaskHead, held: HeldMessage) -> Approval:
        try:
            stored = await self._engine.store.tasks.read_task(None, head.id)
            message = None if stored is None else _find_message(stored, held)
        except CorruptRecord:  # reported by the store; the others are shown all the same
            message = None
        text = "" if message is None else usable_text(message)
        agent = "" if head.binding is None else head.binding.agent_id
        cut = " [...]" if len(text) > _SHOWN_TEXT else ""
        # Not in the command, where the peer could write the same.
        warning, rest = held.hold.reason, "" if message is None else _describe_rest(message)
        if rest:
            see = f"see all of it with: openclaw-a2a tasks show {head.id} --all --json"
            warning = f"{warning}; not shown here: {rest}; {see}"
        return Approval(
            id=head.id,
            command=f"{head.scope.principal} to {agent}: {text[:_SHOWN_TEXT]}{cut}",
            asked_at=head.status_at,
            expires_at=head.status_at + timedelta(seconds=self._engine.limits.held_s),
            task_id=head.id,
            warning=warning,
        )

    async def decide(self, approval_id: str, *, allow: bool, text: str = DENIED_TEXT) -> None:
        """Let a held task go on, or reject it with this text.

        Raises: ApprovalNotFound, Overloaded.
        """
        engine, task_id = self._engine, TaskId(approval_id)
        while holding := _holding_runs(engine, task_id):
            await asyncio.wait(holding)  # the commit of the hold may be under way
        elsewhere: OwnerId | None = None
        async with engine.task_lock(task_id):
            stored = await engine.store.tasks.read_task(None, task_id)
            held = read_held_message(await engine.store.tasks.read_resume_token(task_id))
            if stored is None or held is None or stored.head.state is not TaskState.AUTH_REQUIRED:
                raise ApprovalNotFound(f"no task {approval_id[:80]} waits for a decision")
            try:
                if allow:
                    elsewhere = await self._release(stored, held)
                else:
                    text = f"{text} Reason: {held.hold.reason}."
                    await engine.end_stored_task(stored, TaskState.REJECTED, text)
            except Conflict:  # by another replica, or its caller there
                raise ApprovalNotFound(
                    f"task {task_id} was decided or canceled meanwhile; look at the task"
                ) from None
        # Without the lock: the session may have moved, and that replica then asks this one.
        if elsewhere is not None and engine.replication is not None:
            await engine.replication.requests.release_elsewhere(elsewhere, task_id)

    async def _release(self, stored: StoredTask, held: HeldMessage) -> OwnerId | None:
        """Let a held task go on here, or return the replica that has to do it.

        Raises: as `decide`, Conflict.
        """
        engine, task_id = self._engine, stored.head.id
        scope, binding = stored.head.scope, stored.head.binding
        # Before the task: after a crash in between it is held still, and can be allowed again.
        if held.hold.pairs and self._paired is not None:
            await self._paired.add(scope.principal)
            who, address = acting.get()
            engine.audit.record(
                "peer-paired", who, target=scope.principal, task=task_id, address=address
            )
        message = _find_message(stored, held)
        if message is None or binding is None:
            raise ApprovalNotFound(f"the message of task {task_id[:80]} is not stored")
        rules = engine.rules_of(scope.account, binding.agent_id)
        hold, replication = None, engine.replication
        if replication is not None:
            hold = await replication.find_place(binding.agent_id, binding.session_key)
            hold = hold or await replication.hold(binding.session_key)
            if not isinstance(hold, SessionHold):
                return hold
            if engine.recoveries.has(binding.session_key):  # its runs came before this message
                hold.release()
                raise Overloaded("the session is being recovered; decide again shortly")
        run = continue_task(
            engine,
            SubmitRequest(
                scope,
                message,
                accepted_output_modes=held.accepted_output_modes,
                is_released=True,
            ),
            rules,
            stored,
            resume=held.agent_token(),
            body_hash=hash_message(message),
            hold=hold,
        )
        # Durable when the operator sees that it was allowed, and when another one decides.
        first = await run.created.wait()
        if isinstance(first, Rejected):
            raise first.error or StoreUnavailable("the task could not be let go; decide again")
        return None


def _holding_runs(engine: Engine, task_id: TaskId) -> "list[asyncio.Task[None]]":
    """The runs that hold a message of a task at this moment; not one that works on it."""
    runs = [run for run in engine.runs.values() if run.record.task_id == task_id]
    tasks = [run.task for run in runs if run.record.options.hold is not None]
    return [task for task in tasks if task is not None and not task.done()]


async def reject_expired(engine: Engine, *, now: datetime) -> None:
    """Reject the tasks that have waited for the operator for too long. Raises: StoreUnavailable."""
    before = now - timedelta(seconds=engine.limits.held_s)
    for head, _ in await list_held(engine):
        if head.status_at >= before:
            return  # the oldest come first
        try:
            await HeldTasks(engine, None).decide(head.id, allow=False, text=EXPIRED_TEXT)
        except ApprovalNotFound:  # decided, or canceled, meanwhile
            continue
        except CorruptRecord as error:  # the others expire all the same
            log.warning("policy.held_task_unreadable", task_id=head.id, reason=error.message)
            continue
        engine.audit.record(
            "approval-expired", head.scope.principal, task=head.id, account=head.scope.account
        )


def _is_async(call: PolicyCallable) -> bool:
    """True for a coroutine function, or an object that is called like one."""
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__)


def _find_message(stored: StoredTask, held: HeldMessage) -> Message | None:
    history = decode_task(encode_json(TaskProjection.from_stored(stored).task())).history
    return next((one for one in history if one.message_id == held.message_id), None)


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


def _describe_rest(message: Message) -> str:
    """What a description of a message by the beginning of its text does not show."""
    items: list[str] = []
    if (hidden := len(usable_text(message)) - _SHOWN_TEXT) > 0:
        items.append(f"{hidden} more characters")
    for number, part in enumerate(message.parts[:_SHOWN_ITEMS], 1):
        items += _describe_part(number, part)
    if len(message.parts) > _SHOWN_ITEMS:
        items.append(f"{len(message.parts) - _SHOWN_ITEMS} more parts")
    if message.metadata:
        items.append(f"metadata: {_listed_keys(message.metadata)}")
    return "; ".join(items)


def _describe_part(number: int, part: Part) -> Iterator[str]:
    # What the peer chose is quoted: it cannot look like the rest of the description.
    if part.is_file:
        names = (part.media_type, part.filename, part.url)
        quoted = ", ".join(ascii(one[:_SHOWN_NAME]) for one in names if one)
        size = "a link" if part.raw is None else f"{len(part.content)} bytes"
        yield f"part {number}: file, {size}, {quoted}"
    elif part.data is not msgspec.UNSET:
        yield f"part {number}: data, {len(encode_json(part.data))} bytes"
    if part.metadata:
        yield f"metadata of part {number}: {_listed_keys(part.metadata)}"


def _listed_keys(metadata: JsonObject) -> str:
    keys = [ascii(key[:_SHOWN_NAME]) for key in metadata]
    more = len(keys) - _SHOWN_ITEMS
    return ", ".join(keys[:_SHOWN_ITEMS]) + (f" and {more} more" if more > 0 else "")


def _denied(reason: str) -> str:
    text = "the policy of this gateway does not allow this message"
    return f"{text}: {reason}" if reason else f"{text}; ask its operator"
