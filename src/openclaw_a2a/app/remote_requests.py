"""Requests to `remote_agent` as scripts and people word them."""

import base64
import mimetypes
from pathlib import Path
from typing import TypedDict
from urllib.parse import urlsplit

from openclaw_a2a.app.remote_results import RemoteResult
from openclaw_a2a.model.errors import InvalidRequest
from openclaw_a2a.model.ids import Json, JsonObject

_HANDLE = "rah_"
_AS_THEY_ARE = ("context_id", "message_id", "metadata", "accepted_output_modes")
_WEB = ("http://", "https://")

To = str | JsonObject | RemoteResult | None
"""Whom a request is for: the alias or the address of a target, a task handle, an earlier result
or its continuation; None is the default target."""


class Naming(TypedDict, total=False):
    """Which task is meant at the target, and how long to wait at most."""

    task_id: str
    timeout_s: float
    service_parameters: dict[str, str]


class Sending(Naming, total=False):
    """What goes along with a message, and how it is sent.

    `files` are paths or web addresses. `require_task` wants a task and takes no direct answer.
    """

    files: list[Path | str]
    data: JsonObject
    context_id: str
    require_task: bool
    message_id: str
    metadata: JsonObject
    accepted_output_modes: list[str]


def send_request(to: To, text: str, more: Sending) -> JsonObject:
    """The request that sends this. Raises: InvalidRequest (a file cannot be read)."""
    parts: list[JsonObject] = [{"kind": "text", "text": text}] if text else []
    parts += [_file(one) for one in more.get("files", [])]
    if "data" in more:
        parts.append({"kind": "data", "data": more["data"]})
    request: JsonObject = {"action": "send", **_subject(to, is_send=True), "parts": parts}
    if more.get("require_task"):
        request["task_requirement"] = "required"
    given: JsonObject = {**more}
    request |= {key: given[key] for key in _AS_THEY_ARE if key in given}
    return request | _naming(more)


def task_request(action: str, to: To, more: Naming) -> JsonObject:
    """The request that watches, asks for or cancels a task."""
    return {"action": action, **_subject(to, is_send=False), **_naming(more)}


def _subject(to: To, *, is_send: bool) -> JsonObject:
    if to is None:
        return {}
    if isinstance(to, RemoteResult):
        return _going_on(to.continuation or {}, is_send=is_send)
    if isinstance(to, dict):
        return _going_on(to, is_send=is_send)
    if to.startswith(_HANDLE):
        return {"task_handle": to}
    return {"target_url" if is_address(to) else "target_alias": to}


def is_address(text: str) -> bool:
    """True for a web address."""
    return text.lower().startswith(_WEB)


def _going_on(continuation: JsonObject, *, is_send: bool) -> JsonObject:
    """An ended task takes no message, but its conversation does."""
    task: JsonObject = continuation.get("task", {})
    is_over = task.get("can_send") is False and "conversation" in continuation
    if is_send and is_over:
        continuation = {key: value for key, value in continuation.items() if key != "task"}
    return {"continuation": continuation}


def _naming(more: Naming) -> JsonObject:
    request: JsonObject = {}
    if "task_id" in more:
        request["task_id"] = more["task_id"]
    if "timeout_s" in more:
        request["timeout_ms"] = max(1, round(more["timeout_s"] * 1000))
    if "service_parameters" in more:
        request["service_parameters"] = more["service_parameters"]
    return request


def _file(place: Path | str) -> JsonObject:
    if isinstance(place, str) and is_address(place):
        return _typed({"kind": "file", "uri": place}, Path(urlsplit(place).path).name)
    path = Path(place).expanduser()
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        message = f"cannot read {path}: {reason}"
        raise InvalidRequest(message, details={"code": "file-unreadable"}) from None
    return _typed({"kind": "file", "bytes": base64.b64encode(content).decode()}, path.name)


def _typed(part: JsonObject, name: str) -> JsonObject:
    kind: Json = mimetypes.guess_type(name)[0]
    named = {**part, "name": name} if name else part
    return {**named, "mime_type": kind} if kind else named
