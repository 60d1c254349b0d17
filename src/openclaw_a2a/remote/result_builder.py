"""Builds the results of one request: folds the peer's events into summaries and failures.

Everything here is in the discriminated JSON form of `transport/client`: `kind` says what an object
is, states are lower-case words.
"""

from collections.abc import Awaitable, Callable, Iterable, Set
from contextlib import suppress
from itertools import chain
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import drop_none
from openclaw_a2a.remote.config import TOOL_NAME, Policy
from openclaw_a2a.remote.handles import (
    LastKnownState,
    TaskHandles,
    continuation_target,
)
from openclaw_a2a.remote.request_builder import ResolvedTarget
from openclaw_a2a.remote.result import PAUSED_STATES, TERMINAL_STATES, ErrorCode, RemoteFailure
from openclaw_a2a.remote.target_secrets import EventRedactor, redact

if TYPE_CHECKING:  # the HTTP client takes long to load
    from openclaw_a2a.remote.transport.client_pool import ClientPool

_STATUS_FIRST = PAUSED_STATES | {"failed", "rejected", "canceled"}
_BLANK_LINE = "\n\n"
_REPLACED_BY_APPEND = ("name", "description", "metadata", "extensions")
_HANDLE_TEXT_CHARS = 200


class EventAccumulator:
    """The events of one request, folded into one result. Adding an event costs O(event)."""

    def __init__(self) -> None:
        self.events: list[JsonObject] = []
        self.task_id: str | None = None
        self.context_id: str | None = None
        self.state: str | None = None
        self._is_task = False
        self._messages = 0
        self._last_message: JsonObject | None = None
        self._artifacts: list[JsonObject] = []
        # The newest artifact with an id: peers may give several artifacts the same id, or none.
        self._index: dict[str, int] = {}
        # By artifact, the parts that continue the text of the part before: appended chunks do.
        self._continued: dict[int, set[int]] = {}
        self._status_message: JsonObject | None = None
        self._history: list[JsonObject] = []

    def add(self, event: JsonObject) -> None:
        """Add one event, message or task."""
        self.events.append(event)
        kind = event.get("kind")
        self.context_id = event.get("contextId") or self.context_id
        self.task_id = event.get("id" if kind == "task" else "taskId") or self.task_id
        if kind == "message":
            self._messages += 1
            if event.get("role") == "agent":
                self._last_message = event
            return
        self._is_task = True
        if kind == "artifact-update":
            self._add_artifact(event)
            return
        self._set_status(event.get("status") or {})
        if kind == "task":
            self._history = list(event.get("history") or ())
            before, self._artifacts = self._artifacts, _copies(event.get("artifacts") or ())
            self._index = {one["artifactId"]: index for index, one in enumerate(self._artifacts)}
            # Chunks stay chunks where the task repeats what was streamed.
            self._continued = {
                index: parts
                for index, parts in self._continued.items()
                if self._artifacts[index : index + 1] == before[index : index + 1]
            }

    @property
    def is_terminal(self) -> bool:
        """True when the task has ended."""
        return self.state in TERMINAL_STATES

    @property
    def response_kind(self) -> str | None:
        """`task` or `message`; None for several messages and nothing else."""
        if self._is_task:
            return "task"
        return "message" if self._messages == 1 else None

    @property
    def artifacts(self) -> list[JsonObject]:
        """Copies of the artifacts as they are now."""
        return _copies(self._artifacts)

    def first_text(self, chars: int) -> str | None:
        """The first characters of the text, without building all of it."""
        has_status_first = self.state in _STATUS_FIRST and text_of(self._status_message)
        if not self._is_task or not self._artifacts or has_status_first:
            return (self.message_text or "")[:chars] or None
        text = ""
        for part in chain.from_iterable(one.get("parts", ()) for one in self._artifacts):
            text += part["text"] if part.get("kind") == "text" else ""
            if len(text) >= chars:
                break
        return text[:chars] or (self.message_text or "")[:chars] or None

    @property
    def message_text(self) -> str | None:
        """The whole text; None when there is none. Costs O(answer)."""
        if not self._is_task:
            return text_of(self._last_message) if self._last_message else None
        texts = (
            text_of(one, self._continued.get(index, frozenset()))
            for index, one in enumerate(self._artifacts)
        )
        body = _BLANK_LINE.join(filter(None, texts))
        status = text_of(self._status_message)
        if body and status and self.state in _STATUS_FIRST:
            return f"{status}{_BLANK_LINE}{body}"
        said = (text_of(one) for one in reversed(self._history) if one.get("role") == "agent")
        return body or status or next(filter(None, said), "") or text_of(self._last_message)

    def _add_artifact(self, event: JsonObject) -> None:
        [artifact] = _copies([event.get("artifact", {})])
        artifact_id: str = artifact.get("artifactId", "")
        index = self._index.get(artifact_id)
        if index is None:
            self._index[artifact_id] = len(self._artifacts)
            self._artifacts.append(artifact)
        elif event.get("append") is True:
            known = self._artifacts[index]
            parts: list[JsonObject] = known.setdefault("parts", [])
            self._continued.setdefault(index, set()).add(len(parts))
            parts.extend(artifact.get("parts", ()))
            known.update({key: artifact[key] for key in _REPLACED_BY_APPEND if key in artifact})
        else:
            self._artifacts[index] = artifact
            self._continued.pop(index, None)

    def _set_status(self, status: JsonObject) -> None:
        state = status.get("state")
        self.state = self.state if state in (None, "", "unknown") else state
        message = status.get("message")
        is_from_user = message is not None and message.get("role") == "user"
        self._status_message = None if is_from_user else message


