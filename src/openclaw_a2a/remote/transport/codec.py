"""Messages and answers of both protocol versions and of all transports, in one form for us.

Requests are built in the JSON of A2A 1.0 and encoded for older peers. Answers are decoded into the
discriminated form: `kind` names the type of an object, states are lower-case words. Free-form JSON
(data and metadata) passes unchanged, numbers too. Peers differ in what they leave out: only what a
caller cannot do without is required, but what is there has the right type.
"""

import base64
from collections.abc import Mapping
from enum import Enum, auto

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
    if value.get("messageId") or value.get("message_id"):
        return "message"
    has_task = value.get("taskId") or value.get("task_id")
    if has_task and ("status" in value or "artifact" in value):
        return "status-update" if "status" in value else "artifact-update"
    return "task" if "id" in value or "status" in value else None


class _MemberKind(Enum):
    """The type of a member of an object."""

    TEXT = "a text"
    OBJECT = "an object"
    TEXTS = "a list of texts"
    OBJECTS = "a list of objects"


def _members(**kinds: _MemberKind) -> dict[str, tuple[str, _MemberKind]]:
    """Members by the names that they may have: ProtoJSON allows those of protocol buffers."""
    camel = {camel_case(name): (camel_case(name), kind) for name, kind in kinds.items()}
    return camel | {name: (camel_case(name), kind) for name, kind in kinds.items()}


_TEXT, _OBJECT, _OBJECTS = _MemberKind.TEXT, _MemberKind.OBJECT, _MemberKind.OBJECTS
_TASK = _members(
    id=_TEXT,
    context_id=_TEXT,
    status=_OBJECT,
    artifacts=_OBJECTS,
    history=_OBJECTS,
    metadata=_OBJECT,
)
_STATUS_UPDATE = _members(task_id=_TEXT, context_id=_TEXT, status=_OBJECT, metadata=_OBJECT)
_ARTIFACT_UPDATE = _members(task_id=_TEXT, context_id=_TEXT, artifact=_OBJECT, metadata=_OBJECT)
_STATUS = _members(message=_OBJECT, update=_OBJECT, timestamp=_TEXT)
_MESSAGE = _members(
    message_id=_TEXT,
    context_id=_TEXT,
    task_id=_TEXT,
    parts=_OBJECTS,
    content=_OBJECTS,
    reference_task_ids=_MemberKind.TEXTS,
    metadata=_OBJECT,
    extensions=_MemberKind.TEXTS,
)
_ARTIFACT = _members(
    artifact_id=_TEXT,
    name=_TEXT,
    description=_TEXT,
    parts=_OBJECTS,
    metadata=_OBJECT,
    extensions=_MemberKind.TEXTS,
)
_PART = _members(
    text=_TEXT,
    file=_OBJECT,
    url=_TEXT,
    raw=_TEXT,
    filename=_TEXT,
    media_type=_TEXT,
    metadata=_OBJECT,
)
_OLD_FILE = _members(
    uri=_TEXT,
    bytes=_TEXT,
    file_with_uri=_TEXT,
    file_with_bytes=_TEXT,
    name=_TEXT,
    mime_type=_TEXT,
)


def _read(holder: JsonObject, members: Mapping[str, tuple[str, _MemberKind]]) -> JsonObject:
    """The members that are not empty, by their names. Raises: RemoteFailure (a wrong type)."""
    # One loop over what is there: this is called for every object of every event.
    found: JsonObject = {}
    for key, value in holder.items():
        if value is None or (member := members.get(key)) is None:
            continue
        name, kind = member
        if not isinstance(value, str if kind is _TEXT else dict if kind is _OBJECT else list):
            raise _unreadable(f"its {name} is not {kind.value}")
        if is_list(value):
            item: type = dict if kind is _OBJECTS else str
            for one in value:
                if not isinstance(one, item):
                    raise _unreadable(f"its {name} is not {kind.value}")
        if value and (key == name or name not in found):
            found[name] = value
    return found


