"""Messages and answers of both protocol versions and of all transports, in one form for us.

Requests are built in the JSON of A2A 1.0 and encoded for older peers. Answers are decoded into the
discriminated form: `kind` names the type of an object, states are lower-case words. Free-form JSON
(data and metadata) passes unchanged, numbers too. Peers differ in what they leave out: only what a
caller cannot do without is required, but what is there has the right type.
"""

import base64
from enum import Enum, auto
from typing import TypeVar

import msgspec

from openclaw_a2a.model.errors import ParseFailed
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.validation import camel_case, drop_none, is_list, is_object
from openclaw_a2a.protocol.v03 import message_to_v03
from openclaw_a2a.protocol.validation import MAX_DEPTH, check_depth, standard_base64
from openclaw_a2a.remote.result import TERMINAL_STATES, RemoteFailure

_MAX_DIGITS = 18


class PeerOperation(Enum):
    """What can be asked of a peer."""

    SEND = "send"
    STREAM = "stream"
    SUBSCRIBE = "subscribe"
    GET = "get"
    CANCEL = "cancel"


class WireFormat(Enum):
    """The JSON of the protocol versions; over HTTP+JSON, 0.3 has a form of its own."""

    V1 = auto()
    V03 = auto()
    V03_REST = auto()


class AnswerUnreadable(Exception):
    """The peer sent something that is not an answer of A2A."""


