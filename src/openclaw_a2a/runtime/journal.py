"""The one way a task changes: events are numbered, encoded once, committed, and only then shown."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypedDict, Unpack

import msgspec

from openclaw_a2a.model.errors import AgentFailed, GatewayFault, LeaseLost
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.states import may_follow
from openclaw_a2a.model.stored import (
    Entry,
    RunRecord,
    StoredTask,
    TaskHead,
    encode_event,
    encode_record,
)
from openclaw_a2a.model.task import Event, StatusUpdate, Task
from openclaw_a2a.model.turn import Binding, Scope
from openclaw_a2a.ports import Commit, Store
from openclaw_a2a.runtime.feed import Feed
from openclaw_a2a.runtime.view import TaskView

_FIRST_SNAPSHOT = 64
"""Up to here a task is read as its first snapshot plus events; then snapshots at each doubling."""


class Marks(TypedDict, total=False):
    """What a change does besides adding events.

    A message joins the history (which is no event, so the snapshot is written anew); the run
    ends; the agent leaves a token for the turn that answers its pause.
    """

    message: Message
    ends_run: bool
    resume: bytes | None


class Journal:
    """A live task: its view, its place in the order, and the commits under way."""

    def __init__(
        self, store: Store, head: TaskHead, view: TaskView, *, exists: bool = True
    ) -> None:
        self._store = store
        self.head = head
        self.view = view
        self.feed = Feed(head.sequence)
        self.in_flight = 0
        """Events handed to the store and not yet durable."""
        self.failure: Exception | None = None
        """Why the store refused a change; nothing more can be written through this journal."""
        self.on_committed: Callable[[], None] | None = None
        self.snapshot = b""
        """The last snapshot handed to the store."""
        self.event_bytes = self.run_bytes = 1 << 60
        """How large one event, and everything that is written through this journal, may be."""
        self._written = 0
        self._exists = exists
        self._next_snapshot = max(_FIRST_SNAPSHOT, head.sequence * 2)
        self._settled: list[asyncio.Future[None]] = []

    @classmethod
    def of_stored(cls, store: Store, stored: StoredTask) -> "Journal":
        """The journal of a task that lies in the store."""
        return cls(store, stored.head, TaskView.of_stored(stored))

    @classmethod
    def of_new(
        cls, store: Store, task: Task, *, scope: Scope, binding: Binding, now: datetime
    ) -> "Journal":
        """The journal of a task that the next change creates."""
        head = TaskHead(task.id, scope, task.context_id, task.status.state, now, now, 0, binding)
        return cls(store, head, TaskView(task), exists=False)

    def draft(
        self, events: Sequence[Event], *, run: RunRecord | None, **marks: Unpack[Marks]
    ) -> Commit:
        """The change that these events make; it counts as made and must reach the store next."""
        after = self.head.sequence if self._exists else -1
        message = marks.get("message")
        if message is not None:
            self.view.add_message(message)
        entries = tuple([self._number(event) for event in events])
        ends_run = marks.get("ends_run", False)
        is_due = not self._exists or message is not None or (ends_run and bool(entries))
        snapshot = self._snapshot() if is_due or self.head.sequence >= self._next_snapshot else None
        self._exists = True
        self.in_flight += max(1, len(entries))
        run_id, fence = (run.id, run.fence) if run is not None else (None, 0)
        resume = marks.get("resume")
        return Commit(self.head, after, entries, snapshot, run_id, fence, ends_run, resume)

    def append(self, events: Sequence[Event], *, run: RunRecord, **marks: Unpack[Marks]) -> None:
        """Commit events of a run; they are shown when they are durable."""
        if events:
            self._hand_over(self.draft(events, run=run, **marks))

    async def end(
        self, events: Sequence[Event], *, run: RunRecord | None, resume: bytes | None = None
    ) -> None:
        """Commit the last events of a run (or of none) and wait until they are durable."""
        self._hand_over(self.draft(events, run=run, ends_run=True, resume=resume))
        await self.settle()

    async def settle(self, limit: int = 0) -> None:
        """Wait until at most `limit` events are not durable yet. Raises what the store raised."""
        while self.in_flight > limit and self.failure is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._settled.append(waiter)
            await waiter
        if self.failure is not None:
            raise self.failure

    def committed(self, change: Commit, error: BaseException | None) -> None:
        """The store took (or refused) the change."""
        self.in_flight -= max(1, len(change.entries))
        if error is None:
            self.feed.publish(change.entries)
        elif self.failure is None:
            self.failure = error if isinstance(error, Exception) else GatewayFault(str(error))
        waiters, self._settled = self._settled, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        if self.on_committed is not None and self.failure is None:
            self.on_committed()

    def _hand_over(self, change: Commit) -> None:
        future = asyncio.ensure_future(self._store.commit(change))
        future.add_done_callback(lambda done: self.committed(change, _error_of(done)))

    def _number(self, event: Event) -> Entry:
        if isinstance(event, StatusUpdate):
            return self._number_status(event)
        body = encode_event(event)
        self._check_size(len(body))
        self.view.apply(event)
        sequence = self.head.sequence + 1
        self.head = msgspec.structs.replace(self.head, sequence=sequence)
        return Entry(sequence, body)

    def _check_size(self, size: int) -> None:
        self._written += size
        if size > self.event_bytes:
            raise AgentFailed(
                f"The agent sent {size} bytes at once; the limit is {self.event_bytes}."
            )
        if self._written > self.run_bytes:
            raise AgentFailed(
                f"The agent's answer is larger than the limit of {self.run_bytes} bytes."
            )

    def _number_status(self, event: StatusUpdate) -> Entry:
        state, status = event.status.state, event.status
        if not may_follow(self.head.state, state):
            old = self.head.state.value
            raise LeaseLost(f"task {self.head.id} is {old}; it cannot become {state.value}")
        self.view.apply(event)
        at = status.timestamp or self.head.status_at
        sequence = self.head.sequence + 1
        self.head = msgspec.structs.replace(self.head, sequence=sequence, state=state, status_at=at)
        return Entry(sequence, encode_event(event), state)

    def _snapshot(self) -> bytes:
        self._next_snapshot = max(_FIRST_SNAPSHOT, self.head.sequence * 2)
        self.snapshot = encode_record(self.view.task())
        return self.snapshot


def _error_of(done: "asyncio.Future[None]") -> BaseException | None:
    return None if done.cancelled() else done.exception()
