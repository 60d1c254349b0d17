"""An engine among several on one store: sessions, requests and changes of other replicas.

A session belongs to one replica at a time, which runs everything in it as if it were alone. A
message or a cancellation for a session of another replica is stored as a request for that one; when
it has accepted the message, this replica follows the task in the store, as a caller would.

    submit    hold the session ──> ours: as ever
                              └──> another's: hand off ──> `submit` there ──> follow the task here
    cancel    the task runs elsewhere: hand off ──> `cancel_task` there ──> read the task here
    a replica dies   its runs, requests and deliveries go to another one (`take_over`)
    this one was taken for dead   it drops its runs, which are another one's now (`on_lost`)
"""

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

import msgspec

from openclaw_a2a.engine.engine import AccountRules, Engine, SessionHold
from openclaw_a2a.engine.recovery import recover_runs
from openclaw_a2a.engine.tasks.active_task import DuplicateRun
from openclaw_a2a.engine.tasks.cancel import cancel_task
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.engine.tasks.submit import SubmitRequest, submit
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    GatewayError,
    GatewayFault,
    Overloaded,
    Problem,
    StoreUnavailable,
    TaskNotFound,
)
from openclaw_a2a.model.ids import (
    AgentId,
    Json,
    MessageId,
    OwnerId,
    RunId,
    SessionKey,
    TaskId,
)
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.records import Hold
from openclaw_a2a.model.task import PAUSED, TERMINAL
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import Duplicate, Handoff, MeasuredTask, ReplicaStore

log = get_logger(__name__)

_ANSWER_S = 120.0
"""How long a request to another replica may take, its death and the take-over included."""
_RESTING = TERMINAL | PAUSED


class _MessageRequest(msgspec.Struct, frozen=True, tag="message"):
    """A message for a session of another replica."""

    scope: Scope
    message: Message
    is_blocking: bool = True
    accepted_output_modes: tuple[str, ...] = ()
    original_message: Message | None = None
    is_answer: bool = False
    address: str = ""
    is_from_peer: bool = False
    is_decided: bool = False
    hold: Hold | None = None
    metadata: dict[str, Json] | None = None
    new_task_id: TaskId | None = None


class _CancelRequest(msgspec.Struct, frozen=True, tag="cancel"):
    """The cancellation of a task that another replica works on."""

    scope: Scope | None
    task_id: TaskId


