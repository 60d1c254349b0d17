"""The operations of an objective, and their encoding as one line of its log each."""

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

_VERSION = 1
"""The version of log lines that is written, and the only one that is read."""

_Sequence = Annotated[int, Meta(ge=0, le=2**53)]
_TaskIndex = Annotated[int, Meta(ge=0, le=2**31)]


class OperationData(JsonStruct, frozen=True):
    """The data of an operation; `op` is its name. Members that are left out do not change."""

    op: ClassVar[str]


class ObjectiveCreated(OperationData, frozen=True):
    """The first operation of every log."""

    op: ClassVar[str] = "objective.create"

    id: ObjectiveId
    name: str
    description: str | None = None
    status: ObjectiveStatus = ObjectiveStatus.SUBMITTED
    metadata: JsonObject = msgspec.field(default_factory=dict[str, object])
    owner: Scope | None = None
    """The caller that created it, and the only one that sees it."""


class ObjectiveUpdated(OperationData, frozen=True):
    """The objective changed.

    `held`: a caller chose this status, and the roll-up leaves it alone until it is released.
    """

    op: ClassVar[str] = "objective.update"

    id: ObjectiveId
    name: str | None = None
    description: str | None = None
    status: ObjectiveStatus | None = None
    metadata: JsonObject | None = None
    held: bool = False
    run: str | None = None
    """Execution mode: running or paused."""


class PlanCreated(OperationData, frozen=True):
    """A plan was added."""

    op: ClassVar[str] = "plan.create"

    id: PlanId
    name: str
    objective_id: ObjectiveId | None = None
    description: str | None = None
    status: PlanStatus = PlanStatus.PENDING
    dependencies: tuple[PlanId, ...] = ()
    metadata: JsonObject = msgspec.field(default_factory=dict[str, object])


class PlanUpdated(OperationData, frozen=True):
    """A plan changed. `held` and `run` as for objectives."""

    op: ClassVar[str] = "plan.update"

    id: PlanId
    name: str | None = None
    description: str | None = None
    status: PlanStatus | None = None
    metadata: JsonObject | None = None
    held: bool = False
    run: str | None = None


class PlanTaskCreated(OperationData, frozen=True):
    """A task was added to a plan."""

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
    """A plan task changed; one that becomes pending is no longer linked to an A2A task.

    `at_once`: a caller asked for the next attempt, which waits for no back-off.
    """

    op: ClassVar[str] = "task.update"

    id: PlanTaskId
    name: str | None = None
    description: str | None = None
    status: PlanTaskStatus | None = None
    dependencies: tuple[PlanTaskId, ...] | None = None
    metadata: JsonObject | None = None
    at_once: bool | None = None


class PlanTaskLinked(OperationData, frozen=True):
    """An A2A task works on a plan task from now on."""

    op: ClassVar[str] = "task.link"

    id: PlanTaskId
    a2a_task_id: TaskId
    status: PlanTaskStatus = PlanTaskStatus.SUBMITTED


class ObjectiveArchived(OperationData, frozen=True):
    """The objective is completed, and is not loaded at start any more."""

    op: ClassVar[str] = "archive"

    id: ObjectiveId | None = None


class UnknownOperation(msgspec.Struct, frozen=True):
    """An operation whose name is not known here."""

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
    """One operation: its sequence number in the log, its time, and its data."""

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
_line_decoder = msgspec.json.Decoder(_Line)
_data_decoders = {
    kind.op: msgspec.json.Decoder(kind)
    for kind in (
        *(ObjectiveCreated, ObjectiveUpdated, PlanCreated, PlanUpdated),
        *(PlanTaskCreated, PlanTaskUpdated, PlanTaskLinked, ObjectiveArchived),
    )
}


def encode_operation(operation: Operation) -> bytes:
    """The log line of an operation, without a line end."""
    data = operation.data
    body = _encode({} if isinstance(data, UnknownOperation) else data)
    return _encode(_Line(_VERSION, operation.seq, operation.at, data.op, msgspec.Raw(body)))


def decode_operation(text: bytes) -> Operation:
    """The operation in a log line.

    Raises: CorruptRecord (the line is not readable; the message says why).
    """
    try:
        line = _line_decoder.decode(text)
        if line.v != _VERSION:
            raise _unreadable(f"it is of version {line.v}, not {_VERSION}")
        at = parse_timestamp(line.ts)
        if at is None:
            raise _unreadable(f"{line.ts[:40]!r} is no time with its zone")
        decoder = _data_decoders.get(line.op)
        data = decoder.decode(line.data) if decoder else UnknownOperation(line.op)
    except (ValueError, RecursionError) as failure:
        raise _unreadable(str(failure)) from None
    return Operation(line.seq, at, data)


def _unreadable(reason: str) -> CorruptRecord:
    return CorruptRecord(
        f"The line cannot be read: {reason}. Restore it from a backup, or delete it."
    )
