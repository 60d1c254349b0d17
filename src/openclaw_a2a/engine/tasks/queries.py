"""Reads tasks: one, or the events of one from a cursor on.

A reader of events holds a cursor, not a queue: it reads the shared window of the `EventFeed`, and
what has left the window it reads from the store. So a slow reader costs the task and the others
nothing.
"""

import asyncio
from collections.abc import Collection

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.engine_state import INTERRUPTING
from openclaw_a2a.engine.outbox.wakeups import WakeupRegistry, wake
from openclaw_a2a.engine.tasks.active_task import work_stopped
from openclaw_a2a.engine.tasks.journal import PAGE_SIZE, EventFeed
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.model.errors import InvalidParams, Problem, TaskNotFound
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import Entry, StoredTask, TaskHead, encode_json
from openclaw_a2a.model.task import PAUSED, TERMINAL, TaskState
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import MeasuredTask, TaskStore

_ENDED_OR_PAUSED = TERMINAL | PAUSED

LARGE_BYTES = 512 * 1024
"""From this size on a task is not read as a whole where that can be avoided."""

_PAGE_BYTES = 1024 * 1024
"""How much is read from the store for one reader at once, unless one event is larger."""


class Subscription:
    """Reads events after `cursor`. `feed` is None when the task is not active in this process."""

    __slots__ = (
        "_feed",
        "_is_stopped",
        "_scope",
        "_store",
        "_task_id",
        "_waiter",
        "_wakeups",
        "cursor",
        "is_over",
    )

    def __init__(
        self,
        store: TaskStore,
        scope: Scope | None,
        task_id: TaskId,
        *,
        cursor: int,
        feed: EventFeed | None,
        wakeups: WakeupRegistry,
    ) -> None:
        self._store = store
        self._wakeups = wakeups
        self._scope = scope
        self._task_id = task_id
        self._feed = feed
        self._waiter: asyncio.Future[None] | None = None
        self._is_stopped = False
        self.cursor = cursor
        self.is_over = False
        """True when no more events will come: the task ended or paused, or no run works on it."""

    def stop(self) -> None:
        """The reader is gone: end a `next_events` that waits."""
        self._is_stopped = self.is_over = True
        if self._waiter is not None:
            wake(self._waiter)

    async def next_events(self, wait_s: float) -> list[Entry]:
        """The next events; empty when none came in time or the subscription is over."""
        entries = self._read_feed()
        if entries is None:
            entries = await self._read()
        # Nothing is awaited between a read of the feed that found nothing and the registration of
        # the waiter, so no event can be published in between and missed.
        if not entries and not self.is_over and (feed := self._feed) is not None:
            # Woken by a commit, by the end of the task (`feed.close`), by `stop`, or by the timer:
            # `asyncio.timeout` would cancel the task of an idle stream at each heartbeat.
            waiter = self._waiter = asyncio.get_running_loop().create_future()
            waiters = feed.waiters
            waiters.append(waiter)
            timeouts = self._wakeups.timeouts(wait_s)
            timeouts.start(waiter)
            try:
                await waiter
            finally:
                timeouts.pending.pop(waiter, None)
                self._waiter = None
                if feed.waiters is waiters:
                    waiters.remove(waiter)
            entries = [] if self._is_stopped else self._read_feed()
            if entries is None:
                entries = await self._read()
        return entries

    def _read_feed(self) -> list[Entry] | None:
        """What the feed of a running task has; None when more has to be looked at."""
        feed = self._feed
        if feed is None or feed.is_closed:
            return None
        entries = feed.since(self.cursor)
        if entries:
            self.cursor = entries[-1].sequence
            # A reader that is behind passes over the pauses that were answered since.
            is_last = self.cursor >= feed.sequence
            self.is_over = self.is_over or self._ends_with(entries, is_last, was_closed=False)
        return entries

    async def _read(self) -> list[Entry]:
        feed = self._feed
        # Asked before reading: a feed that closes after the read has events this read has not seen.
        was_closed = feed is None or feed.is_closed
        entries, has_more = feed.since(self.cursor) if feed is not None else None, False
        if entries is None or (was_closed and not entries):
            # Behind the window; or the feed is closed, and another process may have written since.
            # One more than a page tells whether it ends here: the last event must be known as such.
            entries, has_more = await self._read_page()
        if entries:
            self.cursor = entries[-1].sequence
        elif feed is not None and feed.failure is not None:
            raise feed.failure  # not silence: a reader would come back again and again
        # The end of what there is: a reader that is behind passes over the pauses that were
        # answered since.
        is_last = (feed is None or self.cursor >= feed.sequence) and not has_more
        self.is_over = self.is_over or self._ends_with(entries, is_last, was_closed=was_closed)
        return entries

    async def _read_page(self) -> tuple[list[Entry], bool]:
        """The next events in the store, at most a page in number and about one in size; whether
        others follow.
        """
        stored = await self._store.read_events(
            self._scope,
            self._task_id,
            after=self.cursor,
            limit=PAGE_SIZE + 1,
            max_bytes=_PAGE_BYTES,
        )
        is_large = sum([len(entry.body) for entry in stored]) > _PAGE_BYTES
        if len(stored) == 1 and is_large:
            last = stored[0].sequence
            more = await self._store.read_events(self._scope, self._task_id, after=last, limit=1)
            return stored, bool(more)
        # The one past the size or the number was read to know that there is one.
        has_more = is_large or len(stored) > PAGE_SIZE
        return stored[: len(stored) - has_more], has_more

    def _ends_with(self, entries: list[Entry], is_last: bool, *, was_closed: bool) -> bool:
        """True when no more events will come after these."""
        has_ended_or_paused = bool(entries) and entries[-1].state in _ENDED_OR_PAUSED
        return (has_ended_or_paused and is_last) or (was_closed and not entries)


