"""Moments as objectives write them: ISO 8601 in UTC with milliseconds, ordered as their text is."""

import re
from datetime import datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import NewType, TypeVar

from openclaw_a2a.model.ids import JsonObject, TaskId
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.time_format import format_timestamp

Timestamp = NewType("Timestamp", str)
"""A moment such as 2026-01-05T10:00:00.000Z, always in exactly this form."""

_FIRST, _LAST = 1970, 9000  # years; so that there is always a moment after


def to_timestamp(time: datetime) -> Timestamp:
    """The moment of an aware time; what is finer than a millisecond is cut off."""
    return Timestamp(format_timestamp(time))


def to_datetime(moment: Timestamp) -> datetime:
    """The moment as an aware time."""
    return datetime.fromisoformat(moment)


def next_timestamp(moment: Timestamp, now: Timestamp) -> Timestamp:
    """Now, or a millisecond after the moment when the clock has not come that far."""
    if now > moment:
        return now
    return to_timestamp(to_datetime(moment) + timedelta(milliseconds=1))


@lru_cache(maxsize=4096)
def parse_timestamp(text: str) -> Timestamp | None:
    """The moment in a text that somebody wrote; None when there is none, or one far off."""
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None or not _FIRST <= time.year < _LAST:
            return None
        return to_timestamp(time)
    except (ValueError, OverflowError):
        return None


ObjectiveId = NewType("ObjectiveId", str)
PlanId = NewType("PlanId", str)
PlanTaskId = NewType("PlanTaskId", str)

OBJECTIVE_PREFIX = "obj-"
PLAN_PREFIX = "plan-"
TASK_PREFIX = "task-"
RUNNING = "running"
PAUSED = "paused"
"""What an objective or a plan is told: to have its tasks begun, or no more of them."""
MESSAGE_KEY = "opt/v1/messageId"
"""In the metadata of a plan task: the message that it was made for, and that begins it."""

# No capitals and no underscores: file names and session keys are made of ids, and must differ
# wherever ids do.
_OWN_ID = re.compile(r"(?:obj|plan)-[a-z0-9]+(?:-[a-z0-9]+)*")
_LONGEST_ID = 64


class ObjectiveStatus(Enum):
    """Where an objective stands."""

    SUBMITTED = "submitted"
    PLANNING = "planning"
    WORKING = "working"
    BLOCKED = "blocked"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"

    __hash__ = object.__hash__  # members are single objects; hashing their names costs a call


class PlanStatus(Enum):
    """Where a plan stands."""

    PENDING = "pending"
    WORKING = "working"
    BLOCKED = "blocked"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"

    __hash__ = object.__hash__  # members are single objects; hashing their names costs a call


class PlanTaskStatus(Enum):
    """Where a plan task stands: pending until an A2A task does it, then that task's state."""

    PENDING = "pending"
    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    AUTH_REQUIRED = "auth-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"

    __hash__ = object.__hash__  # members are single objects; hashing their names costs a call


class PlanTask(JsonStruct, frozen=True):
    """One step of a plan. The members without a default are always written."""

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
    """Steps towards an objective. `tasks` is None where they are not shown."""

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
    """Something to be reached. `plans` is None where they are not shown."""

    id: ObjectiveId
    name: str
    status: ObjectiveStatus
    metadata: JsonObject
    created_at: Timestamp
    updated_at: Timestamp
    description: str | None = None
    plans: tuple[Plan, ...] | None = None


class PlanLimits(JsonStruct, frozen=True):
    """How much an objective and a plan may hold."""

    max_plans_per_objective: int = 10
    max_tasks_per_plan: int = 50


_O, _P, _T = ObjectiveStatus, PlanStatus, PlanTaskStatus

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
"""An A2A task is at work."""

TASK_WAITING = frozenset({_T.INPUT_REQUIRED, _T.AUTH_REQUIRED})
"""An A2A task waits for somebody."""

TASK_FAILED = frozenset({_T.FAILED, _T.CANCELED, _T.REJECTED})
"""It ended, and not well."""

ENDED = TASK_FAILED | {_T.COMPLETED}
"""Nothing more happens to it by itself."""

# The contract has no table for plan tasks. An A2A task does not leave its end; a plan task may
# leave a bad one, to be tried again by another A2A task.
TASK_TRANSITIONS: dict[PlanTaskStatus, frozenset[PlanTaskStatus]] = {
    _T.PENDING: frozenset(_T) - {_T.PENDING},
    **{status: frozenset(_T) - {_T.PENDING, status} for status in TASK_ACTIVE | TASK_WAITING},
    **{status: TASK_ACTIVE | {_T.PENDING} for status in TASK_FAILED},
    _T.COMPLETED: frozenset(),
}

OBJECTIVE_CLOSED = frozenset({_O.COMPLETED, _O.CANCELED})
"""Nothing can be added to an objective that is over."""

PLAN_OPEN = frozenset({_P.PENDING, _P.WORKING, _P.BLOCKED})
"""There is still something to do in such a plan."""

PLAN_DONE = frozenset({_P.COMPLETED, _P.SKIPPED})
"""What depends on such a plan need not wait for it."""

_MIRRORS: dict[TaskState, PlanTaskStatus] = {
    TaskState.SUBMITTED: _T.SUBMITTED,
    TaskState.WORKING: _T.WORKING,
    TaskState.INPUT_REQUIRED: _T.INPUT_REQUIRED,
    TaskState.AUTH_REQUIRED: _T.AUTH_REQUIRED,
    TaskState.COMPLETED: _T.COMPLETED,
    TaskState.FAILED: _T.FAILED,
    TaskState.CANCELED: _T.CANCELED,
    TaskState.REJECTED: _T.REJECTED,
}

Status = TypeVar("Status", ObjectiveStatus, PlanStatus, PlanTaskStatus)


def is_allowed(table: dict[Status, frozenset[Status]], old: Status, new: Status) -> bool:
    """True when the table allows the step, or when it is none."""
    return old is new or new in table[old]


def status_for_task_state(state: TaskState) -> PlanTaskStatus | None:
    """The status of a plan task whose A2A task is in this state; None for no real state."""
    return _MIRRORS.get(state)


def is_valid_id(text: str) -> bool:
    """True when a caller may choose this id for an objective (`obj-`) or a plan (`plan-`)."""
    return len(text) <= _LONGEST_ID and _OWN_ID.fullmatch(text) is not None
