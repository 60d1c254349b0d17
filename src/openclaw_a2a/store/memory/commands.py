"""The writes of a state-based store as values: applied now, or stored and replayed after a crash.

The class tags and field names are what the json-file store's write-ahead log holds: they are
stored data and stay as they are.
"""

from datetime import datetime

import msgspec

from openclaw_a2a.model.delivery import Delivery, DeliveryId
from openclaw_a2a.model.ids import OwnerId, RunId, TaskId
from openclaw_a2a.model.records import RunRecord
from openclaw_a2a.ports import Accepted, Commit, Duplicate, MessageKey, Record, Submission
from openclaw_a2a.store.memory.state import MemoryState, MessageRow


class Command(msgspec.Struct, frozen=True, tag_field="wrote", omit_defaults=True):
    """One write. `apply` checks it against a state and changes the state, or raises."""


class Submit(Command, frozen=True, tag="submission"):
    """Store an incoming message."""

    submission: Submission

    def apply(self, state: MemoryState) -> Accepted | Duplicate:
        """Apply to a state."""
        return state.submit(self.submission)


class ChangeTask(Command, frozen=True, tag="commit"):
    """Change a task."""

    change: Commit

    def apply(self, state: MemoryState) -> None:
        """Apply to a state."""
        state.commit(self.change)


class StartRun(Command, frozen=True, tag="start"):
    """Record that the agent is about to be called."""

    run_id: RunId
    fence: int
    attempt: int

    def apply(self, state: MemoryState) -> None:
        """Apply to a state."""
        state.start_run(self.run_id, fence=self.fence, attempt=self.attempt)


class FinishRun(Command, frozen=True, tag="answer"):
    """End a run that made no task."""

    run_id: RunId
    fence: int
    answer: bytes

    def apply(self, state: MemoryState) -> None:
        """Apply to a state."""
        state.finish_run(self.run_id, fence=self.fence, answer=self.answer)


class ClaimRuns(Command, frozen=True, tag="claim"):
    """Take over runs of other owners."""

    owner: OwnerId
    lease_until: datetime
    expired_at: datetime | None

    def apply(self, state: MemoryState) -> list[RunRecord]:
        """Apply to a state."""
        return state.claim_runs(
            self.owner, lease_until=self.lease_until, expired_at=self.expired_at
        )


class RenewLeases(Command, frozen=True, tag="renewal"):
    """Extend the leases of an owner."""

    owner: OwnerId
    lease_until: datetime

    def apply(self, state: MemoryState) -> None:
        """Apply to a state."""
        state.renew_leases(self.owner, self.lease_until)


class Purge(Command, frozen=True, tag="forget"):
    """Delete tasks, and old messages and records."""

    tasks: tuple[TaskId, ...]
    messages_before: datetime | None = None
    records_before: datetime | None = None

    def apply(self, state: MemoryState) -> bool:
        """Apply to a state; False if there is nothing to delete."""
        state.delete_tasks(self.tasks)
        state.delete_messages(self.messages_before)
        state.records.purge(self.records_before)
        return bool(self.tasks) or self.messages_before is not None


class PutDelivery(Command, frozen=True, tag="delivery"):
    """Store a delivery; without `within` unconditionally (as after a compaction of the log)."""

    delivery: Delivery
    within: int | None = None

    def apply(self, state: MemoryState) -> bool:
        """Apply to a state."""
        if self.within is None:
            return state.deliveries.put(self.delivery)
        return state.put_delivery(self.delivery, self.within)


class UpdateDelivery(Command, frozen=True, tag="progress"):
    """Store the progress of a delivery."""

    delivery: Delivery

    def apply(self, state: MemoryState) -> bool:
        """Apply to a state."""
        return state.deliveries.update(self.delivery)


class DeleteDelivery(Command, frozen=True, tag="drop"):
    """Delete a delivery."""

    delivery_id: DeliveryId

    def apply(self, state: MemoryState) -> bool:
        """Apply to a state."""
        return state.deliveries.delete(self.delivery_id)


class PutRecord(Command, frozen=True, tag="record"):
    """Store a record."""

    record: Record

    def apply(self, state: MemoryState) -> None:
        """Apply to a state."""
        state.records.put(self.record)


class UpdateRecord(Command, frozen=True, tag="change-record"):
    """Store the next version of a record."""

    record: Record

    def apply(self, state: MemoryState) -> bool:
        """Apply to a state."""
        return state.records.update(self.record)


class DeleteRecord(Command, frozen=True, tag="drop-record"):
    """Delete a record."""

    kind: str
    record_id: str

    def apply(self, state: MemoryState) -> bool:
        """Apply to a state."""
        return state.records.delete(self.kind, self.record_id)


class PutRun(Command, frozen=True, tag="run"):
    """Store a live run as it is. Only in a compacted log."""

    run: RunRecord

    def apply(self, state: MemoryState) -> None:
        """Apply to a state."""
        state.put_run(self.run)


class PutMessage(Command, frozen=True, tag="message"):
    """Store an idempotency record as it is. Only in a compacted log."""

    key: MessageKey
    row: MessageRow

    def apply(self, state: MemoryState) -> None:
        """Apply to a state."""
        state.put_message(self.key, self.row)


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
