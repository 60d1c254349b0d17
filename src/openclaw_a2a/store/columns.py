"""What the SQL stores share: codes of states, columns of tasks, deliveries and runs.

The numbers are stored, in files and databases that exist: never change one. `db move` copies them
from one kind of store to the other as they are.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from openclaw_a2a.model.delivery import DeliveryState
from openclaw_a2a.model.ids import OwnerId
from openclaw_a2a.model.message import JsonStruct, Message
from openclaw_a2a.model.records import RunOptions, RunRecord, TaskHead
from openclaw_a2a.model.task import TERMINAL, TaskState
from openclaw_a2a.model.turn import Binding, Scope

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

CODE_OF: dict[TaskState | None, int | None] = {
    None: None,
    **{state: code for code, state in STATE_OF.items()},
}
DELIVERY_CODE_OF = {
    DeliveryState.IDLE: 0,
    DeliveryState.WAITING: 1,
    DeliveryState.DEAD: 2,
    DeliveryState.SKIPPED: 3,
}
DELIVERY_STATE_OF = {code: state for state, code in DELIVERY_CODE_OF.items()}
DELIVERY_COLUMNS = """
  d.id, d.kind, d.task, d.body, d.cursor, d.next_at, d.created_at, d.updated_at, d.state,
  d.attempts, d.reason"""
"""The columns of a delivery `d`: its fields in their order."""
# A task that is not stored may be about to be created. The terminal states are 3, 4, 5 and 7.
IS_UNFINISHED = """d.state <> 2
  AND (d.state = 1 OR t.id IS NULL OR t.state NOT IN (3, 4, 5, 7) OR d.cursor < t.sequence)"""
"""True for a delivery `d` that has, or may yet get, something to send; `t` is its task, if any."""
TERMINAL_CODES = frozenset(code for code, state in STATE_OF.items() if state in TERMINAL)


HEAD_COLUMNS = """
  t.number, t.id, t.principal, t.account, t.context, t.state, t.status_at, t.created_at, t.sequence,
  t.binding"""
"""The columns of a task `t` with which a row for `decode_head` begins."""

_binding_decoder = msgspec.json.Decoder(Binding)


def decode_head(row: Sequence[Any], decode_time: Callable[[Any], datetime]) -> TaskHead:
    """The head of a task. Raises: what `UNREADABLE` lists."""
    _, task_id, principal, account, context_id, state, status_at, created_at, *rest = row
    sequence, binding = rest[:2]
    return TaskHead(
        task_id,
        Scope(principal, account),
        context_id,
        STATE_OF[state],
        decode_time(status_at),
        decode_time(created_at),
        sequence,
        None if binding is None else _binding_decoder.decode(binding),
    )


class RunInput(JsonStruct, frozen=True):
    """The message of a run, and how it is to be answered."""

    message: Message
    binding: Binding
    options: RunOptions


_run_input_decoder = msgspec.json.Decoder(RunInput)

CLAIMED_COLUMNS = """ticket, id, task, context, principal, account, session_key, fence, is_started,
  attempt, resume, input"""
"""What the claim of a run returns, for `decode_claimed_run`."""


def decode_claimed_run(row: Sequence[Any], run_input: bytes, owner: OwnerId) -> RunRecord:
    """The run of a row; `run_input` is its last column with what that refers to.

    Raises: what `UNREADABLE` lists.
    """
    ticket, run_id, task_id, context_id, principal, account, session_key, *rest = row
    fence, is_started, attempt, resume, _ = rest
    given = _run_input_decoder.decode(run_input)
    return RunRecord(
        id=run_id,
        task_id=task_id,
        context_id=context_id,
        scope=Scope(principal, account),
        session_key=session_key,
        message=given.message,
        binding=given.binding,
        options=given.options,
        owner=owner,
        is_started=bool(is_started),
        attempt=attempt,
        fence=fence,
        ticket=ticket,
        resume=resume,
    )
