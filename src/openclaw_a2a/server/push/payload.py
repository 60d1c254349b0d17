"""The payload of the next notification, chosen from a task's events.

A stream sends every chunk of an artifact, which would be too much for a webhook. So a 1.0 webhook
gets each status, and each artifact once, complete, when it is finished; a 0.3 webhook gets the
whole task whenever one of these has happened.
"""

import msgspec

from openclaw_a2a.engine.tasks.journal import PAGE_SIZE
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.queries import task_json
from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import Entry, StoredTask, encode_event
from openclaw_a2a.model.task import TERMINAL, ArtifactUpdate, is_terminal
from openclaw_a2a.ports import Delivered, TaskStore
from openclaw_a2a.protocol import v03, v1
from openclaw_a2a.protocol.versions import ProtocolVersion


class PushPayload(msgspec.Struct, frozen=True):
    """The body of one notification, and the progress of its delivery once it is sent."""

    body: bytes
    delivered: Delivered


async def next_payload(
    tasks: TaskStore, version: ProtocolVersion, delivery: Delivery
) -> PushPayload | Delivered | None:
    """The next notification after the delivery's cursor.

    `Delivered` when there is nothing to send up to its cursor, None when the task is gone.
    """
    cursor, task_id = delivery.cursor, delivery.task_id
    if cursor < 0:
        return await _whole_task(tasks, task_id, version)
    while entries := await tasks.read_events(task_id, after=cursor, limit=PAGE_SIZE):
        for entry in entries:
            if not _is_notable(entry):
                continue
            if version is ProtocolVersion.V03:
                return await _whole_task(tasks, task_id, version)
            body = await _event_body(tasks, task_id, entry)
            if body is not None:
                has_more = entry is not entries[-1] or len(entries) == PAGE_SIZE
                return PushPayload(body, _delivered(entry, has_more=has_more))
        cursor = entries[-1].sequence
        if len(entries) < PAGE_SIZE:
            return Delivered(cursor, is_sent=False)
    stored = await tasks.read_task(None, task_id)
    if stored is None:
        return None
    is_behind = stored.head.sequence > cursor
    is_over = is_terminal(stored.head.state) and not is_behind
    return Delivered(cursor, is_sent=False, has_more=is_behind, is_over=is_over)


def _delivered(entry: Entry, *, has_more: bool) -> Delivered:
    return Delivered(
        entry.sequence,
        # An artifact does not tell whether the task has ended; the next call finds out.
        has_more=has_more or entry.state is None,
        is_over=not has_more and entry.state in TERMINAL,
    )


async def _whole_task(
    tasks: TaskStore, task_id: TaskId, version: ProtocolVersion
) -> PushPayload | None:
    stored = await tasks.read_task(None, task_id)
    if stored is None:
        return None
    task = task_json(stored)
    is_v1 = version is ProtocolVersion.V1
    body = v1.wrap_task(task) if is_v1 else v03.encode_task_result(task)
    is_over = is_terminal(stored.head.state)
    return PushPayload(body, Delivered(stored.head.sequence, is_over=is_over))


def _is_notable(entry: Entry) -> bool:
    return entry.state is not None or _finished_artifact(entry) is not None


def _finished_artifact(entry: Entry) -> ArtifactUpdate | None:
    event = entry.event
    return event if isinstance(event, ArtifactUpdate) and event.last_chunk else None


async def _event_body(tasks: TaskStore, task_id: TaskId, entry: Entry) -> bytes | None:
    """A notable event for 1.0; a finished artifact with all of its chunks."""
    event = _finished_artifact(entry)
    if entry.state is not None or event is None or not event.append:
        return entry.body
    stored: StoredTask | None = await tasks.read_task(None, task_id)
    artifacts = () if stored is None else TaskProjection.from_stored(stored).task().artifacts
    for artifact in artifacts:
        if artifact.artifact_id == event.artifact.artifact_id:
            return encode_event(msgspec.structs.replace(event, artifact=artifact, append=False))
    return None
