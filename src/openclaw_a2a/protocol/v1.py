"""A2A 1.0: params to requests, and tasks and messages to the bytes that answer them."""

from collections.abc import Callable, Iterator, Sequence
from typing import cast

import msgspec
from msgspec import UNSET, UnsetType

from openclaw_a2a.model.errors import Problem
from openclaw_a2a.model.ids import Json, JsonObject, MessageId, TaskId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.push_config import PushConfig
from openclaw_a2a.model.task import Task, TaskState
from openclaw_a2a.model.validation import invalid_params
from openclaw_a2a.protocol.common_fields import NOT_BASE64, standard_base64
from openclaw_a2a.protocol.requests import (
    DEFAULT_PAGE_SIZE,
    CardRequest,
    GetRequest,
    ListRequest,
    NewPushConfig,
    PushListRequest,
    PushRequest,
    SendRequest,
    TaskRequest,
)
from openclaw_a2a.protocol.v1_schema import (
    CardParams,
    Configuration,
    GetParams,
    ListParams,
    PushItemParams,
    PushListParams,
    PushParams,
    SendParams,
    TaskParams,
    UnnamedSendParams,
)
from openclaw_a2a.protocol.validation import ParamsDecoder
from openclaw_a2a.protocol.versions import METHODS_V1, ProtocolVersion

METHODS = METHODS_V1
"""The JSON-RPC methods of 1.0."""

_CONTENTS = ("text", "raw", "url", "data")
_ONE_CONTENT = "must have exactly one of text, raw, url and data"

_encode = msgspec.json.Encoder().encode


def decode_send(params: bytes, *, make_message_id: Callable[[], str] | None = None) -> SendRequest:
    """The params of SendMessage and SendStreamingMessage.

    A missing message id is made when there is a maker, and a problem otherwise.

    Raises:
        InvalidParams: with every problem.
        ParseFailed: they are not JSON.
    """
    shape = _unnamed_send if make_message_id else _send
    wanted = shape.decode(params)
    given = wanted.message
    parts = _checked_parts(given.parts)
    if parts is None:
        raise shape.error(params)
    message_id = given.message_id
    if make_message_id is not None and not message_id.strip():
        message_id = MessageId(make_message_id())
    configuration = wanted.configuration or _no_configuration
    push = configuration.task_push_notification_config
    return SendRequest(
        message=Message(
            message_id,
            Role.USER,
            parts,
            given.context_id or None,
            given.task_id or None,
            given.metadata,
            given.extensions or (),
            given.reference_task_ids or (),
        ),
        is_blocking=not configuration.return_immediately,
        accepted_output_modes=configuration.accepted_output_modes or (),
        history_length=configuration.history_length,
        push=_push_config(push) if push and push.url else None,
        metadata=wanted.metadata,
        tenant=wanted.tenant or None,
    )


def decode_get(params: bytes) -> GetRequest:
    """The params of GetTask. Raises: InvalidParams, ParseFailed."""
    wanted = _get.decode(params)
    return GetRequest(
        id=wanted.id, history_length=wanted.history_length, tenant=wanted.tenant or None
    )


def decode_list(params: bytes) -> ListRequest:
    """The params of ListTasks. Raises: InvalidParams, ParseFailed."""
    wanted = _list.decode(params)
    return ListRequest(
        context_id=wanted.context_id or None,
        state=None if wanted.status is TaskState.UNSPECIFIED else wanted.status,
        page_size=wanted.page_size or DEFAULT_PAGE_SIZE,
        page_token=wanted.page_token or "",
        history_length=wanted.history_length,
        status_since=wanted.status_timestamp_after,
        include_artifacts=bool(wanted.include_artifacts),
        tenant=wanted.tenant or None,
    )


def decode_task_request(params: bytes) -> TaskRequest:
    """The params of CancelTask and SubscribeToTask. Raises: InvalidParams, ParseFailed."""
    wanted = _task.decode(params)
    return TaskRequest(id=wanted.id, tenant=wanted.tenant or None)


def decode_push_config(params: bytes, *, task_id: TaskId | None = None) -> NewPushConfig:
    """The params of CreateTaskPushNotificationConfig; an address that names the task wins.

    Raises: InvalidParams, ParseFailed.
    """
    config = _push_config(_push.decode(params))
    if not (task_id or config.task_id):
        raise invalid_params([Problem("taskId", "is required", "required")])
    return msgspec.structs.replace(config, task_id=task_id or config.task_id)


def decode_push_request(params: bytes) -> PushRequest:
    """The params that name one push configuration. Raises: InvalidParams, ParseFailed."""
    wanted = _push_item.decode(params)
    return PushRequest(task_id=wanted.task_id, id=wanted.id, tenant=wanted.tenant or None)


def decode_push_list(params: bytes) -> PushListRequest:
    """The params of ListTaskPushNotificationConfigs. Raises: InvalidParams, ParseFailed."""
    wanted = _push_list.decode(params)
    return PushListRequest(
        task_id=wanted.task_id,
        page_size=wanted.page_size or DEFAULT_PAGE_SIZE,
        page_token=wanted.page_token or "",
        tenant=wanted.tenant or None,
    )


def decode_card_request(params: bytes) -> CardRequest:
    """The params of GetExtendedAgentCard. Raises: InvalidParams, ParseFailed."""
    return CardRequest(tenant=_card.decode(params).tenant or None)


def encode_task(task: Task) -> bytes:
    """The task."""
    return _encode(task)


def encode_message(message: Message) -> bytes:
    """The message."""
    return _encode(message)


