"""Calls as the gateway shows them, and the words for where they stand."""

from datetime import datetime
from typing import cast

import msgspec

from openclaw_a2a.cli.live import cut
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import JsonStruct

PENDING = "pending"
COMPLETED = "completed"
_STATES = (
    ("discarded", "discarded"),
    ("seen", "seen"),
    ("delivered", "delivered"),
    ("timed_out", "timed out"),
    ("answered", "answered"),
    ("running", "running"),
    ("accepted", "accepted"),
)
"""Where a call may stand, the last first: the name of its time, and the word for it."""

_ON_THEIR_WAY = "session"
_LONGEST_NOTE = 60


class CallTimes(JsonStruct, frozen=True):
    """When a call came to each of its states, as far as it did."""

    accepted: datetime | None = None
    running: datetime | None = None
    answered: datetime | None = None
    timed_out: datetime | None = None
    delivered: datetime | None = None
    seen: datetime | None = None
    discarded: datetime | None = None
    deadline: datetime | None = None


class FailedDelivery(JsonStruct, frozen=True):
    """Why an outcome has not been brought; without `next_at` it was given up."""

    attempts: int = 0
    reason: str | None = None
    next_at: datetime | None = None


class ShownCall(JsonStruct, frozen=True):
    """What the operator sees of a call; `parts` are the calls of a debate."""

    correlation_id: str
    task_id: str = ""
    caller: str = ""
    agent: str = ""
    skill: str = ""
    mode: str = "execute"
    status: str = PENDING
    route: str = ""
    timeout_ms: int = 0
    chain: tuple[str, ...] = ()
    times: CallTimes = CallTimes()
    reason: str = ""
    delivery: FailedDelivery | None = None
    output: Json = msgspec.UNSET
    confidence: float | None = None
    assumptions: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    error: str = ""
    parts: tuple["ShownCall", ...] = ()

    @property
    def state(self) -> str:
        """The last state that it came to."""
        return self._last[0]

    @property
    def since(self) -> datetime | None:
        """Since when it is in its state."""
        return self._last[1]

    @property
    def is_over(self) -> bool:
        """True when nothing more is to be expected."""
        if self.status == PENDING:
            return self.times.answered is not None and self.route == "none"
        times = self.times
        is_brought = bool(times.delivered or times.seen or times.discarded)
        return is_brought or self.route != _ON_THEIR_WAY

    @property
    def result(self) -> JsonObject:
        """The members of its output; none when that is no object."""
        return cast("JsonObject", self.output) if isinstance(self.output, dict) else {}

    @property
    def is_debate(self) -> bool:
        """True when other calls are parts of it."""
        return bool(self.parts)

    @property
    def _last(self) -> tuple[str, datetime | None]:
        moments = ((word, getattr(self.times, name)) for name, word in _STATES)
        return next(((word, moment) for word, moment in moments if moment), ("accepted", None))


class CallList(JsonStruct, frozen=True):
    """The newest calls, the newest first, and how many there are."""

    calls: tuple[ShownCall, ...] = ()
    total_size: int = 0


def note_of(call: ShownCall, now: datetime) -> str:
    """What is most worth knowing of a call, in a few words on one line."""
    return cut(" ".join(_note_of(call, now).split()), _LONGEST_NOTE)


def _note_of(call: ShownCall, now: datetime) -> str:
    deadline = call.times.deadline
    if call.status == PENDING:
        return "" if deadline is None else f"{duration((deadline - now).total_seconds())} left"
    if call.delivery is not None:
        return f"not delivered: {call.delivery.reason}"
    if call.status == "timeout":
        late = "; an answer came later" if call.times.answered else ""
        return f"no answer in {duration(call.timeout_ms / 1000)}{late}"
    if call.status == COMPLETED:
        return "" if call.confidence is None else f"confidence {call.confidence:.2f}"
    return call.reason or call.error


def age(moment: datetime | None, now: datetime) -> str:
    """How long ago something was."""
    return "-" if moment is None else duration((now - moment).total_seconds())


def duration(seconds: float) -> str:
    """A time as people say it."""
    whole = max(0, int(seconds))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if whole >= size:
            return f"{whole // size} {unit}"
    return f"{whole} s"
