"""A2A 0.3 over JSON-RPC: `decode_*` reads requests into `requests`, the rest encodes responses.

Stored bytes are 1.0, so everything that is sent is transcoded. How errors are answered is in
`protocol/errors`, for both versions.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC
from functools import partial
from typing import TypeVar, cast

import msgspec
from msgspec import UNSET

from openclaw_a2a.model.delivery import PushConfig
from openclaw_a2a.model.errors import Problem
from openclaw_a2a.model.ids import Json, JsonObject, MessageId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.records import StreamBody
from openclaw_a2a.model.task import (
    Artifact,
    ArtifactUpdate,
    Event,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
    is_paused,
    is_terminal,
)
from openclaw_a2a.model.validation import invalid_params, is_object
from openclaw_a2a.protocol import v03_schema as schema
from openclaw_a2a.protocol.requests import (
    GetRequest,
    NewPushConfig,
    PushConfigRequest,
    PushListRequest,
    SendRequest,
    TaskRequest,
)
from openclaw_a2a.protocol.v03_schema import ArtifactV03, FileV03, MessageV03, PartV03, StatusV03
from openclaw_a2a.protocol.v1 import encode_pieces
from openclaw_a2a.protocol.validation import (
    NOT_BASE64,
    ParamsDecoder,
    check_part_count,
    sent_parts,
    standard_base64,
)
from openclaw_a2a.protocol.versions import ProtocolVersion

T = TypeVar("T")

VERSION: ProtocolVersion = ProtocolVersion.V03
STREAMS_FINISHED_TASKS: bool = True
FOLLOWS_PAUSED_TASKS: bool = False
STREAMS_EARLY_ERRORS: bool = True
AROUND_TASK: tuple[bytes, bytes] = (b"", b"")
"""What is around an encoded task that begins a stream."""

_CONTENTS = ("text", "file", "data")
_FROM_ROLES = {schema.RoleV03.USER: Role.USER, schema.RoleV03.AGENT: Role.AGENT}
_FROM_STATES = {state: TaskState[state.name] for state in schema.StateV03}
_NO_PAGES = 2**31 - 1
"""The page size of a list: 0.3 has no pages."""

_task_decoder = msgspec.json.Decoder(schema.TaskV03)
_event_decoder = msgspec.json.Decoder(schema.EventV03)


def decode_send(
    params: bytes,
    *,
    make_message_id: Callable[[], str] | None = None,
    max_parts: int | None = None,
    is_strict: bool = False,
) -> SendRequest:
    """The parameters of message/send and message/stream.

    A missing message id is made by `make_message_id`; without it, it is a problem. More than
    `max_parts` are refused by their number, whatever they are. `is_strict`: there must be parts,
    each with its kind.

    Raises:
        InvalidParams: with every problem.
        ParseFailed: they are not JSON.
    """
    decoder = _send_without_id if make_message_id else _send
    given = decoder.decode(params, max_parts=max_parts)
    check_part_count(given.message.parts, max_parts)
    if is_strict and (error := invalid_params(_strict_problems(given.message))).problems:
        raise error
    message_id = given.message.message_id
    if message_id is None or not message_id.strip():
        if make_message_id is None:
            raise _send.error(params)
        message_id = MessageId(make_message_id())
    try:
        message = _sent_message(given.message, message_id)
    except msgspec.ValidationError as failure:
        raise decoder.error(params, str(failure)) from None
    configuration = given.configuration or _no_configuration
    push = configuration.push_notification_config
    return SendRequest(
        message=message,
        is_blocking=configuration.blocking is not False,
        accepted_output_modes=configuration.accepted_output_modes or (),
        history_length=configuration.history_length,
        push=_push_config(push, "configuration.pushNotificationConfig.url")
        if push and push.url
        else None,
        metadata=given.metadata,
    )


def decode_get(params: bytes) -> GetRequest:
    """The parameters of tasks/get. Raises: InvalidParams, ParseFailed."""
    given = _get.decode(params)
    return GetRequest(id=given.id, history_length=given.history_length)


def decode_task_request(params: bytes) -> TaskRequest:
    """The parameters of tasks/cancel and tasks/resubscribe. Raises: InvalidParams, ParseFailed."""
    return TaskRequest(id=_task.decode(params).id)


def decode_push_config(params: bytes) -> NewPushConfig:
    """The parameters of tasks/pushNotificationConfig/set. Raises: InvalidParams, ParseFailed."""
    given = _push.decode(params)
    config = _push_config(given.push_notification_config, "pushNotificationConfig.url")
    return msgspec.structs.replace(config, task_id=given.task_id)


def decode_push_request(params: bytes) -> PushConfigRequest:
    """The parameters that name one push configuration. Raises: InvalidParams, ParseFailed."""
    given = _push_item.decode(params)
    return PushConfigRequest(task_id=given.id, id=given.push_notification_config_id or None)


def decode_push_list(params: bytes) -> PushListRequest:
    """The parameters of tasks/pushNotificationConfig/list. Raises: InvalidParams, ParseFailed."""
    return PushListRequest(task_id=_task.decode(params).id, page_size=_NO_PAGES)


def decode_task(body: bytes) -> Task:
    """The task in a stored 0.3 record. Raises: msgspec.ValidationError (it holds none)."""
    task = _decode_stored(_task_decoder, body)
    return Task(
        task.id,
        task.context_id,
        _status_from_v03(task.status),
        tuple([_artifact_from_v03(artifact) for artifact in task.artifacts or ()]),
        tuple([message_from_v03(message) for message in task.history or ()]),
        task.metadata,
    )


def decode_event(body: bytes) -> Event:
    """The event in a stored 0.3 record. Raises: msgspec.ValidationError (it holds none)."""
    event = _decode_stored(_event_decoder, body)
    if isinstance(event, schema.StatusUpdateV03):
        status = _status_from_v03(event.status)
        return StatusUpdate(event.task_id, event.context_id, status, event.metadata)
    return ArtifactUpdate(
        event.task_id,
        event.context_id,
        _artifact_from_v03(event.artifact),
        bool(event.append),
        bool(event.last_chunk),
        event.metadata,
    )


def message_from_v03(message: MessageV03) -> Message:
    """The message in the model. Raises: msgspec.ValidationError."""
    return Message(
        message.message_id,
        _FROM_ROLES[message.role],
        tuple([_part_from_v03(part) for part in message.parts]),
        message.context_id,
        message.task_id,
        message.metadata,
        message.extensions or (),
        message.reference_task_ids or (),
    )


def _decode_stored(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Everything that can be wrong with stored bytes, as one error."""
    try:
        return decoder.decode(body)
    except (ValueError, RecursionError) as failure:
        raise msgspec.ValidationError(str(failure)) from None


