"""Messages and answers of both protocol versions and of all transports, in one form for us.

Requests are built in the JSON of A2A 1.0 and encoded for older peers. Answers are decoded into the
discriminated form: `kind` names the type of an object, states are lower-case words. Free-form JSON
(data and metadata) passes unchanged, numbers too. Peers differ in what they leave out: only what a
caller cannot do without is required, but what is there has the right type.
"""

import base64
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, NamedTuple

import msgspec

from openclaw_a2a.model.errors import ParseFailed
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.validation import camel_case, drop_none, is_object
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
    if value.get("messageId") or value.get("message_id"):
        return "message"
    has_task = value.get("taskId") or value.get("task_id")
    if has_task and ("status" in value or "artifact" in value):
        return "status-update" if "status" in value else "artifact-update"
    return "task" if "id" in value or "status" in value else None


class _Kind(NamedTuple):
    """The type of a member, and the type of its items if it is a list."""

    of_member: type[Any]
    of_items: type[Any] | None
    complaint: str


_TEXT = _Kind(str, None, "is not a text")
_OBJECT = _Kind(dict, None, "is not an object")
_TEXTS = _Kind(list, str, "are not a list of texts")
_OBJECTS = _Kind(list, dict, "are not a list of objects")

_Table = Mapping[str, tuple[str, _Kind]]
"""The camelCase name and the type of a member, by each of the names that it may have."""


def _table(**kinds: _Kind) -> _Table:
    """Members by camelCase, and by the names of protocol buffers, which ProtoJSON allows too."""
    camel = {camel_case(name): (camel_case(name), kind) for name, kind in kinds.items()}
    return camel | {name: (camel_case(name), kind) for name, kind in kinds.items()}


_TASK = _table(
    id=_TEXT,
    context_id=_TEXT,
    status=_OBJECT,
    artifacts=_OBJECTS,
    history=_OBJECTS,
    metadata=_OBJECT,
)
_STATUS_UPDATE = _table(task_id=_TEXT, context_id=_TEXT, status=_OBJECT, metadata=_OBJECT)
_ARTIFACT_UPDATE = _table(task_id=_TEXT, context_id=_TEXT, artifact=_OBJECT, metadata=_OBJECT)
_STATUS = _table(message=_OBJECT, timestamp=_TEXT)
_OLD_STATUS = _table(update=_OBJECT)
_MESSAGE = _table(
    message_id=_TEXT,
    context_id=_TEXT,
    task_id=_TEXT,
    parts=_OBJECTS,
    reference_task_ids=_TEXTS,
    metadata=_OBJECT,
    extensions=_TEXTS,
)
_OLD_MESSAGE = _table(content=_OBJECTS)
_ARTIFACT = _table(
    artifact_id=_TEXT,
    name=_TEXT,
    description=_TEXT,
    parts=_OBJECTS,
    metadata=_OBJECT,
    extensions=_TEXTS,
)
_TEXT_PART = _table(text=_TEXT, metadata=_OBJECT)
_FILE_PART = _table(url=_TEXT, raw=_TEXT, filename=_TEXT, media_type=_TEXT, metadata=_OBJECT)
_OLD_FILE_PART = _table(file=_OBJECT, metadata=_OBJECT)
_OLD_FILE = _table(
    uri=_TEXT, file_with_uri=_TEXT, file_with_bytes=_TEXT, name=_TEXT, mime_type=_TEXT
)
_OLD_FILE_BYTES = _table(bytes=_TEXT)
_DATA_PART = _table(metadata=_OBJECT)
_OLD_DATA_PART = _table(data=_OBJECT)


def _read_members(holder: JsonObject, table: _Table) -> JsonObject:
    """The members in the table that are not empty, by their camelCase names.

    The camelCase name wins over that of protocol buffers, unless it is empty. Raises: RemoteFailure
    (a member has the wrong type).
    """
    # One loop over what is there: this is called for every object of every event.
    found: JsonObject = {}
    for key, value in holder.items():
        if not value or (member := table.get(key)) is None:
            continue
        name, kind = member
        if key != name and holder.get(name):
            continue
        if not isinstance(value, kind.of_member):
            raise _unreadable(f"its {name} {kind.complaint}")
        if kind.of_items is not None:
            for one in value:
                if not isinstance(one, kind.of_items):
                    raise _unreadable(f"its {name} {kind.complaint}")
        found[name] = value
    return found


def _task(task: JsonObject, wire: WireFormat) -> JsonObject:
    known = _read_members(task, _TASK)
    if "id" not in known:
        raise _unreadable("its task has no id")
    decoded: JsonObject = {"kind": "task", "id": known["id"], "status": _status(known, wire)}
    if "artifacts" in known:
        decoded["artifacts"] = [_artifact(one, wire) for one in known["artifacts"]]
    if "history" in known:
        # A message without a role must not pass for one of the agent.
        decoded["history"] = [_message(one, wire, role="user") for one in known["history"]]
    generation = str(task.get("generation", ""))  # ProtoJSON has such numbers as texts
    if generation.isdecimal():
        decoded["generation"] = int(generation[:_MAX_DIGITS])
    return _copy(known, decoded, ("contextId", "metadata"))


