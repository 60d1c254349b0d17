"""What happened to an objective, one line of its journal per operation."""

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.model.ids import JsonObject, TaskId
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.model import (
    ObjectiveId,
    ObjectiveStatus,
    PlanId,
    PlanStatus,
    PlanTaskId,
    PlanTaskStatus,
    Timestamp,
    parse_timestamp,
)

VERSION = 1
"""The version of the lines that are written, and the only one that is read."""

_Sequence = Annotated[int, Meta(ge=0, le=2**53)]
_TaskIndex = Annotated[int, Meta(ge=0, le=2**31)]


class OperationData(JsonStruct, frozen=True):
    """What an operation says; `op` is its name. Members that are left out did not change."""

    op: ClassVar[str]


class ObjectiveCreated(OperationData, frozen=True):
    """There is a new objective."""

    op: ClassVar[str] = "objective.create"

    id: ObjectiveId
    name: str
    description: str | None = None
    status: ObjectiveStatus = ObjectiveStatus.SUBMITTED
    metadata: JsonObject = msgspec.field(default_factory=dict[str, object])
    owner: Scope | None = None
    """Who made it; nobody else sees it."""


class ObjectiveUpdated(OperationData, frozen=True):
    """The objective changed. `held`: somebody chose this status, and it stays until they go on."""

    op: ClassVar[str] = "objective.update"

    id: ObjectiveId
    name: str | None = None
    description: str | None = None
    status: ObjectiveStatus | None = None
    metadata: JsonObject | None = None
    held: bool = False
    run: str | None = None
    """Whether its steps are begun by themselves: running or paused."""


class PlanCreated(OperationData, frozen=True):
    """The objective has a new plan."""

    op: ClassVar[str] = "plan.create"

    id: PlanId
    name: str
    objective_id: ObjectiveId | None = None
    description: str | None = None
    status: PlanStatus = PlanStatus.PENDING
    dependencies: tuple[PlanId, ...] = ()
    metadata: JsonObject = msgspec.field(default_factory=dict[str, object])


class PlanUpdated(OperationData, frozen=True):
    """A plan changed. `held` as for objectives."""

    op: ClassVar[str] = "plan.update"

    id: PlanId
    name: str | None = None
    description: str | None = None
    status: PlanStatus | None = None
    metadata: JsonObject | None = None
    held: bool = False
    run: str | None = None


class PlanTaskCreated(OperationData, frozen=True):
    """A plan has a new task."""

    op: ClassVar[str] = "task.create"

    id: PlanTaskId
    plan_id: PlanId
    name: str
    objective_id: ObjectiveId | None = None
    description: str | None = None
    task_index: _TaskIndex | None = None
    dependencies: tuple[PlanTaskId, ...] = ()
    status: PlanTaskStatus = PlanTaskStatus.PENDING
    a2a_task_id: TaskId | None = None
    metadata: JsonObject = msgspec.field(default_factory=dict[str, object])


class PlanTaskUpdated(OperationData, frozen=True):
    """A plan task changed; one that is pending again has no A2A task any more."""

    op: ClassVar[str] = "task.update"

    id: PlanTaskId
    name: str | None = None
    description: str | None = None
    status: PlanTaskStatus | None = None
    dependencies: tuple[PlanTaskId, ...] | None = None
    metadata: JsonObject | None = None


class PlanTaskLinked(OperationData, frozen=True):
    """An A2A task does a plan task from now on."""

    op: ClassVar[str] = "task.link"

    id: PlanTaskId
    a2a_task_id: TaskId
    status: PlanTaskStatus = PlanTaskStatus.SUBMITTED


class ObjectiveArchived(OperationData, frozen=True):
    """The objective was reached, and need not be loaded at start any more."""

    op: ClassVar[str] = "archive"

    id: ObjectiveId | None = None


class UnknownOperation(msgspec.Struct, frozen=True):
    """An operation whose name we do not know, by its name."""

    op: str


AnyOperationData = (
    ObjectiveCreated
    | ObjectiveUpdated
    | PlanCreated
    | PlanUpdated
    | PlanTaskCreated
    | PlanTaskUpdated
    | PlanTaskLinked
    | ObjectiveArchived
    | UnknownOperation
)


class Operation(msgspec.Struct, frozen=True):
    """One thing that happened: its place in the order, when, and what."""

    seq: int
    at: Timestamp
    data: AnyOperationData


class _Line(msgspec.Struct, frozen=True):
    v: int
    seq: _Sequence
    ts: str
    op: str
    data: msgspec.Raw


_encode = msgspec.json.Encoder().encode
_line = msgspec.json.Decoder(_Line)
_facts = {
    kind.op: msgspec.json.Decoder(kind)
    for kind in (
        *(ObjectiveCreated, ObjectiveUpdated, PlanCreated, PlanUpdated),
        *(PlanTaskCreated, PlanTaskUpdated, PlanTaskLinked, ObjectiveArchived),
    )
}


def encode_line(operation: Operation) -> bytes:
    """The operation as one line, with its end."""
    fact = operation.data
    body = _encode({} if isinstance(fact, UnknownOperation) else fact)
    line = _Line(VERSION, operation.seq, operation.at, fact.op, msgspec.Raw(body))
    return _encode(line) + b"\n"


def decode_line(text: bytes) -> Operation:
    """The operation in a line.

    Raises:
        CorruptRecord: the line cannot be read, and why.
    """
    try:
        line = _line.decode(text)
        if line.v != VERSION:
            raise _unreadable(f"it is of version {line.v}, not {VERSION}")
        at = parse_timestamp(line.ts)
        if at is None:
            raise _unreadable(f"{line.ts[:40]!r} is no time with its zone")
        known = _facts.get(line.op)
        fact = known.decode(line.data) if known else UnknownOperation(line.op)
    except (ValueError, RecursionError) as failure:
        raise _unreadable(str(failure)) from None
    return Operation(line.seq, at, fact)


def _unreadable(reason: str) -> CorruptRecord:
    return CorruptRecord(
        f"The line cannot be read: {reason}. Restore it from a copy, or let it go."
    )
