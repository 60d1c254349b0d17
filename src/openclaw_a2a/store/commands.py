"""Every write of a store as a value, and the port methods that make them.

All kinds of stores take the same commands: the memory store applies them, the json-file store
applies, logs and replays them, the SQLite store turns them into rows. A kind derives its parts
from the `...Writes` classes and adds the reads, and the deletion of tasks, which each kind decides
from its own indexes.

The class tags and field names are what the json-file store's write-ahead log holds: they are
stored data and stay as they are.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from openclaw_a2a.model.delivery import Delivery, DeliveryId
from openclaw_a2a.model.ids import OwnerId, RunId
from openclaw_a2a.model.records import RunRecord
from openclaw_a2a.ports import Accepted, Commit, Duplicate, Record, Submission


class Command(msgspec.Struct, frozen=True, gc=False, tag_field="wrote", omit_defaults=True):
    """One write; the port method that makes it says what it does."""


class Submit(Command, frozen=True, tag="submission"):
    """`TaskStore.submit`."""

    submission: Submission


class ChangeTask(Command, frozen=True, tag="commit"):
    """`TaskStore.commit`."""

    change: Commit


class StartRun(Command, frozen=True, tag="start"):
    """`TaskStore.start_run`."""

    run_id: RunId
    fence: int
    attempt: int


class FinishRun(Command, frozen=True, tag="answer"):
    """`TaskStore.finish_run`."""

    run_id: RunId
    fence: int
    answer: bytes


class ClaimRuns(Command, frozen=True, tag="claim"):
    """`TaskStore.claim_runs`."""

    owner: OwnerId


class RenewLeases(Command, frozen=True, tag="renewal"):
    """Nothing: logs of earlier versions have it."""


class PutDelivery(Command, frozen=True, tag="delivery"):
    """`DeliveryStore.put_delivery`; without `within` unconditional, in a compacted log."""

    delivery: Delivery
    within: int | None = None


class UpdateDelivery(Command, frozen=True, tag="progress"):
    """`DeliveryStore.update_delivery`."""

    delivery: Delivery


class DeleteDelivery(Command, frozen=True, tag="drop"):
    """`DeliveryStore.delete_delivery`."""

    delivery_id: DeliveryId


class PutRecord(Command, frozen=True, tag="record"):
    """`RecordStore.put_record`."""

    record: Record


class UpdateRecord(Command, frozen=True, tag="change-record"):
    """`RecordStore.update_record`."""

    record: Record


class DeleteRecord(Command, frozen=True, tag="drop-record"):
    """`RecordStore.delete_record`."""

    kind: str
    record_id: str


AnyCommand = (
    Submit
    | ChangeTask
    | StartRun
    | FinishRun
    | ClaimRuns
    | RenewLeases
    | PutDelivery
    | UpdateDelivery
    | DeleteDelivery
    | PutRecord
    | UpdateRecord
    | DeleteRecord
)
"""The commands that every kind of store performs."""

WriteCommand = Callable[[Any], "asyncio.Future[Any]"]
"""Takes a command; the future has its result once it is durable."""


class TaskWrites:
    """The writes of a task store."""

    _write: WriteCommand

    def submit(self, submission: Submission) -> "asyncio.Future[Accepted | Duplicate]":
        return self._write(Submit(submission))

    def commit(self, change: Commit) -> "asyncio.Future[None]":
        return self._write(ChangeTask(change))

    def start_run(self, run_id: RunId, *, fence: int, attempt: int) -> Awaitable[None]:
        return self._write(StartRun(run_id, fence, attempt))

    def finish_run(self, run_id: RunId, *, fence: int, answer: bytes) -> Awaitable[None]:
        return self._write(FinishRun(run_id, fence, answer))

    async def claim_runs(self, owner: OwnerId) -> list[RunRecord]:
        return await self._write(ClaimRuns(owner))


class DeliveryWrites:
    """The writes of a delivery store."""

    _write: WriteCommand

    def put_delivery(self, delivery: Delivery, *, within: int) -> Awaitable[bool]:
        return self._write(PutDelivery(delivery, within))

    def update_delivery(self, delivery: Delivery) -> Awaitable[bool]:
        return self._write(UpdateDelivery(delivery))

    def delete_delivery(self, delivery_id: DeliveryId) -> Awaitable[bool]:
        return self._write(DeleteDelivery(delivery_id))


class RecordWrites:
    """The writes of a record store."""

    _write: WriteCommand

    def put_record(self, record: Record) -> Awaitable[None]:
        return self._write(PutRecord(record))

    def update_record(self, record: Record) -> Awaitable[bool]:
        return self._write(UpdateRecord(record))

    def delete_record(self, kind: str, record_id: str) -> Awaitable[bool]:
        return self._write(DeleteRecord(kind, record_id))