class LastingSubscription(Subscription):
    """Reads events until the task has a state of `ends_at`: ended, or ended or paused.

    While no run works on the task here there is no feed to wait for; then any commit of the task
    wakes the reader (`WakeupRegistry.readers`): a message that continues it, a cancellation, or the
    work of another replica.
    """

    __slots__ = ("_ends_at", "_engine", "_known_at", "_state")

    def __init__(
        self,
        engine: Engine,
        scope: Scope | None,
        task_id: TaskId,
        *,
        cursor: int,
        head: TaskHead | None,
        ends_at: frozenset[TaskState] = TERMINAL,
    ) -> None:
        """Without a head the task was at work at the cursor."""
        feed = _active_feed(engine, task_id)
        super().__init__(
            engine.store.tasks, scope, task_id, cursor=cursor, feed=feed, wakeups=engine.wakeups
        )
        self._engine = engine
        self._ends_at = ends_at
        # The state after the event `_known_at`, which a reader that resumes has yet to get. The
        # store may know it before the feed does: what is durable is published a moment later.
        self._state = TaskState.WORKING if head is None else head.state
        self._known_at = cursor if head is None else head.sequence

    async def next_events(self, wait_s: float) -> list[Entry]:
        """The next events; empty when none came in time or the subscription is over."""
        check_not_abandoned(self._engine, self._task_id)
        self._find_feed()
        if self._feed is not None:
            return await super().next_events(wait_s)
        with self._wakeups.waiting(self._task_id) as waiter:
            self._waiter = waiter
            try:
                # Read after the registration: a commit that this read does not see wakes the
                # waiter.
                entries = await self._read()
                if not entries and not self.is_over:
                    timeouts = self._wakeups.timeouts(wait_s)
                    timeouts.start(waiter)
                    try:
                        await waiter
                    finally:
                        timeouts.pending.pop(waiter, None)
            finally:
                self._waiter = None
        if not entries and not self.is_over:
            self._find_feed()
            entries = await self._read()
        return entries

    def _find_feed(self) -> None:
        """The feed of the run that works on the task now, if there is one."""
        if self._feed is None or self._feed.is_closed:
            self._feed = _active_feed(self._engine, self._task_id)

    def _ends_with(self, entries: list[Entry], is_last: bool, *, was_closed: bool) -> bool:
        for entry in entries:
            if entry.state is not None and entry.sequence > self._known_at:
                self._state, self._known_at = entry.state, entry.sequence
        is_stopped = was_closed and not entries and self._engine.state in INTERRUPTING
        has_all = is_last and self.cursor >= self._known_at
        return is_stopped or (has_all and self._state in self._ends_at)


class TaskSubscription(msgspec.Struct, frozen=True):
    """A subscription; without a cursor, with the task as it is when the subscription starts."""

    head: TaskHead
    subscription: Subscription
    snapshot: bytes | None


async def get_task(engine: Engine, scope: Scope | None, task_id: TaskId) -> StoredTask:
    """The task as it is committed now, if it is in scope (None: any). Raises: TaskNotFound."""
    stored = await engine.store.tasks.read_task(scope, task_id)
    if stored is None:
        raise TaskNotFound(f"task not found: there is no task {task_id}")
    return stored