def _sent_message(given: schema.MessageParams, message_id: MessageId) -> Message:
    return Message(
        message_id,
        _FROM_ROLES[given.role],
        tuple([_part_from_v03(part) for part in given.parts]),
        given.context_id or None,
        given.task_id or None,
        given.metadata,
        given.extensions or (),
        given.reference_task_ids or (),
    )


def _push_config(push: schema.PushMembers, url_path: str) -> NewPushConfig:
    authentication = push.authentication
    return NewPushConfig(
        url=push.url,
        url_path=url_path,
        version=ProtocolVersion.V03,
        id=push.id or None,
        token=push.token or None,
        schemes=authentication.schemes if authentication else (),
        credentials=authentication.credentials if authentication else None,
    )


def _part_from_v03(part: PartV03) -> Part:
    """The part in the model.

    Raises:
        msgspec.ValidationError: it has not exactly the content that it should have.
    """
    kind = part.kind or _kind_of(part)
    if kind == "text" and part.text is not None:
        return Part(text=part.text, metadata=part.metadata)
    if kind == "file" and part.file is not None:
        return _file_from_v03(part.file, part.metadata)
    if kind == "data" and part.data is not UNSET:
        if not isinstance(part.data, dict):
            raise msgspec.ValidationError(f"data {schema.OBJECT_ONLY}")
        return Part(data=cast(JsonObject, part.data), metadata=part.metadata)
    raise msgspec.ValidationError(f"a part {schema.ONE_CONTENT}")


