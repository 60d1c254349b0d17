"""The column values that the SQL stores share: the codes of states, and the row of a run.

The numbers are stored, in files and databases that exist: never change one. `db move` copies them
from one kind of store to the other as they are.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from openclaw_a2a.model.delivery import DeliveryState
from openclaw_a2a.model.ids import OwnerId
from openclaw_a2a.model.message import JsonStruct, Message
from openclaw_a2a.model.records import RunOptions, RunRecord
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
TERMINAL_CODES = frozenset(code for code, state in STATE_OF.items() if state in TERMINAL)


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
