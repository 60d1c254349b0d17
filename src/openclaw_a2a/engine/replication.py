"""An engine among several on one store: session ownership, hand-off and take-over.

A session belongs to one replica at a time, which runs everything in it as if it were alone.

    submit    hold the session ──> owned by this replica: submit here
                              └──> another's: a request to it (`replica_requests`); this replica
                                   follows the task in the store, as a caller would (`follow`)
              no live replica has its agent: the run waits here, unless the settings refuse it;
              when one has it, the run is given up (`_give_up`), and taken as those of a dead one
    a replica dies   its runs, requests, deliveries and open logs go to another one (`take_over`)
    this one was taken for dead   it drops its runs, which are another one's now (`on_lost`)
"""

import asyncio
from collections.abc import Callable, Iterable, Set

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.engine_state import EngineSignal, EngineState
from openclaw_a2a.engine.recovery import recover_runs
from openclaw_a2a.engine.replica_requests import CLAIM_POLL_S, ReplicaRequests
from openclaw_a2a.engine.sessions import SessionHold
from openclaw_a2a.engine.supervisor import wait_event
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import AgentUnavailable, GatewayError, TaskNotFound
from openclaw_a2a.model.ids import AgentId, MessageId, OwnerId, SessionKey, TaskId
from openclaw_a2a.model.task import PAUSED, TERMINAL
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import NOBODY, Duplicate, MeasuredTask, ReplicaStore

log = get_logger(__name__)

_ENDED_OR_PAUSED = TERMINAL | PAUSED
_GIVE_UP_AT_ONCE = 500


class _Held:
    """A session of this replica, and how many use it. `number` is None until the store has it."""

    def __init__(self) -> None:
        self.users = 0
        self.number: int | None = None
        self.is_decided = asyncio.Event()


