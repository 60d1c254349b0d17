"""Steps from one status to another: the ones that callers ask for, and ways along the tables."""

from datetime import datetime

from openclaw_a2a.model.errors import ChangedMeanwhile, StatusChangeNotAllowed
from openclaw_a2a.planning.model import (
    OBJECTIVE_CLOSED,
    OBJECTIVE_TRANSITIONS,
    PLAN_TRANSITIONS,
    ObjectiveStatus,
    PlanStatus,
    Status,
    Timestamp,
    to_datetime,
)
from openclaw_a2a.planning.state import ObjectiveState

# Through which statuses a way may lead, the best first.
_THROUGH_OBJECTIVE = (ObjectiveStatus.WORKING, ObjectiveStatus.PLANNING)
_THROUGH_PLAN = (PlanStatus.WORKING, PlanStatus.BLOCKED)


def objective_path(old: ObjectiveStatus, new: ObjectiveStatus) -> list[ObjectiveStatus]:
    """The statuses an objective takes to get to the new one; none when it cannot."""
    return _way(OBJECTIVE_TRANSITIONS, old, new, _THROUGH_OBJECTIVE)


def plan_path(old: PlanStatus, new: PlanStatus, *, may_work: bool) -> list[PlanStatus]:
    """The statuses a plan takes to get to the new one; none when it cannot.

    A plan that waits for others may not work, not even for a moment.
    """
    return _way(PLAN_TRANSITIONS, old, new, _THROUGH_PLAN if may_work else _THROUGH_PLAN[1:])


def _way(
    table: dict[Status, frozenset[Status]], old: Status, new: Status, through: tuple[Status, ...]
) -> list[Status]:
    """The shortest way along the table; the tables need no more than two steps between."""
    if new in table[old]:
        return [new]
    for step in through:
        if step in table[old] and new in table[step]:
            return [step, new]
    for first in through:
        for second in through:
            if first in table[old] and second in table[first] and new in table[second]:
                return [first, second, new]
    return []


def transition_error(
    item: tuple[str, str], change: tuple[str, str], why: str
) -> StatusChangeNotAllowed:
    """The error for a step that cannot be taken; `item` is its kind and id."""
    (kind, item_id), (old, new) = item, change
    return StatusChangeNotAllowed(
        f"The {kind} {item_id} is {old} and cannot become {new}: {why}.",
        details={"kind": kind, "id": item_id, "from": old, "to": new},
    )


def check_transition(
    table: dict[Status, frozenset[Status]], item: tuple[str, str], old: Status, new: Status
) -> None:
    """Make sure that a caller may ask for the step; `item` is its kind and id.

    Raises:
        StatusChangeNotAllowed: the table does not have it.
    """
    if old is new or new in table[old]:
        return
    possible = ", ".join(status.value for status in type(old) if status in table[old])
    why = f"from there it goes to {possible}" if possible else f"{old.value} is the end"
    raise transition_error(item, (old.value, new.value), why)


def check_not_modified(
    item: tuple[str, str], updated_at: Timestamp, read_at: datetime | None
) -> None:
    """Make sure that something is as its caller has read it, if the caller says when that was.

    Raises:
        ChangedMeanwhile: it was changed since.
    """
    if read_at is None or to_datetime(updated_at) == read_at:
        return
    kind, item_id = item
    raise ChangedMeanwhile(
        f"The {kind} {item_id} was changed: it is of {updated_at} now, and ifUpdatedAt is "
        f"{read_at.isoformat()}. Read it again, and decide by what it is now.",
        details={"kind": kind, "id": item_id, "updatedAt": updated_at},
    )


def check_objective_open(
    state: ObjectiveState, item: tuple[str, str], change: tuple[str, str]
) -> None:
    """Make sure that something below the objective may still change.

    Raises:
        StatusChangeNotAllowed: the objective is over.
    """
    status = state.objective.status
    if status in OBJECTIVE_CLOSED:
        why = f"its objective {state.id} is {status.value}; make a new one"
        raise transition_error(item, change, why)
