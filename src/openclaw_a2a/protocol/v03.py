"""A2A 0.3 over JSON-RPC: params to requests, and tasks, messages and events to bytes."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, cast

import msgspec

from openclaw_a2a.model.errors import Problem
from openclaw_a2a.model.ids import Json, JsonObject, MessageId
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.push_config import PushConfig
from openclaw_a2a.model.records import StreamBody
from openclaw_a2a.model.task import Event, Task
from openclaw_a2a.protocol.common_fields import NOT_BASE64, standard_base64
from openclaw_a2a.protocol.requests import (
    CardRequest,
    GetRequest,
    NewPushConfig,
    PushListRequest,
    PushRequest,
    SendRequest,
    TaskRequest,
)
from openclaw_a2a.protocol.v03_schema import (
    OBJECT_ONLY,
    ONE_CONTENT,
    ONE_FILE,
    CardParams,
    Configuration,
    EventSpelling,
    GetParams,
    PushItemParams,
    PushMembers,
    PushParams,
    SendParams,
    TaskParams,
    TaskSpelling,
    read_event,
    read_part,
    read_role,
    read_task,
    write_event,
    write_message,
    write_task,
)
from openclaw_a2a.protocol.validation import ParamsDecoder
from openclaw_a2a.protocol.versions import METHODS_V03, ProtocolVersion

METHODS = METHODS_V03
"""The JSON-RPC methods of 0.3."""

T = TypeVar("T")

_CONTENTS = ("text", "file", "data")

_encode = msgspec.json.Encoder().encode
_task_decoder = msgspec.json.Decoder(TaskSpelling)
_event_decoder = msgspec.json.Decoder(EventSpelling)
_stored_task = msgspec.json.Decoder(Task)
_stored_body = msgspec.json.Decoder(StreamBody)


def decode_send(params: bytes, *, make_message_id: Callable[[], str] | None = None) -> SendRequest:
    """The params of message/send and message/stream.

    A missing message id is made when there is a maker, and a problem otherwise.

    Raises:
        InvalidParams: with every problem.
        ParseFailed: they are not JSON.
    """
    shape = _send_without_id if make_message_id else _send
    wanted = shape.decode(params)
    message_id = wanted.message.message_id
    if message_id is None or not message_id.strip():
        if make_message_id is None:
            raise _send.error(params)
        message_id = MessageId(make_message_id())
    try:
        message = _message(wanted, message_id)
    except msgspec.ValidationError as failure:
        raise shape.error(params, str(failure)) from None
    return _send_request(wanted, message)


def decode_get(params: bytes) -> GetRequest:
    """The params of tasks/get. Raises: InvalidParams, ParseFailed."""
    wanted = _get.decode(params)
    return GetRequest(id=wanted.id, history_length=wanted.history_length)


def decode_task_request(params: bytes) -> TaskRequest:
    """The params of tasks/cancel and tasks/resubscribe. Raises: InvalidParams, ParseFailed."""
    return TaskRequest(id=_task.decode(params).id)


def decode_push_config(params: bytes) -> NewPushConfig:
    """The params of tasks/pushNotificationConfig/set. Raises: InvalidParams, ParseFailed."""
    wanted = _push.decode(params)
    config = _push_config(wanted.push_notification_config)
    return msgspec.structs.replace(config, task_id=wanted.task_id)


def decode_push_request(params: bytes) -> PushRequest:
    """The params that name one push configuration. Raises: InvalidParams, ParseFailed."""
    wanted = _push_item.decode(params)
    return PushRequest(task_id=wanted.id, id=wanted.push_notification_config_id or None)


def decode_push_list(params: bytes) -> PushListRequest:
    """The params of tasks/pushNotificationConfig/list. Raises: InvalidParams, ParseFailed."""
    return PushListRequest(task_id=_task.decode(params).id)


def decode_card_request(params: bytes) -> CardRequest:
    """The params of agent/getAuthenticatedExtendedCard. Raises: InvalidParams, ParseFailed."""
    _card.decode(params)
    return CardRequest()


def encode_task(task: Task) -> bytes:
    """The task."""
    return _encode(write_task(task))


def encode_message(message: Message) -> bytes:
    """The message."""
    return _encode(write_message(message))


def encode_event(event: Event) -> bytes:
    """The event."""
    return _encode(write_event(event))


def encode_push_config(config: PushConfig) -> bytes:
    """A push configuration, for its owner."""
    return _encode(_spell_push(config))


def encode_push_list(configs: Sequence[PushConfig]) -> bytes:
    """The push configurations of a task."""
    return _encode([_spell_push(config) for config in configs])


def _spell_push(config: PushConfig) -> JsonObject:
    spelled: JsonObject = {"id": config.id, "url": config.url}
    if config.token is not None:
        spelled["token"] = config.token
    if config.schemes:
        authentication: JsonObject = {"schemes": config.schemes}
        if config.credentials is not None:
            authentication["credentials"] = config.credentials
        spelled["authentication"] = authentication
    return {"taskId": config.task_id, "pushNotificationConfig": spelled}


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


def trim_task(body: bytes, history_length: int | None = None) -> bytes:
    """A stored task in 0.3, with its last messages only (None: all, 0: none)."""
    task = _stored_task.decode(body)
    if history_length is not None:
        history = task.history[-history_length:] if history_length else ()
        task = msgspec.structs.replace(task, history=history)
    return encode_task(task)


def decode_task(body: bytes) -> Task:
    """The task in a stored 0.3 record.

    Raises:
        msgspec.ValidationError: the bytes hold no task.
    """
    return read_task(_read(_task_decoder, body))


def decode_event(body: bytes) -> Event:
    """The event in a stored 0.3 record.

    Raises:
        msgspec.ValidationError: the bytes hold no event.
    """
    return read_event(_read(_event_decoder, body))


def _read(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Everything that can be wrong with stored bytes, as one error."""
    try:
        return decoder.decode(body)
    except (ValueError, RecursionError) as failure:
        raise msgspec.ValidationError(str(failure)) from None


