"""The write-ahead log of a json-file store: one command per line, replayed after a crash."""

from contextlib import suppress

import msgspec

from openclaw_a2a.model.errors import Conflict, TaskNotFound
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.store.memory.commands import (
    AnyCommand,
    ChangeTask,
    Purge,
    PutDelivery,
    PutMessage,
    PutRecord,
    PutRun,
    Submit,
    apply_command,
)
from openclaw_a2a.store.memory.state import MemoryState

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyCommand)


def encode_command(command: AnyCommand) -> bytes:
    """The line of a command."""
    return _encoder.encode(command) + b"\n"


def decode_command(line: bytes) -> AnyCommand:
    """The command of a line. Raises: msgspec.DecodeError."""
    return _decoder.decode(line)


def compact_log(state: MemoryState) -> bytes:
    """A log of what the record files do not hold: live runs, messages, deliveries, records."""
    runs = sorted(state.runs.values(), key=lambda run: run.ticket)
    commands: list[AnyCommand] = [PutRun(run) for run in runs]
    commands += [PutMessage(key, row) for key, row in state.messages.items()]
    commands += [PutDelivery(delivery) for delivery in state.deliveries.all()]
    commands += [PutRecord(record) for record in state.records.all()]
    return b"".join(map(encode_command, commands))


def replay(state: MemoryState, command: AnyCommand) -> tuple[TaskId, ...]:
    """Apply a logged command to a state whose tasks may already show it; the tasks it changed."""
    if isinstance(command, Submit):
        state.replay_submission(command.submission)
        return (command.submission.run.task_id,)
    if isinstance(command, ChangeTask):
        state.replay_commit(command.change)
        return (command.change.head.id,)
    # It was accepted once; if it is refused now, its object was deleted by a later command.
    with suppress(Conflict, TaskNotFound):
        apply_command(command, state)
    return command.tasks if isinstance(command, Purge) else ()
