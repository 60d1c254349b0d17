"""A2A 1.0. Stored bytes are 1.0 already, so most of them are sent as they are."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from openclaw_a2a.model.delivery import PushConfig
from openclaw_a2a.model.errors import Problem
from openclaw_a2a.model.ids import Json, JsonObject, MessageId, TaskId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.task import Artifact, Task, TaskState
from openclaw_a2a.model.validation import invalid_params
from openclaw_a2a.protocol import v1_schema as schema
from openclaw_a2a.protocol.requests import (
    DEFAULT_PAGE_SIZE,
    GetRequest,
    ListRequest,
    NewPushConfig,
    PushConfigRequest,
    PushListRequest,
    SendRequest,
    TaskRequest,
)
from openclaw_a2a.protocol.validation import (
    NOT_BASE64,
    ParamsDecoder,
    check_part_count,
    sent_parts,
    standard_base64,
)
from openclaw_a2a.protocol.versions import ProtocolVersion

VERSION: ProtocolVersion = ProtocolVersion.V1
STREAMS_FINISHED_TASKS: bool = False
FOLLOWS_PAUSED_TASKS: bool = True
STREAMS_EARLY_ERRORS: bool = False
AROUND_TASK: tuple[bytes, bytes] = (b'{"task":', b"}")
"""What is around an encoded task that begins a stream."""

_CONTENTS = ("text", "raw", "url", "data")
_ONE_CONTENT = "must have exactly one of text, raw, url and data"


def decode_send(
    params: bytes,
    *,
    make_message_id: Callable[[], str] | None = None,
    max_parts: int | None = None,
) -> SendRequest:
    """The parameters of SendMessage and SendStreamingMessage.

    A missing message id is made by `make_message_id`; without it, it is a problem. More than
    `max_parts` are refused by their number, whatever they are.

    Raises:
        InvalidParams: with every problem.
        ParseFailed: they are not JSON.
    """
    decoder = _unnamed_send if make_message_id else _send
    given = decoder.decode(params, max_parts=max_parts)
    message = given.message
    if max_parts is not None and len(message.parts) > max_parts:
        check_part_count(message.parts, max_parts)
    parts = _normalize_parts(message.parts)
    if parts is None:
        raise decoder.error(params)
    message_id = message.message_id
    if make_message_id is not None and not message_id.strip():
        message_id = MessageId(make_message_id())
    configuration = given.configuration or _no_configuration
    push = configuration.task_push_notification_config
    return SendRequest(
        message=Message(
            message_id,
            Role.USER,
            parts,
            message.context_id or None,
            message.task_id or None,
            message.metadata,
            message.extensions or (),
            message.reference_task_ids or (),
        ),
        is_blocking=not configuration.return_immediately,
        accepted_output_modes=configuration.accepted_output_modes or (),
        history_length=configuration.history_length,
        push=_push_config(push, "configuration.taskPushNotificationConfig.url")
        if push and push.url
        else None,
        metadata=given.metadata,
        tenant=given.tenant or None,
    )


def decode_get(params: bytes) -> GetRequest:
    """The parameters of GetTask. Raises: InvalidParams, ParseFailed."""
    given = _get.decode(params)
    return GetRequest(id=given.id, history_length=given.history_length, tenant=given.tenant or None)


def decode_list(params: bytes) -> ListRequest:
    """The parameters of ListTasks. Raises: InvalidParams, ParseFailed."""
    given = _list.decode(params)
    return ListRequest(
        context_id=given.context_id or None,
        state=None if given.status is TaskState.UNSPECIFIED else given.status,
        page_size=given.page_size or DEFAULT_PAGE_SIZE,
        page_token=given.page_token or "",
        history_length=given.history_length,
        status_since=given.status_timestamp_after,
        include_artifacts=bool(given.include_artifacts),
        tenant=given.tenant or None,
    )


def decode_task_request(params: bytes) -> TaskRequest:
    """The parameters of CancelTask and SubscribeToTask. Raises: InvalidParams, ParseFailed."""
    given = _task.decode(params)
    return TaskRequest(id=given.id, tenant=given.tenant or None)


def decode_push_config(params: bytes, *, task_id: TaskId | None = None) -> NewPushConfig:
    """The parameters of CreateTaskPushNotificationConfig; `task_id` is the one in the path.

    Raises: InvalidParams, ParseFailed.
    """
    config = _push_config(_push.decode(params), "url")
    if not (task_id or config.task_id):
        raise invalid_params([Problem("taskId", "is required", "required")])
    return msgspec.structs.replace(config, task_id=task_id or config.task_id)


def decode_push_request(params: bytes) -> PushConfigRequest:
    """The parameters that name one push configuration. Raises: InvalidParams, ParseFailed."""
    given = _push_item.decode(params)
    return PushConfigRequest(task_id=given.task_id, id=given.id, tenant=given.tenant or None)


def decode_push_list(params: bytes) -> PushListRequest:
    """The parameters of ListTaskPushNotificationConfigs. Raises: InvalidParams, ParseFailed."""
    given = _push_list.decode(params)
    return PushListRequest(
        task_id=given.task_id,
        page_size=given.page_size or DEFAULT_PAGE_SIZE,
        page_token=given.page_token or "",
        tenant=given.tenant or None,
    )


def _push_config(push: schema.PushParams, url_path: str) -> NewPushConfig:
    authentication = push.authentication
    return NewPushConfig(
        id=push.id or None,
        url=push.url,
        url_path=url_path,
        version=ProtocolVersion.V1,
        token=push.token or None,
        schemes=(authentication.scheme,) if authentication else (),
        credentials=authentication.credentials if authentication else None,
        task_id=push.task_id or None,
        tenant=push.tenant or None,
    )


def _normalize_parts(parts: tuple[Part, ...]) -> tuple[Part, ...] | None:
    """The parts in their normal form; None when a part breaks a rule."""
    normal: list[Part] = []
    for part in parts:
        text, raw, url, data = part.text, part.raw, part.url, part.data
        count = (text is not None) + (raw is not None) + (url is not None)
        if data is not UNSET:
            count += data is not None or not count
            # No null beside other content.
            if data is None and (text is not None or raw is not None or url is not None):
                data = UNSET
        if count != 1:
            return None
        if raw is not None and (raw := standard_base64(raw)) is None:
            return None
        # Not the part itself: it is of the decoder's own subtype.
        normal.append(Part(text, raw, url, data, part.filename, part.media_type, part.metadata))
    return tuple(normal)


def _part_problems(params: JsonObject) -> Iterator[Problem]:
    """The rules for parts that their type cannot express, on input of any shape."""
    for path, members in sent_parts(params):
        # A null is an absent member; alone, a null for data is a value.
        present = sum(members.get(name) is not None for name in _CONTENTS)
        if present > 1 or (present == 0 and "data" not in members):
            yield Problem(path, _ONE_CONTENT, "oneof")
        raw: Json = members.get("raw")
        if isinstance(raw, str) and standard_base64(raw) is None:
            yield Problem(f"{path}.raw", NOT_BASE64, "base64")


_no_configuration = schema.Configuration()
_send = ParamsDecoder(schema.SendParams, _part_problems, enums=schema.ENUMS)
_unnamed_send = ParamsDecoder(schema.UnnamedSendParams, _part_problems, enums=schema.ENUMS)
_get = ParamsDecoder(schema.GetParams, enums=schema.ENUMS)
_list = ParamsDecoder(schema.ListParams, enums=schema.ENUMS)
_task = ParamsDecoder(schema.TaskParams, enums=schema.ENUMS)
_push = ParamsDecoder(schema.PushParams, enums=schema.ENUMS)
_push_item = ParamsDecoder(schema.PushItemParams, enums=schema.ENUMS)
_push_list = ParamsDecoder(schema.PushListParams, enums=schema.ENUMS)

_encode = msgspec.json.Encoder().encode


# -------------------------------------------------------------------- query parameters

_MAX_DIGITS = 18
_booleans = {"true": True, "false": False}


def decode_get_query(params: Mapping[str, str], *, task_id: str) -> GetRequest:
    """The query of GET /tasks/{id}; the id comes from the path. Raises: InvalidParams."""
    members = _typed(params, integers=("historyLength",))
    members["id"] = task_id
    return decode_get(_encode_query(members))


def decode_list_query(params: Mapping[str, str]) -> ListRequest:
    """The query of GET /tasks. Raises: InvalidParams."""
    members = _typed(
        params,
        integers=("pageSize", "historyLength"),
        booleans=("includeArtifacts", "include_artifacts"),
    )
    for name in ("status", "statusTimestampAfter", "status_timestamp_after"):
        if not members.get(name):
            members.pop(name, None)
    return decode_list(_encode_query(members))


def decode_push_list_query(params: Mapping[str, str], *, task_id: str) -> PushListRequest:
    """The query of GET /tasks/{id}/pushNotificationConfigs. Raises: InvalidParams."""
    members = _typed(params, integers=("pageSize",))
    members["taskId"] = task_id
    return decode_push_list(_encode_query(members))


def decode_plan_query(params: Mapping[str, str]) -> JsonObject:
    """The query of a GET or DELETE of objectives and plans, as the parameters of their methods.

    Raises: InvalidParams.
    """
    given = {
        name: text
        for name, text in params.items()
        if name != "A2A-Version" and (text or name not in ("status", "pageToken"))
    }
    booleans = ("includePlans", "includeTasks", "cancel")
    members = _typed(given, integers=("pageSize",), booleans=booleans)
    _encode_query(members)
    return members


def _typed(
    params: Mapping[str, str], *, integers: tuple[str, ...], booleans: tuple[str, ...] = ()
) -> JsonObject:
    """The parameters as JSON members.

    Text that is no number or boolean stays text, so that the decoder reports it together with
    all other problems.
    """
    members: JsonObject = dict(params)
    for name in integers:
        if name in members:
            members[name] = _integer(params[name])
    for name in booleans:
        if name in members:
            members[name] = _booleans.get(params[name], params[name])
    return members


def _integer(text: str) -> Json:
    digits = text.removeprefix("-")
    is_integer = digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS
    return int(text) if is_integer else text


def _encode_query(members: JsonObject) -> bytes:
    try:
        return _encode(members)
    except UnicodeEncodeError:
        raise invalid_params([Problem("query", "must be UTF-8")]) from None


# -------------------------------------------------------------------- responses


def encode_task_pieces(task: Task) -> Iterator[bytes]:
    """The JSON of a task that is large, in pieces, none of which holds more than one part."""
    return encode_pieces(task, lambda one: one, lambda part: part)


def encode_pieces(
    task: Task,
    convert: Callable[[Task | Artifact | Message], msgspec.Struct],
    convert_part: Callable[[Part], msgspec.Struct],
) -> Iterator[bytes]:
    """The JSON of a task, in pieces; each struct is converted before it is encoded."""
    contents = {"artifacts": task.artifacts, "history": task.history}
    filled = {name: items for name, items in contents.items() if items}
    bare = convert(msgspec.structs.replace(task, artifacts=(), history=()))
    around = _encode_around(bare, *filled)
    yield around[0]
    for items, end in zip(filled.values(), around[1:], strict=True):
        for index, item in enumerate(items):
            before, after = _encode_around(
                convert(msgspec.structs.replace(item, parts=())), "parts"
            )
            yield before if index == 0 else b"," + before
            for number, part in enumerate(item.parts):
                encoded = _encode(convert_part(part))
                yield encoded if number == 0 else b"," + encoded
            yield after
        yield end


def _encode_around(value: msgspec.Struct, *lists: str) -> list[bytes]:
    """The JSON of a struct, cut where the items of these lists belong."""
    # A byte that JSON never has: control characters in strings are escaped.
    hole = (msgspec.Raw(b"\0"),)
    return _encode(msgspec.structs.replace(value, **dict.fromkeys(lists, hole))).split(b"\0")


def wrap_task(task: bytes) -> bytes:
    """An encoded task as the result of a send, or as the first event of a stream."""
    return b'{"task":' + task + b"}"


def wrap_message(message: bytes) -> bytes:
    """An encoded message as the result of a send, or as the only event of a stream."""
    return b'{"message":' + message + b"}"


def encode_task_result(task: bytes, history_length: int | None = None) -> bytes:
    """A stored task as the result of a get or cancel."""
    return task if history_length is None else trim_task(task, history_length=history_length)


def encode_sent_task(task: bytes, history_length: int | None) -> bytes:
    """A stored task as the result of a send."""
    if history_length is not None:
        task = trim_task(task, history_length=history_length)
    return b'{"task":' + task + b"}"


encode_sent_message = wrap_message


def encode_stream_body(body: bytes) -> bytes:
    """A stored stream body as an event: it is one already."""
    return body


def around_task_list(next_page_token: str, *, page_size: int, total: int) -> tuple[bytes, bytes]:
    """What is before and after the encoded tasks of a page, which have commas between them."""
    token = _encode(next_page_token)
    after = b'],"nextPageToken":%b,"pageSize":%d,"totalSize":%d}' % (token, page_size, total)
    return b'{"tasks":[', after


def encode_push_config(config: PushConfig) -> bytes:
    """A push configuration, for its owner."""
    return _encode(_push_config_json(config))


def encode_push_list(configs: Sequence[PushConfig], next_page_token: str) -> bytes:
    """A page of push configurations."""
    encoded = [_push_config_json(config) for config in configs]
    return _encode({"configs": encoded, "nextPageToken": next_page_token})


def _push_config_json(config: PushConfig) -> JsonObject:
    """Without token and credentials: they are for the webhook, and are not read back."""
    members: JsonObject = {"id": config.id, "taskId": config.task_id, "url": config.url}
    if config.schemes:
        members["authentication"] = {"scheme": config.schemes[0]}
    return members


class _StoredTask(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A task whose members stay encoded."""

    id: msgspec.Raw
    context_id: msgspec.Raw
    status: msgspec.Raw
    artifacts: msgspec.Raw | UnsetType = UNSET
    history: tuple[msgspec.Raw, ...] | UnsetType = UNSET
    metadata: msgspec.Raw | UnsetType = UNSET


_stored_task = msgspec.json.Decoder(_StoredTask)


def trim_task(
    body: bytes, *, history_length: int | None, with_artifacts: bool | None = None
) -> bytes:
    """A stored task with less in it.

    History: None keeps it, 0 removes the member, n keeps the last n messages. Artifacts: None
    keeps them, False removes the member, True makes sure that it is there, even empty.
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
