"""Decodes the answers of the official client into the discriminated JSON form.

In that form `kind` says what an object is, and states are lower-case words, whatever protocol
version the peer speaks. Peers differ in what they leave out: only what a caller cannot do without
is required.
"""

from collections.abc import Callable
from typing import cast

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message as Proto

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure
from openclaw_a2a.remote.result.remote_result import TERMINAL_STATES

_MAX_EXACT_FLOAT = 2**53


def decode_peer_answer(answer: Proto) -> JsonObject:
    """The message, task or event in an answer. Raises: RemoteFailure (there is none)."""
    members: JsonObject = MessageToDict(answer)
    for member, decode in _DECODERS.items():
        if member in members:
            return decode(members[member])
    raise _unreadable("it holds neither a message nor a task")


def decode_peer_task(task: JsonObject) -> JsonObject:
    """A task. Raises: RemoteFailure when it has no id."""
    if not task.get("id"):
        raise _unreadable("its task has no id")
    decoded: JsonObject = {"kind": "task", "id": task["id"]}
    _copy(task, decoded, "contextId")
    decoded["status"] = _status(task.get("status", {}))
    if "artifacts" in task:
        decoded["artifacts"] = [_artifact(one) for one in task["artifacts"]]
    if "history" in task:
        # A message without a role must not pass for one of the agent.
        decoded["history"] = [_message(one, role="user") for one in task["history"]]
    return _copy(task, decoded, "metadata")


def _decode_message(message: JsonObject) -> JsonObject:
    return _message(message, role="agent")


def _decode_status(event: JsonObject) -> JsonObject:
    status = _status(event.get("status", {}))
    decoded: JsonObject = {"kind": "status-update", "taskId": event.get("taskId", "")}
    _copy(event, decoded, "contextId")
    decoded["status"] = status
    decoded["final"] = status["state"] in TERMINAL_STATES
    return _copy(event, decoded, "metadata")


def _decode_artifact(event: JsonObject) -> JsonObject:
    decoded: JsonObject = {"kind": "artifact-update", "taskId": event.get("taskId", "")}
    _copy(event, decoded, "contextId")
    decoded["artifact"] = _artifact(event.get("artifact", {}))
    decoded["append"] = event.get("append", False)
    decoded["lastChunk"] = event.get("lastChunk", False)
    return _copy(event, decoded, "metadata")


_DECODERS: dict[str, Callable[[JsonObject], JsonObject]] = {
    "task": decode_peer_task,
    "message": _decode_message,
    "statusUpdate": _decode_status,
    "artifactUpdate": _decode_artifact,
}


def _status(status: JsonObject) -> JsonObject:
    name: str = status.get("state", "TASK_STATE_UNSPECIFIED")
    state = name.removeprefix("TASK_STATE_").lower().replace("_", "-")
    decoded: JsonObject = {"state": "unknown" if state == "unspecified" else state}
    if "message" in status:
        decoded["message"] = _message(status["message"], role="agent")
    return _copy(status, decoded, "timestamp")


def _message(message: JsonObject, *, role: str) -> JsonObject:
    """A message; `role` is the default for one without a role."""
    named: str = message.get("role", "")
    known_role = {"ROLE_USER": "user", "ROLE_AGENT": "agent"}.get(named, role)
    decoded: JsonObject = {
        "kind": "message",
        "messageId": message.get("messageId", ""),
        "role": known_role,
        "parts": [_part(one) for one in message.get("parts", ())],
    }
    keys = ("contextId", "taskId", "referenceTaskIds", "metadata", "extensions")
    return _copy(message, decoded, *keys)


def _artifact(artifact: JsonObject) -> JsonObject:
    decoded: JsonObject = {
        "artifactId": artifact.get("artifactId", ""),
        "parts": [_part(one) for one in artifact.get("parts", ())],
    }
    return _copy(artifact, decoded, "name", "description", "metadata", "extensions")


def _part(part: JsonObject) -> JsonObject:
    decoded: JsonObject
    if "url" in part or "raw" in part:
        file: JsonObject = {"uri": part["url"]} if "url" in part else {"bytes": part["raw"]}
        if part.get("filename"):
            file["name"] = part["filename"]
        if part.get("mediaType"):
            file["mimeType"] = part["mediaType"]
        decoded = {"kind": "file", "file": file}
    elif "data" in part:
        decoded = {"kind": "data", "data": _whole_numbers(part["data"])}
    else:
        decoded = {"kind": "text", "text": part.get("text", "")}
    return _copy(part, decoded, "metadata")


def _copy(source: JsonObject, target: JsonObject, *keys: str) -> JsonObject:
    for key in keys:
        if source.get(key):
            target[key] = _whole_numbers(source[key]) if key == "metadata" else source[key]
    return target


def _whole_numbers(value: Json) -> Json:
    """Free-form JSON with whole numbers as integers: protobuf makes floats of all of them."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _MAX_EXACT_FLOAT else value
    if isinstance(value, dict):
        members = cast("JsonObject", value)
        return {key: _whole_numbers(member) for key, member in members.items()}
    if isinstance(value, list):
        return [_whole_numbers(item) for item in cast("list[Json]", value)]
    return value


def _unreadable(reason: str) -> RemoteFailure:
    return RemoteFailure(
        ErrorCode.PEER,
        f"the peer's answer cannot be read: {reason}",
        {
            "errorName": "InvalidAnswer",
            "hint": "the peer does not keep to the protocol: tell its operator",
        },
    )
