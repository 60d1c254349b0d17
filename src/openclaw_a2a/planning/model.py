"""Objectives, plans and plan tasks: their ids, statuses, members and timestamps."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import NewType, cast

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