def _copies(artifacts: Iterable[JsonObject]) -> list[JsonObject]:
    """Copies of artifacts; their parts never change and are shared."""
    return [
        {**one, "parts": list(one["parts"])} if "parts" in one else dict(one) for one in artifacts
    ]


def text_of(holder: JsonObject | None, continued: Set[int] = frozenset()) -> str:
    """The text parts of a message or an artifact, with a blank line between.

    Chunks of one text are joined without it: the parts in `continued`, which continue the part
    before, and parts of an artifact with blanks at their ends. Many peers store each streamed chunk
    as a part, and nothing else distinguishes such parts from paragraphs.
    """
    if holder is None:
        return ""
    runs: list[list[str]] = []
    for index, part in enumerate(holder.get("parts") or ()):
        if part.get("kind") == "text":
            if not runs or index not in continued:
                runs.append([])
            runs[-1].append(part["text"])
    texts = [text for text in map("".join, runs) if text]
    edges = [text[-1] for text in texts[:-1]] + [text[0] for text in texts[1:]]
    is_chunked = "artifactId" in holder and any(edge.isspace() for edge in edges)
    return ("" if is_chunked else _BLANK_LINE).join(texts)


class ResultBuilder:
    """Builds the summaries and failures of one request.

    The task of the request gets its handle as soon as the peer names it, so that a caller that
    disconnects can follow it later.
    """

    def __init__(
        self,
        resolved: ResolvedTarget,
        pool: "ClientPool",
        handles: TaskHandles,
        *,
        is_followed: bool,
    ) -> None:
        """`is_followed` says that more may come after an answer."""
        self.resolved = resolved
        self.received = EventAccumulator()
        self._redactor = EventRedactor(is_stream=is_followed)
        self.created_task: str | None = None
        """The task that this request created in order to follow it."""
        self._pool = pool
        self._handles = handles
        self._handle_name = resolved.handle.name if resolved.handle else None
        self._handled: tuple[str | int | None, ...] = ()

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets of this call and of the request that fetched the card."""
        return (*self._redactor.secrets, *self._pool.record(self.resolved.target).secrets)

    def add_secrets(self, secrets: Iterable[str]) -> None:
        """Add secrets to hide, before the peer could repeat them."""
        self._redactor.add_secrets(secrets)

    def add_answer(self, answer: JsonObject) -> JsonObject:
        """Add a message or task of the peer; returns it without our secrets."""
        [shown] = self.add_event(answer)
        return shown

    def add_event(self, event: JsonObject) -> list[JsonObject]:
        """Add an event of a stream; returns what may be shown now, without our secrets."""
        return [self._add(one) for one in self._redactor.redact(event)]

    def end_stream(self) -> list[JsonObject]:
        """No event follows; returns what was held back, because it looked like a secret."""
        return [self._add(one) for one in self._redactor.flush()]

    def _add(self, event: JsonObject) -> JsonObject:
        known = (self.received.task_id, self.received.context_id, self.received.state)
        self.received.add(event)
        task_id = self.received.task_id
        # Not for every chunk of text: updating a handle looks at all of them.
        if task_id and known != (task_id, self.received.context_id, self.received.state):
            self._issue_handle(task_id)
        return event

    @property
    def streaming_supported(self) -> bool | None:
        """Whether the peer streams: by its card, else by what the handle remembers."""
        known = self._pool.record(self.resolved.target).card.streaming_supported
        if known is None and self.resolved.handle is not None:
            return self.resolved.handle.last_known.streaming_supported
        return known

    @property
    def text(self) -> str:
        """The whole text received by now, without our secrets. Costs O(answer)."""
        # Redacted again: joined parts and events may have what none of them has.
        return redact(self.received.message_text or "", self.secrets)

    def summary(self) -> JsonObject:
        """The summary of everything received so far. Costs O(answer)."""
        target, received, secrets = self.resolved.target, self.received, self.secrets
        summary: JsonObject = {
            "target_alias": target.alias or None,
            "target_name": redact(self._pool.record(target).card.name, secrets),
            "target_url": target.base_url,
            "streaming_supported": self.streaming_supported,
            "response_kind": received.response_kind,
            # As `text`, with the secrets that are known already.
            "message_text": redact(received.message_text or "", secrets) or None,
            "artifacts": received.artifacts or None,
            "continuation": self.continuation(),
        }
        return drop_none(summary)

    def continuation(self) -> JsonObject | None:
        """How to continue the task or the conversation; None when neither is known."""
        received, resolved = self.received, self.resolved
        task_id = received.task_id or resolved.task_id
        context_id = received.context_id or resolved.context_id
        if task_id is None and context_id is None:
            return None
        continuation: JsonObject = {"target": continuation_target(resolved.target)}
        if task_id is not None:
            continuation["task"] = continuation_task(
                task_id,
                self._issue_handle(task_id),
                state=received.state,
                streams=self.streaming_supported is not False,
            )
        if context_id is not None:
            continuation["conversation"] = {"context_id": context_id, "can_send": True}
        return continuation

    def explain(self, failure: RemoteFailure, request: JsonObject, policy: Policy) -> RemoteFailure:
        """The failure with everything that helps to continue, without our secrets."""
        self.end_stream()
        details: JsonObject = {}
        received = self.received
        if self.created_task is not None:
            details["task_id"] = self.created_task
            details["task_handle"] = self._issue_handle(self.created_task)
            details["suggested_action"] = "status"
            if received.context_id:
                details["context_id"] = received.context_id
        if received.events and failure.code is not ErrorCode.TASK_REQUIRED:
            details["partial_event_count"] = len(received.events)
            details["latest_event_summary"] = self.summary()
        if request["action"] == "send":
            record = self._pool.record(self.resolved.target)
            card = record.card.summary() if record.refreshed_at else None
            modes = request.get("accepted_output_modes", policy.accepted_output_modes)
            diagnostics = diagnose_modes(request["parts"], modes, card)
            details["capability_diagnostics"] = redact(diagnostics, self.secrets)
        details |= redact(failure.details, self.secrets)
        return RemoteFailure(failure.code, redact(failure.message, self.secrets), details)

    def watch_unsupported(self, task_id: str) -> RemoteFailure:
        """The failure for a peer that does not stream."""
        target = self.resolved.target
        details: JsonObject = {
            "task_id": task_id,
            "target_url": target.base_url,
            "target_alias": target.alias or None,
            "streaming_supported": self.streaming_supported,
            "suggested_action": "status",
        }
        return RemoteFailure(
            ErrorCode.PEER,
            "this peer cannot be watched; use action=status instead",
            drop_none(details),
        )

    def _issue_handle(self, task_id: str) -> str:
        version = (task_id, len(self.received.events))
        if version == self._handled and self._handle_name is not None:
            return self._handle_name  # nothing was received since the last time
        self._handled = version
        known = self.resolved.handle.last_known if self.resolved.handle else LastKnownState()
        handle = self._handles.issue(
            self.resolved.owner,
            self.resolved.target,
            task_id,
            context_id=self.received.context_id or self.resolved.context_id,
            last_known=LastKnownState(
                state=self.received.state or known.state,
                text=redact(self.received.first_text(_HANDLE_TEXT_CHARS), self.secrets)
                or known.text,
                streaming_supported=self.streaming_supported,
            ),
            name=self._handle_name,
        )
        self._handle_name = handle.name
        return handle.name


def continuation_task(task_id: str, handle: str, *, state: str | None, streams: bool) -> JsonObject:
    """The `task` member of a continuation; `streams` is false only when the card says so."""
    is_open = state not in TERMINAL_STATES
    task: JsonObject = {"task_id": task_id, "task_handle": handle}
    if state is not None:
        task["status"] = state
    return {
        **task,
        "can_resume_send": is_open,
        "can_send": is_open,
        "can_status": True,
        "can_cancel": is_open,
        "can_watch": is_open and streams,
    }


# -------------------------------------------------------------------- capability diagnostics

_UNKNOWN = "unknown"
_MEDIA_TYPES = {
    "csv": "text/csv",
    "gif": "image/gif",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "md": "text/markdown",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "ogg": "audio/ogg",
    "pdf": "application/pdf",
    "png": "image/png",
    "svg": "image/svg+xml",
    "txt": "text/plain",
    "wav": "audio/wav",
    "webm": "video/webm",
    "webp": "image/webp",
}
"""By file extension, as the contract of the tool lists them."""


def diagnose_modes(
    parts: list[JsonObject], accepted: Iterable[str], card: JsonObject | None
) -> JsonObject:
    """Which media types a send asked for and which the peer's card (None: unknown) offers."""
    inputs = [_input_mode(part) for part in parts]
    known: JsonObject = card or {}
    details: JsonObject = {}
    for kind, modes in (("input", inputs), ("output", accepted)):
        offered = list(known.get(f"default_{kind}_modes", ()))
        for skill in known.get("skills", ()):
            offered += skill.get(f"{kind}_modes", ())
        requested, offered = _unique(modes), _unique(offered)
        unsupported = [one for one in requested if one not in offered and one != _UNKNOWN]
        details[f"requested_{kind}_modes"] = requested
        details[f"advertised_{kind}_modes"] = offered
        details[f"unsupported_{kind}_modes"] = unsupported
    unknown = [index for index, mode in enumerate(inputs) if mode == _UNKNOWN]
    return {**details, "unknown_file_attachments": unknown}


