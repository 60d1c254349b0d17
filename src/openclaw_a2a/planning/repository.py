"""Stores objectives as append-only operation logs and notifies subscribers of each change.

A write-through cache: a change goes to the log first and replaces the state in memory after that,
so no reader sees a change that a crash could take back. Changes of one objective are serialised by
a lock; another process that writes to the same log is detected by the log's sequence number.

Archived objectives are not in memory. Their log is read when they are requested by id; lists and
plan lookups use summaries, which are stored as records when an objective is archived.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar, TypeVarTuple
from weakref import WeakValueDictionary

import msgspec

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    GatewayError,
    QuotaExceeded,
    StatusChangeNotAllowed,
    StoreUnavailable,
)
from openclaw_a2a.model.ids import LOCAL_PEER, PeerName
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.listing import ObjectiveIndex, ObjectiveSummary
from openclaw_a2a.planning.model import (
    ObjectiveId,
    PlanId,
    Timestamp,
    next_timestamp,
    to_datetime,
    to_timestamp,
)
from openclaw_a2a.planning.operations import (
    ObjectiveArchived,
    Operation,
    decode_operation,
    encode_operation,
)
from openclaw_a2a.planning.state import Change, CommandContext, ObjectiveState, not_found, replay
from openclaw_a2a.planning.subscription import OperationSubscription
from openclaw_a2a.ports import LogAppend, LogHead, LogStore, Record, RecordStore, StoredLog

log = get_logger(__name__)

LOG_KIND = "objective"
SUMMARY_KIND = "objective-summary"
# Every record needs an expiry; a summary lives as long as its objective.
_NEVER = datetime(9999, 1, 1, tzinfo=UTC)
_PAGE = 100
# One is enough unless another process writes to the same log.
_ATTEMPTS = 10
_summary_decoder = msgspec.json.Decoder(ObjectiveSummary)

_Args = TypeVarTuple("_Args")
_Result = TypeVar("_Result")
StartWrite = Callable[[], Awaitable[object]]


class ObjectiveRepository:
    """The objectives of one store.

    What is read or changed by its id must be in scope (None: any): what belongs to another owner
    is not found.
    """

    def __init__(
        self,
        logs: LogStore,
        records: RecordStore,
        supervisor: Supervisor,
        command_context: Callable[[], CommandContext],
    ) -> None:
        """`command_context` gives the time, an id generator and the limits for a command, now."""
        self.command_context = command_context
        self._logs = logs
        self._records = records
        self._supervisor = supervisor
        self._last_created: Timestamp | None = None
        self._open: dict[ObjectiveId, ObjectiveState] = {}
        self._open_counts: Counter[PeerName] = Counter()
        """How many of them each peer owns."""
        self._index = ObjectiveIndex()
        self._index_lock = asyncio.Lock()
        self._is_index_complete = False
        # Objectives that were deleted before the index is complete. `_index_archived` must not add
        # them again from a page of log heads that it read before the deletion.
        self._deleted_early: set[ObjectiveId] = set()
        # Weak: a lock lives as long as something holds it or waits for it.
        self._locks: WeakValueDictionary[ObjectiveId, asyncio.Lock] = WeakValueDictionary()
        self._listeners: list[Callable[[Change], None]] = []
        self._adopters: list[Callable[[ObjectiveState], None]] = []
        self._watchers: list[Callable[[ObjectiveState], None]] = []
        self._subscriptions: dict[ObjectiveId, set[OperationSubscription]] = {}

    # ---------------------------------------------------------------- reading

    async def load(self) -> None:
        """Load the objectives that are not archived."""
        after = ""
        # Logs of archived objectives are closed and not read: starts do not get slower with age.
        while page := await self._logs.list_open_logs(LOG_KIND, after=after, limit=_PAGE):
            for stored in page:
                if (state := replay_log(stored)) is not None:
                    self._put_open(state)
                    self._index.put(ObjectiveSummary.of(state))
            after = page[-1].id

    def list_open(self) -> list[ObjectiveState]:
        """The objectives that are not archived, oldest first."""
        return sorted(self._open.values(), key=lambda one: (one.objective.created_at, one.id))

    def is_own(self, objective_id: ObjectiveId) -> bool:
        """True when this gateway executes the plans of an objective."""
        del objective_id
        return True

    async def find_newest(self, objective_id: ObjectiveId) -> ObjectiveState | None:
        """An objective that is not archived, as it is in the log."""
        return self._open.get(objective_id)

    def find_open(self, objective_id: ObjectiveId) -> ObjectiveState | None:
        """An objective that is not archived."""
        return self._open.get(objective_id)

    async def find(self, scope: Scope | None, objective_id: ObjectiveId) -> ObjectiveState | None:
        """An objective, archived or not; None when there is none."""
        return await self.find_known(scope, objective_id)

    async def find_known(
        self, scope: Scope | None, objective_id: ObjectiveId
    ) -> ObjectiveState | None:
        """As `find`, but open objectives are read from memory."""
        state = self._open.get(objective_id) or await self._read(objective_id)
        return state if state is not None and scope in (None, state.owner) else None

    async def find_by_plan(self, scope: Scope | None, plan_id: PlanId) -> ObjectiveState | None:
        """The objective that a plan belongs to."""
        objective_id = self._index.find_plan(plan_id)
        if objective_id is None:
            objective_id = (await self.load_index()).find_plan(plan_id)
        return None if objective_id is None else await self.find(scope, objective_id)

    async def get(self, scope: Scope | None, objective_id: ObjectiveId) -> ObjectiveState:
        """An objective, archived or not. Raises: PlanItemNotFound."""
        if (state := await self.find(scope, objective_id)) is None:
            raise not_found("objective", objective_id)
        return state

    async def _get_locked(self, scope: Scope | None, objective_id: ObjectiveId) -> ObjectiveState:
        """As `get`; the caller holds the lock of the objective."""
        await self._refresh(objective_id)
        if (state := await self.find_known(scope, objective_id)) is None:
            raise not_found("objective", objective_id)
        return state

    async def _refresh(self, objective_id: ObjectiveId) -> None:
        """Bring an objective in memory up to date with its log, under its lock."""

    async def get_by_plan(self, scope: Scope | None, plan_id: PlanId) -> ObjectiveState:
        """The objective that a plan belongs to. Raises: PlanItemNotFound."""
        if (state := await self.find_by_plan(scope, plan_id)) is None:
            raise not_found("plan", plan_id)
        return state

    async def load_index(self) -> ObjectiveIndex:
        """The index of all objectives, completed with the archived ones on first use."""
        # Concurrent changes put their own, newer summaries into the index.
        async with self._index_lock:
            # Under the lock: of several first lists at once, one reads the summaries.
            if not self._is_index_complete:
                await self._index_archived()
                self._is_index_complete = True
                self._deleted_early.clear()
        return self._index

    async def read_log_lines(self, objective_id: ObjectiveId) -> list[bytes]:
        """The operation log of an objective, line by line. Raises: PlanItemNotFound."""
        stored = await self._logs.read_log(LOG_KIND, objective_id)
        if stored is None:
            raise not_found("objective", objective_id)
        return [line.body for line in stored.lines]

    async def read_operations(self, objective_id: ObjectiveId, after: int) -> list[Operation]:
        """The operations with a higher sequence number; none when the objective is deleted."""
        # Under the lock: between append and publish the log is ahead of the subscribers.
        async with self._lock(objective_id):
            await self._refresh(objective_id)
            stored = await self._logs.read_log(LOG_KIND, objective_id)
        operations: list[Operation] = []
        for line in () if stored is None else stored.lines:
            if line.sequence > after:
                with suppress(GatewayError):  # a damaged line was reported when the log was read
                    operation = decode_operation(line.body)
                    operations.append(msgspec.structs.replace(operation, seq=line.sequence))
        return operations

    async def subscribe(
        self, scope: Scope | None, objective_id: ObjectiveId, after: int | None
    ) -> OperationSubscription:
        """Subscribe to the operations after a sequence number (None: the current one).

        A number that is ahead counts as the current one. Raises: PlanItemNotFound.
        """
        # Under the lock: no change is published between reading the state and subscribing.
        async with self._lock(objective_id):
            state = await self._get_locked(scope, objective_id)
            subscription = OperationSubscription(
                state,
                state.seq if after is None else min(after, state.seq),
                read_operations=self.read_operations,
                unsubscribe=self.unsubscribe,
            )
            self._subscriptions.setdefault(objective_id, set()).add(subscription)
        return subscription

    def unsubscribe(self, subscription: OperationSubscription) -> None:
        """Remove a subscription."""
        subscriptions = self._subscriptions.get(subscription.state.id, set())
        subscriptions.discard(subscription)
        if not subscriptions:
            self._subscriptions.pop(subscription.state.id, None)

    # ---------------------------------------------------------------- changing

    def add_listener(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` with every change, once it is durable."""
        self._listeners.append(listener)

    def when_adopted(self, listener: Callable[[ObjectiveState], None]) -> None:
        """Call `listener` with every objective that this gateway takes over from another one."""
        self._adopters.append(listener)

    def when_changed_elsewhere(self, listener: Callable[[ObjectiveState], None]) -> None:
        """Call `listener` with every own objective that another replica has changed."""
        self._watchers.append(listener)

    def creation_context(self) -> CommandContext:
        """As `command_context`, with a time after that of the last created objective.

        Lists are ordered by creation time, so two objectives must not have the same.
        """
        context, last = self.command_context(), self._last_created
        now = to_timestamp(context.now)
        self._last_created = now if last is None else next_timestamp(last, now)
        return msgspec.structs.replace(context, now=to_datetime(self._last_created))

    async def create(self, change: Change, lines: Sequence[bytes] = ()) -> ObjectiveState:
        """Store a new objective; with the lines of an imported log before the change.

        Raises: StatusChangeNotAllowed (its id, or that of an imported plan, is taken),
        QuotaExceeded.
        """
        await self._check_room(change.state.owner.principal)
        if lines:
            index = await self.load_index()
            for plan_id in change.state.plans:
                if index.find_plan(plan_id) not in (None, change.state.id):
                    raise StatusChangeNotAllowed(f"There is a plan {plan_id[:80]} already.")
        # Shielded for the same reason as in `change`.
        return await self._finish(self._create(change, lines))

    async def _check_room(self, peer: PeerName) -> None:
        """Check the limits of open objectives. Raises: QuotaExceeded."""
        limits, of_peer = self.command_context().limits, self._open_counts[peer]
        if peer != LOCAL_PEER and of_peer >= limits.max_objectives_per_peer:
            raise QuotaExceeded(
                f"{peer} has {of_peer} objectives that have not ended; end or delete one first",
                setting="opt.maxObjectivesPerPeer",
            )
        if len(self._open) >= limits.max_objectives:
            raise QuotaExceeded(
                f"{len(self._open)} objectives have not ended; end or delete one first",
                setting="opt.maxObjectives",
            )

    async def change(
        self,
        scope: Scope | None,
        objective_id: ObjectiveId,
        command: Callable[[Change, *_Args], object],
        *args: *_Args,
        alongside: StartWrite | None = None,
    ) -> Change:
        """Change an objective: `command` records what changes, given the newest state.

        `alongside` starts a write that the store commits together with the change, if there is one.
        Raises: PlanItemNotFound, StoreUnavailable, and the errors of the command.
        """
        # A caller that is cancelled between append and publish must not stop the publishing: the
        # change is durable by then, and the executor would never be notified of it.
        work = self._change(scope, objective_id, lambda change: command(change, *args), alongside)
        return await self._finish(work)

    async def delete(
        self,
        scope: Scope | None,
        objective_id: ObjectiveId,
        check: Callable[[ObjectiveState], Awaitable[None]],
    ) -> None:
        """Delete an objective, unless `check` raises about its newest state.

        Raises: PlanItemNotFound, and the errors of `check`.
        """
        # Shielded like `change`: a caller that leaves half-way must not leave a log-less objective
        # in memory.
        await self._finish(self._delete(scope, objective_id, check))

    async def _finish(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Await work that goes on when its caller is cancelled."""
        task = self._supervisor.start("planning.change", work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)  # no caller is left to get the error
            raise

    async def reserve_plan_id(self, plan_id: PlanId, objective_id: ObjectiveId) -> bool:
        """Reserve the id of a plan to be created; False when another objective has it."""
        return (await self.load_index()).reserve_plan(plan_id, objective_id)

    async def release_plan_id(self, plan_id: PlanId, objective_id: ObjectiveId) -> None:
        """Release a reserved plan id, unless the plan was created."""
        async with self._lock(objective_id):
            await self._refresh(objective_id)
            state = await self.find_known(None, objective_id)
            if state is None or plan_id not in state.plans:
                self._index.release_plan(plan_id, objective_id)

    async def _create(self, change: Change, lines: Sequence[bytes]) -> ObjectiveState:
        async with self._lock(change.state.id):
            if not await self._append(change, after=0, lines=lines):
                raise StatusChangeNotAllowed(f"There is an objective {change.state.id} already.")
        return change.state

    async def _change(
        self,
        scope: Scope | None,
        objective_id: ObjectiveId,
        command: Callable[[Change], object],
        alongside: StartWrite | None,
    ) -> Change:
        # The lock is held from reading to publishing: subscribers and listeners get the changes
        # in the order of the log, and no command decides by a state that is already outdated.
        async with self._lock(objective_id):
            for _ in range(_ATTEMPTS):
                state = await self._get_locked(scope, objective_id)
                change = Change(state, self.command_context())
                command(change)
                # A command may find nothing to do, such as a sync that is repeated.
                if not change.operations:
                    return change
                is_archived = change.state.is_archived
                if is_archived and not isinstance(change.operations[-1].data, ObjectiveArchived):
                    # File stores recognise an archived log by its last line.
                    change.record(ObjectiveArchived(objective_id))
                if await self._append(change, after=state.seq, alongside=alongside):
                    return change
                # Another process wrote to the log: decide again by what it says now.
                await self._reload(objective_id)
        raise StoreUnavailable(
            f"objective {objective_id} was changed by another process {_ATTEMPTS} times in a row; "
            "try again"
        )

    async def _delete(
        self,
        scope: Scope | None,
        objective_id: ObjectiveId,
        check: Callable[[ObjectiveState], Awaitable[None]],
    ) -> None:
        async with self._lock(objective_id):
            state = await self._get_locked(scope, objective_id)
            # Under the lock, so that no step can be linked between the check and the deletion.
            await check(state)
            # The log first: a crash after it leaves a summary without a log, which goes when the
            # index is completed the next time.
            is_deleted = await self._logs.delete_log(LOG_KIND, objective_id)
            self._forget(objective_id)
            if state.is_archived:
                await self._records.delete_record(SUMMARY_KIND, objective_id)
            if not is_deleted:  # another replica deleted it first
                raise not_found("objective", objective_id)

    def _forget(self, objective_id: ObjectiveId) -> None:
        """An objective was deleted."""
        self._close(objective_id)
        self._index.remove(objective_id)
        if not self._is_index_complete:
            self._deleted_early.add(objective_id)
        for subscription in self._subscriptions.pop(objective_id, ()):
            subscription.end()

    async def _append(
        self,
        change: Change,
        *,
        after: int,
        lines: Sequence[bytes] = (),
        alongside: StartWrite | None = None,
    ) -> bool:
        """Append to the log and publish; False when the log is not at `after`.

        A crash after the append loses nothing: at the next start the state is replayed, and the
        executor looks at every open objective. If the summary of an archived objective is missing,
        `_index_one` makes it from the log.
        """
        is_archived = change.state.is_archived
        bodies = [*lines, *map(encode_operation, change.operations)]
        # `after` is the version that the command decided on: the append is refused when another
        # process wrote to the log meanwhile.
        append = LogAppend(
            LOG_KIND, change.state.id, bodies, after, closes=is_archived, reopens=not is_archived
        )
        # Both before anything is awaited: the store commits writes of one turn together.
        appending = self._logs.append_log(append)
        also = None if alongside is None else alongside()
        failure: GatewayError | None = None
        try:
            is_appended = await appending
        finally:
            if also is not None:
                try:
                    await also
                except GatewayError as error:
                    failure = error
        # Also when the other write failed: the change is durable.
        if is_appended:
            summary = self._publish(change)
            if is_archived:
                await self._save_summary(summary)
        if failure is not None:
            raise failure
        return is_appended

    def _publish(self, change: Change) -> ObjectiveSummary:
        """After the append: replace the state in memory, and notify subscribers and listeners.

        Nothing is awaited: no other task sees `_open`, the index, subscribers and listeners at
        different versions.
        """
        state = change.state
        if state.is_archived:
            self._close(state.id)
        else:
            self._put_open(state)
        summary = ObjectiveSummary.of(state)
        self._index.put(summary)
        for subscription in self._subscriptions.get(state.id, ()):
            subscription.publish(change)
        # Called under the lock: a listener must not wait, only put the objective into a queue.
        for listener in self._listeners:
            listener(change)
        return summary

    async def _reload(self, objective_id: ObjectiveId) -> None:
        """Replace the state in memory by that of the log."""
        self._close(objective_id)
        newest = await self._read(objective_id)
        if newest is not None and not newest.is_archived:
            self._put_open(newest)

    async def _read(self, objective_id: ObjectiveId) -> ObjectiveState | None:
        stored = await self._logs.read_log(LOG_KIND, objective_id)
        return None if stored is None else replay_log(stored)

    def _put_open(self, state: ObjectiveState) -> None:
        if state.id not in self._open:
            self._open_counts[state.owner.principal] += 1
        self._open[state.id] = state

    def _close(self, objective_id: ObjectiveId) -> None:
        state = self._open.pop(objective_id, None)
        if state is not None:
            peer = state.owner.principal
            self._open_counts[peer] -= 1
            if not self._open_counts[peer]:
                del self._open_counts[peer]

    def _lock(self, objective_id: ObjectiveId) -> asyncio.Lock:
        return self._locks.setdefault(objective_id, asyncio.Lock())

    # ---------------------------------------------------------------- index of archived ones

    async def _index_archived(self) -> None:
        """Add all archived objectives to the index, from their summaries where possible."""
        records = await self._records.list_records(SUMMARY_KIND)
        summaries = {record.id: record.body for record in records}
        after = ""
        while heads := await self._logs.list_log_heads(LOG_KIND, after=after, limit=_PAGE):
            for head in heads:
                if head.is_closed:
                    await self._index_one(head, summaries.pop(head.id, None))
            after = heads[-1].id
        for objective_id in summaries:  # a crash between the two deletions left it
            await self._records.delete_record(SUMMARY_KIND, objective_id)

    async def _index_one(self, head: LogHead, stored: bytes | None) -> None:
        objective_id = ObjectiveId(head.id)
        # A change beside this loop has put a newer summary, or deleted the objective.
        if objective_id in self._index or objective_id in self._deleted_early:
            return
        with suppress(ValueError, RecursionError):
            summary = None if stored is None else _summary_decoder.decode(stored)
            if summary is not None and summary.sequence == head.sequence:
                self._index.put(summary)
                return
        # No readable summary, or one that is older than the log: written by an earlier version of
        # the gateway or by another program, or the process died between the two writes.
        async with self._lock(objective_id):
            state = await self._read(objective_id)
            if state is not None and objective_id not in self._index:
                summary = ObjectiveSummary.of(state)
                self._index.put(summary)
                await self._save_summary(summary)

    async def _save_summary(self, summary: ObjectiveSummary) -> None:
        record = Record(SUMMARY_KIND, summary.objective.id, msgspec.json.encode(summary), _NEVER)
        try:
            await self._records.put_record(record)
        except GatewayError as error:  # without it the log is read again, once
            objective_id, reason = summary.objective.id, error.message
            log.warning("planning.summary_not_stored", objective_id=objective_id, reason=reason)


def replay_log(stored: StoredLog) -> ObjectiveState | None:
    """The state that a log describes; what is not readable is logged and left out."""
    replayed = replay(line.body for line in stored.lines)
    for problem in (*stored.problems, *replayed.warnings):
        log.warning("planning.log_line_skipped", objective_id=stored.id, reason=problem)
    if replayed.state is None:
        return None
    # Other programs may number their lines differently; appends go by the store's numbers.
    return msgspec.structs.replace(replayed.state, seq=stored.sequence)


def _log_failure(task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if isinstance(error, GatewayError):
        log.warning("planning.change_failed", reason=error.message)
    elif error is not None:
        log.error("planning.change_failed", exc_info=error)
