"""Column values and rows: times, states, run inputs, deliveries and records."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from openclaw_a2a.model.delivery import Delivery, DeliveryState
from openclaw_a2a.model.message import JsonStruct, Message
from openclaw_a2a.model.records import RunOptions, RunRecord, encode_json
from openclaw_a2a.model.task import TERMINAL, TaskState
from openclaw_a2a.model.turn import Binding, Scope
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
TERMINAL_CODES = frozenset(code for code, state in STATE_OF.items() if state in TERMINAL)


class RunInput(JsonStruct, frozen=True):
    """The message of a run, and how it is to be answered."""

    message: Message
    binding: Binding
    options: RunOptions


_input_decoder = msgspec.json.Decoder(RunInput)


def to_microseconds(time: datetime) -> int:
    """The column value of a time."""
    since = time - _EPOCH
    return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds


def from_microseconds(count: int) -> datetime:
    """The time of a column value."""
    return _EPOCH + timedelta(microseconds=count)


def encode_run(run: RunRecord) -> tuple[object, ...]:
    """The row of a run; `decode_run` reads the same columns in the same order."""
    content = encode_json(RunInput(run.message, run.binding, run.options))
    names = (run.ticket, run.id, run.task_id, run.context_id, run.scope.principal)
    session = (run.scope.account, run.session_key, run.message.message_id)
    lease = (run.owner, run.fence, to_microseconds(run.lease_until))
    return (*names, *session, *lease, run.is_started, run.attempt, content, run.resume)


def decode_run(row: tuple[Any, ...]) -> RunRecord:
    """The run of a row."""
    ticket, run_id, task_id, context_id, principal, account, session_key, _, *rest = row
    owner, fence, lease_until, is_started, attempt, content, resume = rest
    run_input = _input_decoder.decode(content)
    return RunRecord(
        id=run_id,
        task_id=task_id,
        context_id=context_id,
        scope=Scope(principal, account),
        session_key=session_key,
        message=run_input.message,
        binding=run_input.binding,
        options=run_input.options,
        owner=owner,
        lease_until=from_microseconds(lease_until),
        is_started=bool(is_started),
        attempt=attempt,
        fence=fence,
        ticket=ticket,
        resume=resume,
    )


def encode_delivery(delivery: Delivery) -> tuple[object, ...]:
    """The row of a delivery: its fields in their order."""
    row = list(msgspec.structs.astuple(delivery))
    row[5:9] = *map(to_microseconds, row[5:8]), DELIVERY_CODE_OF[delivery.state]
    return tuple(row)


def decode_delivery(row: tuple[Any, ...]) -> Delivery:
    """The delivery of a row."""
    fields = list(row)
    fields[5:9] = *map(from_microseconds, row[5:8]), _DELIVERY_STATE_OF[row[8]]
    return Delivery(*fields)


def encode_record(record: Record) -> tuple[object, ...]:
    """The row of a record."""
    until = to_microseconds(record.expires_at)
    return record.kind, record.id, record.body, until, record.version


def decode_record(row: tuple[Any, ...]) -> Record:
    """The record of a row."""
    return Record(row[0], row[1], row[2], from_microseconds(row[3]), row[4])
