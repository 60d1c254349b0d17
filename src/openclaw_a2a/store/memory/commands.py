"""The writes of a state-based store as values: applied now, or logged and replayed after a crash.

The class tags and field names are what the json-file store's write-ahead log holds: they are
stored data and stay as they are.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from openclaw_a2a.model.delivery import Delivery, DeliveryId
from openclaw_a2a.model.ids import OwnerId, RunId, TaskId
from openclaw_a2a.model.records import RunRecord
from openclaw_a2a.ports import Commit, MessageKey, Record, Submission
from openclaw_a2a.store.memory.state import MemoryState, MessageRow


class Command(msgspec.Struct, frozen=True, tag_field="wrote", omit_defaults=True):
    """One write."""


class Submit(Command, frozen=True, tag="submission"):
    """Store an incoming message."""

    submission: Submission


class ChangeTask(Command, frozen=True, tag="commit"):
    """Change a task."""

    change: Commit


class StartRun(Command, frozen=True, tag="start"):
    """Record that the agent is about to be called."""

    run_id: RunId
    fence: int
    attempt: int


class FinishRun(Command, frozen=True, tag="answer"):
    """End a run that made no task."""

    run_id: RunId
    fence: int
    answer: bytes


class ClaimRuns(Command, frozen=True, tag="claim"):
    """Take over runs of other owners."""

    owner: OwnerId
    lease_until: datetime
    expired_at: datetime | None


class RenewLeases(Command, frozen=True, tag="renewal"):
    """Extend the leases of an owner."""

    owner: OwnerId
    lease_until: datetime


class Purge(Command, frozen=True, tag="forget"):
    """Delete tasks, and old messages and records; False if there is nothing to delete."""

    tasks: tuple[TaskId, ...]
    messages_before: datetime | None = None
    records_before: datetime | None = None


class PutDelivery(Command, frozen=True, tag="delivery"):
    """Store a delivery; without `within` unconditionally (as after a compaction of the log)."""

    delivery: Delivery
    within: int | None = None


class UpdateDelivery(Command, frozen=True, tag="progress"):
    """Store the progress of a delivery."""

    delivery: Delivery


class DeleteDelivery(Command, frozen=True, tag="drop"):
    """Delete a delivery."""

    delivery_id: DeliveryId


class PutRecord(Command, frozen=True, tag="record"):
    """Store a record."""

    record: Record


class UpdateRecord(Command, frozen=True, tag="change-record"):
    """Store the next version of a record."""

    record: Record


class DeleteRecord(Command, frozen=True, tag="drop-record"):
    """Delete a record."""

    kind: str
    record_id: str


class PutRun(Command, frozen=True, tag="run"):
    """Store a live run as it is. Only in a compacted log."""

    run: RunRecord


class PutMessage(Command, frozen=True, tag="message"):
    """Store an idempotency record as it is. Only in a compacted log."""

    key: MessageKey
    row: MessageRow


AnyCommand = (
    Submit
    | ChangeTask
    | StartRun
    | FinishRun
    | ClaimRuns
    | RenewLeases
    | Purge
    | PutDelivery
    | UpdateDelivery
    | DeleteDelivery
    | PutRecord
    | UpdateRecord
    | DeleteRecord
    | PutRun
    | PutMessage
)


def apply_command(command: AnyCommand, state: MemoryState) -> Any:
    """Check a command against a state and change the state; its result. Raises: GatewayError."""
    return _APPLY[type(command)](state, command)


def _purge(state: MemoryState, command: Purge) -> bool:
    state.delete_tasks(command.tasks)
    state.delete_messages(command.messages_before)
    state.records.purge(command.records_before)
    return bool(command.tasks) or command.messages_before is not None


def _put_delivery(state: MemoryState, command: PutDelivery) -> bool:
    if command.within is None:
        return state.deliveries.put(command.delivery)
    return state.put_delivery(command.delivery, command.within)


_APPLY: dict[type[Command], Callable[[MemoryState, Any], Any]] = {
    Submit: lambda state, it: state.submit(it.submission),
    ChangeTask: lambda state, it: state.commit(it.change),
    StartRun: lambda state, it: state.start_run(it.run_id, fence=it.fence, attempt=it.attempt),
    FinishRun: lambda state, it: state.finish_run(it.run_id, fence=it.fence, answer=it.answer),
    ClaimRuns: lambda state, it: state.claim_runs(
        it.owner, lease_until=it.lease_until, expired_at=it.expired_at
    ),
    RenewLeases: lambda state, it: state.renew_leases(it.owner, it.lease_until),
    Purge: _purge,
    PutDelivery: _put_delivery,
    UpdateDelivery: lambda state, it: state.deliveries.update(it.delivery),
    DeleteDelivery: lambda state, it: state.deliveries.delete(it.delivery_id),
    PutRecord: lambda state, it: state.records.put(it.record),
    UpdateRecord: lambda state, it: state.records.update(it.record),
    DeleteRecord: lambda state, it: state.records.delete(it.kind, it.record_id),
    PutRun: lambda state, it: state.put_run(it.run),
    PutMessage: lambda state, it: state.put_message(it.key, it.row),
}