def wrap_task(task: bytes) -> bytes:
    """An encoded task as the answer to a send, or as the first event of a stream."""
    return b'{"task":' + task + b"}"


def wrap_message(message: bytes) -> bytes:
    """An encoded message as the answer to a send, or as the only event of a stream."""
    return b'{"message":' + message + b"}"


def encode_task_list(
    tasks: Sequence[bytes], next_page_token: str, *, page_size: int, total: int
) -> bytes:
    """A page of encoded tasks."""
    return b'{"tasks":[%b],"nextPageToken":%b,"pageSize":%d,"totalSize":%d}' % (
        b",".join(tasks),
        _encode(next_page_token),
        page_size,
        total,
    )


def encode_push_config(config: PushConfig) -> bytes:
    """A push configuration, for its owner."""
    return _encode(_spell_push(config))


def encode_push_list(configs: Sequence[PushConfig], next_page_token: str) -> bytes:
    """A page of push configurations."""
    spelled = [_spell_push(config) for config in configs]
    return _encode({"configs": spelled, "nextPageToken": next_page_token})


def _spell_push(config: PushConfig) -> JsonObject:
    spelled: JsonObject = {"id": config.id, "taskId": config.task_id, "url": config.url}
    if config.token is not None:
        spelled["token"] = config.token
    if config.schemes:
        authentication: JsonObject = {"scheme": config.schemes[0]}
        if config.credentials is not None:
            authentication["credentials"] = config.credentials
        spelled["authentication"] = authentication
    return spelled


class _StoredTask(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A task whose members stay as they were written."""

    id: msgspec.Raw
    context_id: msgspec.Raw
    status: msgspec.Raw
    artifacts: msgspec.Raw | UnsetType = UNSET
    history: tuple[msgspec.Raw, ...] | UnsetType = UNSET
    metadata: msgspec.Raw | UnsetType = UNSET


_stored_task = msgspec.json.Decoder(_StoredTask)


def trim_task(body: bytes, *, history_length: int | None, with_artifacts: bool | None) -> bytes:
    """A stored task with less in it.

    History: None leaves it, 0 removes the member, n keeps the last n messages. Artifacts: None
    leaves them, False removes the member, True makes sure that it is there, even empty.
    """
    if history_length is None and with_artifacts is None:
        return body
    task = _stored_task.decode(body)
    history, artifacts = task.history, task.artifacts
    if history_length is not None and history is not UNSET:
        history = history[-history_length:] if history_length else UNSET
    if with_artifacts is False:
        artifacts = UNSET
    elif with_artifacts and artifacts is UNSET:
        artifacts = msgspec.Raw(b"[]")
    return _encode(msgspec.structs.replace(task, history=history, artifacts=artifacts))


def _checked_parts(parts: tuple[Part, ...]) -> tuple[Part, ...] | None:
    """The parts in their normal form; None when a part breaks a rule."""
    is_normal = True
    for part in parts:
        count = (part.text is not None) + (part.raw is not None) + (part.url is not None)
        if part.data is not UNSET:
            count += part.data is not None or not count
            is_normal = is_normal and part.data is not None
        if count != 1:
            return None
        is_normal = is_normal and part.raw is None
    if is_normal:
        return parts
    normal = tuple(_normal_part(part) for part in parts)
    return None if None in normal else cast(tuple[Part, ...], normal)


def _normal_part(part: Part) -> Part | None:
    """File content as standard base64, and no null beside other content."""
    raw = part.raw
    if raw is not None and (raw := standard_base64(raw)) is None:
        return None
    has_other = part.text is not None or raw is not None or part.url is not None
    data = UNSET if part.data is None and has_other else part.data
    return msgspec.structs.replace(part, raw=raw, data=data)


def _part_problems(params: JsonObject) -> Iterator[Problem]:
    """The rules for parts that their type cannot say, on input of any shape."""
    message: Json = params.get("message")
    parts: Json = cast(JsonObject, message).get("parts") if isinstance(message, dict) else None
    for index, part in enumerate(cast(list[Json], parts) if isinstance(parts, list) else []):
        if not isinstance(part, dict):
            continue
        members = cast(JsonObject, part)
        path = f"message.parts[{index}]"
        # A null is an absent member; alone, a null for data is a value.
        present = sum(members.get(name) is not None for name in _CONTENTS)
        if present > 1 or (present == 0 and "data" not in members):
            yield Problem(path, _ONE_CONTENT, "oneof")
        raw: Json = members.get("raw")
        if isinstance(raw, str) and standard_base64(raw) is None:
            yield Problem(f"{path}.raw", NOT_BASE64, "base64")


def _push_config(push: PushParams) -> NewPushConfig:
    authentication = push.authentication
    return NewPushConfig(
        id=push.id or None,
        url=push.url,
        wire=ProtocolVersion.V1,
        token=push.token or None,
        schemes=(authentication.scheme,) if authentication else (),
        credentials=authentication.credentials if authentication else None,
        task_id=push.task_id or None,
        tenant=push.tenant or None,
    )


_no_configuration = Configuration()
_send = ParamsDecoder(SendParams, _part_problems)
_unnamed_send = ParamsDecoder(UnnamedSendParams, _part_problems)
_get = ParamsDecoder(GetParams)
_list = ParamsDecoder(ListParams)
_task = ParamsDecoder(TaskParams)
_push = ParamsDecoder(PushParams)
_push_item = ParamsDecoder(PushItemParams)
_push_list = ParamsDecoder(PushListParams)
_card = ParamsDecoder(CardParams)