def decode_json(body: bytes) -> Json:
    """The JSON of a peer. Raises: AnswerUnreadable."""
    try:
        check_depth(body)
        return msgspec.json.decode(body)
    except ParseFailed:
        raise AnswerUnreadable(f"the answer nests deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise AnswerUnreadable(f"the answer is not JSON: {error}") from error


# -------------------------------------------------------------------- answers


def decode_peer_answer(answer: Json, wire: WireFormat = WireFormat.V1) -> JsonObject:
    """The message, task or event in an answer. Raises: RemoteFailure (there is none)."""
    if is_object(answer):
        for member, kind in _WRAPPED.items():
            inner = answer.get(member)
            if is_object(inner):
                return _DECODERS[kind](inner, wire)
        if kind := _kind_of(answer):
            return _DECODERS[kind](answer, wire)
    raise _unreadable("it holds neither a message nor a task")


_WRAPPED = {
    "task": "task",
    "message": "message",
    "msg": "message",
    "statusUpdate": "status-update",
    "status_update": "status-update",
    "artifactUpdate": "artifact-update",
    "artifact_update": "artifact-update",
}


def _kind_of(value: JsonObject) -> str | None:
    """The kind of an object that stands alone; old peers leave `kind` out."""
    kind: Json = value.get("kind")
    if isinstance(kind, str) and kind in _DECODERS:
        return kind
    if _find(value, "messageId"):
        return "message"
    if _find(value, "taskId") and ("status" in value or "artifact" in value):
        return "status-update" if "status" in value else "artifact-update"
    return "task" if "id" in value or "status" in value else None


def _task(task: JsonObject, wire: WireFormat) -> JsonObject:
    task_id = _get(task, "id", str)
    if not task_id:
        raise _unreadable("its task has no id")
    decoded: JsonObject = {"kind": "task", "id": task_id, "status": _status(task, wire)}
    if task.get("artifacts"):
        decoded["artifacts"] = [_artifact(one, wire) for one in _list(task, "artifacts", _OBJECT)]
    if task.get("history"):
        # A message without a role must not pass for one of the agent.
        decoded["history"] = [
            _message(one, wire, role="user") for one in _list(task, "history", _OBJECT)
        ]
    generation = str(task.get("generation", ""))  # ProtoJSON has such numbers as texts
    if generation.isdecimal():
        decoded["generation"] = int(generation[:_MAX_DIGITS])
    return _copy(task, decoded, "contextId", "metadata")


def _status_update(event: JsonObject, wire: WireFormat) -> JsonObject:
    status = _status(event, wire)
    decoded: JsonObject = {
        "kind": "status-update",
        "taskId": _get(event, "taskId", str),
        "status": status,
        "final": status["state"] in TERMINAL_STATES,
    }
    return _copy(event, decoded, "contextId", "metadata")


def _artifact_update(event: JsonObject, wire: WireFormat) -> JsonObject:
    decoded: JsonObject = {
        "kind": "artifact-update",
        "taskId": _get(event, "taskId", str),
        "artifact": _artifact(_get(event, "artifact", _OBJECT), wire),
        "append": event.get("append") is True,
        "lastChunk": _find(event, "lastChunk") is True,
    }
    return _copy(event, decoded, "contextId", "metadata")


# By their numbers in protocol buffers, which ProtoJSON may use instead of the names.
_STATES = (
    "unknown",
    "submitted",
    "working",
    "completed",
    "failed",
    "canceled",
    "input-required",
    "rejected",
    "auth-required",
)
_ROLES = ("", "user", "agent")


def _status(holder: JsonObject, wire: WireFormat) -> JsonObject:
    """The status of a task or an event."""
    status = _get(holder, "status", _OBJECT)
    named: Json = status.get("state")
    if isinstance(named, int) and 0 <= named < len(_STATES):
        named = _STATES[named]
    state = str(named).removeprefix("TASK_STATE_").lower().replace("_", "-")
    state = state.replace("cancelled", "canceled")
    decoded: JsonObject = {"state": state if state in _STATES else "unknown"}
    message = _get(status, "message", _OBJECT) or _get(status, "update", _OBJECT)
    if message:
        decoded["message"] = _message(message, wire)
    if timestamp := _get(status, "timestamp", str):
        decoded["timestamp"] = timestamp
    return decoded


def _message(message: JsonObject, wire: WireFormat, *, role: str = "agent") -> JsonObject:
    """A message; `role` is the default for one without a role."""
    named: Json = message.get("role")
    if isinstance(named, int) and 0 <= named < len(_ROLES):
        named = _ROLES[named]
    known = str(named).removeprefix("ROLE_").lower()
    parts = _list(message, "parts", _OBJECT) or _list(message, "content", _OBJECT)
    decoded: JsonObject = {
        "kind": "message",
        "messageId": _get(message, "messageId", str),
        "role": known if known in ("user", "agent") else role,
        "parts": [_part(one, wire) for one in parts],
    }
    keys = ("contextId", "taskId", "referenceTaskIds", "metadata", "extensions")
    return _copy(message, decoded, *keys)


def _artifact(artifact: JsonObject, wire: WireFormat) -> JsonObject:
    decoded: JsonObject = {
        "artifactId": _get(artifact, "artifactId", str),
        "parts": [_part(one, wire) for one in _list(artifact, "parts", _OBJECT)],
    }
    return _copy(artifact, decoded, "name", "description", "metadata", "extensions")


def _part(part: JsonObject, wire: WireFormat) -> JsonObject:
    decoded: JsonObject
    metadata = _get(part, "metadata", _OBJECT)
    if "text" in part:
        decoded = {"kind": "text", "text": _get(part, "text", str)}
    elif part.get("file") is not None:
        decoded = {"kind": "file", "file": _old_file(_get(part, "file", _OBJECT))}
    elif _get(part, "url", str) or _get(part, "raw", str):
        url = _get(part, "url", str)
        file: JsonObject = {"uri": url} if url else {"bytes": _base64(_get(part, "raw", str))}
        for key, name in (("name", "filename"), ("mimeType", "mediaType")):
            if value := _get(part, name, str):
                file[key] = value
        decoded = {"kind": "file", "file": file}
    elif "data" in part:
        data: Json = part["data"]
        if wire is WireFormat.V03_REST:
            data = _get(part, "data", _OBJECT).get("data")
        elif metadata.get(_WRAPPED_VALUE) is True and is_object(data):
            metadata = {key: value for key, value in metadata.items() if key != _WRAPPED_VALUE}
            data = data.get("value")
        decoded = {"kind": "data", "data": data}
    else:
        decoded = {"kind": "text", "text": ""}
    if metadata:
        decoded["metadata"] = metadata
    return decoded


_WRAPPED_VALUE = "data_part_compat"
"""The official server marks data of 1.0 that 0.3 cannot hold, because it is not an object."""


def _old_file(file: JsonObject) -> JsonObject:
    """A file of 0.3; over HTTP+JSON its members have other names."""
    decoded: JsonObject = {}
    if uri := _get(file, "uri", str) or _get(file, "fileWithUri", str):
        decoded["uri"] = uri
    elif twice := _get(file, "fileWithBytes", str):
        decoded["bytes"] = _decode_twice(twice)
    else:
        decoded["bytes"] = _base64(_get(file, "bytes", str))
    return _copy(file, decoded, "name", "mimeType")


def _decode_twice(text: str) -> str:
    """The base64 of bytes that the official peers of 0.3 encode twice, and others once."""
    once = _base64(text)
    try:
        inner = base64.b64decode(once).decode("ascii")
        return _base64(inner)
    except (UnicodeDecodeError, RemoteFailure):
        return once


def _base64(text: str) -> str:
    standard = standard_base64(text)
    if standard is None:
        raise _unreadable("the bytes of a file are not base64")
    return standard


_DECODERS = {
    "task": _task,
    "message": _message,
    "status-update": _status_update,
    "artifact-update": _artifact_update,
}

_SNAKE = {
    camel_case(name): name
    for name in (
        *("message_id", "task_id", "context_id", "reference_task_ids", "artifact_id"),
        *("last_chunk", "media_type", "mime_type", "file_with_uri", "file_with_bytes"),
    )
}
"""ProtoJSON may use the names of the protocol buffers."""

_Kind = TypeVar("_Kind")
_OBJECT: type[JsonObject] = dict
_WORDS: dict[type, tuple[str, str]] = {str: ("a text", "texts"), dict: ("an object", "objects")}
_LISTS_OF_TEXTS = frozenset({"extensions", "referenceTaskIds"})


def _find(holder: JsonObject, name: str) -> Json:
    value: Json = holder.get(name)
    return holder.get(_SNAKE[name]) if value is None and name in _SNAKE else value


def _get(holder: JsonObject, name: str, kind: type[_Kind]) -> _Kind:
    """The text or object with this name; empty when there is none."""
    # Not with `_find`: this is called for every member of every event.
    value: Json = holder.get(name)
    if value is None and name in _SNAKE:
        value = holder.get(_SNAKE[name])
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise _unreadable(f"its {name} is not {_WORDS[kind][0]}")
    return value


def _list(holder: JsonObject, name: str, kind: type[_Kind]) -> list[_Kind]:
    """The list of texts or objects with this name; empty when there is none."""
    value = _find(holder, name)
    if value is None:
        return []
    if not is_list(value) or not all(isinstance(one, kind) for one in value):
        raise _unreadable(f"its {name} are not a list of {_WORDS[kind][1]}")
    return value


def _copy(source: JsonObject, target: JsonObject, *keys: str) -> JsonObject:
    """Copy the members that have a value."""
    for key in keys:
        # Most are not there, and chunks are many.
        if key in source or (key in _SNAKE and _SNAKE[key] in source):
            if key in _LISTS_OF_TEXTS:
                value: Json = _list(source, key, str)
            else:
                value = _get(source, key, _OBJECT if key == "metadata" else str)
            if value:
                target[key] = value
    return target


def _unreadable(reason: str) -> RemoteFailure:
    hint = "the peer does not keep to the protocol: tell its operator"
    return RemoteFailure.peer("InvalidAnswer", f"the peer's answer cannot be read: {reason}", hint)


# -------------------------------------------------------------------- requests


def encode_send(request: JsonObject, wire: WireFormat) -> JsonObject:
    """A SendMessageRequest of 1.0 in the format of the peer."""
    if wire is WireFormat.V1:
        return request
    return _send_v03(request) if wire is WireFormat.V03 else _send_v03_rest(request)


def _send_v03(request: JsonObject) -> JsonObject:
    message = msgspec.convert(request["message"], Message)
    configuration: JsonObject = request["configuration"]
    push: JsonObject | None = configuration.get("taskPushNotificationConfig")
    encoded: JsonObject = {
        "message": msgspec.to_builtins(message_to_v03(message)),
        "configuration": drop_none(
            {
                "acceptedOutputModes": configuration.get("acceptedOutputModes"),
                "blocking": configuration.get("returnImmediately") is not True,
                "historyLength": configuration.get("historyLength"),
                "pushNotificationConfig": None if push is None else _push_v03(push),
            }
        ),
    }
    return {**encoded, "metadata": request["metadata"]} if "metadata" in request else encoded


def _push_v03(push: JsonObject) -> JsonObject:
    authentication: JsonObject | None = push.get("authentication")
    if authentication is None:
        return push
    schemes = {"schemes": [authentication["scheme"]]}
    credentials = drop_none({"credentials": authentication.get("credentials")})
    return {**push, "authentication": {**schemes, **credentials}}


def _send_v03_rest(request: JsonObject) -> JsonObject:
    """0.3 over HTTP+JSON: the names of its protocol buffers, in which a file is base64 twice."""
    old = _send_v03(request)
    message: JsonObject = old["message"]
    configuration: JsonObject = old["configuration"]
    encoded: JsonObject = {
        "request": drop_none(
            {
                "message_id": message["messageId"],
                "context_id": message.get("contextId"),
                "task_id": message.get("taskId"),
                "role": "ROLE_USER",
                "content": [_part_v03_rest(one) for one in message["parts"]],
                "metadata": message.get("metadata"),
            }
        ),
        "configuration": drop_none(
            {
                "accepted_output_modes": configuration.get("acceptedOutputModes"),
                "blocking": configuration["blocking"],
                "history_length": configuration.get("historyLength"),
                "push_notification": configuration.get("pushNotificationConfig"),
            }
        ),
    }
    return {**encoded, "metadata": old["metadata"]} if "metadata" in old else encoded


def _part_v03_rest(part: JsonObject) -> JsonObject:
    content: JsonObject
    if part["kind"] == "text":
        content = {"text": part["text"]}
    elif part["kind"] == "data":
        content = {"data": {"data": part["data"]}}
    else:
        file: JsonObject = part["file"]
        raw: str | None = file.get("bytes")
        members = {
            "file_with_uri": file.get("uri"),
            "file_with_bytes": raw and base64.b64encode(raw.encode()).decode("ascii"),
            "mime_type": file.get("mimeType"),
            "name": file.get("name"),
        }
        content = {"file": drop_none(members)}
    return {**content, "metadata": part["metadata"]} if "metadata" in part else content