async def measure_task(engine: Engine, scope: Scope | None, task_id: TaskId) -> MeasuredTask:
    """The task without its content, and how large that is. Raises: TaskNotFound."""
    measured = await engine.store.tasks.measure_task(scope, task_id)
    if measured is None:
        raise TaskNotFound(f"task not found: there is no task {task_id}")
    return measured


async def find_any_task(engines: Collection[Engine], task_id: str) -> tuple[Engine, MeasuredTask]:
    """A task of any caller, for the operator, and the engine that has it. Raises: TaskNotFound."""
    for engine in engines:
        measured = await engine.store.tasks.measure_task(None, TaskId(task_id))
        if measured is not None:
            return engine, measured
    raise TaskNotFound(
        f"task not found: there is no task {task_id[:80]}; it never existed here, or it was deleted"
        " (`retention` in the settings says when ended tasks are)"
    )


def task_json(stored: StoredTask) -> bytes:
    """The whole task in its stored form; the snapshot itself when no event came after it."""
    if not stored.entries:
        return stored.snapshot
    return encode_json(TaskProjection.from_stored(stored).task())


async def subscribe(
    engine: Engine,
    scope: Scope | None,
    task_id: TaskId,
    *,
    cursor: int | None,
    until_terminal: bool = False,
) -> TaskSubscription:
    """Subscribe to a task: from a cursor on, or with a snapshot first.

    It ends with the task or its next pause; with `until_terminal` only with the task.

    Raises: TaskNotFound, InvalidParams (a cursor the task never had), StoreUnavailable.
    """
    # With a cursor the content is not needed. That of a small task is read nevertheless: so a
    # damaged one is refused at once.
    measured = await measure_task(engine, scope, task_id)
    is_needed = cursor is None or measured.size < LARGE_BYTES
    stored = await get_task(engine, scope, task_id) if is_needed else None
    head = (stored or measured).head
    check_not_abandoned(engine, task_id)
    sequence = head.sequence
    # A cursor beyond the end is of another task, or of a database that was restored from a backup.
    if cursor is not None and not 0 <= cursor <= sequence:
        text = f"is {cursor}; task {task_id} has events 0 to {sequence}"
        problem = Problem("Last-Event-ID", text)
        raise InvalidParams(f"Last-Event-ID {text}", problems=(problem,))
    # A2A 3.1.6: without a cursor the stream begins with the task as it is now.
    snapshot = task_json(stored) if cursor is None and stored is not None else None
    start = sequence if cursor is None else cursor
    # Events committed since the read are not lost: the subscription begins at that sequence.
    if until_terminal:
        subscription: Subscription = LastingSubscription(
            engine, head.scope, task_id, cursor=start, head=head
        )
    else:
        subscription = subscribe_from(engine, head.scope, task_id, start, head)
    return TaskSubscription(head, subscription, snapshot)


def subscribe_from(
    engine: Engine,
    scope: Scope | None,
    task_id: TaskId,
    cursor: int,
    head: TaskHead | None = None,
    feed: EventFeed | None = None,
) -> Subscription:
    """A subscription to a task that is known to exist in the scope, until it has ended or paused.

    `head` is the task as it was read; without one it was at work at the cursor. `feed`: that of
    the work on it, which may be over.
    """
    if engine.replication is not None:
        # Its run may be anywhere, now or later: after a take-over it goes on elsewhere.
        return LastingSubscription(
            engine, scope, task_id, cursor=cursor, head=head, ends_at=_ENDED_OR_PAUSED
        )
    # The feed as it is now: when the task is continued later, its runs get a new one, and this
    # subscription is over by then.
    feed = _active_feed(engine, task_id) or feed
    return Subscription(
        engine.store.tasks, scope, task_id, cursor=cursor, feed=feed, wakeups=engine.wakeups
    )


def check_not_abandoned(engine: Engine, task_id: TaskId) -> None:
    """Raises StoreUnavailable when the task waits for the store to take its end."""
    is_abandoned = any(record.task_id == task_id for record in engine.abandoned)
    is_orphan = task_id in engine.orphans and task_id not in engine.active_tasks
    if is_abandoned or is_orphan:
        raise work_stopped(task_id)


def _active_feed(engine: Engine, task_id: TaskId) -> EventFeed | None:
    """The feed of a task that is worked on here."""
    active = engine.active_tasks.get(task_id)
    return None if active is None else active.journal.feed
