"""Wakes the outbox, readers and observers when a task changes.

The outbox is woken for tasks with durable subscribers (push, calls, plan steps), a reader for a
task without an active run and therefore without a feed, an observer for every task.
"""

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from openclaw_a2a.engine.supervisor import Supervisor, TimeoutQueue
from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import Entry
from openclaw_a2a.model.task import ACTIVE

if TYPE_CHECKING:
    from openclaw_a2a.engine.tasks.active_task import ActiveTask


UNREAD_S = 0.05
"""How long the text of a task that nobody follows waits for more before it is committed."""

_QUIET_S = 1.0
_MAX_ENDED = 1024
_MAX_ENDED_BYTES = 65_536  # of one; what is larger is read from the store


def wake(waiter: "asyncio.Future[None]") -> None:
    """Resolve the future, unless its waiter was cancelled."""
    if not waiter.done():
        waiter.set_result(None)


class Urgency(Enum):
    """How soon the outbox should check a task."""

    LOW = "low"
    """Artifact chunks only: they come in bursts, and one check after the burst is enough."""
    HIGH = "high"


class QuietFeed(Protocol):
    """The events of a task that are in memory for its readers."""

    def drop_window(self) -> None:
        """Keep them in the store only: nothing was published for a while."""
        ...


class UnreadJournal(Protocol):
    """A journal with text that nobody waits for."""

    def send_unsent(self) -> None:
        """Commit the text that was held back."""
        ...


class WakeupRegistry:
    """Tracks which tasks have durable subscribers, and readers that wait for their next commit.

    The journal checks membership after every commit; that set lookup is the whole cost while
    nothing is subscribed.
    """

    def __init__(
        self,
        supervisor: Supervisor | None = None,
        run_supervisor: Supervisor | None = None,
        *,
        has_replicas: bool = False,
    ) -> None:
        self._has_replicas = has_replicas  # readers at others are not known here
        self._supervisor = supervisor or Supervisor("wakeups")
        self._timeouts: dict[float, TimeoutQueue[asyncio.Future[None]]] = {}
        self.quiet_feeds: TimeoutQueue[QuietFeed] = TimeoutQueue(
            "quiet feeds", _QUIET_S, lambda feed: feed.drop_window(), self._supervisor
        )
        """Feeds with events in memory; each is started again when it publishes some."""
        # Works as long as runs do: a run may go on for a while after the rest has stopped.
        runs = run_supervisor or self._supervisor
        self.unread: TimeoutQueue[UnreadJournal] = TimeoutQueue(
            "unread events", UNREAD_S, lambda journal: journal.send_unsent(), runs
        )
        """Journals with text that is not sent to the store yet, because nobody follows it."""
        self.subscribed: set[TaskId] = set()
        self.wants_every_event: set[TaskId] = set()
        """The other subscribed tasks only need pauses and the terminal state."""
        self.ended: dict[TaskId, ActiveTask] = {}
        """Subscribed tasks that have just ended: their subscribers need not read them."""
        self.readers: dict[TaskId, set[asyncio.Future[None]]] = {}
        """By task, the futures that its next commit resolves; readers add and remove their own."""
        self.observers: set[Callable[[TaskId], None]] = set()
        """Called with every task that changed, after its commit; nearly always empty."""
        self._on_change: Callable[[TaskId, Urgency], None] | None = None
        self._on_added: Callable[[Delivery], None] | None = None

    def set_listener(
        self, on_change: Callable[[TaskId, Urgency], None], on_added: Callable[[Delivery], None]
    ) -> None:
        """Register the outbox. There is exactly one listener."""
        self._on_change = on_change
        self._on_added = on_added

    def subscribe(self, task_id: TaskId, *, every_event: bool) -> None:
        """Wake the outbox for this task from now on."""
        self.subscribed.add(task_id)
        if every_event:
            self.wants_every_event.add(task_id)

    def unsubscribe(self, task_id: TaskId) -> None:
        """The task has no subscribers left."""
        self.ended.pop(task_id, None)
        self.subscribed.discard(task_id)
        self.wants_every_event.discard(task_id)

    @contextmanager
    def waiting(self, task_id: TaskId) -> Generator[asyncio.Future[None]]:
        """A future that the next commit of a task resolves; made before the task is read."""
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        readers = self.readers.setdefault(task_id, set())
        readers.add(changed)
        try:
            yield changed
        finally:
            readers.discard(changed)
            if not readers and self.readers.get(task_id) is readers:
                del self.readers[task_id]

    def is_followed(self, task_id: TaskId) -> bool:
        """True when an observer, a reader or a subscriber needs each event soon.

        Always with replicas, whose readers are not known here. Readers of a feed are not counted:
        the journal asks its feed itself.
        """
        return (
            self._has_replicas
            or bool(self.observers)
            or task_id in self.readers
            or task_id in self.wants_every_event
        )

    def add_delivery(self, delivery: Delivery) -> None:
        """Call when the store has taken a delivery, together with a message on its task.

        Before `notify` is called about that message.
        """
        if self._on_added is not None:
            self._on_added(delivery)

    def keep_ended(self, task_id: TaskId, active: "ActiveTask") -> None:
        """Call when the last run of a subscribed task has left."""
        if len(active.journal.snapshot) <= _MAX_ENDED_BYTES:
            self.ended[task_id] = active
            if len(self.ended) > _MAX_ENDED:
                del self.ended[next(iter(self.ended))]

    def notify(self, task_id: TaskId, committed: Sequence[Entry] = ()) -> None:
        """Call after a commit, or with no entries when a run ended.

        After the commit, never before: the outbox reads the journal at once and would miss it.
        """
        if self._on_change is None:
            return
        self.ended.pop(task_id, None)  # it has changed since
        states = [entry.state for entry in committed if entry.state is not None]
        is_interesting = task_id in self.wants_every_event or not ACTIVE.issuperset(states)
        if not committed or is_interesting:
            urgency = Urgency.HIGH if states or not committed else Urgency.LOW
            self._on_change(task_id, urgency)

    def timeouts(self, seconds: float) -> "TimeoutQueue[asyncio.Future[None]]":
        """The queue that wakes a reader which nothing else has woken for so many seconds."""
        found = self._timeouts.get(seconds)
        if found is None:  # one for each heartbeat that is configured
            found = TimeoutQueue("idle readers", seconds, wake, self._supervisor)
            self._timeouts[seconds] = found
        return found

    def wake_readers(self, task_id: TaskId) -> None:
        """Call after a commit, when the task is among `readers`, and when the engine stops."""
        for waiter in self.readers[task_id]:
            wake(waiter)

    def notify_observers(self, task_id: TaskId) -> None:
        """Call after a commit, while there are observers."""
        for observe in self.observers:
            observe(task_id)
