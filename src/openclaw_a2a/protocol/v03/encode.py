"""Encodes model objects and stored 1.0 bytes as A2A 0.3."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.push_config import PushConfig
from openclaw_a2a.model.records import StreamBody
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.task import (
    Artifact,
    ArtifactUpdate,
    Event,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from openclaw_a2a.protocol.v03.schema import (
    ArtifactUpdateV03,
    ArtifactV03,
    EventV03,
    FileV03,
    MessageV03,
    PartV03,
    RoleV03,
    StateV03,
    StatusUpdateV03,
    StatusV03,
    TaskV03,
)

CACHE_BYTES = 8 * 1024 * 1024
"""How much of what was transcoded is kept for the next reader."""

_ENTRY_BYTES = 256
"""What a cache entry costs besides its bytes."""

_ROLES = {
    Role.USER: RoleV03.USER,
    Role.AGENT: RoleV03.AGENT,
    Role.UNSPECIFIED: RoleV03.AGENT,
}
_STATES = {TaskState[state.name]: state for state in StateV03}

_encode = msgspec.json.Encoder().encode
_stored_task = msgspec.json.Decoder(Task)
_stored_body = msgspec.json.Decoder(StreamBody)


def encode_task(task: Task) -> bytes:
    """The task."""
    return _encode(_task_to_v03(task))


def encode_message(message: Message) -> bytes:
    """The message."""
    return _encode(_message_to_v03(message))


def encode_event(event: Event) -> bytes:
    """The event."""
    return _encode(_event_to_v03(event))


def encode_push_config(config: PushConfig) -> bytes:
    """A push configuration, for its owner."""
    return _encode(_push_config_json(config))


def encode_push_list(configs: Sequence[PushConfig], _next_page_token: str) -> bytes:
    """All push configurations of a task: 0.3 has no pages."""
    return _encode([_push_config_json(config) for config in configs])


def encode_task_result(task: bytes, history_length: int | None = None) -> bytes:
    """A stored task as a result, with its last messages only (None: all, 0: none)."""
    decoded = _stored_task.decode(task)
    if history_length is not None:
        history = decoded.history[-history_length:] if history_length else ()
        decoded = msgspec.structs.replace(decoded, history=history)
    return encode_task(decoded)


def encode_sent_task(task: bytes, history_length: int | None) -> bytes:
    """A stored task as the result of a send; its kind tells it from a message."""
    return encode_task_result(task, history_length)


def encode_sent_message(message: bytes) -> bytes:
    """A stored message as the result of a send; its kind tells it from a task."""
    return transcode(b'{"message":' + message + b"}")


def transcode(body: bytes) -> bytes:
    """A stored stream body as the 0.3 event, message or task that it holds.

    Raises:
        msgspec.ValidationError: the bytes hold none of them.
    """
    stored = _stored_body.decode(body)
    if event := stored.status_update or stored.artifact_update:
        return encode_event(event)
    if stored.task is not None:
        return encode_task(stored.task)
    if stored.message is not None:
        return encode_message(stored.message)
    raise msgspec.ValidationError("no task, message, statusUpdate or artifactUpdate")


def cached_by_identity(
    function: Callable[[bytes], bytes], *, max_bytes: int
) -> Callable[[bytes], bytes]:
    """The function with a cache of its latest results, by the identity of their input.

    Subscribers of one task share the bytes object of an event, so no content is compared or
    hashed. Inputs and results together stay within `max_bytes`; a result that would take much of
    it is not cached.
    """
    cache: OrderedDict[int, tuple[bytes, bytes]] = OrderedDict()
    size = 0

    def cached(body: bytes) -> bytes:
        nonlocal size
        # The entry keeps its input alive, so an id cannot be reused while it is in the cache.
        hit = cache.get(id(body))
        if hit is not None and hit[0] is body:
            return hit[1]
        result = function(body)
        cost = len(body) + len(result) + _ENTRY_BYTES
        if cost * 16 <= max_bytes:
            cache[id(body)] = (body, result)
            size += cost
            while size > max_bytes:
                _, (old, old_result) = cache.popitem(last=False)
                size -= len(old) + len(old_result) + _ENTRY_BYTES
        return result

    return cached


encode_stream_body = cached_by_identity(transcode, max_bytes=CACHE_BYTES)
"""A stored stream body as an event, transcoded once for all subscribers."""


def _part_to_v03(part: Part) -> PartV03:
    """The part in 0.3; what 0.3 has no place for (the media type of a text) is left out."""
    if part.text is not None:
        return PartV03("text", text=part.text, metadata=part.metadata)
    if part.is_file:
        file = FileV03(part.raw, part.url, part.media_type, part.filename)
        return PartV03("file", file=file, metadata=part.metadata)
    # 0.3 has objects only; any other value is put inside one.
    data = {"value": part.data} if not isinstance(part.data, dict) else cast(JsonObject, part.data)
    return PartV03("data", data=data, metadata=part.metadata)


def _message_to_v03(message: Message) -> MessageV03:
    return MessageV03(
        message.message_id,
        _ROLES[message.role],
        tuple([_part_to_v03(part) for part in message.parts]),
        "message",
        message.context_id,
        message.task_id,
        message.metadata,
        message.extensions or None,
        message.reference_task_ids or None,
    )


def _status_to_v03(status: TaskStatus) -> StatusV03:
    message = _message_to_v03(status.message) if status.message is not None else None
    return StatusV03(_STATES[status.state], message, status.timestamp)


def _artifact_to_v03(artifact: Artifact) -> ArtifactV03:
    return ArtifactV03(
        artifact.artifact_id,
        tuple([_part_to_v03(part) for part in artifact.parts]),
        artifact.name,
        artifact.description,
        artifact.metadata,
        artifact.extensions or None,
    )


def _task_to_v03(task: Task) -> TaskV03:
    return TaskV03(
        "task",
        task.id,
        task.context_id,
        _status_to_v03(task.status),
        tuple([_artifact_to_v03(artifact) for artifact in task.artifacts]) or None,
        tuple([_message_to_v03(message) for message in task.history]) or None,
        task.metadata,
    )


def _event_to_v03(event: StatusUpdate | ArtifactUpdate) -> EventV03:
    """The event in 0.3, which requires every boolean to be written."""
    if isinstance(event, StatusUpdate):
        return StatusUpdateV03(
            event.task_id,
            event.context_id,
            _status_to_v03(event.status),
            is_terminal(event.status.state),
            event.metadata,
        )
    return ArtifactUpdateV03(
        event.task_id,
        event.context_id,
        _artifact_to_v03(event.artifact),
        event.append,
        event.last_chunk,
        event.metadata,
    )


def _push_config_json(config: PushConfig) -> JsonObject:
    members: JsonObject = {"id": config.id, "url": config.url}
    if config.token is not None:
        members["token"] = config.token
    if config.schemes:
        authentication: JsonObject = {"schemes": config.schemes}
        if config.credentials is not None:
            authentication["credentials"] = config.credentials
        members["authentication"] = authentication
    return {"taskId": config.task_id, "pushNotificationConfig": members}