def _message(wanted: SendParams, message_id: MessageId) -> Message:
    given = wanted.message
    return Message(
        message_id,
        read_role(given.role),
        tuple([read_part(part) for part in given.parts]),
        given.context_id or None,
        given.task_id or None,
        given.metadata,
        given.extensions or (),
        given.reference_task_ids or (),
    )


def _send_request(wanted: SendParams, message: Message) -> SendRequest:
    configuration = wanted.configuration or _no_configuration
    push = configuration.push_notification_config
    return SendRequest(
        message=message,
        is_blocking=configuration.blocking is not False,
        accepted_output_modes=configuration.accepted_output_modes or (),
        history_length=configuration.history_length,
        push=_push_config(push) if push and push.url else None,
        metadata=wanted.metadata,
    )


def _push_config(push: PushMembers) -> NewPushConfig:
    authentication = push.authentication
    return NewPushConfig(
        url=push.url,
        wire=ProtocolVersion.V03,
        id=push.id or None,
        token=push.token or None,
        schemes=authentication.schemes if authentication else (),
        credentials=authentication.credentials if authentication else None,
    )


def _message_problems(params: JsonObject) -> Iterator[Problem]:
    message: Json = params.get("message")
    if isinstance(message, dict):
        message_id: Json = cast(JsonObject, message).get("messageId")
        if message_id is None or (isinstance(message_id, str) and not message_id.strip()):
            yield Problem("message.messageId", "is required and must not be blank", "required")
    yield from _part_problems(params)


def _part_problems(params: JsonObject) -> Iterator[Problem]:
    """The rules for parts that their type cannot say, on input of any shape."""
    message: Json = params.get("message")
    parts: Json = cast(JsonObject, message).get("parts") if isinstance(message, dict) else None
    for index, part in enumerate(cast(list[Json], parts) if isinstance(parts, list) else []):
        if isinstance(part, dict):
            yield from _problems_of_part(cast(JsonObject, part), f"message.parts[{index}]")


def _problems_of_part(part: JsonObject, path: str) -> Iterator[Problem]:
    kind: Json = part.get("kind")
    present = [name for name in _CONTENTS if part.get(name) is not None]
    chosen = kind if kind in present else present[0] if len(present) == 1 else None
    if (kind is not None and chosen != kind) or chosen is None:
        yield Problem(path, ONE_CONTENT, "oneof")
    elif chosen == "data" and not isinstance(part["data"], dict):
        yield Problem(f"{path}.data", OBJECT_ONLY, "type")
    elif chosen == "file" and isinstance(part["file"], dict):
        yield from _problems_of_file(cast(JsonObject, part["file"]), f"{path}.file")


def _problems_of_file(file: JsonObject, path: str) -> Iterator[Problem]:
    content: Json = file.get("bytes")
    if (content is None) == (file.get("uri") is None):
        yield Problem(path, ONE_FILE, "oneof")
    if isinstance(content, str) and standard_base64(content) is None:
        yield Problem(f"{path}.bytes", NOT_BASE64, "base64")


_no_configuration = Configuration()
_send = ParamsDecoder(SendParams, _message_problems)
_send_without_id = ParamsDecoder(SendParams, _part_problems)
_get = ParamsDecoder(GetParams)
_task = ParamsDecoder(TaskParams)
_push = ParamsDecoder(PushParams)
_push_item = ParamsDecoder(PushItemParams)
_card = ParamsDecoder(CardParams)
