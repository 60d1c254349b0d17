"""Moments as objectives write them: ISO 8601 in UTC with milliseconds, ordered as their text is."""

from datetime import datetime, timedelta
from functools import lru_cache
from typing import NewType

from openclaw_a2a.model.instants import instant

Moment = NewType("Moment", str)
"""A moment such as 2026-01-05T10:00:00.000Z, always in exactly this form."""

_FIRST, _LAST = 1970, 9000  # years; so that there is always a moment after


def moment_of(time: datetime) -> Moment:
    """The moment of an aware time; what is finer than a millisecond is cut off."""
    return Moment(instant(time))


def time_of(moment: Moment) -> datetime:
    """The moment as an aware time."""
    return datetime.fromisoformat(moment)


def later_than(moment: Moment, now: Moment) -> Moment:
    """Now, or a millisecond after the moment when the clock has not come that far."""
    if now > moment:
        return now
    return moment_of(time_of(moment) + timedelta(milliseconds=1))


@lru_cache(maxsize=4096)
def read_moment(text: str) -> Moment | None:
    """The moment in a text that somebody wrote; None when there is none, or one far off."""
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None or not _FIRST <= time.year < _LAST:
            return None
        return moment_of(time)
    except (ValueError, OverflowError):
        return None