def _kind_of(part: PartV03) -> str:
    has_content = {
        "text": part.text is not None,
        "file": part.file is not None,
        "data": part.data is not UNSET and part.data is not None,
    }
    kinds = [kind for kind, is_there in has_content.items() if is_there]
    return kinds[0] if len(kinds) == 1 else ""


def _file_from_v03(file: FileV03, metadata: JsonObject | None) -> Part:
    if (file.bytes is None) == (file.uri is None):
        raise msgspec.ValidationError(f"a file {schema.ONE_FILE}")
    raw = None
    if file.bytes is not None and (raw := standard_base64(file.bytes)) is None:
        raise msgspec.ValidationError(f"the bytes of a file {NOT_BASE64}")
    return Part(
        raw=raw, url=file.uri, filename=file.name, media_type=file.mime_type, metadata=metadata
    )


def _status_from_v03(status: StatusV03) -> TaskStatus:
    message = message_from_v03(status.message) if status.message is not None else None
    timestamp = status.timestamp
    if timestamp is not None and timestamp.tzinfo is None:
        timestamp = timestamp.replace(tzinfo=UTC)
    return TaskStatus(_FROM_STATES[status.state], message, timestamp)


def _artifact_from_v03(artifact: ArtifactV03) -> Artifact:
    return Artifact(
        artifact.artifact_id,
        tuple([_part_from_v03(part) for part in artifact.parts]),
        artifact.name,
        artifact.description,
        artifact.metadata,
        artifact.extensions or (),
    )


def _strict_problems(message: schema.MessageParams) -> Iterator[Problem]:
    """What the protocol requires and the channel's contract does not."""
    if not message.parts:
        yield Problem("message.parts", "must not be empty", "minItems")
    for index, part in enumerate(message.parts):
        if part.kind is None:
            yield Problem(f"message.parts[{index}].kind", "is required", "required")


def _message_problems(params: JsonObject) -> Iterator[Problem]:
    message: Json = params.get("message")
    if is_object(message):
        message_id: Json = message.get("messageId")
        if message_id is None or (isinstance(message_id, str) and not message_id.strip()):
            yield Problem("message.messageId", "is required and must not be blank", "required")
    yield from _part_problems(params)


def _part_problems(params: JsonObject) -> Iterator[Problem]:
    """The rules for parts that their type cannot express, on input of any shape."""
    for path, part in sent_parts(params):
        kind: Json = part.get("kind")
        present = [name for name in _CONTENTS if part.get(name) is not None]
        chosen = kind if kind in present else present[0] if len(present) == 1 else None
        if (kind is not None and chosen != kind) or chosen is None:
            yield Problem(path, schema.ONE_CONTENT, "oneof")
        elif chosen == "data" and not is_object(part["data"]):
            yield Problem(f"{path}.data", schema.OBJECT_ONLY, "type")
        elif chosen == "file" and is_object(file := part["file"]):
            content: Json = file.get("bytes")
            if (content is None) == (file.get("uri") is None):
                yield Problem(f"{path}.file", schema.ONE_FILE, "oneof")
            if isinstance(content, str) and standard_base64(content) is None:
                yield Problem(f"{path}.file.bytes", NOT_BASE64, "base64")


_no_configuration = schema.Configuration()
_send = ParamsDecoder(schema.SendParams, _message_problems)
_send_without_id = ParamsDecoder(schema.SendParams, _part_problems)
_get = ParamsDecoder(schema.GetParams)
_task = ParamsDecoder(schema.TaskParams)
_push = ParamsDecoder(schema.PushParams)
_push_item = ParamsDecoder(schema.PushItemParams)


CACHE_BYTES = 8 * 1024 * 1024
"""How much of what was transcoded is kept for the next reader."""

_ENTRY_BYTES = 256
"""What a cache entry costs besides its bytes."""

_TO_ROLES = {
    Role.USER: schema.RoleV03.USER,
    Role.AGENT: schema.RoleV03.AGENT,
    Role.UNSPECIFIED: schema.RoleV03.AGENT,
}
_TO_STATES = {TaskState[state.name]: state for state in schema.StateV03}