def _status_update(event: JsonObject, wire: WireFormat) -> JsonObject:
    known = _read_members(event, _STATUS_UPDATE)
    status = _status(known, wire)
    decoded: JsonObject = {
        "kind": "status-update",
        "taskId": known.get("taskId", ""),
        "status": status,
        "final": status["state"] in TERMINAL_STATES,
    }
    return _copy(known, decoded, ("contextId", "metadata"))


def _artifact_update(event: JsonObject, wire: WireFormat) -> JsonObject:
    known = _read_members(event, _ARTIFACT_UPDATE)
    is_last: Json = event.get("lastChunk")
    decoded: JsonObject = {
        "kind": "artifact-update",
        "taskId": known.get("taskId", ""),
        "artifact": _artifact(known.get("artifact", {}), wire),
        "append": event.get("append") is True,
        "lastChunk": (event.get("last_chunk") if is_last is None else is_last) is True,
    }
    return _copy(known, decoded, ("contextId", "metadata"))


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
    """The status of a task or an event, whose members were read."""
    status: JsonObject = holder.get("status", {})
    named: Json = status.get("state")
    if isinstance(named, int) and 0 <= named < len(_STATES):
        named = _STATES[named]
    state = str(named).removeprefix("TASK_STATE_").lower().replace("_", "-")
    state = state.replace("cancelled", "canceled")
    decoded: JsonObject = {"state": state if state in _STATES else "unknown"}
    known = _read_members(status, _STATUS)
    message = known.get("message") or _read_members(status, _OLD_STATUS).get("update")
    if message:
        decoded["message"] = _message(message, wire)
    return _copy(known, decoded, ("timestamp",))


def _message(message: JsonObject, wire: WireFormat, *, role: str = "agent") -> JsonObject:
    """A message; `role` is the default for one without a role."""
    named: Json = message.get("role")
    if isinstance(named, int) and 0 <= named < len(_ROLES):
        named = _ROLES[named]
    sender = str(named).removeprefix("ROLE_").lower()
    known = _read_members(message, _MESSAGE)
    parts = known.get("parts") or _read_members(message, _OLD_MESSAGE).get("content", ())
    decoded: JsonObject = {
        "kind": "message",
        "messageId": known.get("messageId", ""),
        "role": sender if sender in ("user", "agent") else role,
        "parts": [_part(one, wire) for one in parts],
    }
    return _copy(known, decoded, _COPIED_OF_MESSAGE)


_COPIED_OF_MESSAGE = ("contextId", "taskId", "referenceTaskIds", "metadata", "extensions")


def _artifact(artifact: JsonObject, wire: WireFormat) -> JsonObject:
    known = _read_members(artifact, _ARTIFACT)
    decoded: JsonObject = {
        "artifactId": known.get("artifactId", ""),
        "parts": [_part(one, wire) for one in known.get("parts", ())],
    }
    return _copy(known, decoded, ("name", "description", "metadata", "extensions"))


def _part(part: JsonObject, wire: WireFormat) -> JsonObject:
    # The table of each form: what another form has under the same name is no concern of ours.
    decoded: JsonObject
    if "text" in part:
        known = _read_members(part, _TEXT_PART)
        decoded = {"kind": "text", "text": known.get("text", "")}
    elif part.get("file") is not None:
        known = _read_members(part, _OLD_FILE_PART)
        decoded = {"kind": "file", "file": _old_file(known.get("file", {}))}
    elif part.get("url") or part.get("raw"):
        known = _read_members(part, _FILE_PART)
        url: str | None = known.get("url")
        file: JsonObject = {"uri": url} if url else {"bytes": _base64(known["raw"])}
        for key, name in (("name", "filename"), ("mimeType", "mediaType")):
            if name in known:
                file[key] = known[name]
        decoded = {"kind": "file", "file": file}
    elif "data" in part:
        known = _read_members(part, _DATA_PART)
        data: Json = part["data"]
        metadata: JsonObject = known.get("metadata", {})
        if wire is WireFormat.V03_REST:
            data = _read_members(part, _OLD_DATA_PART).get("data", {}).get("data")
        elif metadata.get(_WRAPPED_VALUE) is True and is_object(data):
            known["metadata"] = {key: metadata[key] for key in metadata if key != _WRAPPED_VALUE}
            data = data.get("value")
        decoded = {"kind": "data", "data": data}
    else:
        known, decoded = _read_members(part, _DATA_PART), {"kind": "text", "text": ""}
    if known.get("metadata"):
        decoded["metadata"] = known["metadata"]
    return decoded


_WRAPPED_VALUE = "data_part_compat"
"""The official server marks data of 1.0 that 0.3 cannot hold, because it is not an object."""


def _old_file(file: JsonObject) -> JsonObject:
    """A file of 0.3; over HTTP+JSON its members have other names."""
    known = _read_members(file, _OLD_FILE)
    decoded: JsonObject = {}
    if uri := known.get("uri") or known.get("fileWithUri"):
        decoded["uri"] = uri
    elif twice := known.get("fileWithBytes"):
        decoded["bytes"] = _decode_twice(twice)
    else:
        decoded["bytes"] = _base64(_read_members(file, _OLD_FILE_BYTES).get("bytes", ""))
    return _copy(known, decoded, ("name", "mimeType"))


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


def _copy(known: JsonObject, decoded: JsonObject, names: tuple[str, ...]) -> JsonObject:
    """`decoded` with these members, if they were read."""
    for name in names:
        if name in known:
            decoded[name] = known[name]
    return decoded


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
