"""Objectives, plans and plan tasks: ids, statuses and their transitions, members and timestamps."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import Enum
from functools import lru_cache
from itertools import pairwise, permutations
from typing import NewType, TypeVar, cast

from openclaw_a2a.model.errors import ChangedMeanwhile, StatusChangeNotAllowed
from openclaw_a2a.model.ids import LOCAL_PEER, AccountId, JsonObject, TaskId
from openclaw_a2a.model.message import JsonStruct, format_timestamp
from openclaw_a2a.model.turn import Scope

ObjectiveId = NewType("ObjectiveId", str)
PlanId = NewType("PlanId", str)
PlanTaskId = NewType("PlanTaskId", str)
Timestamp = NewType("Timestamp", str)
"""ISO 8601 in UTC with milliseconds, always in this form: they sort by time as text."""

OBJECTIVE_PREFIX = "obj-"
PLAN_PREFIX = "plan-"
TASK_PREFIX = "task-"
RUNNING = "running"
PAUSED = "paused"
PLANNING = "planning"
"""The execution mode in which the planner makes the plans, and nothing is executed."""
MESSAGE_KEY = "opt/v1/messageId"
"""In the metadata of a plan task: the message that created it, and that starts it."""
LOCAL_OWNER = Scope(LOCAL_PEER, AccountId("default"))
"""Owns objectives whose log names no owner, such as one that another program wrote."""

# No capitals and no underscores: file names and session keys are made from ids, and must differ
# wherever ids do.
_ID = re.compile(r"(?:obj|plan)-[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_ID_LENGTH = 64
_FIRST_YEAR, _LAST_YEAR = 1970, 9000  # leaves room for a next timestamp after any other


class _Status(Enum):
    __hash__ = object.__hash__  # members are single objects; hashing their names costs a call


class ObjectiveStatus(_Status):
    """The status of an objective."""

    SUBMITTED = "submitted"
    PLANNING = "planning"
    WORKING = "working"
    BLOCKED = "blocked"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


class PlanStatus(_Status):
    """The status of a plan."""

    PENDING = "pending"
    WORKING = "working"
    BLOCKED = "blocked"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


class PlanTaskStatus(_Status):
    """The status of a plan task: pending, or the state of the A2A task that works on it."""

    PENDING = "pending"
    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    AUTH_REQUIRED = "auth-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"


class PlanTask(JsonStruct, frozen=True):
    """One step of a plan. Members without a default are always written."""

    id: PlanTaskId
    plan_id: PlanId
    objective_id: ObjectiveId
    name: str
    task_index: int
    dependencies: tuple[PlanTaskId, ...]
    status: PlanTaskStatus
    metadata: JsonObject
    description: str | None = None
    a2a_task_id: TaskId | None = None


class Plan(JsonStruct, frozen=True):
    """A sequence of steps towards an objective. `tasks` is None where they are left out."""

    id: PlanId
    objective_id: ObjectiveId
    name: str
    status: PlanStatus
    dependencies: tuple[PlanId, ...]
    metadata: JsonObject
    created_at: Timestamp
    updated_at: Timestamp
    description: str | None = None
    tasks: tuple[PlanTask, ...] | None = None


class Objective(JsonStruct, frozen=True):
    """A goal that plans lead to. `plans` is None where they are left out."""

    id: ObjectiveId
    name: str
    status: ObjectiveStatus
    metadata: JsonObject
    created_at: Timestamp
    updated_at: Timestamp
    description: str | None = None
    plans: tuple[Plan, ...] | None = None


class PlanLimits(JsonStruct, frozen=True):
    """Limits for the size of objectives and plans, and for how many objectives are open."""

    max_plans_per_objective: int = 10
    max_tasks_per_plan: int = 50
    max_objectives: int = 10_000
    max_objectives_per_peer: int = 2_500


def is_valid_id(text: str) -> bool:
    """True when a caller may choose this id for an objective (`obj-`) or a plan (`plan-`)."""
    return len(text) <= _MAX_ID_LENGTH and _ID.fullmatch(text) is not None


to_timestamp = cast("Callable[[datetime], Timestamp]", format_timestamp)
"""The timestamp of an aware time, truncated to milliseconds."""


def to_datetime(timestamp: Timestamp) -> datetime:
    """The aware time of a timestamp."""
    return datetime.fromisoformat(timestamp)


def next_timestamp(last: Timestamp, now: Timestamp) -> Timestamp:
    """Now, or one millisecond after `last` when the clock has not advanced past it."""
    if now > last:
        return now
    return to_timestamp(to_datetime(last) + timedelta(milliseconds=1))


@lru_cache(maxsize=4096)
def parse_timestamp(text: str) -> Timestamp | None:
    """The timestamp in a text; None without a time zone, or for a year that is out of range."""
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None or not _FIRST_YEAR <= time.year < _LAST_YEAR:
            return None
        return to_timestamp(time)
    except (ValueError, OverflowError):
        return None


# -------------------------------------------------------------------- transitions

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
    """The shortest path."""
    for length in range(len(via) + 1):
        for between in permutations(via, length):
            path = [*between, new]
            if all(after in table[before] for before, after in pairwise((old, *path))):
                return path
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
