"""Decodes the parameters of A2A 0.3 methods into requests, and 0.3 objects into the model."""

from collections.abc import Callable, Iterator
from datetime import UTC
from typing import TypeVar, cast

import msgspec
from msgspec import UNSET

from openclaw_a2a.model.errors import Problem
from openclaw_a2a.model.ids import Json, JsonObject, MessageId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.task import (
    Artifact,
    ArtifactUpdate,
    Event,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from openclaw_a2a.protocol.common_fields import NOT_BASE64, standard_base64
from openclaw_a2a.protocol.requests import (
    GetRequest,
    NewPushConfig,
    PushConfigRequest,
    PushListRequest,
    SendRequest,
    TaskRequest,
)
from openclaw_a2a.protocol.v03.schema import (
    OBJECT_ONLY,
    ONE_CONTENT,
    ONE_FILE,
    ArtifactV03,
    Configuration,
    EventV03,
    FileV03,
    GetParams,
    MessageV03,
    PartV03,
    PushItemParams,
    PushMembers,
    PushParams,
    RoleV03,
    SendParams,
    StateV03,
    StatusUpdateV03,
    StatusV03,
    TaskParams,
    TaskV03,
)
from openclaw_a2a.protocol.validation import ParamsDecoder
from openclaw_a2a.protocol.versions import ProtocolVersion

T = TypeVar("T")

_CONTENTS = ("text", "file", "data")
_ROLES = {RoleV03.USER: Role.USER, RoleV03.AGENT: Role.AGENT}
_STATES = {state: TaskState[state.name] for state in StateV03}
_NO_PAGES = 2**31 - 1
"""The page size of a list: 0.3 has no pages."""

_task_decoder = msgspec.json.Decoder(TaskV03)
_event_decoder = msgspec.json.Decoder(EventV03)


def decode_send(params: bytes, *, make_message_id: Callable[[], str] | None = None) -> SendRequest:
    """The parameters of message/send and message/stream.

    A missing message id is made by `make_message_id`; without it, it is a problem.

    Raises:
        InvalidParams: with every problem.
        ParseFailed: they are not JSON.
    """
    decoder = _send_without_id if make_message_id else _send
    given = decoder.decode(params)
    message_id = given.message.message_id
    if message_id is None or not message_id.strip():
        if make_message_id is None:
            raise _send.error(params)
        message_id = MessageId(make_message_id())
    try:
        message = _message(given, message_id)
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
    if isinstance(event, StatusUpdateV03):
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
        _ROLES[message.role],
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


def _message(params: SendParams, message_id: MessageId) -> Message:
    given = params.message
    return Message(
        message_id,
        _ROLES[given.role],
        tuple([_part_from_v03(part) for part in given.parts]),
        given.context_id or None,
        given.task_id or None,
        given.metadata,
        given.extensions or (),
        given.reference_task_ids or (),
    )


def _push_config(push: PushMembers, url_path: str) -> NewPushConfig:
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
            raise msgspec.ValidationError(f"data {OBJECT_ONLY}")
        return Part(data=cast(JsonObject, part.data), metadata=part.metadata)
    raise msgspec.ValidationError(f"a part {ONE_CONTENT}")


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
        raise msgspec.ValidationError(f"a file {ONE_FILE}")
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
    return TaskStatus(_STATES[status.state], message, timestamp)


def _artifact_from_v03(artifact: ArtifactV03) -> Artifact:
    return Artifact(
        artifact.artifact_id,
        tuple([_part_from_v03(part) for part in artifact.parts]),
        artifact.name,
        artifact.description,
        artifact.metadata,
        artifact.extensions or (),
    )


def _message_problems(params: JsonObject) -> Iterator[Problem]:
    message: Json = params.get("message")
    if isinstance(message, dict):
        message_id: Json = cast(JsonObject, message).get("messageId")
        if message_id is None or (isinstance(message_id, str) and not message_id.strip()):
            yield Problem("message.messageId", "is required and must not be blank", "required")
    yield from _part_problems(params)


def _part_problems(params: JsonObject) -> Iterator[Problem]:
    """The rules for parts that their type cannot express, on input of any shape."""
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
