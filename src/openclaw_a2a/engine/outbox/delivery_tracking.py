"""The life of one delivery inside the outbox: phases, signals, and the table that joins them.

    IDLE            everything known is delivered; waits for a wake-up of its task
    SCHEDULED       waits for `due_at`: the next attempt after a failure, or a time the sender named
    QUEUED          waits for a slot of its channel
    SENDING         an attempt is under way
    STALE           an attempt is under way that may have started too early to see the newest event
    REMOVED         an attempt is under way for a delivery that was removed meanwhile
    GONE            not tracked: delivered to the end, given up, or removed

Invariant, for each delivery id
  1. At most one attempt is under way (SENDING, STALE and REMOVED), and it holds one channel slot.
  2. QUEUED has an entry in a queue of its channel, SCHEDULED has a timer for its `due_at`. An entry
     or a timer that its delivery has left behind is ignored when it comes up.
  3. A wake-up is never lost: it queues the delivery, or makes the attempt under way STALE, and a
     stale attempt is followed by another one.
"""

import asyncio
from datetime import datetime
from enum import Enum

import msgspec

from openclaw_a2a.engine.scheduling.fair_queue import FairSlots, Slot
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.delivery import Delivery, DeliveryId
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.ports import Delivered, DeliveryFailed, Sender


class DeliveryPolicy(msgspec.Struct, frozen=True):
    """Bounds of one channel. Without `attempt_timeout_s` the sender ends its attempts itself."""

    max_attempts: int = 12
    backoff: Backoff = Backoff()
    attempt_timeout_s: float | None = 30.0
    max_parallel: int = 32


class DeliveryChannel(FairSlots[DeliveryId]):
    """One kind of deliveries. Each kind has slots of its own: a slow one delays no other."""

    def __init__(
        self,
        sender: Sender | None,
        policy: DeliveryPolicy,
        *,
        final_states_only: bool = False,
        is_cacheable: bool = False,
    ) -> None:
        """Without a sender nothing of this kind can be delivered.

        `final_states_only`: only pauses and the end of a task are worth an attempt.
        `is_cacheable`: only the outbox changes the stored rows of this kind, so that a row which
        was read once need not be read again.
        """
        super().__init__(policy.max_parallel)
        self.sender = sender
        self.policy = policy
        self.final_states_only = final_states_only
        self.is_cacheable = is_cacheable

    def receiver(self, delivery: Delivery) -> str:
        """The receiver of a delivery, for fairness between receivers."""
        try:
            return "" if self.sender is None else self.sender.receiver(delivery)
        except (ValueError, RecursionError):
            return ""  # a damaged body: the attempt fails because of it, and says so


class Phase(Enum):
    """Where a delivery stands in this process; the stored `DeliveryState` is coarser."""

    IDLE = "idle"
    SCHEDULED = "scheduled"
    QUEUED = "queued"
    SENDING = "sending"
    STALE = "stale"
    REMOVED = "removed"
    GONE = "gone"

    __hash__ = object.__hash__  # members are single objects; hashing their names costs a call


class Signal(Enum):
    """What happens to a delivery."""

    WAKE = "wake"
    """Its task changed, or it was found unfinished: there may be something to send."""
    DEFER = "defer"
    """The store says not before `due_at`, because an earlier attempt failed."""
    RESET = "reset"
    """Its stored row was replaced or its retry was reset: a schedule counts no more."""
    REMOVE = "remove"
    """Its stored row was deleted."""
    DUE = "due"
    """`due_at` is reached."""
    START = "start"
    """It got a slot."""
    SENT = "sent"
    """The attempt ended; nothing more is known."""
    MORE = "more"
    """The attempt ended; the next thing can be sent at once."""
    CHECK_LATER = "check-later"
    """The attempt ended; there is something to send at `due_at` even without a wake-up."""
    RETRY = "retry"
    """The attempt failed, or its result could not be saved; the next one is at `due_at`."""
    DONE = "done"
    """The attempt ended; nothing more is expected, or the delivery was given up."""

    __hash__ = object.__hash__