def _task(task: JsonObject, wire: WireFormat) -> JsonObject:
    known = _read(task, _TASK)
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
    known = _read(event, _STATUS_UPDATE)
    status = _status(known, wire)
    decoded: JsonObject = {
        "kind": "status-update",
        "taskId": known.get("taskId", ""),
        "status": status,
        "final": status["state"] in TERMINAL_STATES,
    }
    return _copy(known, decoded, ("contextId", "metadata"))


def _artifact_update(event: JsonObject, wire: WireFormat) -> JsonObject:
    known = _read(event, _ARTIFACT_UPDATE)
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
    known = _read(status, _STATUS)
    if message := known.get("message") or known.get("update"):
        decoded["message"] = _message(message, wire)
    return _copy(known, decoded, ("timestamp",))


def _message(message: JsonObject, wire: WireFormat, *, role: str = "agent") -> JsonObject:
    """A message; `role` is the default for one without a role."""
    named: Json = message.get("role")
    if isinstance(named, int) and 0 <= named < len(_ROLES):
        named = _ROLES[named]
    sender = str(named).removeprefix("ROLE_").lower()
    known = _read(message, _MESSAGE)
    decoded: JsonObject = {
        "kind": "message",
        "messageId": known.get("messageId", ""),
        "role": sender if sender in ("user", "agent") else role,
        "parts": [_part(one, wire) for one in known.get("parts") or known.get("content", ())],
    }
    return _copy(known, decoded, _COPIED_OF_MESSAGE)


_COPIED_OF_MESSAGE = ("contextId", "taskId", "referenceTaskIds", "metadata", "extensions")


def _artifact(artifact: JsonObject, wire: WireFormat) -> JsonObject:
    known = _read(artifact, _ARTIFACT)
    decoded: JsonObject = {
        "artifactId": known.get("artifactId", ""),
        "parts": [_part(one, wire) for one in known.get("parts", ())],
    }
    return _copy(known, decoded, ("name", "description", "metadata", "extensions"))


def _part(part: JsonObject, wire: WireFormat) -> JsonObject:
    decoded: JsonObject
    known = _read(part, _PART)
    metadata: JsonObject = known.get("metadata", {})
    if "text" in part:
        decoded = {"kind": "text", "text": known.get("text", "")}
    elif part.get("file") is not None:
        decoded = {"kind": "file", "file": _old_file(known.get("file", {}))}
    elif "url" in known or "raw" in known:
        url: str | None = known.get("url")
        file: JsonObject = {"uri": url} if url else {"bytes": _base64(known["raw"])}
        for key, name in (("name", "filename"), ("mimeType", "mediaType")):
            if name in known:
                file[key] = known[name]
        decoded = {"kind": "file", "file": file}
    elif "data" in part:
        data: Json = part["data"]
        if wire is WireFormat.V03_REST:
            data = _read(part, _WRAPPED_DATA).get("data", {}).get("data")
        elif metadata.get(_WRAPPED_VALUE) is True and is_object(data):
            metadata = {key: value for key, value in metadata.items() if key != _WRAPPED_VALUE}
            data = data.get("value")
        decoded = {"kind": "data", "data": data}
    else:
        decoded = {"kind": "text", "text": ""}
    if metadata:
        decoded["metadata"] = metadata
    return decoded


_WRAPPED_DATA = _members(data=_OBJECT)
_WRAPPED_VALUE = "data_part_compat"
"""The official server marks data of 1.0 that 0.3 cannot hold, because it is not an object."""


def _old_file(file: JsonObject) -> JsonObject:
    """A file of 0.3; over HTTP+JSON its members have other names."""
    known = _read(file, _OLD_FILE)
    decoded: JsonObject = {}
    if uri := known.get("uri") or known.get("fileWithUri"):
        decoded["uri"] = uri
    elif twice := known.get("fileWithBytes"):
        decoded["bytes"] = _decode_twice(twice)
    else:
        decoded["bytes"] = _base64(known.get("bytes", ""))
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
