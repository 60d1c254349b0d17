"""What happened to a json-file store, one line of its log per write, ready to happen again."""

from contextlib import suppress
from datetime import datetime

import msgspec

from openclaw_a2a.model.delivery import Delivery, DeliveryId
from openclaw_a2a.model.errors import Conflict, TaskNotFound
from openclaw_a2a.model.ids import OwnerId, RunId, TaskId
from openclaw_a2a.model.records import RunRecord
from openclaw_a2a.ports import Accepted, Commit, Duplicate, Record, Submission
from openclaw_a2a.store.memory.state import Ledger, MessageKey, MessageRow


class Line(msgspec.Struct, frozen=True, tag_field="wrote", omit_defaults=True):
    """One write that was taken."""


class SubmitLine(Line, frozen=True, tag="submission"):
    """A message was taken in; `clears_resume` when its task had a token for it."""

    submission: Submission
    clears_resume: bool = False

    def apply(self, ledger: Ledger) -> Accepted | Duplicate:
        """Take the message in."""
        return ledger.submit(self.submission)


class CommitLine(Line, frozen=True, tag="commit"):
    """A task changed."""

    change: Commit

    def apply(self, ledger: Ledger) -> None:
        """Change the task."""
        ledger.commit(self.change)


class StartLine(Line, frozen=True, tag="start"):
    """An agent was about to be asked."""

    run_id: RunId
    fence: int
    attempt: int

    def apply(self, ledger: Ledger) -> None:
        """Note it."""
        ledger.start_run(self.run_id, fence=self.fence, attempt=self.attempt)


class AnswerLine(Line, frozen=True, tag="answer"):
    """A run ended without a task."""

    run_id: RunId
    fence: int
    answer: bytes

    def apply(self, ledger: Ledger) -> None:
        """Keep the answer."""
        ledger.finish_run(self.run_id, fence=self.fence, answer=self.answer)


class ClaimLine(Line, frozen=True, tag="claim"):
    """Runs were taken over."""

    owner: OwnerId
    lease_until: datetime
    expired_at: datetime | None

    def apply(self, ledger: Ledger) -> list[RunRecord]:
        """Take them over."""
        return ledger.claim_runs(
            self.owner, lease_until=self.lease_until, expired_at=self.expired_at
        )


class RenewLine(Line, frozen=True, tag="renewal"):
    """Leases were renewed."""

    owner: OwnerId
    lease_until: datetime

    def apply(self, ledger: Ledger) -> None:
        """Renew them."""
        ledger.renew_leases(self.owner, self.lease_until)


class ForgetLine(Line, frozen=True, tag="forget"):
    """Tasks and old messages were let go."""

    tasks: tuple[TaskId, ...]
    messages_before: datetime | None = None
    records_before: datetime | None = None

    def apply(self, ledger: Ledger) -> None:
        """Let them go."""
        ledger.forget(self.tasks, self.messages_before)
        ledger.records.forget(self.records_before)


class RunLine(Line, frozen=True, tag="run"):
    """A run that was live when the log was last rewritten."""

    run: RunRecord

    def apply(self, ledger: Ledger) -> None:
        """Keep it."""
        ledger.put_run(self.run)


class MessageLine(Line, frozen=True, tag="message"):
    """A message that was known when the log was last rewritten."""

    key: MessageKey
    row: MessageRow

    def apply(self, ledger: Ledger) -> None:
        """Keep it."""
        ledger.put_message(self.key, self.row)


class DeliveryLine(Line, frozen=True, tag="delivery"):
    """A delivery came, or took the place of another; without `within` it was there before."""

    delivery: Delivery
    within: int | None = None

    def apply(self, ledger: Ledger) -> bool:
        """Keep it."""
        if self.within is None:
            return ledger.deliveries.put(self.delivery)
        return ledger.put_delivery(self.delivery, self.within)


class ProgressLine(Line, frozen=True, tag="progress"):
    """A delivery was tried."""

    delivery: Delivery

    def apply(self, ledger: Ledger) -> bool:
        """Keep how far it is."""
        return ledger.deliveries.save(self.delivery)


class DropLine(Line, frozen=True, tag="drop"):
    """A delivery was let go."""

    delivery_id: DeliveryId

    def apply(self, ledger: Ledger) -> bool:
        """Let it go."""
        return ledger.deliveries.drop(self.delivery_id)


class RecordLine(Line, frozen=True, tag="record"):
    """A record was put."""

    record: Record

    def apply(self, ledger: Ledger) -> None:
        """Keep it."""
        ledger.records.put(self.record)


class ChangeRecordLine(Line, frozen=True, tag="change-record"):
    """A record got its next version."""

    record: Record

    def apply(self, ledger: Ledger) -> bool:
        """Keep it."""
        return ledger.records.change(self.record)


class DropRecordLine(Line, frozen=True, tag="drop-record"):
    """A record was let go."""

    kind: str
    record_id: str

    def apply(self, ledger: Ledger) -> bool:
        """Let it go."""
        return ledger.records.drop(self.kind, self.record_id)


AnyLine = (
    SubmitLine
    | CommitLine
    | StartLine
    | AnswerLine
    | ClaimLine
    | RenewLine
    | ForgetLine
    | RunLine
    | MessageLine
    | DeliveryLine
    | ProgressLine
    | DropLine
    | RecordLine
    | ChangeRecordLine
    | DropRecordLine
)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyLine)


def encode_line(line: AnyLine) -> bytes:
    """The line as the log holds it."""
    return _encoder.encode(line) + b"\n"


def decode_line(text: bytes) -> AnyLine:
    """The line in the log. Raises: msgspec.DecodeError."""
    return _decoder.decode(text)


def standing_lines(ledger: Ledger) -> bytes:
    """A log that holds what the record files do not: live runs, messages, deliveries, records."""
    runs = sorted(ledger.runs.values(), key=lambda run: run.ticket)
    lines: list[AnyLine] = [RunLine(run) for run in runs]
    lines += [MessageLine(key, row) for key, row in ledger.messages.items()]
    lines += [DeliveryLine(delivery) for delivery in ledger.deliveries.all()]
    lines += [RecordLine(record) for record in ledger.records.all()]
    return b"".join(map(encode_line, lines))


def replay(ledger: Ledger, line: AnyLine) -> tuple[TaskId, ...]:
    """Let it happen again to a ledger whose tasks may already show it; the tasks it is about."""
    if isinstance(line, SubmitLine):
        ledger.replay_submission(line.submission)
        return (line.submission.run.task_id,)
    if isinstance(line, CommitLine):
        ledger.replay_commit(line.change)
        return (line.change.head.id,)
    # It was taken once; when it is refused now, what it was about is gone since.
    with suppress(Conflict, TaskNotFound):
        line.apply(ledger)
    return line.tasks if isinstance(line, ForgetLine) else ()