_STALE_ENDS = dict.fromkeys(
    (Signal.SENT, Signal.MORE, Signal.CHECK_LATER, Signal.DONE), Phase.QUEUED
)

TRANSITIONS: dict[Phase, dict[Signal, Phase]] = {
    Phase.IDLE: {
        Signal.WAKE: Phase.QUEUED,
        Signal.DEFER: Phase.SCHEDULED,
        Signal.RESET: Phase.IDLE,
        Signal.REMOVE: Phase.GONE,
    },
    Phase.SCHEDULED: {
        Signal.WAKE: Phase.QUEUED,
        Signal.DEFER: Phase.SCHEDULED,
        Signal.DUE: Phase.QUEUED,
        Signal.RESET: Phase.IDLE,
        Signal.REMOVE: Phase.GONE,
    },
    Phase.QUEUED: {
        Signal.WAKE: Phase.QUEUED,
        Signal.DEFER: Phase.QUEUED,
        Signal.RESET: Phase.QUEUED,
        Signal.START: Phase.SENDING,
        Signal.REMOVE: Phase.GONE,
    },
    Phase.SENDING: {
        Signal.WAKE: Phase.STALE,
        Signal.DEFER: Phase.STALE,
        Signal.RESET: Phase.STALE,
        Signal.REMOVE: Phase.REMOVED,
        Signal.SENT: Phase.IDLE,
        Signal.MORE: Phase.QUEUED,
        Signal.CHECK_LATER: Phase.SCHEDULED,
        Signal.RETRY: Phase.SCHEDULED,
        Signal.DONE: Phase.GONE,
    },
    Phase.STALE: {
        Signal.WAKE: Phase.STALE,
        Signal.DEFER: Phase.STALE,
        Signal.RESET: Phase.STALE,
        Signal.REMOVE: Phase.REMOVED,
        Signal.RETRY: Phase.SCHEDULED,  # a wake-up does not shorten the wait after a failure
        **_STALE_ENDS,
    },
    Phase.REMOVED: {
        Signal.WAKE: Phase.STALE,  # added again: the attempt under way is not its own
        Signal.DEFER: Phase.STALE,
        Signal.RESET: Phase.REMOVED,
        Signal.REMOVE: Phase.REMOVED,
        **dict.fromkeys((*_STALE_ENDS, Signal.RETRY), Phase.GONE),
    },
    Phase.GONE: {},
}

ATTEMPTING = frozenset({Phase.SENDING, Phase.STALE, Phase.REMOVED})
"""The phases in which an attempt is under way."""


class TrackedDelivery:
    """What the outbox knows of one delivery. Only the outbox changes it."""

    __slots__ = (
        "attempt",
        "cached",
        "channel",
        "due_at",
        "id",
        "phase",
        "receiver",
        "seen",
        "slot",
        "task_id",
        "unsaved",
        "was_missing",
    )

    def __init__(self, delivery: Delivery, channel: DeliveryChannel) -> None:
        self.id: DeliveryId = delivery.id
        self.task_id: TaskId = delivery.task_id
        self.channel = channel
        self.receiver = channel.receiver(delivery)
        self.phase = Phase.IDLE
        self.due_at: datetime | None = None
        self.slot: Slot[DeliveryId] | None = None
        self.attempt: asyncio.Task[None] | None = None
        self.cached: Delivery | None = None
        """The stored row, on channels whose rows only the outbox changes."""
        self.seen: tuple[bytes, int] = (b"", -1)
        """The body, and the cursor it has reached without a need to save it."""
        self.unsaved: tuple[bytes, Delivered | DeliveryFailed] | None = None
        """The body, and the result of the last attempt while it could not be saved."""
        self.was_missing = False
        """True when the last attempt found neither its task nor a run of that."""

    def next_phase(self, signal: Signal) -> Phase:
        """The phase after a signal. Raises: KeyError (the table does not allow it)."""
        return TRANSITIONS[self.phase][signal]