_encode = msgspec.json.Encoder().encode
_stored_task = msgspec.json.Decoder(Task)
_stored_body = msgspec.json.Decoder(StreamBody)


def encode_task(task: Task) -> bytes:
    """The task."""
    return _encode(_task_to_v03(task))


def encode_task_pieces(task: Task) -> Iterator[bytes]:
    """The same in pieces, none of which holds more than one part: for a task that is large."""
    return encode_pieces(task, _to_v03, _part_to_v03)


def encode_message(message: Message) -> bytes:
    """The message."""
    return _encode(message_to_v03(message))


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


encode_sent_task = encode_task_result
"""As the result of a send, where its kind tells it from a message."""


def encode_sent_message(message: bytes) -> bytes:
    """A stored message as the result of a send; its kind tells it from a task."""
    return transcode(b'{"message":' + message + b"}")


def transcode(body: bytes, *, is_strict_end: bool = False) -> bytes:
    """A stored stream body as the 0.3 event, message or task that it holds.

    `is_strict_end`: it ends its stream, so that a pause is final too, as the protocol says.

    Raises:
        msgspec.ValidationError: the bytes hold none of them.
    """
    stored = _stored_body.decode(body)
    if event := stored.status_update or stored.artifact_update:
        return _encode(_event_to_v03(event, is_strict_end=is_strict_end))
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

encode_strict_end = cached_by_identity(
    partial(transcode, is_strict_end=True), max_bytes=CACHE_BYTES
)
"""The same for the last event of a stream, in accounts with `strict03`."""


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


def message_to_v03(message: Message) -> MessageV03:
    """The message in 0.3."""
    return MessageV03(
        message.message_id,
        _TO_ROLES[message.role],
        tuple([_part_to_v03(part) for part in message.parts]),
        "message",
        message.context_id,
        message.task_id,
        message.metadata,
        message.extensions or None,
        message.reference_task_ids or None,
    )


def _status_to_v03(status: TaskStatus) -> StatusV03:
    message = message_to_v03(status.message) if status.message is not None else None
    return StatusV03(_TO_STATES[status.state], message, status.timestamp)


def _artifact_to_v03(artifact: Artifact) -> ArtifactV03:
    return ArtifactV03(
        artifact.artifact_id,
        tuple([_part_to_v03(part) for part in artifact.parts]),
        artifact.name,
        artifact.description,
        artifact.metadata,
        artifact.extensions or None,
    )


def _task_to_v03(task: Task) -> schema.TaskV03:
    return schema.TaskV03(
        "task",
        task.id,
        task.context_id,
        _status_to_v03(task.status),
        tuple([_artifact_to_v03(artifact) for artifact in task.artifacts]) or None,
        tuple([message_to_v03(message) for message in task.history]) or None,
        task.metadata,
    )


def _to_v03(value: Task | Artifact | Message) -> msgspec.Struct:
    if isinstance(value, Task):
        return _task_to_v03(value)
    return _artifact_to_v03(value) if isinstance(value, Artifact) else message_to_v03(value)


def _event_to_v03(
    event: StatusUpdate | ArtifactUpdate, *, is_strict_end: bool = False
) -> schema.EventV03:
    """The event in 0.3, which requires every boolean to be written."""
    if isinstance(event, StatusUpdate):
        state = event.status.state
        return schema.StatusUpdateV03(
            event.task_id,
            event.context_id,
            _status_to_v03(event.status),
            is_terminal(state) or (is_strict_end and is_paused(state)),
            event.metadata,
        )
    return schema.ArtifactUpdateV03(
        event.task_id,
        event.context_id,
        _artifact_to_v03(event.artifact),
        event.append,
        event.last_chunk,
        event.metadata,
    )


def _push_config_json(config: PushConfig) -> JsonObject:
    """Without token and credentials: they are for the webhook, and are not read back."""
    members: JsonObject = {"id": config.id, "url": config.url}
    if config.schemes:
        members["authentication"] = {"schemes": config.schemes}
    return {"taskId": config.task_id, "pushNotificationConfig": members}
