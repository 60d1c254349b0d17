"""How values lie in columns: times, states, what a run was asked, deliveries and records."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from openclaw_a2a.model.delivery import Delivery, DeliveryState
from openclaw_a2a.model.message import JsonStruct, Message
from openclaw_a2a.model.records import RunOptions, RunRecord
from openclaw_a2a.model.states import TERMINAL
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.turn import Binding
from openclaw_a2a.ports import Record

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

STATE_OF: dict[int, TaskState] = {
    0: TaskState.UNSPECIFIED,
    1: TaskState.SUBMITTED,
    2: TaskState.WORKING,
    3: TaskState.COMPLETED,
    4: TaskState.FAILED,
    5: TaskState.CANCELED,
    6: TaskState.INPUT_REQUIRED,
    7: TaskState.REJECTED,
    8: TaskState.AUTH_REQUIRED,
}
"""The numbers are stored: never change one."""

CODE_OF: dict[TaskState | None, int | None] = {
    None: None,
    **{state: code for code, state in STATE_OF.items()},
}
DELIVERY_CODE_OF = {DeliveryState.IDLE: 0, DeliveryState.WAITING: 1, DeliveryState.DEAD: 2}
"""The numbers are stored: never change one."""
_DELIVERY_STATE_OF = {code: state for state, code in DELIVERY_CODE_OF.items()}
ENDED_CODES = frozenset(code for code, state in STATE_OF.items() if state in TERMINAL)

_encoder = msgspec.json.Encoder()


class RunInput(JsonStruct, frozen=True):
    """What a run was asked, and how it is to be answered."""

    message: Message
    binding: Binding
    options: RunOptions


_binding_decoder = msgspec.json.Decoder(Binding)
_input_decoder = msgspec.json.Decoder(RunInput)


def to_microseconds(moment: datetime) -> int:
    """The moment as a column holds it."""
    since = moment - _EPOCH
    return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds


def from_microseconds(count: int) -> datetime:
    """The moment in a column."""
    return _EPOCH + timedelta(microseconds=count)


def encode_binding(binding: Binding | None) -> bytes | None:
    """The binding as a column holds it."""
    return None if binding is None else _encoder.encode(binding)


def decode_binding(column: bytes | None) -> Binding | None:
    """The binding in a column."""
    return None if column is None else _binding_decoder.decode(column)


def encode_input(run: RunRecord) -> bytes:
    """What the run was asked, as a column holds it."""
    return _encoder.encode(RunInput(run.message, run.binding, run.options))


def decode_input(column: bytes) -> RunInput:
    """What a run was asked."""
    return _input_decoder.decode(column)


def encode_delivery(delivery: Delivery) -> tuple[object, ...]:
    """The delivery as its row holds it."""
    return (
        delivery.id,
        delivery.kind,
        delivery.task_id,
        delivery.body,
        delivery.cursor,
        DELIVERY_CODE_OF[delivery.state],
        delivery.attempts,
        to_microseconds(delivery.next_at),
        to_microseconds(delivery.created_at),
        to_microseconds(delivery.updated_at),
        delivery.reason,
    )


def decode_delivery(row: tuple[Any, ...]) -> Delivery:
    """The delivery in a row."""
    return Delivery(
        id=row[0],
        kind=row[1],
        task_id=row[2],
        body=row[3],
        cursor=row[4],
        state=_DELIVERY_STATE_OF[row[5]],
        attempts=row[6],
        next_at=from_microseconds(row[7]),
        created_at=from_microseconds(row[8]),
        updated_at=from_microseconds(row[9]),
        reason=row[10],
    )


def encode_kept(record: Record) -> tuple[object, ...]:
    """The record as its row holds it."""
    until = to_microseconds(record.expires_at)
    return record.kind, record.id, record.body, until, record.version


def decode_kept(row: tuple[Any, ...]) -> Record:
    """The record in a row."""
    return Record(row[0], row[1], row[2], from_microseconds(row[3]), row[4])
