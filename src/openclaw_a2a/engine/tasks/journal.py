"""The one way a task changes: events are numbered, encoded once, committed, and only then shown."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

from openclaw_a2a.engine.outbox.wakeups import WakeupRegistry
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.subscription import EventFeed
from openclaw_a2a.model.errors import AgentFailed, GatewayFault, IllegalTransition
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.records import (
    Entry,
    RunRecord,
    StoredTask,
    TaskHead,
    encode_event,
    encode_json,
)
from openclaw_a2a.model.states import is_active, may_follow
from openclaw_a2a.model.task import ArtifactUpdate, Event, StatusUpdate, Task, TaskState
from openclaw_a2a.model.turn import Binding, Scope
from openclaw_a2a.ports import Commit, TaskStore

UNWRITABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""What an encoder raises when an agent gives it something that JSON cannot hold."""

_FIRST_SNAPSHOT = 64
"""Up to here a task is read as its first snapshot plus events; then snapshots at each doubling."""


class Journal:
    """A live task: its view, its place in the order, and the changes under way.

    One change is under way at a time. Events that come meanwhile are collected and go to the
    store together as the next one, so a fast run makes large changes and not many.
    """

    in_flight = 0
    """Events that are not durable yet."""
    failure: Exception | None = None
    """Why the store refused a change; nothing more can be written through this journal."""
    on_committed: Callable[[], None] | None = None
    watch = WakeupRegistry()
    """Who wants to know about changes without following the feed; by default nobody."""
    snapshot = b""
    """The last snapshot that was made."""
    event_bytes = run_bytes = messages = 1 << 60
    """How large one event, and everything that is written through this journal, may be."""
    _written = 0
    _changes = 0
    _message: Message | None = None
    _run: RunRecord | None = None

    def __init__(
        self, store: TaskStore, head: TaskHead, view: TaskProjection, *, exists: bool
    ) -> None:
        self._store = store
        self._head = head
        self.view = view
        self.sequence = sequence = head.sequence
        self.state = head.state
        self._status_at = head.status_at
        self.feed = EventFeed(sequence)
        self._stored = sequence if exists else -1
        self._next_snapshot = max(_FIRST_SNAPSHOT, sequence * 2)
        self._collected: list[Entry] = []
        self._loop = asyncio.get_running_loop()
        self._settled: list[asyncio.Future[None]] = []

    @classmethod
    def of_stored(cls, store: TaskStore, stored: StoredTask) -> "Journal":
        """The journal of a task that lies in the store."""
        return cls(store, stored.head, TaskProjection.from_stored(stored), exists=True)

    @classmethod
    def of_new(
        cls, store: TaskStore, task: Task, *, scope: Scope, binding: Binding, now: datetime
    ) -> "Journal":
        """The journal of a task that the first change creates."""
        head = TaskHead(task.id, scope, task.context_id, task.status.state, now, now, 0, binding)
        return cls(store, head, TaskProjection(task), exists=False)

    @property
    def head(self) -> TaskHead:
        """The task without its content, as the events so far made it."""
        old = self._head
        return TaskHead(
            old.id,
            old.scope,
            old.context_id,
            self.state,
            self._status_at,
            old.created_at,
            self.sequence,
            old.binding,
        )

    def append(
        self, events: Sequence[Event], *, run: RunRecord, message: Message | None = None
    ) -> None:
        """Commit events of a run; they are shown when they are durable.

        A message joins the history, which is no event, so the snapshot is written anew.
        """
        if not self._changes and not self._collected and events:
            self._loop.call_soon(self._send_collected)
        self._run = run
        self._collect(events, message)

    async def add(self, event: ArtifactUpdate) -> None:
        """Commit an artifact that belongs to no run, also after the end; wait until it is durable.

        Raises: AgentFailed (it cannot be written), and what the store raised.
        """
        if self.failure is not None:
            raise self.failure
        body = _encoded(event)
        self._check_event(len(body))
        if not self._changes and not self._collected:
            self._loop.call_soon(self._send_collected)
        self._collected.append(self._next(event, body, None))
        self.in_flight += 1
        await self.reach(self.sequence)
        self.watch.notify(self._head.id)  # nobody may expect it, so who follows is looked up

    async def end(
        self, events: Sequence[Event], *, run: RunRecord | None, resume: bytes | None = None
    ) -> None:
        """Commit the last events of a run (or of none) and wait until they are durable."""
        self._run = run
        self._collect(events, None)
        self._send(self._change(ends_run=True, resume=resume))
        await self.settle()

    def open(self, events: Sequence[Event], message: Message | None = None) -> Commit:
        """The change that a submission makes; it goes to the store with the submission."""
        self._collect(events, message)
        return self._change(ends_run=False, resume=None)

    async def settle(self, limit: int = 0) -> None:
        """Wait until at most `limit` events are not durable yet. Raises what the store raised."""
        while self.in_flight > limit and self.failure is None:
            await self._next_word()
        if self.failure is not None:
            raise self.failure

    async def reach(self, sequence: int) -> None:
        """Wait until this event is durable. Raises what the store raised."""
        while self.feed.sequence < sequence and self.failure is None:
            await self._next_word()
        if self.failure is not None:
            raise self.failure

    async def _next_word(self) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._settled.append(waiter)
        await waiter

    def committed(self, change: Commit, error: BaseException | None) -> None:
        """The store took (or refused) the change."""
        self._changes -= 1
        self.in_flight -= len(change.entries) or 1
        if error is None:
            self.feed.publish(change.entries)
            if self.watch.subscribed and change.entries and self._head.id in self.watch.subscribed:
                self.watch.notify(self._head.id, change.entries)
        elif self.failure is None:
            self.failure = error if isinstance(error, Exception) else GatewayFault(str(error))
        if self._settled:
            waiters, self._settled = self._settled, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        if self._collected and not self._changes:
            self._send_collected()
        if self.on_committed is not None:
            self.on_committed()

    def _collect(self, events: Sequence[Event], message: Message | None) -> None:
        if message is not None:
            self.view.add_message(message)
            self._message = message
        for event in events:
            self._collected.append(self._number(event))
            self.in_flight += 1

    def _change(self, *, ends_run: bool, resume: bytes | None) -> Commit:
        entries, self._collected = tuple(self._collected), []
        message, self._message = self._message, None
        run, after, self._stored = self._run, self._stored, self.sequence
        if ends_run:
            self._run = None  # what comes before the next run begins belongs to none
        self._changes += 1
        if not entries:
            self.in_flight += 1  # a change without events is waited for like one event
        is_at_rest = ends_run or not is_active(self.state)
        is_due = after < 0 or message is not None or (is_at_rest and entries)
        snapshot = self._snapshot() if is_due or self.sequence >= self._next_snapshot else None
        run_id, fence = (run.id, run.fence) if run is not None else (None, 0)
        return Commit(self.head, after, entries, snapshot, run_id, fence, ends_run, resume)

    def _send_collected(self) -> None:
        if self._collected and self.failure is None:
            self._send(self._change(ends_run=False, resume=None))

    def _send(self, change: Commit) -> None:
        commit = self._store.commit(change)
        commit.add_done_callback(lambda done: self.committed(change, _error_of(done)))

    def _number(self, event: Event) -> Entry:
        body = _encoded(event)
        state = None
        if isinstance(event, StatusUpdate):
            state = event.status.state
            if not may_follow(self.state, state):
                raise _no_step(event.task_id, self.state, state)
            if state is TaskState.WORKING and event.status.message is not None:
                self._check_note(len(body))
            self.state = state
            self._status_at = event.status.timestamp or self._status_at
        else:
            self._check_size(len(body))
        return self._next(event, body, state)

    def _next(self, event: Event, body: bytes, state: TaskState | None) -> Entry:
        self.view.apply(event)
        self.sequence += 1
        return Entry(self.sequence, body, state)

    def _check_note(self, size: int) -> None:
        self._check_size(size)
        if self.view.message_count >= self.messages:
            raise AgentFailed(f"The agent said more than the {self.messages} messages of a task.")

    def _check_size(self, size: int) -> None:
        self._written += size
        self._check_event(size)
        if self._written > self.run_bytes:
            raise AgentFailed(f"The agent's answer is larger than {self.run_bytes} bytes.")

    def _check_event(self, size: int) -> None:
        if size > self.event_bytes:
            limit = self.event_bytes
            raise AgentFailed(f"The agent sent {size} bytes at once; the limit is {limit}.")

    def lift_limits(self) -> None:
        """What is written from now on is ours: a few words to end a run that said too much."""
        self.event_bytes = self.run_bytes = self.messages = Journal.run_bytes

    def _snapshot(self) -> bytes:
        self._next_snapshot = max(_FIRST_SNAPSHOT, self.sequence * 2)
        self.snapshot = encode_json(self.view.task())
        return self.snapshot


def _encoded(event: Event) -> bytes:
    try:
        return encode_event(event)
    except UNWRITABLE as error:
        raise AgentFailed(f"The agent sent what cannot be written: {error}.") from None


def _no_step(task_id: TaskId, old: TaskState, new: TaskState) -> IllegalTransition:
    return IllegalTransition(f"task {task_id} is {old.value}; it cannot become {new.value}")


def _error_of(done: "asyncio.Future[None]") -> BaseException | None:
    return None if done.cancelled() else done.exception()