class Replication:
    """Coordinates an engine with the other replicas of its store."""

    def __init__(
        self, engine: Engine, store: ReplicaStore, *, count_streams: Callable[[], int]
    ) -> None:
        self.store = store
        self.requests = ReplicaRequests(engine, self)
        """What this replica has others do, and they have it do."""
        self._engine = engine
        self._count_streams = count_streams
        self._elsewhere: frozenset[AgentId] = frozenset()
        self._waiting_agents: frozenset[AgentId] = frozenset()
        self._moving: dict[SessionKey, asyncio.Event] = {}
        """Sessions whose runs are being given up; set when that is done."""
        self.moves = 0
        """How often sessions were given up. A submission that finds another number after its
        checks than before them looks for the owner of its session again."""
        self._held: dict[SessionKey, _Held] = {}
        self._losses = 0
        """How often this replica was taken for dead."""
        self._sequences: dict[TaskId, int] = {}
        """The last sequence that was read of each followed task."""
        self._must_compare = asyncio.Event()
        self.on_taken_over: list[Callable[[], None]] = []
        """Called when deliveries and logs of another replica are ours now."""
        self.log_listeners: dict[str, Callable[[Iterable[str] | None], None]] = {}
        """By kind: called with the logs that changed elsewhere; with None when any may have."""
        self.hosts: frozenset[str] = frozenset()
        """The session hosts that this replica reaches; to be set before `start`."""
        self.search_polls = 120
        """How many times `poll_s` lie between two searches for deliveries that became ours without
        a notification. `poll_s` is longer while notifications arrive, so this is every minute
        without them and else every ten minutes: a search reads all deliveries."""
        self.on_dropped: list[Callable[[], None]] = []
        """Called when everything that was ours is another replica's."""

    @property
    def id(self) -> OwnerId:
        """The id of this replica."""
        return self.store.id

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
        await self.store.start(self, agents, self.hosts)
        run_loop = self._engine.supervisor.run_loop
        run_loop("replica-requests", self.requests.serve())
        run_loop("replica-changes", self._compare_changes())
        run_loop("replica-take-over", self._watch_others())
        if self._waiting_agents:
            run_loop("replica-placement", self._place_waiting())

    async def renew(self) -> None:
        """Keep the lease. Raises: StoreUnavailable."""
        runs = [one for one in self._engine.runs.values() if not one.slot.is_elsewhere]
        await self.store.renew(runs=len(runs), streams=self._count_streams())

    # ---------------------------------------------------------------- sessions

    async def hold(self, session_key: SessionKey) -> SessionHold | OwnerId:
        """Acquire the session, or return the replica that owns it."""
        while True:
            if (moving := self._moving.get(session_key)) is not None:
                await moving.wait()
                continue
            moves = self.moves
            hold = await self._hold_once(session_key)
            if hold == NOBODY:  # its runs were given up, and not claimed yet
                await self._engine.clock.sleep(CLAIM_POLL_S)
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
            found = await self.store.hold_session(session_key)
            while losses != self._losses:  # perhaps acquired under the id this replica had before
                losses = self._losses
                found = await self.store.hold_session(session_key)
            if found.owner != self.store.id:
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
            # Another entry or none after this replica was taken for dead: not ours to release.
            if not held.users and self._held.get(session_key) is held:
                del self._held[session_key]
                self.store.release_session(session_key, held.number or 0)

        return SessionHold(release)

    def waits_elsewhere(self, agent_id: AgentId) -> bool:
        """True when only other replicas have the agent, and messages for it wait for one."""
        return agent_id in self._waiting_agents

    async def choose_replica(
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
        found = await self.store.find_replica(agent_id, may_drain=not for_new_work)
        if found is None and not may_wait:
            raise AgentUnavailable(
                f"no gateway that runs now has the agent {agent_id}; try again later, or start one "
                f"of those in agents.{agent_id}.replicas",
                retry_after_s=self.store.lease_s,
            )
        return found

    # ---------------------------------------------------------------- runs that wait for a replica

    def _has_session(self, session_key: SessionKey) -> bool:
        """True when messages of the session wait here, or are being accepted."""
        waiting = {run.record.session_key for run in self._list_waiting()}
        return session_key in self._held or session_key in waiting

    def _list_waiting(self) -> list[ActiveRun]:
        """The runs here whose agent only other replicas have."""
        runs = self._engine.runs.values()
        return [run for run in runs if run.slot.is_elsewhere and not run.is_lost]

    async def _place_waiting(self) -> None:
        """Give runs up that wait for an agent, once a live replica has it."""
        period_s = min(1.0, self.store.lease_s / 5)
        may_be_left = False
        while True:
            await self._engine.clock.sleep(period_s)
            try:
                agents = {run.record.binding.agent_id for run in self._list_waiting()}
                found = {one for one in agents if await self.store.find_replica(one) is not None}
                may_be_left = await self._give_up(found) or may_be_left
                # Repeated until the runs are taken, because a notification may be lost.
                may_be_left = may_be_left and await self.store.notify_takers()
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
        # Runs that are being stored, or are becoming held for the operator, wait for a later round.
        busy = {run.record.session_key for run in runs if not run.is_waiting}
        runs = [run for run in runs if run.record.session_key not in busy]
        sessions -= busy
        if not runs:
            return False
        self.moves += 1
        moved = asyncio.Event()
        self._moving.update(dict.fromkeys(sessions, moved))
        try:
            kept = await self.store.give_up_runs([run.record.id for run in runs])
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

    # ---------------------------------------------------------------- following

    async def follow(
        self,
        scope: Scope,
        message_id: MessageId,
        duplicate: Duplicate,
        *,
        until_ended_or_paused: bool,
    ) -> MeasuredTask | bytes:
        """The task of a message that another replica answers, or its stored direct answer.

        As soon as the task exists; with `until_ended_or_paused` when it has ended or paused.

        Raises: TaskNotFound (it was deleted), StoreUnavailable.
        """
        tasks, task_id = self._engine.store.tasks, duplicate.task_id
        was_missing = False
        while True:
            with self._engine.wakeups.waiting(task_id) as changed:
                measured = await tasks.measure_task(scope, task_id)
                if measured is not None and (
                    not until_ended_or_paused or measured.head.state in _ENDED_OR_PAUSED
                ):
                    return measured
                if measured is None:
                    newest = await tasks.find_duplicate(scope, message_id)
                    if newest is not None and newest.answer is not None:
                        return newest.answer
                    is_missing = await self.store.find_owner(task_id) is None
                    if is_missing and was_missing:  # it did not end between two reads
                        raise TaskNotFound(
                            f"task {task_id} of this message was deleted; use a new message id"
                        )
                    was_missing = is_missing
                if not was_missing:
                    await asyncio.wait({changed}, timeout=self.store.poll_s)

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
            await wait_event(self._must_compare, self.store.poll_s)
            self._must_compare.clear()
            wakeups = self._engine.wakeups
            followed = {*wakeups.readers, *wakeups.subscribed} - self._engine.active_tasks.keys()
            try:
                found = await self.store.read_sequences(followed) if followed else {}
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
            for listener in self.log_listeners.values():
                listener(None)
            return
        for kind, log_id in logs:
            if kind in self.log_listeners:
                self.log_listeners[kind]([log_id])

    def on_handoff(self) -> None:
        """There may be requests for this replica."""
        self.requests.read_soon()

    def on_answer(self, number: int) -> None:
        """A request of this replica is answered."""
        self.requests.on_answer(number)

    def on_lost(self) -> None:
        """Drop everything that is in progress: it is another replica's now."""
        # Entries of sessions that are being acquired stay: `_hold_once` asks for them again under
        # the new id. A second entry would count its users apart and release the session too early.
        self._held = {key: held for key, held in self._held.items() if held.number is None}
        self._losses += 1
        for run in list(self._engine.runs.values()):
            run.lose()
        for drop in self.on_dropped:
            drop()

    def on_deliveries(self) -> None:
        """Deliveries of another replica may be ours now."""
        for notify in self.on_taken_over:
            notify()

    # ---------------------------------------------------------------- dead replicas

    async def _watch_others(self) -> None:
        period_s = min(1.0, self.store.lease_s / 5)
        looked_at = searched_at = self._engine.loop.time()
        while True:
            await self._engine.clock.sleep(period_s)
            if self._engine.loop.time() - searched_at > self.search_polls * self.store.poll_s:
                searched_at = self._engine.loop.time()
                self.on_deliveries()
            # Also periodically: a run may be stored under an id that was marked as gone before.
            is_due = self._engine.loop.time() - looked_at > self.store.lease_s
            try:
                is_serving = self._engine.state is EngineState.SERVING
                if self.store.is_draining and is_serving:
                    log.info("replica.draining", replica=self.id)
                    self._engine.apply(EngineSignal.DRAIN)
                elif not is_serving and not self.store.is_draining:
                    await self.store.drain(self.id)  # it stops: others send it no new work
                if is_due or await self.store.find_expired():
                    looked_at = self._engine.loop.time()
                    await self.take_over()
            except GatewayError as error:
                log.warning("replica.take_over_failed", reason=error.message)
            except Exception:  # the loop must go on
                log.exception("replica.take_over_failed")

    async def take_over(self) -> None:
        """Take the work of replicas whose lease is over."""
        await recover_runs(self._engine)
        self.requests.read_soon()
        if self.store.pop_has_taken():
            self.on_deliveries()