class _Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of a request: the run that answers a message, or the error."""

    run_id: RunId = RunId("")
    task_id: TaskId = TaskId("")
    answer: bytes | None = None
    code: str = ""
    message: str = ""
    details: dict[str, Json] = {}
    problems: tuple[Problem, ...] = ()
    retry_after_s: float | None = None


_request_decoder = msgspec.json.Decoder(_MessageRequest | _CancelRequest)
_answer_decoder = msgspec.json.Decoder(_Answer)


class _Held:
    """A session of this replica, and how many use it. `number` is None until the store has it."""

    def __init__(self) -> None:
        self.users = 0
        self.number: int | None = None
        self.is_decided = asyncio.Event()


class Replication:
    """What an engine does for and with the other replicas of its store."""

    def __init__(
        self, engine: Engine, store: ReplicaStore, *, count_streams: Callable[[], int] = lambda: 0
    ) -> None:
        self._engine = engine
        self._store = store
        self._count_streams = count_streams
        self._held: dict[SessionKey, _Held] = {}
        self._answers: dict[int, asyncio.Event] = {}
        self._carried: set[int] = set()
        """The requests that are being carried out."""
        self._sequences: dict[TaskId, int] = {}
        """How far the tasks were that are followed here, when they were last asked for."""
        self._has_requests = asyncio.Event()
        self._must_compare = asyncio.Event()
        self.on_taken_over: Callable[[], None] = lambda: None
        """Called when deliveries of another replica are ours now."""

    @property
    def id(self) -> OwnerId:
        """The id of this replica."""
        return self._store.id

    async def start(self, agents: Iterable[AgentId]) -> None:
        """Listen to the others; call before runs are recovered."""
        await self._store.start(self, agents)
        run_loop = self._engine.supervisor.run_loop
        run_loop("replica-requests", self._serve_requests())
        run_loop("replica-changes", self._compare_changes())
        run_loop("replica-take-over", self._watch_others())

    async def renew(self) -> None:
        """Keep the lease. Raises: StoreUnavailable."""
        await self._store.renew(runs=len(self._engine.runs), streams=self._count_streams())

    # ---------------------------------------------------------------- sessions

    async def hold(self, session_key: SessionKey) -> SessionHold | OwnerId:
        """The right to decide about the session, or the replica that has it."""
        while (held := self._held.get(session_key)) is not None:
            if held.number is not None:
                held.users += 1
                return self._make_hold(session_key, held)
            await held.is_decided.wait()  # another message asks for it at this moment
        held = self._held[session_key] = _Held()
        try:
            found = await self._store.hold_session(session_key)
            if found.owner != self._store.id:
                return found.owner
            held.number, held.users = found.number, 1
            return self._make_hold(session_key, held)
        finally:
            if held.number is None and self._held.get(session_key) is held:
                del self._held[session_key]
            held.is_decided.set()

    def _make_hold(self, session_key: SessionKey, held: _Held) -> SessionHold:
        def release() -> None:
            held.users -= 1
            # Not the same after this replica was taken for dead: the session is not ours then.
            if not held.users and self._held.get(session_key) is held:
                del self._held[session_key]
                self._store.release_session(session_key, held.number or 0)

        return SessionHold(release)

    # ---------------------------------------------------------------- requests to others

    async def hand_off(self, owner: OwnerId, request: SubmitRequest) -> DuplicateRun:
        """Have another replica accept a message. Raises: why it does not."""
        if request.internal_origin is not None or request.is_released:
            raise Overloaded("the session is in use on another replica; try again shortly")
        body = _MessageRequest(
            request.scope,
            request.message,
            request.is_blocking,
            request.accepted_output_modes,
            request.original_message,
            request.is_answer,
            request.address,
            request.is_from_peer,
            request.is_decided,
            request.hold,
            request.metadata,
            request.new_task_id,
        )
        answer = await self._ask(owner, msgspec.json.encode(body))
        duplicate = Duplicate(answer.run_id, answer.task_id, answer.answer)
        return DuplicateRun(duplicate, request.scope, request.message.message_id)

    async def cancel_elsewhere(self, scope: Scope | None, task_id: TaskId) -> bool:
        """Have the replica that works on a task stop it; False when none does any more."""
        owner = await self._store.find_owner(task_id)
        if owner is None:
            return False
        await self._ask(owner, msgspec.json.encode(_CancelRequest(scope, task_id)))
        return True

    async def _ask(self, owner: OwnerId, body: bytes) -> _Answer:
        number = await self._store.hand_off(owner, body)
        answered = self._answers[number] = asyncio.Event()
        give_up_at = self._engine.loop.time() + _ANSWER_S
        try:
            while (found := await self._store.take_answer(number)) is None:
                if self._engine.loop.time() > give_up_at:
                    raise StoreUnavailable(
                        f"replica {owner} did not answer within {_ANSWER_S:g} s; ask again"
                    )
                answered.clear()
                await _wait(answered, self._store.poll_s)
        finally:
            del self._answers[number]
        answer = _answer_decoder.decode(found)
        if answer.code:
            raise _make_error(answer)
        return answer

    # ---------------------------------------------------------------- following

    async def follow(
        self, scope: Scope, message_id: MessageId, duplicate: Duplicate, *, until_rest: bool
    ) -> MeasuredTask | bytes:
        """The task of a message that another replica answers, or its stored direct answer.

        As soon as the task exists; with `until_rest` when it has ended or paused.

        Raises: TaskNotFound (it was deleted), StoreUnavailable.
        """
        tasks, task_id = self._engine.store.tasks, duplicate.task_id
        was_missing = False
        while True:
            with self._waiting(task_id) as changed:
                measured = await tasks.measure_task(scope, task_id)
                if measured is not None and (not until_rest or measured.head.state in _RESTING):
                    return measured
                if measured is None:
                    newest = await tasks.find_duplicate(scope, message_id)
                    if newest is not None and newest.answer is not None:
                        return newest.answer
                    is_missing = await self._store.find_owner(task_id) is None
                    if is_missing and was_missing:  # it did not end between two reads
                        raise TaskNotFound(
                            f"task {task_id} of this message was deleted; use a new message id"
                        )
                    was_missing = is_missing
                if not was_missing:
                    await _wait_future(changed, self._store.poll_s)

    @contextmanager
    def _waiting(self, task_id: TaskId) -> "Generator[asyncio.Future[None]]":
        """A future that the next change of a task resolves; made before the task is read."""
        readers = self._engine.wakeups.readers
        changed: asyncio.Future[None] = self._engine.loop.create_future()
        readers.setdefault(task_id, set()).add(changed)
        try:
            yield changed
        finally:
            waiting = readers.get(task_id)
            if waiting is not None:
                waiting.discard(changed)
                if not waiting:
                    del readers[task_id]

    # ---------------------------------------------------------------- from the others

    def on_changed(self, tasks: Iterable[TaskId] | None) -> None:
        """Tasks changed elsewhere."""
        if tasks is None:
            self._must_compare.set()
            return
        for task_id in tasks:
            self._wake(task_id)

    def _wake(self, task_id: TaskId) -> None:
        wakeups = self._engine.wakeups
        if task_id in wakeups.readers:
            wakeups.wake_readers(task_id)
        if task_id in wakeups.subscribed:
            wakeups.notify(task_id)
        if wakeups.observers:
            wakeups.notify_observers(task_id)

    async def _compare_changes(self) -> None:
        """Find changes that no notification told of."""
        while True:
            await _wait(self._must_compare, self._store.poll_s)
            self._must_compare.clear()
            wakeups = self._engine.wakeups
            followed = {*wakeups.readers, *wakeups.subscribed} - self._engine.active_tasks.keys()
            try:
                found = await self._store.read_sequences(followed) if followed else {}
            except GatewayError as error:
                log.warning("replica.changes_not_read", reason=error.message)
                continue
            for task_id, sequence in found.items():
                if self._sequences.get(task_id) != sequence:
                    self._wake(task_id)
            self._sequences = found

    def on_handoff(self) -> None:
        """There may be requests for this replica."""
        self._has_requests.set()

    def on_answer(self, number: int) -> None:
        """A request of this replica is answered."""
        answered = self._answers.get(number)
        if answered is not None:
            answered.set()

    def on_lost(self) -> None:
        """Drop everything that is in progress: it is another replica's now."""
        self._held.clear()
        for run in list(self._engine.runs.values()):
            run.lose()

    async def _serve_requests(self) -> None:
        while True:
            self._has_requests.clear()
            after = 0
            try:
                while requests := await self._store.take_handoffs(after):
                    for request in requests:
                        after = request.number
                        if request.number not in self._carried:
                            self._carried.add(request.number)
                            # Each by itself: one may wait for a session, or for an agent to stop.
                            self._engine.supervisor.spawn("request", self._carry_out(request))
            except GatewayError as error:
                log.warning("replica.requests_not_read", reason=error.message)
            await _wait(self._has_requests, self._store.poll_s)

    async def _carry_out(self, handoff: Handoff) -> None:
        try:
            try:
                answer = await self._perform(handoff)
            except GatewayError as error:
                answer = _describe(error)
            except Exception as error:  # the edge: who asked is told in any case
                log.exception("replica.request_failed", number=handoff.number)
                answer = _describe(GatewayFault(f"the request broke: {type(error).__name__}"))
            await self._store.answer_handoff(handoff.number, msgspec.json.encode(answer))
        except GatewayError as error:
            # Not answered: it is found again with the next look, and a message is deduplicated.
            log.warning("replica.request_not_answered", reason=error.message)
        finally:
            self._carried.discard(handoff.number)

    async def _perform(self, handoff: Handoff) -> _Answer:
        request = _request_decoder.decode(handoff.body)
        if isinstance(request, _CancelRequest):
            await cancel_task(self._engine, request.scope, request.task_id)
            return _Answer()
        accepted = await submit(
            self._engine,
            SubmitRequest(
                request.scope,
                request.message,
                request.is_blocking,
                request.accepted_output_modes,
                original_message=request.original_message,
                is_answer=request.is_answer,
                address=request.address,
                is_from_peer=request.is_from_peer,
                is_decided=request.is_decided,
                hold=request.hold,
                metadata=request.metadata,
                new_task_id=request.new_task_id,
            ),
            self._rules(request.scope),
        )
        if isinstance(accepted, ActiveRun):
            duplicate = await accepted.wait_stored()
        else:
            duplicate = accepted.duplicate
        return _Answer(duplicate.run_id, duplicate.task_id, duplicate.answer)

    def _rules(self, scope: Scope) -> AccountRules:
        rules = self._engine.accounts.get(scope.account)
        if rules is None:
            raise Overloaded(
                f"replica {self.id} has no account {scope.account}; give all replicas the same "
                "settings"
            )
        return rules

    # ---------------------------------------------------------------- dead replicas

    async def _watch_others(self) -> None:
        period_s = min(1.0, self._store.lease_s / 5)
        looked_at = self._engine.loop.time()
        while True:
            await self._engine.clock.sleep(period_s)
            # Also now and then: a run may belong to a name that was gone when it was stored.
            is_due = self._engine.loop.time() - looked_at > self._store.lease_s
            try:
                if is_due or await self._store.find_expired():
                    looked_at = self._engine.loop.time()
                    await self.take_over()
            except GatewayError as error:
                log.warning("replica.take_over_failed", reason=error.message)
            except Exception:  # the loop must go on
                log.exception("replica.take_over_failed")

    async def take_over(self) -> None:
        """Take the work of replicas whose lease is over."""
        await recover_runs(self._engine, expired_at=self._engine.clock.now())
        self._has_requests.set()
        self.on_taken_over()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


async def _wait_future(future: "asyncio.Future[None]", seconds: float) -> None:
    await asyncio.wait({future}, timeout=seconds)


def _describe(error: GatewayError) -> _Answer:
    return _Answer(
        code=error.code,
        message=error.message,
        details=error.details,
        problems=tuple(getattr(error, "problems", ())),
        retry_after_s=getattr(error, "retry_after_s", None),
    )


def _make_error(answer: _Answer) -> GatewayError:
    """The error that another replica raised."""
    kind = _find_kind(GatewayError, answer.code) or GatewayFault
    error = kind.__new__(kind)
    Exception.__init__(error, answer.message)
    error.message, error.details = answer.message, answer.details
    if hasattr(kind, "problems") or answer.problems:
        vars(error)["problems"] = answer.problems
    if answer.retry_after_s is not None:
        vars(error)["retry_after_s"] = answer.retry_after_s
    return error


def _find_kind(kind: type[GatewayError], code: str) -> type[GatewayError] | None:
    for one in kind.__subclasses__():
        if "code" in vars(one) and one.code == code:
            return one
        if (found := _find_kind(one, code)) is not None:
            return found
    return None
