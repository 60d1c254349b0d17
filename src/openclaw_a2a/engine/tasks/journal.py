"""The one way a task changes: events are numbered, encoded, committed, and only then published.

Order of one event
  1. `append`, `add` or `end` gives it the next sequence number and folds it into the projection.
  2. It goes to the store with the next commit. One commit is under way at a time; events that come
     meanwhile are collected and go together, so a fast agent makes large commits and not many.
     The first commit of a task shares a transaction with the submission of its message and contains
     what the run has recorded by then: the whole answer, when the agent answers at once.
     Text that nobody follows is held back for up to `wakeups.UNREAD_S`, so that the last text and
     the end of the run nearly always share one commit.
  3. `committed` publishes it to the feed and wakes the outbox: after the commit, never before.
     A reader woken early could show an event that a crash takes back.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from openclaw_a2a.engine.outbox.wakeups import QuietFeed, WakeupRegistry
from openclaw_a2a.engine.supervisor import TimeoutQueue
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    AgentFailed,
    GatewayFault,
    IllegalTransition,
    StoreUnavailable,
)
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.records import (
    ARTIFACT_UPDATE,
    STATUS_UPDATE,
    Entry,
    RunRecord,
    TaskHead,
    encode_json,
)
from openclaw_a2a.model.task import (
    ACTIVE,
    ALLOWED,
    TERMINAL,
    ArtifactUpdate,
    Event,
    StatusUpdate,
    TaskState,
)
from openclaw_a2a.ports import Commit, TaskStore

log = get_logger(__name__)

UNWRITABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""What an encoder raises for a value that JSON cannot hold."""

PAGE_SIZE = 256
"""How many events a feed keeps at least, and how many are read from the store at once."""

# A running task gets its second snapshot after this many events, and the next ones each time the
# number of events has doubled. Until then a reader replays all events over the first snapshot.
_FIRST_SNAPSHOT = 64

# A snapshot over this size is not stored when a task with few events has ended or paused.
_LARGE_SNAPSHOT = 256 * 1024

_REASON_CHARS = 300  # of the text of a failure, in the log
_STATE_NAMES = {state: state.name.lower() for state in TaskState}


class JournalLimits(msgspec.Struct, frozen=True, gc=False):
    """How large one event, all events of a run and the history may become."""

    event_bytes: int = 1 << 60
    run_bytes: int = 1 << 60
    history_messages: int = 1 << 60


UNLIMITED = JournalLimits()


class JournalWriter(Protocol):
    """The run whose agent is at work; it holds text back, and its journal asks for it."""

    def add_text(self) -> None:
        """Append the text that is held back. Called before each but the first and last commit."""
        ...

    def on_committed(self) -> None:
        """Called after the store has answered a commit."""
        ...