def _input_mode(part: JsonObject) -> str:
    if part["kind"] != "file":
        return "text/plain" if part["kind"] == "text" else "application/json"
    paths = [part.get("name") or ""]
    with suppress(ValueError):
        paths.append(urlsplit(part.get("uri") or "").path)
    extensions = [PurePosixPath(path).suffix.lower().removeprefix(".") for path in paths]
    by_name = (_MEDIA_TYPES[one] for one in extensions if one in _MEDIA_TYPES)
    return (part.get("mime_type") or "").strip() or next(by_name, _UNKNOWN)


def _unique(modes: Iterable[str]) -> list[str]:
    cleaned = (mode.strip().lower() for mode in modes)
    return list(dict.fromkeys(mode for mode in cleaned if mode))


# -------------------------------------------------------------------- envelopes


class StreamUpdate(msgspec.Struct, frozen=True):
    """One event of a followed request, and the result that has everything received by now.

    The envelope, which has the whole answer so far, is built on demand: building it for every event
    of a long answer would take time and memory in O(answer squared).
    """

    action: str
    event: JsonObject
    result: ResultBuilder

    def envelope(self) -> JsonObject:
        """The update as callers of the tool get it, with everything received by now."""
        envelope = success_envelope(self.action, self.result.summary(), self.event)
        return {**envelope, "phase": "update"}


OnStreamUpdate = Callable[[StreamUpdate], Awaitable[None]]
"""Called with each event of a stream. The peer's next event is read only after it returns, so a
slow reader slows the peer down instead of filling a queue."""


def success_envelope(action: str, summary: JsonObject, raw: Json) -> JsonObject:
    """The envelope of a request that succeeded."""
    return {"ok": True, "operation": TOOL_NAME, "action": action, "summary": summary, "raw": raw}


def failure_envelope(action: str, failure: RemoteFailure) -> JsonObject:
    """The envelope of a request that failed."""
    return {"ok": False, "operation": TOOL_NAME, "action": action, "error": failure.as_object()}
