"""Status transitions of objectives, plans and plan tasks: the tables, and checks against them."""

from datetime import datetime
from typing import TypeVar

from openclaw_a2a.model.errors import ChangedMeanwhile, StatusChangeNotAllowed
from openclaw_a2a.planning.model import (
    Objective,
    ObjectiveStatus,
    PlanStatus,
    PlanTaskStatus,
    Timestamp,
    to_datetime,
)

_O, _P, _T = ObjectiveStatus, PlanStatus, PlanTaskStatus
Status = TypeVar("Status", ObjectiveStatus, PlanStatus, PlanTaskStatus)
Item = tuple[str, str]
"""A kind (objective, plan or task) and an id, for error messages."""

OBJECTIVE_TRANSITIONS: dict[ObjectiveStatus, frozenset[ObjectiveStatus]] = {
    _O.SUBMITTED: frozenset({_O.PLANNING, _O.WORKING, _O.CANCELED}),
    _O.PLANNING: frozenset({_O.WORKING, _O.BLOCKED, _O.FAILED, _O.CANCELED}),
    _O.WORKING: frozenset({_O.BLOCKED, _O.COMPLETED, _O.FAILED, _O.CANCELED}),
    _O.BLOCKED: frozenset({_O.PLANNING, _O.WORKING, _O.FAILED, _O.CANCELED}),
    _O.COMPLETED: frozenset(),
    _O.FAILED: frozenset({_O.SUBMITTED, _O.PLANNING}),
    _O.CANCELED: frozenset({_O.SUBMITTED}),
}

PLAN_TRANSITIONS: dict[PlanStatus, frozenset[PlanStatus]] = {
    _P.PENDING: frozenset({_P.WORKING, _P.BLOCKED, _P.SKIPPED}),
    _P.WORKING: frozenset({_P.BLOCKED, _P.COMPLETED, _P.FAILED}),
    _P.BLOCKED: frozenset({_P.PENDING, _P.WORKING, _P.FAILED, _P.SKIPPED}),
    _P.FAILED: frozenset({_P.PENDING, _P.WORKING}),
    _P.COMPLETED: frozenset(),
    _P.SKIPPED: frozenset(),
}

TASK_ACTIVE = frozenset({_T.SUBMITTED, _T.WORKING})
TASK_WAITING = frozenset({_T.INPUT_REQUIRED, _T.AUTH_REQUIRED})
TASK_FAILED = frozenset({_T.FAILED, _T.CANCELED, _T.REJECTED})
PLAN_OPEN = frozenset({_P.PENDING, _P.WORKING, _P.BLOCKED})
PLAN_DONE = frozenset({_P.COMPLETED, _P.SKIPPED})
"""Plans that depend on a done plan may start."""
OBJECTIVE_CLOSED = frozenset({_O.COMPLETED, _O.CANCELED})
"""Nothing can be added to a closed objective."""
OBJECTIVE_ENDED = OBJECTIVE_CLOSED | {_O.FAILED}
"""No step starts in an ended objective."""

# The contract has no table for plan tasks. An A2A task never leaves a terminal state; a plan task
# may leave a failed one, to be retried by another A2A task.
TASK_TRANSITIONS: dict[PlanTaskStatus, frozenset[PlanTaskStatus]] = {
    _T.PENDING: frozenset(_T) - {_T.PENDING},
    **{status: frozenset(_T) - {_T.PENDING, status} for status in TASK_ACTIVE | TASK_WAITING},
    **{status: TASK_ACTIVE | {_T.PENDING} for status in TASK_FAILED},
    _T.COMPLETED: frozenset(),
}

# Statuses that a path may lead through, in order of preference.
_OBJECTIVE_VIA = (_O.WORKING, _O.PLANNING)
_PLAN_VIA = (_P.WORKING, _P.BLOCKED)


def objective_path(old: ObjectiveStatus, new: ObjectiveStatus) -> list[ObjectiveStatus]:
    """The statuses an objective takes one after the other to get to `new`; empty without a path."""
    return _path(OBJECTIVE_TRANSITIONS, old, new, _OBJECTIVE_VIA)


def plan_path(old: PlanStatus, new: PlanStatus, *, may_work: bool) -> list[PlanStatus]:
    """The statuses a plan takes one after the other to get to `new`; empty without a path.

    A plan whose dependencies are not done must not be `working` on the way either.
    """
    return _path(PLAN_TRANSITIONS, old, new, _PLAN_VIA if may_work else _PLAN_VIA[1:])


def _path(
    table: dict[Status, frozenset[Status]], old: Status, new: Status, via: tuple[Status, ...]
) -> list[Status]:
    """The shortest path; in these tables it has at most two statuses in between."""
    if new in table[old]:
        return [new]
    for between in via:
        if between in table[old] and new in table[between]:
            return [between, new]
    for first in via:
        for second in via:
            if first in table[old] and second in table[first] and new in table[second]:
                return [first, second, new]
    return []


KIND_NAMES = {"task": "step"}
"""What messages call a plan task, which is no A2A task."""


def transition_error(item: Item, change: tuple[str, str], why: str) -> StatusChangeNotAllowed:
    """The error for a transition (from, to) that is not possible."""
    (kind, item_id), (old, new) = item, change
    return StatusChangeNotAllowed(
        f"The {KIND_NAMES.get(kind, kind)} {item_id} is {old} and cannot become {new}: {why}.",
        details={"kind": kind, "id": item_id, "from": old, "to": new},
    )


def check_transition(
    table: dict[Status, frozenset[Status]], item: Item, old: Status, new: Status
) -> None:
    """Check that a caller may ask for a transition.

    Raises: StatusChangeNotAllowed (it is not in the table).
    """
    if old is new or new in table[old]:
        return
    possible = ", ".join(status.value for status in type(old) if status in table[old])
    why = f"from there it goes to {possible}" if possible else f"{old.value} is the end"
    raise transition_error(item, (old.value, new.value), why)


def check_not_modified(item: Item, updated_at: Timestamp, read_at: datetime | None) -> None:
    """Check that an item is still as its caller has read it, if the caller says when that was.

    Raises: ChangedMeanwhile (it was changed since).
    """
    if read_at is None or to_datetime(updated_at) == read_at:
        return
    kind, item_id = item
    raise ChangedMeanwhile(
        f"The {kind} {item_id} was changed: its updatedAt is {updated_at}, and ifUpdatedAt is "
        f"{read_at.isoformat()}. Read it again, and decide by what it is now.",
        details={"kind": kind, "id": item_id, "updatedAt": updated_at},
    )


def check_objective_open(objective: Objective, item: Item, change: tuple[str, str]) -> None:
    """Check that a plan or task of an objective may still change.

    Raises: StatusChangeNotAllowed (the objective is completed or canceled).
    """
    if objective.status in OBJECTIVE_CLOSED:
        why = f"its objective {objective.id} is {objective.status.value}; create a new one"
        raise transition_error(item, change, why)
