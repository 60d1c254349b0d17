"""An objective rebuilt from the lines of its journal, whatever state they are in."""

from collections.abc import Iterable

import msgspec

from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.planning.journal import decode_line
from openclaw_a2a.planning.state import ObjectiveState, take


class ReplayWarning(msgspec.Struct, frozen=True):
    """Something odd in a journal. `is_last`: a last line that was probably cut off by a crash."""

    line: int
    message: str
    is_last: bool = False


class Replayed(msgspec.Struct, frozen=True):
    """What the lines gave; there is no state when none of them creates an objective."""

    state: ObjectiveState | None
    warnings: tuple[ReplayWarning, ...] = ()


def replay(lines: Iterable[bytes]) -> Replayed:
    """The objective after all lines; those that cannot be read or do not fit are left out."""
    state: ObjectiveState | None = None
    warnings: list[ReplayWarning] = []
    number = last = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        last = number
        try:
            operation = decode_line(line)
        except CorruptRecord as error:
            warnings.append(ReplayWarning(number, error.message, is_last=True))
            continue
        state, oddity = take(state, operation)
        if oddity is not None:
            warnings.append(ReplayWarning(number, oddity))
    return Replayed(state, tuple(_only_last(warning, last) for warning in warnings))


def _only_last(warning: ReplayWarning, last: int) -> ReplayWarning:
    if warning.is_last and warning.line != last:
        return ReplayWarning(warning.line, warning.message)
    return warning
