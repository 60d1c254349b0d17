"""What a webhook is told next: chosen from the journal, in the spelling of its generation.

A stream shows every piece of an artifact; a webhook would drown in them. So 1.0 gets each status,
and each artifact once, whole, when it is finished; 0.3 gets the whole task as it is now, whenever
one of these has happened.
"""

import msgspec

from openclaw_a2a.engine.tasks.journal import PAGE_SIZE
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.queries import task_json
from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import Entry, StoredTask, encode_event
from openclaw_a2a.model.states import TERMINAL, is_terminal
from openclaw_a2a.model.task import ArtifactUpdate
from openclaw_a2a.ports import Delivered, TaskStore
from openclaw_a2a.protocol import v03, v1
from openclaw_a2a.protocol.versions import ProtocolVersion


class PushPayload(msgspec.Struct, frozen=True):
    """The body of one notification, and how far it brings its delivery."""

    body: bytes
    brings_to: Delivered


async def next_payload(
    store: TaskStore, wire: ProtocolVersion, delivery: Delivery
) -> PushPayload | Delivered | None:
    """The next notification after the cursor; how far there is none; None without a task."""
    if delivery.cursor < 0:
        stored = await store.read_task(None, delivery.task_id)
        return None if stored is None else _whole_task(stored, wire)
    if wire is ProtocolVersion.V03:
        return await _next_task(store, delivery)
    return await _next_event(store, delivery)


async def _next_event(store: TaskStore, delivery: Delivery) -> PushPayload | Delivered | None:
    cursor, task_id = delivery.cursor, delivery.task_id
    while entries := await store.read_events(task_id, after=cursor, limit=PAGE_SIZE):
        for entry in entries:
            body = await _event_body(store, task_id, entry)
            if body is not None:
                has_more = entry is not entries[-1] or len(entries) == PAGE_SIZE
                # After an artifact it takes another look to know whether the task has ended.
                brought = Delivered(
                    entry.sequence,
                    has_more=has_more or entry.state is None,
                    is_over=not has_more and entry.state in TERMINAL,
                )
                return PushPayload(body, brought)
        cursor = entries[-1].sequence
        if len(entries) < PAGE_SIZE:
            return Delivered(cursor, is_sent=False)
    return await _nothing_new(store, task_id, cursor)


async def _next_task(store: TaskStore, delivery: Delivery) -> PushPayload | Delivered | None:
    cursor, task_id = delivery.cursor, delivery.task_id
    while entries := await store.read_events(task_id, after=cursor, limit=PAGE_SIZE):
        if any(_is_notable(entry) for entry in entries):
            stored = await store.read_task(None, task_id)
            return None if stored is None else _whole_task(stored, ProtocolVersion.V03)
        cursor = entries[-1].sequence
        if len(entries) < PAGE_SIZE:
            return Delivered(cursor, is_sent=False)
    return await _nothing_new(store, task_id, cursor)


async def _nothing_new(store: TaskStore, task_id: TaskId, cursor: int) -> Delivered | None:
    stored = await store.read_task(None, task_id)
    if stored is None:
        return None
    is_behind = stored.head.sequence > cursor
    is_over = is_terminal(stored.head.state) and not is_behind
    return Delivered(cursor, is_sent=False, has_more=is_behind, is_over=is_over)


def _whole_task(stored: StoredTask, wire: ProtocolVersion) -> PushPayload:
    body = task_json(stored)
    spelled = v1.wrap_task(body) if wire is ProtocolVersion.V1 else v03.trim_task(body)
    brought = Delivered(stored.head.sequence, is_over=is_terminal(stored.head.state))
    return PushPayload(spelled, brought)


def _is_notable(entry: Entry) -> bool:
    return entry.state is not None or _finished(entry) is not None


def _finished(entry: Entry) -> ArtifactUpdate | None:
    event = entry.event
    return event if isinstance(event, ArtifactUpdate) and event.last_chunk else None


async def _event_body(store: TaskStore, task_id: TaskId, entry: Entry) -> bytes | None:
    """What 1.0 is told of an event; None when that is nothing."""
    if entry.state is not None:
        return entry.body
    event = _finished(entry)
    if event is None or not event.append:
        return None if event is None else entry.body
    stored = await store.read_task(None, task_id)
    known = () if stored is None else TaskProjection.from_stored(stored).task().artifacts
    for artifact in known:
        if artifact.artifact_id == event.artifact.artifact_id:
            whole = msgspec.structs.replace(event, artifact=artifact, append=False)
            return encode_event(whole)
    return None
