"""Which media types a send asked for and which the peer's card offers, to explain failures."""

from collections.abc import Iterable
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.remote.config import Policy
from openclaw_a2a.remote.credentials import hide
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure
from openclaw_a2a.remote.handles.handles import Progression, TaskHandles, continuation_target
from openclaw_a2a.remote.request.request_builder import output_modes
from openclaw_a2a.remote.request.target_resolution import ResolvedTarget
from openclaw_a2a.remote.result.progress import Progress, continuation_task
from openclaw_a2a.remote.transport.agent_card import PeerCard
from openclaw_a2a.remote.transport.client_pool import ClientPool

UNKNOWN = "unknown"
_TYPES = {
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


def diagnose(
    parts: list[JsonObject], output_modes: Iterable[str], card: JsonObject | None
) -> JsonObject:
    """What was asked and what is offered; `card` is the normalised card, None when unknown."""
    inputs = [_input_mode(part) for part in parts]
    requested_inputs = _clean(inputs)
    requested_outputs = _clean(output_modes)
    offered_inputs = _offered(card, "default_input_modes", "input_modes")
    offered_outputs = _offered(card, "default_output_modes", "output_modes")
    return {
        "requested_input_modes": requested_inputs,
        "advertised_input_modes": offered_inputs,
        "unsupported_input_modes": _missing(requested_inputs, offered_inputs),
        "requested_output_modes": requested_outputs,
        "advertised_output_modes": offered_outputs,
        "unsupported_output_modes": _missing(requested_outputs, offered_outputs),
        "unknown_file_attachments": [index for index, mode in enumerate(inputs) if mode == UNKNOWN],
    }


def _input_mode(part: JsonObject) -> str:
    if part["kind"] == "text":
        return "text/plain"
    if part["kind"] == "data":
        return "application/json"
    given = (part.get("mime_type") or "").strip()
    return given or _by_name(part.get("name")) or _by_name(_path(part.get("uri"))) or UNKNOWN


def _path(uri: str | None) -> str | None:
    try:
        return urlsplit(uri).path if uri else None
    except ValueError:
        return None


def _by_name(name: str | None) -> str | None:
    extension = PurePosixPath(name or "").suffix.lower().removeprefix(".")
    return _TYPES.get(extension)


def _offered(card: JsonObject | None, defaults: str, of_skills: str) -> list[str]:
    if card is None:
        return []
    modes = list(card.get(defaults) or ())
    for skill in card.get("skills") or ():
        modes += skill.get(of_skills) or ()
    return _clean(modes)


def _missing(requested: list[str], offered: list[str]) -> list[str]:
    return [mode for mode in requested if mode not in offered and mode != UNKNOWN]


def _clean(modes: Iterable[str]) -> list[str]:
    cleaned = (mode.strip().lower() for mode in modes)
    return list(dict.fromkeys(mode for mode in cleaned if mode))


_MOST_NOTED = 200
"""So much of a task's text is kept with its handle."""


class ResultBuilder:
    """The story of one request; the task it is about is known under its handle at once."""

    def __init__(self, subject: ResolvedTarget, catalog: ClientPool, handles: TaskHandles) -> None:
        self.subject = subject
        self.progress = Progress()
        self.secrets: tuple[str, ...] = ()
        self.created_task: str | None = None
        """The task that this request made and then wanted to follow."""
        self._catalog = catalog
        self._handles = handles
        self._handle_name = subject.handle.name if subject.handle else None

    def take(self, told: JsonObject) -> JsonObject:
        """One more thing the peer told; it comes back without our secrets."""
        event: JsonObject = hide(told, self.secrets)
        self.progress.take(event)
        if self.progress.task_id is not None:
            self._handle(self.progress.task_id)
        return event

    @property
    def streaming_supported(self) -> bool | None:
        """Whether the peer streams: by its card, else by what the handle remembers."""
        known = self._card.streaming_supported
        if known is None and self.subject.handle is not None:
            return self.subject.handle.heard.streaming_supported
        return known

    def summary(self) -> JsonObject:
        """The summary as it is now."""
        target, progress = self.subject.target, self.progress
        shown: JsonObject = {
            "target_alias": target.alias,
            "target_name": hide(self._card.name, self.secrets),
            "target_url": target.base_url,
            "streaming_supported": self.streaming_supported,
            "response_kind": progress.response_kind,
            "message_text": progress.message_text or None,
            "artifacts": progress.artifacts or None,
            "continuation": self._continuation(),
        }
        return {key: value for key, value in shown.items() if value is not None}

    def explained(
        self, failure: RemoteFailure, request: JsonObject, policy: Policy
    ) -> RemoteFailure:
        """The failure with everything that helps to go on."""
        more: JsonObject = {}
        progress = self.progress
        if self.created_task is not None:
            more["task_id"] = self.created_task
            more["task_handle"] = self._handle(self.created_task)
            more["suggested_action"] = "status"
            if progress.context_id:
                more["context_id"] = progress.context_id
        if progress.events and failure.code is not ErrorCode.TASK_REQUIRED:
            more["partial_event_count"] = len(progress.events)
            more["latest_event_summary"] = self.summary()
        if request["action"] == "send":
            more["capability_diagnostics"] = self._diagnostics(request, policy)
        return failure.with_details(more)

    def cannot_be_watched(self, task_id: str) -> RemoteFailure:
        """The failure for a peer that does not stream."""
        target = self.subject.target
        details: JsonObject = {
            "task_id": task_id,
            "target_url": target.base_url,
            "target_alias": target.alias,
            "streaming_supported": self.streaming_supported,
            "suggested_action": "status",
        }
        return RemoteFailure(
            ErrorCode.PEER,
            "this peer cannot be watched; use action=status instead",
            {key: value for key, value in details.items() if value is not None},
        )

    @property
    def _card(self) -> PeerCard:
        return self._catalog.record(self.subject.target).card

    def _handle(self, task_id: str) -> str:
        known = self.subject.handle.heard if self.subject.handle else Progression()
        heard = Progression(
            state=self.progress.state or known.state,
            text=self.progress.beginning(_MOST_NOTED) or known.text,
            streaming_supported=self.streaming_supported,
        )
        handle = self._handles.issue(
            self.subject.target,
            task_id,
            context_id=self.progress.context_id or self.subject.context_id,
            heard=heard,
            name=self._handle_name,
        )
        self._handle_name = handle.name
        return handle.name

    def _continuation(self) -> JsonObject | None:
        progress, subject = self.progress, self.subject
        task_id = progress.task_id or subject.task_id
        context_id = progress.context_id or subject.context_id
        if task_id is None and context_id is None:
            return None
        continuation: JsonObject = {"target": continuation_target(subject.target)}
        if task_id is not None:
            continuation["task"] = continuation_task(
                task_id,
                self._handle(task_id),
                state=progress.state,
                streams=self.streaming_supported is not False,
            )
        if context_id is not None:
            continuation["conversation"] = {"context_id": context_id, "can_send": True}
        return continuation

    def _diagnostics(self, request: JsonObject, policy: Policy) -> JsonObject:
        record = self._catalog.record(self.subject.target)
        card = record.card.summary() if record.refreshed_at else None
        return diagnose(request["parts"], output_modes(request, policy), card)
