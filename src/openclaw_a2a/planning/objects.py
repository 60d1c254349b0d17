"""Objectives, plans and plan tasks, their statuses, and the tables of what may follow what."""

import re
from enum import Enum
from typing import NewType, TypeVar

from openclaw_a2a.model.ids import JsonObject, TaskId
from openclaw_a2a.model.message import Record
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.planning.moments import Moment

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


class PlanTask(Record, frozen=True):
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


class Plan(Record, frozen=True):
    """Steps towards an objective. `tasks` is None where they are not shown."""

    id: PlanId
    objective_id: ObjectiveId
    name: str
    status: PlanStatus
    dependencies: tuple[PlanId, ...]
    metadata: JsonObject
    created_at: Moment
    updated_at: Moment
    description: str | None = None
    tasks: tuple[PlanTask, ...] | None = None


class Objective(Record, frozen=True):
    """Something to be reached. `plans` is None where they are not shown."""

    id: ObjectiveId
    name: str
    status: ObjectiveStatus
    metadata: JsonObject
    created_at: Moment
    updated_at: Moment
    description: str | None = None
    plans: tuple[Plan, ...] | None = None


class Limits(Record, frozen=True):
    """How much an objective and a plan may hold."""

    max_plans_per_objective: int = 10
    max_tasks_per_plan: int = 50


_O, _P, _T = ObjectiveStatus, PlanStatus, PlanTaskStatus

OBJECTIVE_CHANGES: dict[ObjectiveStatus, frozenset[ObjectiveStatus]] = {
    _O.SUBMITTED: frozenset({_O.PLANNING, _O.WORKING, _O.CANCELED}),
    _O.PLANNING: frozenset({_O.WORKING, _O.BLOCKED, _O.FAILED, _O.CANCELED}),
    _O.WORKING: frozenset({_O.BLOCKED, _O.COMPLETED, _O.FAILED, _O.CANCELED}),
    _O.BLOCKED: frozenset({_O.PLANNING, _O.WORKING, _O.FAILED, _O.CANCELED}),
    _O.COMPLETED: frozenset(),
    _O.FAILED: frozenset({_O.SUBMITTED, _O.PLANNING}),
    _O.CANCELED: frozenset({_O.SUBMITTED}),
}

PLAN_CHANGES: dict[PlanStatus, frozenset[PlanStatus]] = {
    _P.PENDING: frozenset({_P.WORKING, _P.BLOCKED, _P.SKIPPED}),
    _P.WORKING: frozenset({_P.BLOCKED, _P.COMPLETED, _P.FAILED}),
    _P.BLOCKED: frozenset({_P.PENDING, _P.WORKING, _P.FAILED, _P.SKIPPED}),
    _P.FAILED: frozenset({_P.PENDING, _P.WORKING}),
    _P.COMPLETED: frozenset(),
    _P.SKIPPED: frozenset(),
}

ACTIVE = frozenset({_T.SUBMITTED, _T.WORKING})
"""An A2A task is at work."""

WAITING = frozenset({_T.INPUT_REQUIRED, _T.AUTH_REQUIRED})
"""An A2A task waits for somebody."""

FAILED = frozenset({_T.FAILED, _T.CANCELED, _T.REJECTED})
"""It ended, and not well."""

ENDED = FAILED | {_T.COMPLETED}
"""Nothing more happens to it by itself."""

# The contract has no table for plan tasks. An A2A task does not leave its end; a plan task may
# leave a bad one, to be tried again by another A2A task.
TASK_CHANGES: dict[PlanTaskStatus, frozenset[PlanTaskStatus]] = {
    _T.PENDING: frozenset(_T) - {_T.PENDING},
    **{status: frozenset(_T) - {_T.PENDING, status} for status in ACTIVE | WAITING},
    **{status: ACTIVE | {_T.PENDING} for status in FAILED},
    _T.COMPLETED: frozenset(),
}

OVER = frozenset({_O.COMPLETED, _O.CANCELED})
"""Nothing can be added to an objective that is over."""

OPEN = frozenset({_P.PENDING, _P.WORKING, _P.BLOCKED})
"""There is still something to do in such a plan."""

DONE = frozenset({_P.COMPLETED, _P.SKIPPED})
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


def may_change(table: dict[Status, frozenset[Status]], old: Status, new: Status) -> bool:
    """True when the table allows the step, or when it is none."""
    return old is new or new in table[old]


def mirror_of(state: TaskState) -> PlanTaskStatus | None:
    """The status of a plan task whose A2A task is in this state; None for no real state."""
    return _MIRRORS.get(state)


def is_own_id(text: str) -> bool:
    """True when a caller may choose this id for an objective (`obj-`) or a plan (`plan-`)."""
    return len(text) <= _LONGEST_ID and _OWN_ID.fullmatch(text) is not None
