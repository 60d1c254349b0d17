"""What peers tell, from the official client's messages to the form whose `kind` says what it is.

Peers differ in how much they leave out, so only what a caller cannot do without is demanded.
"""

from collections.abc import Callable
from typing import cast

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message as Proto

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure
from openclaw_a2a.remote.result.progress import TERMINAL

_EXACT = 2**53


def discriminated(answer: Proto) -> JsonObject:
    """The message, task or event in an answer.

    Raises: RemoteFailure when it is nothing of the protocol.
    """
    told: JsonObject = _whole_numbers(MessageToDict(answer))
    for member, spell in _SPELLINGS.items():
        if member in told:
            return spell(told[member])
    raise _unreadable("it holds neither a message nor a task")


def spell_task(task: JsonObject) -> JsonObject:
    """A task. Raises: RemoteFailure when it has no id."""
    if not task.get("id"):
        raise _unreadable("its task has no id")
    spelled: JsonObject = {"kind": "task", "id": task["id"]}
    _copy(task, spelled, "contextId")
    spelled["status"] = _status(task.get("status", {}))
    if "artifacts" in task:
        spelled["artifacts"] = [_artifact(one) for one in task["artifacts"]]
    if "history" in task:
        # Whose words they are is not said: nobody may take them for the agent's.
        spelled["history"] = [_message(one, role="user") for one in task["history"]]
    return _copy(task, spelled, "metadata")


def _spell_message(message: JsonObject) -> JsonObject:
    return _message(message, role="agent")


def _spell_status(event: JsonObject) -> JsonObject:
    status = _status(event.get("status", {}))
    spelled: JsonObject = {"kind": "status-update", "taskId": event.get("taskId", "")}
    _copy(event, spelled, "contextId")
    spelled["status"] = status
    spelled["final"] = status["state"] in TERMINAL
    return _copy(event, spelled, "metadata")


def _spell_artifact(event: JsonObject) -> JsonObject:
    spelled: JsonObject = {"kind": "artifact-update", "taskId": event.get("taskId", "")}
    _copy(event, spelled, "contextId")
    spelled["artifact"] = _artifact(event.get("artifact", {}))
    spelled["append"] = event.get("append", False)
    spelled["lastChunk"] = event.get("lastChunk", False)
    return _copy(event, spelled, "metadata")


_SPELLINGS: dict[str, Callable[[JsonObject], JsonObject]] = {
    "task": spell_task,
    "message": _spell_message,
    "statusUpdate": _spell_status,
    "artifactUpdate": _spell_artifact,
}


def _status(status: JsonObject) -> JsonObject:
    name: str = status.get("state", "TASK_STATE_UNSPECIFIED")
    word = name.removeprefix("TASK_STATE_").lower().replace("_", "-")
    spelled: JsonObject = {"state": "unknown" if word == "unspecified" else word}
    if "message" in status:
        spelled["message"] = _message(status["message"], role="agent")
    return _copy(status, spelled, "timestamp")


def _message(message: JsonObject, *, role: str) -> JsonObject:
    """A message; `role` is whose it is when it does not say."""
    named: str = message.get("role", "")
    said = {"ROLE_USER": "user", "ROLE_AGENT": "agent"}.get(named, role)
    spelled: JsonObject = {
        "kind": "message",
        "messageId": message.get("messageId", ""),
        "role": said,
        "parts": [_part(one) for one in message.get("parts", ())],
    }
    keys = ("contextId", "taskId", "referenceTaskIds", "metadata", "extensions")
    return _copy(message, spelled, *keys)


def _artifact(artifact: JsonObject) -> JsonObject:
    spelled: JsonObject = {
        "artifactId": artifact.get("artifactId", ""),
        "parts": [_part(one) for one in artifact.get("parts", ())],
    }
    return _copy(artifact, spelled, "name", "description", "metadata", "extensions")


def _part(part: JsonObject) -> JsonObject:
    spelled: JsonObject
    if "url" in part or "raw" in part:
        file: JsonObject = {"uri": part["url"]} if "url" in part else {"bytes": part["raw"]}
        if part.get("filename"):
            file["name"] = part["filename"]
        if part.get("mediaType"):
            file["mimeType"] = part["mediaType"]
        spelled = {"kind": "file", "file": file}
    elif "data" in part:
        spelled = {"kind": "data", "data": part["data"]}
    else:
        spelled = {"kind": "text", "text": part.get("text", "")}
    return _copy(part, spelled, "metadata")


def _copy(source: JsonObject, target: JsonObject, *keys: str) -> JsonObject:
    target.update((key, source[key]) for key in keys if source.get(key))
    return target


def _whole_numbers(value: Json) -> Json:
    """The value with whole numbers as such: the client's library makes floats of them all."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _EXACT else value
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