class EventFeed:
    """The recent committed events of one active task, and the readers that wait for the next."""

    __slots__ = ("_quiet_feeds", "_window", "failure", "is_closed", "sequence", "waiters")

    def __init__(self, sequence: int, quiet_feeds: "TimeoutQueue[QuietFeed]") -> None:
        """`quiet_feeds` calls `drop_window` when nothing was published for a while."""
        self._quiet_feeds = quiet_feeds
        self.sequence = sequence
        """The last committed sequence number."""
        self.is_closed = False
        self.failure: StoreUnavailable | None = None
        """Why the events that follow could not be stored."""
        self._window: list[Entry] = []
        self.waiters: list[asyncio.Future[None]] = []
        """Resolved at the next change, after the list was replaced by an empty one. A waiter adds
        itself, and removes itself when it stops waiting earlier, unless the list was replaced.
        """

    def publish(self, entries: tuple[Entry, ...]) -> None:
        """Make committed events visible."""
        # Not copied per reader: readers take slices, and those behind the window read the store.
        self._window += entries
        # Cut at twice the size, not at each event: then the copying is paid once per page.
        if len(self._window) > 2 * PAGE_SIZE:
            del self._window[:-PAGE_SIZE]
        self.sequence = entries[-1].sequence
        self._quiet_feeds.start(self)
        if self.waiters:
            self._wake()

    def drop_window(self) -> None:
        """Keep nothing in memory until more is published.

        Readers that keep up have taken the events already. A reader whose client does not read
        would hold all of them in memory; it reads them from the store later.
        """
        self._window.clear()

    def close(self, failure: StoreUnavailable | None = None) -> None:
        """No more events follow. `failure`: why the missing ones could not be stored."""
        self.is_closed = True
        self.failure = failure
        if self.waiters:
            self._wake()

    def since(self, cursor: int) -> list[Entry] | None:
        """The events after the cursor; None when some of them have left the window."""
        if cursor >= self.sequence:
            return []
        if not self._window or self._window[0].sequence > cursor + 1:
            return None
        # The window has no gaps and ends at `sequence`, so its last `sequence - cursor` entries are
        # after the cursor. The slice starts below 0: a cursor at the end has returned above.
        return self._window[cursor - self.sequence :]

    def _wake(self) -> None:
        # Taken out first: a reader that finds nothing new registers again in its next round.
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Journal:
    """One task that is being changed: its projection, its position, and the commit under way."""

    __slots__ = (
        "_commits_under_way",
        "_feed",
        "_feed_failure",
        "_head",
        "_is_feed_closed",
        "_is_send_due",
        "_loop",
        "_message",
        "_next_snapshot",
        "_run",
        "_settle_waiters",
        "_status_at",
        "_store",
        "_stored_sequence",
        "_unsent",
        "_wakeups",
        "_written_bytes",
        "committed_sequence",
        "failure",
        "failure_code",
        "in_flight",
        "limits",
        "projection",
        "sequence",
        "snapshot",
        "state",
        "submit",
        "writer",
    )

    def __init__(
        self,
        store: TaskStore,
        head: TaskHead,
        projection: TaskProjection,
        *,
        exists: bool,
        wakeups: WakeupRegistry,
        limits: JournalLimits,
    ) -> None:
        self._store = store
        self._head = head
        self._wakeups = wakeups
        self.limits = limits
        self.projection = projection
        self.sequence = self.committed_sequence = sequence = head.sequence
        self.state = head.state
        self._status_at = head.status_at
        self._feed: EventFeed | None = None
        self._stored_sequence = sequence if exists else -1
        self._next_snapshot = max(_FIRST_SNAPSHOT, sequence * 2)
        # Recorded and not sent yet. The projection holds them already, so a snapshot is written
        # only by a commit that contains all of them.
        self._unsent: list[Entry] = []
        self._loop = asyncio.get_running_loop()
        self._settle_waiters: list[asyncio.Future[None]] = []
        self.in_flight = 0
        """Events that are not durable yet."""
        self.failure: Exception | None = None
        """Why the store refused a commit. Nothing more is written: there would be a gap."""
        self.writer: JournalWriter | None = None
        """The active run, while its agent works. It appends the text that the agent produced during
        a commit, as one event, and stops when the commit was refused. A session has one active run
        at a time, and the next run replaces it.
        """
        self.snapshot = b""
        """The task as it was when it last paused or a run of it ended."""
        self.failure_code = AgentFailed.code
        """The error code of a failed task, for the log."""
        self._is_feed_closed = False
        self._feed_failure: StoreUnavailable | None = None
        self._written_bytes = 0
        self._commits_under_way = 0
        self._is_send_due = False  # at the end of this turn of the event loop
        self._message: Message | None = None
        self._run: RunRecord | None = None
        self.submit: Callable[[Commit], None] | None = None
        """Sends the first commit together with the submission of the message; None afterwards."""

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

    @property
    def feed(self) -> EventFeed:
        """Events committed from now on, for subscribers.

        Created on first use: most tasks have no subscriber.
        """
        if self._feed is None:
            self._feed = EventFeed(self.committed_sequence, self._wakeups.quiet_feeds)
            if self._is_feed_closed:
                self._feed.close(self._feed_failure)
            self.send_unsent()
        return self._feed

    def close_feed(self, failure: StoreUnavailable | None = None) -> None:
        """Close the feed, now or as soon as it is created; `failure` as in `EventFeed.close`."""
        self._is_feed_closed, self._feed_failure = True, failure
        if self._feed is not None:
            self._feed.close(failure)

    # ---------------------------------------------------------------- writing

    def append(
        self, events: Sequence[Event], *, run: RunRecord, message: Message | None = None
    ) -> None:
        """Commit events of a run; they are published when they are durable.

        A message joins the history without an event, so the commit needs a new snapshot.
        """
        self._run = run
        if message is not None:
            self._add_message(message)
        if not events:
            return
        is_idle = not self._commits_under_way and self.submit is None
        if is_idle and not self._is_send_due:
            if self._feed is None and self._may_wait(events):
                if not self._unsent:
                    self._wakeups.unread.start(self)
            else:
                # On the next loop iteration: events added until then share one commit.
                self._is_send_due = True
                self._loop.call_soon(self.send_unsent)
        for event in events:
            self._record(event)

    def _may_wait(self, events: Sequence[Event]) -> bool:
        """True for text, files and steps of tools that nobody follows, by a feed or otherwise.

        The caller has checked that there is no feed.

        A status is committed at once: lists of tasks are paged by the time of the last status, and
        a client that has read past that time would miss a status that is committed later.
        """
        if self._wakeups.is_followed(self._head.id):
            return False
        return all(isinstance(event, ArtifactUpdate) for event in events)

    def send_unsent(self) -> None:
        """Commit the recorded events without waiting for more.

        Events that are recorded during a commit are sent when the store has answered it.
        """
        # The first commit of a task is sent with the submission of its message.
        is_waiting = self.submit is not None or self._commits_under_way or self.failure is not None
        if self._unsent and not is_waiting:
            self._is_send_due = True  # so that `add_text` does not schedule another call
            try:
                if self.writer is not None:
                    self.writer.add_text()
            finally:  # nothing would be committed before the end otherwise
                self._is_send_due = False
            self._send(self._next_commit(ends_run=False, resume=None))
        self._is_send_due = False

    def send_rest(self) -> None:
        """Commit the text so far, when the run stops without an end.

        Also while another commit is under way: the store applies commits in order.
        """
        if self.submit is not None or self.failure is not None:
            return
        if self.writer is not None:
            self.writer.add_text()
        if self._unsent:
            self._send(self._next_commit(ends_run=False, resume=None))

    async def add(self, event: ArtifactUpdate) -> None:
        """Commit an artifact that belongs to no run, also after the end; wait until it is durable.

        Raises: AgentFailed (it cannot be written), and what the store raised.
        """
        if self.failure is not None:
            raise self.failure
        self._record(event, counts=False)
        await self.wait_durable(self.sequence)
        # `committed` wakes the outbox only for subscribed tasks, and an ended task may not be
        # subscribed any more. Its stored deliveries still have to send this artifact.
        self._wakeups.notify(self._head.id)

    async def end(
        self,
        events: Sequence[Event],
        *,
        run: RunRecord | None,
        resume: bytes | None = None,
        code: str = AgentFailed.code,
    ) -> None:
        """Commit the last events of a run (or of none) and wait until they are durable.

        `code` says why when the task failed, for the log.
        """
        is_over = self.send_end(events, run=run, resume=resume, code=code)
        await self.settle()
        if is_over:
            self.log_end()

    def send_end(
        self,
        events: Sequence[Event],
        *,
        run: RunRecord | None,
        resume: bytes | None = None,
        code: str = AgentFailed.code,
    ) -> bool:
        """Send the last events to the store; True when the task ends with them.

        `settle` waits until they are durable, and `log_end` follows, once for each task.
        """
        was_over = self.state in TERMINAL
        self._run = run
        for event in events:
            self._record(event)
        is_over = self.state in TERMINAL and not was_over
        if is_over:
            self.failure_code = code
        # Sent at once, even with a commit under way: the store takes commits in order, and the
        # unsent events are part of this one. The run is deleted in the same commit: after a
        # crash the end is stored and the run is gone, or the run is there for recovery.
        self._send(self._next_commit(ends_run=True, resume=resume))
        return is_over

    def log_end(self) -> None:
        """Log that the task has ended."""
        if not log.is_enabled(logging.INFO):
            return
        head, fields = self._head, JsonObject()
        if self.state is not TaskState.COMPLETED:
            message = self.projection.status.message
            parts = () if message is None else message.parts
            fields["reason"] = " ".join([part.text for part in parts if part.text])[:_REASON_CHARS]
        if self.state is TaskState.FAILED:
            fields["code"] = self.failure_code
        log.info(
            "task.ended",
            task_id=head.id,
            caller=head.scope.principal,
            account=head.scope.account,
            agent=None if head.binding is None else head.binding.agent_id,
            state=_STATE_NAMES[self.state],
            milliseconds=round((self._status_at - head.created_at).total_seconds() * 1000),
            **fields,
        )

    def open(
        self, event: Event, submit: Callable[[Commit], None], message: Message | None = None
    ) -> None:
        """Record the first event of a submission; `submit` gets the commit that has it.

        The caller passes the answer of the store to `committed`.
        """
        if message is not None:
            self._add_message(message)
        self._record(event)
        self.submit = submit

    def send_opening(self) -> None:
        """Send the commit of the submission, unless the end of the run has taken it along."""
        if self.submit is not None:
            self._send(self._next_commit(ends_run=False, resume=None))

    async def settle(self, limit: int = 0) -> None:
        """Wait until at most `limit` events are not durable yet. Raises what the store raised."""
        while self.in_flight > limit and self.failure is None:
            if self._unsent:
                self.send_unsent()
            await self._next_answer()
        if self.failure is not None:
            raise self.failure

    async def wait_durable(self, sequence: int) -> None:
        """Wait until this event is durable. Raises what the store raised."""
        while self.committed_sequence < sequence and self.failure is None:
            if self._unsent:
                self.send_unsent()
            await self._next_answer()
        if self.failure is not None:
            raise self.failure

    def _next_answer(self) -> "asyncio.Future[None]":
        """Done when the store has answered another commit."""
        # One future for each waiter: a waiter that is cancelled cancels what it awaits.
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._settle_waiters.append(waiter)
        return waiter

    def committed(self, commit: Commit, error: BaseException | None) -> None:
        """The store has taken, or refused, the commit."""
        # A callback of the store's future, in the event loop: nothing runs between these lines.
        self._commits_under_way -= 1
        entries = commit.entries
        self.in_flight -= len(entries) or 1
        if error is not None:
            # The first failure counts: the later commits fail because of it (their `after` is
            # a sequence number that the store never reached).
            if self.failure is None:
                self.failure = error if isinstance(error, Exception) else GatewayFault(str(error))
        elif entries:
            self.committed_sequence = entries[-1].sequence
            # Streams first: their clients wait. The outbox is only woken here and reads later.
            if self._feed is not None:
                self._feed.publish(entries)
            wakeups = self._wakeups
            if wakeups.readers or wakeups.subscribed or wakeups.observers:
                self._notify(entries)
        waiters, self._settle_waiters = self._settle_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        # Before `on_committed`: the text that it appends belongs to the commit after this one,
        # together with what the agent says until the end of this turn of the event loop.
        if self._unsent:
            self.send_unsent()
        if self.writer is not None:
            self.writer.on_committed()

    # ---------------------------------------------------------------- details

    def _notify(self, entries: tuple[Entry, ...]) -> None:
        wakeups, task_id = self._wakeups, self._head.id
        if task_id in wakeups.readers:
            wakeups.wake_readers(task_id)
        if task_id in wakeups.subscribed:
            wakeups.notify(task_id, entries)
        if wakeups.observers:
            wakeups.notify_observers(task_id)

    def _add_message(self, message: Message) -> None:
        self.projection.add_message(message)
        self._message = message

    def _record(self, given: Event, *, counts: bool = True) -> None:
        """Number and encode one event; `counts` towards the size of the run."""
        event, before = given, self._status_at
        # Status times must not decrease. A given one can be older than the last: a run that becomes
        # a task publishes its staged events after newer ones, and the clock may be set back.
        if isinstance(given, StatusUpdate) and (given.status.timestamp or before) < before:
            event = _restamp(given, before)
        is_status = isinstance(event, StatusUpdate)
        try:
            body = (STATUS_UPDATE if is_status else ARTIFACT_UPDATE) + encode_json(event) + b"}"
        except UNWRITABLE as error:
            raise AgentFailed(f"The agent sent what cannot be written: {error}.") from None
        state = None
        if is_status:
            status = event.status
            state = status.state
            if state not in ALLOWED[self.state]:
                raise IllegalTransition(
                    f"task {self._head.id} is {self.state.value}; it cannot become {state.value}"
                )
            if state is TaskState.WORKING and status.message is not None:
                self._written_bytes += len(body) if counts else 0
                self._check_size(len(body), counts=counts)
                if len(self.projection.history) >= (most := self.limits.history_messages):
                    raise AgentFailed(
                        f"The agent said more than the {most} messages of a task"
                        " (limits.historyMessages)."
                    )
            self.state = state
            self._status_at = status.timestamp or self._status_at
        else:
            size = len(body)
            self._written_bytes += size if counts else 0
            if size > self.limits.event_bytes or self._written_bytes > self.limits.run_bytes:
                self._check_size(size, counts=counts)
        # After all checks: an event that is refused takes no number, and the run can still end
        # the task with an event of its own.
        if not is_status:
            self.projection.apply_artifact(event)
        elif event.status.message is None:
            self.projection.status = event.status
        else:
            self.projection.apply_status(event.status)
        self.sequence += 1
        self._unsent.append(Entry(self.sequence, body, state))
        self.in_flight += 1

    def _check_size(self, size: int, *, counts: bool) -> None:
        limits = self.limits
        if size > limits.event_bytes:
            limit = limits.event_bytes
            raise AgentFailed(
                f"The agent sent {size} bytes at once; the limit is {limit} (limits.eventBytes)."
            )
        if counts and self._written_bytes > limits.run_bytes:
            limit = limits.run_bytes
            raise AgentFailed(
                f"The agent's answer is larger than {limit} bytes (limits.artifactBytes)."
            )

    def _next_commit(self, *, ends_run: bool, resume: bytes | None) -> Commit:
        entries, self._unsent = tuple(self._unsent), []
        message, self._message = self._message, None
        # Moved when the commit is sent, not when it is taken: the store takes commits in order, so
        # the next one builds on this one, and is refused with it because of its `after`.
        run, after, self._stored_sequence = self._run, self._stored_sequence, self.sequence
        if ends_run:
            self._run = None  # what is written before the next run begins belongs to none
        self._commits_under_way += 1
        if not entries:
            self.in_flight += 1  # a commit without events is waited for like one event
        # The snapshot of a paused task, or after the end of a run, is complete: it may be read for
        # years. While the task runs, one snapshot per doubling keeps writing and reading O(events).
        ends_or_pauses = ends_run or self.state not in ACTIVE
        is_due = after < 0 or message is not None or self.sequence >= self._next_snapshot
        snapshot = None
        if is_due or (ends_or_pauses and entries):
            self._next_snapshot = max(_FIRST_SNAPSHOT, self.sequence * 2)
            snapshot = encode_json(self.projection.task())
            if ends_or_pauses:
                self.snapshot = snapshot
            # A large snapshot would store all content a second time; replaying a few events over
            # the previous one is as fast. There is one, because the first commit always has it.
            if not is_due and len(snapshot) > _LARGE_SNAPSHOT and self.sequence < _FIRST_SNAPSHOT:
                snapshot = None
        # The fence: when another engine has claimed the run, the store refuses what we write.
        run_id, fence = (run.id, run.fence) if run is not None else (None, 0)
        return Commit(self.head, after, entries, snapshot, run_id, fence, ends_run, resume)

    def _send(self, commit: Commit) -> None:
        if self.submit is not None:
            submit, self.submit = self.submit, None
            submit(commit)
            return

        def on_answer(done: asyncio.Future[None]) -> None:
            # A cancelled future says nothing about the commit, so its events are not published.
            if done.cancelled():
                self.committed(commit, StoreUnavailable("the commit of a task was cancelled"))
            else:
                self.committed(commit, done.exception())

        # Not awaited: the agent goes on while the store writes. `settle` and `wait_durable` wait.
        self._store.commit(commit).add_done_callback(on_answer)


def _restamp(event: StatusUpdate, time: datetime) -> StatusUpdate:
    status = msgspec.structs.replace(event.status, timestamp=time)
    return msgspec.structs.replace(event, status=status)
