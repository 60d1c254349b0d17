"""An engine among several on one store: sessions, requests and changes of other replicas.

A session belongs to one replica at a time, which runs everything in it as if it were alone. A
message or a cancellation for a session of another replica is stored as a request for that one; when
it has accepted the message, this replica follows the task in the store, as a caller would.

    submit    hold the session ──> owned by this replica: submit here
                              └──> another's: hand off ──> `submit` there ──> follow the task here
              what the gateway itself submits (a call, a step) is handed off with its record and its
              delivery, which this replica goes on to send
              no live replica has its agent: the run waits here, unless the settings refuse it;
              when one has it, the run is given up (`_give_up`), and taken as those of a dead one
    cancel    the task runs elsewhere: hand off ──> `cancel_task` there ──> read the task here
    a replica dies   its runs, requests, deliveries and open logs go to another one (`take_over`)
    this one was taken for dead   it drops its runs, which are another one's now (`on_lost`)
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Set
from contextlib import ExitStack, contextmanager
from typing import Protocol

import msgspec

from openclaw_a2a.engine.engine import AccountRules, Engine, SessionHold
from openclaw_a2a.engine.engine_state import EngineSignal, EngineState
from openclaw_a2a.engine.recovery import recover_runs
from openclaw_a2a.engine.replica_requests import (
    CancelRequest,
    InternalRequest,
    ReleaseRequest,
    RequestAnswer,
    WaitRequest,
    decode_request,
    decode_request_answer,
    describe_error,
    describe_message,
    restore_message,
)
from openclaw_a2a.engine.tasks.active_task import DuplicateRun
from openclaw_a2a.engine.tasks.cancel import cancel_task
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.engine.tasks.submit import InternalOrigin, SubmitRequest, submit
from openclaw_a2a.engine.tasks.submit_policy import HeldTasks
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.delivery import DeliveryId
from openclaw_a2a.model.errors import (
    AgentUnavailable,
    GatewayError,
    GatewayFault,
    Overloaded,
    StoreUnavailable,
    TaskNotCancelable,
    TaskNotFound,
)
from openclaw_a2a.model.ids import (
    AgentId,
    MessageId,
    OwnerId,
    RunId,
    SessionKey,
    TaskId,
)
from openclaw_a2a.model.records import RunRecord
from openclaw_a2a.model.task import PAUSED, TERMINAL, TaskState
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import NOBODY, Duplicate, Handoff, MeasuredTask, ReplicaStore

log = get_logger(__name__)

_ANSWER_S = 120.0
"""The timeout of a request to another replica; covers a take-over if that one dies."""
_ANSWER_AGAIN_S = 0.5
_RESTING = TERMINAL | PAUSED
_TAKING_S = 0.1
"""How often to look whether a run that was given up has been taken."""
_GIVE_UP_AT_ONCE = 500
_SHORT_WAIT_S = 0.25
"""A wait for another agent that is over sooner is not told to the replica of the run."""
_MOST_WAIT_S = 600.0

FindRun = Callable[[], Awaitable[RunRecord | None]]
"""Finds a run that another replica works on."""


class _Held:
    """A session of this replica, and how many use it. `number` is None until the store has it."""

    def __init__(self) -> None:
        self.users = 0
        self.number: int | None = None
        self.is_decided = asyncio.Event()


class _ReleasedSlot:
    """The run slot of a run that waits elsewhere, and when it is taken back at the latest."""

    def __init__(self, run: ActiveRun) -> None:
        self._released = ExitStack()
        self._released.enter_context(run.slot.released())
        self.timer: asyncio.TimerHandle | None = None

    def retake(self) -> None:
        """The run goes on."""
        if self.timer is not None:
            self.timer.cancel()
        self._released.close()


class LogFollower(Protocol):
    """An in-memory copy of the logs of one kind; every replica appends to them."""

    def on_changed(self, log_ids: Iterable[str] | None) -> None:
        """These logs changed elsewhere; None: any may have."""
        ...


class Replication:
    """Coordinates an engine with the other replicas of its store."""

    def __init__(
        self, engine: Engine, store: ReplicaStore, *, count_streams: Callable[[], int] = lambda: 0
    ) -> None:
        self._engine = engine
        self._store = store
        self._count_streams = count_streams
        self._elsewhere: frozenset[AgentId] = frozenset()
        self._waiting_agents: frozenset[AgentId] = frozenset()
        self._moving: dict[SessionKey, asyncio.Event] = {}
        """Sessions whose runs are being given up; set when that is done."""
        self.moves = 0
        """How often sessions were given up. A message that was being checked at such a moment
        looks again where its session is."""
        self._held: dict[SessionKey, _Held] = {}
        self._losses = 0
        """How often this replica was taken for dead."""
        self._answers: dict[int, asyncio.Event] = {}
        self._carried: set[int] = set()
        """The requests that are being carried out, and those of `_answered`."""
        self._answered: set[int] = set()
        """Those that ended since the last read began."""
        self._sequences: dict[TaskId, int] = {}
        """The last sequence that was read of each followed task."""
        self._released_slots: dict[tuple[RunId, str], _ReleasedSlot] = {}
        """Of the runs here whose agents wait at other replicas, by who waits."""
        self._has_requests = asyncio.Event()
        self._must_compare = asyncio.Event()
        self.on_taken_over: list[Callable[[], None]] = []
        """Called when deliveries and logs of another replica are ours now."""
        self.followers: dict[str, LogFollower] = {}
        """By the kind of their logs."""
        self.hosts: frozenset[str] = frozenset()
        """The session hosts that this replica reaches; to be set before `start`."""
        self.search_polls = 120
        """After how many times `poll_s` to look for deliveries that became ours unnoticed: each
        minute if notifications do not come, else every ten, because it reads all of them."""
        self.on_dropped: list[Callable[[], None]] = []
        """Called when everything that was ours is another replica's."""

    @property
    def id(self) -> OwnerId:
        """The id of this replica."""
        return self._store.id

    async def start(
        self,
        agents: Iterable[AgentId],
        elsewhere: Iterable[AgentId] = (),
        waiting: Iterable[AgentId] = (),
    ) -> None:
        """Listen to the others; call before runs are recovered.

        `agents` are those of this replica, `elsewhere` those that only others have; messages for
        `waiting`, which are some of these, wait while no live replica has their agent.
        """
        self._elsewhere, self._waiting_agents = frozenset(elsewhere), frozenset(waiting)
        await self._store.start(self, agents, self.hosts)
        run_loop = self._engine.supervisor.run_loop
        run_loop("replica-requests", self._serve_requests())
        run_loop("replica-changes", self._compare_changes())
        run_loop("replica-take-over", self._watch_others())
        if self._waiting_agents:
            run_loop("replica-placement", self._place_waiting())

    async def renew(self) -> None:
        """Keep the lease. Raises: StoreUnavailable."""
        runs = [one for one in self._engine.runs.values() if not one.slot.is_elsewhere]
        await self._store.renew(runs=len(runs), streams=self._count_streams())

    # ---------------------------------------------------------------- sessions

    async def hold(self, session_key: SessionKey) -> SessionHold | OwnerId:
        """Acquire the session, or return the replica that owns it."""
        while True:
            if (moving := self._moving.get(session_key)) is not None:
                await moving.wait()
                continue
            moves = self.moves
            hold = await self._hold_once(session_key)
            if hold == NOBODY:  # its runs are about to be taken
                await self._engine.clock.sleep(_TAKING_S)
            elif isinstance(hold, SessionHold) and moves != self.moves:
                hold.release()  # it may have been given up since
            else:
                return hold

    async def _hold_once(self, session_key: SessionKey) -> SessionHold | OwnerId:
        while (held := self._held.get(session_key)) is not None:
            if held.number is not None:
                held.users += 1
                return self._make_hold(session_key, held)
            await held.is_decided.wait()  # another message asks for it at this moment
        held = self._held[session_key] = _Held()
        try:
            losses = self._losses
            found = await self._store.hold_session(session_key)
            while losses != self._losses:  # under a name that is not ours any more, perhaps
                losses = self._losses
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

    def waits_elsewhere(self, agent_id: AgentId) -> bool:
        """True when only other replicas have the agent, and messages for it wait for one."""
        return agent_id in self._waiting_agents

    async def find_place(
        self,
        agent_id: AgentId,
        session_key: SessionKey | None = None,
        *,
        for_new_work: bool = True,
    ) -> OwnerId | None:
        """The replica that runs an agent; None: this one. One that drains gets no new work.

        Also None when a new message for it has to wait here, because no live replica has the agent
        or because this replica has its session: others would hand the message back.

        Raises: AgentUnavailable (no live replica has it), StoreUnavailable.
        """
        if agent_id not in self._elsewhere:
            return None
        may_wait = for_new_work and agent_id in self._waiting_agents
        if may_wait and session_key is not None and self._has_session(session_key):
            return None
        found = await self._store.find_replica(agent_id, may_drain=not for_new_work)
        if found is None and may_wait:
            return None
        if found is None:
            raise AgentUnavailable(
                f"no gateway that runs now has the agent {agent_id}; try again later, or start one "
                f"of those in agents.{agent_id}.replicas",
                retry_after_s=self._store.lease_s,
            )
        return found

    # ---------------------------------------------------------------- runs that wait for a replica

    def _has_session(self, session_key: SessionKey) -> bool:
        """True when messages of the session wait here, or are being accepted."""
        waiting = self._list_waiting()
        return session_key in self._held or any(
            run.record.session_key == session_key for run in waiting
        )

    def _list_waiting(self) -> list[ActiveRun]:
        """The runs here whose agent only other replicas have."""
        runs = self._engine.runs.values()
        return [run for run in runs if run.slot.is_elsewhere and not run.is_lost]

    async def _place_waiting(self) -> None:
        """Give runs up that wait for an agent, once a live replica has it."""
        period_s = min(1.0, self._store.lease_s / 5)
        may_be_left = False
        while True:
            await self._engine.clock.sleep(period_s)
            try:
                agents = {run.record.binding.agent_id for run in self._list_waiting()}
                found = {one for one in agents if await self._store.find_replica(one) is not None}
                may_be_left = await self._give_up(found) or may_be_left
                # Told again until they are taken: a notification may be lost.
                may_be_left = may_be_left and await self._store.call_takers()
            except GatewayError as error:
                log.warning("replica.runs_not_given_up", reason=error.message)
            except Exception:  # the loop must go on
                log.exception("replica.runs_not_given_up")

    async def _give_up(self, agents: Set[AgentId]) -> bool:
        """Let other replicas take the runs of these agents; True when some were given up.

        Whole sessions: two replicas must not get runs of one. From here until the runs have left,
        no message gets into these sessions (`hold`), and one that is on its way looks again where
        its session is (`moves`).
        """
        waiting = [run for run in self._list_waiting() if run.record.binding.agent_id in agents]
        sessions = {run.record.session_key for run in waiting[:_GIVE_UP_AT_ONCE]}
        runs = [run for run in self._engine.runs.values() if run.record.session_key in sessions]
        # One that is being stored, or begins to be held for the operator: with the next round.
        busy = {run.record.session_key for run in runs if not run.is_waiting}
        runs = [run for run in runs if run.record.session_key not in busy]
        sessions -= busy
        if not runs:
            return False
        self.moves += 1
        moved = asyncio.Event()
        self._moving.update(dict.fromkeys(sessions, moved))
        try:
            kept = await self._store.give_up_runs([run.record.id for run in runs])
            for one in sessions - {run.record.session_key for run in runs if run.record.id in kept}:
                # Messages that still use it look again where it is.
                if (held := self._held.get(one)) is not None and held.number is not None:
                    del self._held[one]
            for run in runs:
                if run.record.id not in kept:
                    run.lose()
        finally:
            for one in sessions:
                del self._moving[one]
            moved.set()
        log.info("replica.runs_given_up", count=len(runs) - len(kept))
        return True

    # ---------------------------------------------------------------- requests to others

    async def hand_off(
        self, owner: OwnerId, request: SubmitRequest, rules: AccountRules
    ) -> DuplicateRun:
        """Have another replica accept a message. Raises: why it does not."""
        if request.is_released:
            raise Overloaded("the session is in use on another replica; try again shortly")
        internal, origin = None, request.internal_origin
        if origin is not None:
            if request.message.task_id is None:  # what goes with the task names it
                task_id = request.new_task_id or TaskId(self._engine.new_id())
                request = msgspec.structs.replace(request, new_task_id=task_id)
            internal = self._describe_internal(request, origin, rules)
        body = describe_message(request, internal)
        answer = await self._ask(owner, msgspec.json.encode(body))
        delivery = None if internal is None else internal.delivery
        # Not one that was handed off to this replica; nor after this one was taken for dead while
        # it waited: then another one takes it over.
        is_ours = internal is not None and internal.sender == self.id
        is_sent_here = request.delivery_owner is None and is_ours
        if delivery is not None and is_sent_here:
            if delivery.task_id == answer.task_id:
                self._engine.wakeups.add_delivery(delivery)
            # It may have ended already. Or the same message was accepted before, whose delivery is
            # in the store, and is not known here if the answer to that was lost.
            self._engine.wakeups.notify(answer.task_id)
        duplicate = Duplicate(answer.run_id, answer.task_id, answer.answer)
        return DuplicateRun(duplicate, request.scope, request.message.message_id)

    def _describe_internal(
        self, request: SubmitRequest, origin: InternalOrigin, rules: AccountRules
    ) -> InternalRequest:
        task_id = request.message.task_id
        new_id, cursor = (request.new_task_id, 0) if task_id is None else (task_id, -1)
        task_id = new_id or TaskId("")
        make_record, make_delivery = origin.make_record, request.make_delivery
        return InternalRequest(
            rules.agent_id,
            origin.session_key,
            origin.provenance,
            origin.metadata,
            None if make_record is None else make_record(task_id),
            None if make_delivery is None else make_delivery(task_id, cursor),
            request.delivery_owner or self.id,
        )

    async def cancel_elsewhere(
        self, scope: Scope | None, task_id: TaskId, session_key: SessionKey | None
    ) -> bool:
        """Have the replica that works on a task stop it; False when no other one does any more."""
        owner = await self._store.find_owner(task_id)
        while owner == NOBODY:  # it is about to be taken
            await self._engine.clock.sleep(_TAKING_S)
            owner = await self._store.find_owner(task_id)
        if owner is None:
            return False
        if owner == self.id:  # which is taking it over, or could not continue it
            if session_key is not None:
                await self._engine.recoveries.wait(session_key)
            await self._engine.clock.sleep(_TAKING_S)
            return False
        await self.cancel_at(owner, scope, task_id)
        return True

    async def cancel_at(self, owner: OwnerId, scope: Scope | None, task_id: TaskId) -> None:
        """Have a replica stop a task. Raises: as `cancel_task`."""
        try:
            await self._ask(owner, msgspec.json.encode(CancelRequest(scope, task_id)))
        except TaskNotCancelable:
            # The request of a replica that is gone before its answer is stored is carried out by
            # another one. Then the task is canceled already, which is what was asked for.
            measured = await self._engine.store.tasks.measure_task(scope, task_id)
            if measured is None or measured.head.state is not TaskState.CANCELED:
                raise

    async def release_elsewhere(self, owner: OwnerId, task_id: TaskId) -> None:
        """Have another replica let a held task go on. Raises: as `HeldTasks.decide`."""
        await self._ask(owner, msgspec.json.encode(ReleaseRequest(task_id)))

    async def _ask(self, owner: OwnerId, body: bytes) -> RequestAnswer:
        number = await self._store.hand_off(owner, body)
        answered = self._answers[number] = asyncio.Event()
        give_up_at = self._engine.loop.time() + _ANSWER_S
        try:
            while True:
                answered.clear()  # before the read: what comes while it lasts is not lost
                if (found := await self._store.take_answer(number)) is not None:
                    break
                if self._engine.loop.time() > give_up_at:
                    # What is not begun by now is not begun any more.
                    await self._store.withdraw(number)
                    raise StoreUnavailable(
                        f"replica {owner} did not answer within {_ANSWER_S:g} s; ask again"
                    )
                await _wait(answered, self._store.poll_s)
        finally:
            del self._answers[number]
        return decode_request_answer(found, owner)

    @contextmanager
    def released_slot(self, find_run: FindRun) -> Generator[None]:
        """Within the block a run at another replica waits, and holds no run slot there.

        Nothing is waited for: the block is entered at once, and the other replica told meanwhile.
        """
        is_over = asyncio.Event()
        job = self._keep_released(find_run, self._engine.new_id(), is_over)
        self._engine.supervisor.spawn("keep-slot-released", job)
        try:
            yield
        finally:
            is_over.set()

    async def _keep_released(self, find_run: FindRun, waiter: str, is_over: asyncio.Event) -> None:
        lease_s = self._store.lease_s
        await _wait(is_over, _SHORT_WAIT_S)
        run: RunRecord | None = None
        while not is_over.is_set():
            try:
                run = await find_run() or run  # which this replica itself may have taken over
                if run is None:
                    return
                await self._tell_waiting(WaitRequest(run.id, waiter, lease_s), run.task_id)
            except GatewayError as error:  # then it has its slot, until this is said again
                log.warning("replica.slot_not_released", reason=error.message)
            await _wait(is_over, lease_s / 3)
        if run is not None:
            try:
                await self._tell_waiting(WaitRequest(run.id, waiter, 0), run.task_id)
            except GatewayError as error:  # it has its slot again when the time is over
                log.warning("replica.slot_not_released", reason=error.message)

    async def _tell_waiting(self, request: WaitRequest, task_id: TaskId) -> None:
        owner = await self._store.find_owner(task_id)
        if owner is not None:
            await self._ask(owner, msgspec.json.encode(request))

    def _set_waiting(self, request: WaitRequest) -> None:
        """Release the run slot of a run here, for some time, or let the run go on."""
        key = request.run_id, request.waiter
        released, run = self._released_slots.get(key), self._engine.runs.get(request.run_id)
        if request.seconds <= 0 or run is None:
            self._retake_slot(key)
            return
        if released is None:
            released = self._released_slots[key] = _ReleasedSlot(run)
        elif released.timer is not None:
            released.timer.cancel()
        seconds = min(request.seconds, _MOST_WAIT_S)
        released.timer = self._engine.loop.call_later(seconds, self._retake_slot, key)

    def _retake_slot(self, key: tuple[RunId, str]) -> None:
        released = self._released_slots.pop(key, None)
        if released is not None:
            released.retake()

    async def find_run(self, session_keys: Iterable[SessionKey]) -> RunRecord | None:
        """The run that another replica has started in one of these sessions."""
        return await self._store.find_run(session_keys)

    def pop_taken(self, kind: str) -> set[DeliveryId]:
        """The deliveries of a kind that were taken over since this was asked."""
        return self._store.pop_taken(kind)

    async def list_hosts(self, agent_id: AgentId) -> set[str]:
        """The session hosts of the replicas that have an agent; if none has both, of all."""
        return await self._store.list_hosts(agent_id)

    async def pass_on(self, delivery_id: DeliveryId, hosts: Iterable[str]) -> bool:
        """Give a delivery to another replica with these session hosts; False: there is none."""
        return await self._store.pass_on(delivery_id, hosts)

    async def find_owner(self, task_id: TaskId) -> OwnerId | None:
        """The replica that has unfinished runs of a task."""
        return await self._store.find_owner(task_id)

    async def take_delivery(self, delivery_id: DeliveryId) -> None:
        """Have this replica send a delivery, whoever has it."""
        await self._store.take_delivery(delivery_id)

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
        """Find changes whose notification was lost."""
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

    def on_logs_changed(self, logs: Iterable[tuple[str, str]] | None) -> None:
        """Logs changed elsewhere."""
        if logs is None:
            for follower in self.followers.values():
                follower.on_changed(None)
            return
        for kind, log_id in logs:
            if kind in self.followers:
                self.followers[kind].on_changed([log_id])

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
        # A session that is being acquired is asked for again (`_hold_once`), and stays one for all
        # messages that wait for it: two counts of its users would release it too early.
        self._held = {key: held for key, held in self._held.items() if held.number is None}
        self._losses += 1
        for run in list(self._engine.runs.values()):
            run.lose()
        for drop in self.on_dropped:
            drop()

    def on_deliveries(self) -> None:
        """Deliveries of another replica may be ours now."""
        for look in self.on_taken_over:
            look()

    async def _serve_requests(self) -> None:
        while True:
            self._has_requests.clear()
            after = 0
            try:
                while requests := await self._read_requests(after):
                    for request in requests:
                        after = request.number
                        if request.number not in self._carried:
                            self._carried.add(request.number)
                            # Each by itself: one may wait for a session, or for an agent to stop.
                            self._engine.supervisor.spawn("request", self._carry_out(request))
            except GatewayError as error:
                log.warning("replica.requests_not_read", reason=error.message)
            await _wait(self._has_requests, self._store.poll_s)

    async def _read_requests(self, after: int) -> list[Handoff]:
        # What was answered before this read is not found by it. What is answered while it lasts
        # may be, and must not be carried out again: a task that was canceled "is canceled already".
        self._carried -= self._answered
        self._answered.clear()
        return await self._store.take_handoffs(after)

    async def _carry_out(self, handoff: Handoff) -> None:
        try:
            try:
                answer = await self._perform(handoff)
            except GatewayError as error:
                answer = describe_error(error)
            except Exception as error:  # top of the task: the requester always gets an answer
                log.exception("replica.request_failed", number=handoff.number)
                answer = describe_error(GatewayFault(f"the request broke: {type(error).__name__}"))
            await self._answer(handoff.number, msgspec.json.encode(answer))
        finally:
            self._answered.add(handoff.number)

    async def _answer(self, number: int, answer: bytes) -> None:
        # Until it is stored: carried out again, what has succeeded would fail. When the request is
        # gone, or another replica's by now, the store does nothing, and this ends.
        while True:
            try:
                return await self._store.answer_handoff(number, answer)
            except GatewayError as error:
                log.warning("replica.request_not_answered", reason=error.message)
            await self._engine.clock.sleep(_ANSWER_AGAIN_S)

    async def _perform(self, handoff: Handoff) -> RequestAnswer:
        request = decode_request(handoff.body, self.id)
        if isinstance(request, CancelRequest):
            await cancel_task(self._engine, request.scope, request.task_id)
            return RequestAnswer()
        if isinstance(request, ReleaseRequest):
            # Its peer was approved where the operator decided.
            await HeldTasks(self._engine, None).decide(request.task_id, allow=True)
            return RequestAnswer()
        if isinstance(request, WaitRequest):
            self._set_waiting(request)
            return RequestAnswer()
        if request.internal is None:
            rules = self._rules(request.scope)
        else:
            agent_id, account = request.internal.agent_id, request.scope.account
            known = self._engine.accounts.get(account)
            rules = AccountRules(account, agent_id)
            if known is not None:
                rules = msgspec.structs.replace(known, agent_id=agent_id)
        accepted = await submit(self._engine, restore_message(request), rules)
        if isinstance(accepted, ActiveRun):
            duplicate = await accepted.wait_stored()
        else:
            duplicate = accepted.duplicate
        return RequestAnswer(duplicate.run_id, duplicate.task_id, duplicate.answer)

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
        looked_at = searched_at = self._engine.loop.time()
        while True:
            await self._engine.clock.sleep(period_s)
            if self._engine.loop.time() - searched_at > self.search_polls * self._store.poll_s:
                searched_at = self._engine.loop.time()
                self.on_deliveries()
            # Also periodically: a run may be stored under an id that was marked as gone before.
            is_due = self._engine.loop.time() - looked_at > self._store.lease_s
            try:
                is_serving = self._engine.state is EngineState.SERVING
                if self._store.is_draining and is_serving:
                    log.info("replica.draining", replica=self.id)
                    self._engine.apply(EngineSignal.DRAIN)
                elif not is_serving and not self._store.is_draining:
                    await self._store.drain(self.id)  # it stops: others send it no new work
                if is_due or await self._store.find_expired():
                    looked_at = self._engine.loop.time()
                    await self.take_over()
            except GatewayError as error:
                log.warning("replica.take_over_failed", reason=error.message)
            except Exception:  # the loop must go on
                log.exception("replica.take_over_failed")

    async def take_over(self) -> None:
        """Take the work of replicas whose lease is over."""
        await recover_runs(self._engine)
        self._has_requests.set()
        if self._store.pop_has_taken():
            self.on_deliveries()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


async def _wait_future(future: "asyncio.Future[None]", seconds: float) -> None:
    await asyncio.wait({future}, timeout=seconds)
