"""What a peer has told so far about one request, and how that reads in a summary.

Everything here is in the discriminated JSON form: `kind` says what an object is, states are
lower-case words.
"""

import copy
from itertools import chain

from openclaw_a2a.model.ids import JsonObject

PAUSED = frozenset({"input-required", "auth-required"})
TERMINAL = frozenset({"completed", "failed", "canceled", "rejected"})
_STATUS_FIRST = PAUSED | {"failed", "rejected", "canceled"}
_BLANK_LINE = "\n\n"
_TAKEN_OVER = ("name", "description", "metadata", "extensions")


class Progress:
    """The events of one request, folded into what is known now."""

    def __init__(self) -> None:
        self.events: list[JsonObject] = []
        self.task_id: str | None = None
        self.context_id: str | None = None
        self.state: str | None = None
        self._is_task = False
        self._messages = 0
        self._last_message: JsonObject | None = None
        self._artifacts: list[JsonObject] = []
        self._places: dict[str, int] = {}
        """Where the newest artifact of a name is; peers may give several the same, or none."""
        self._status_message: JsonObject | None = None
        self._history: list[JsonObject] = []

    def take(self, event: JsonObject) -> None:
        """One more thing the peer told."""
        self.events.append(event)
        takes = {
            "task": self._take_task,
            "message": self._take_message,
            "status-update": self._take_status,
            "artifact-update": self._take_artifact,
        }
        take = takes.get(event.get("kind", ""))
        if take is not None:
            take(event)

    @property
    def is_terminal(self) -> bool:
        """True when the task has ended."""
        return self.state in TERMINAL

    @property
    def response_kind(self) -> str | None:
        """`task` or `message`; None for several messages and nothing else."""
        if self._is_task:
            return "task"
        return "message" if self._messages == 1 else None

    @property
    def artifacts(self) -> list[JsonObject]:
        """Copies of the artifacts as they are now; their parts never change and are shared."""
        return [
            {**one, "parts": list(one["parts"])} if "parts" in one else dict(one)
            for one in self._artifacts
        ]

    def beginning(self, most: int) -> str | None:
        """The first characters of the text; costs the same however much there is."""
        status = text_of(self._status_message)
        if not self._is_task or not self._artifacts or (status and self.state in _STATUS_FIRST):
            text = self.message_text or ""
            return text[:most] or None
        begun = ""
        for part in chain.from_iterable(one.get("parts", ()) for one in self._artifacts):
            begun += part["text"] if part.get("kind") == "text" else ""
            if len(begun) >= most:
                break
        return begun[:most] or (self.message_text or "")[:most] or None

    @property
    def message_text(self) -> str | None:
        """The text for a reader in a hurry; None when there is none."""
        if not self._is_task:
            return text_of(self._last_message) if self._last_message else None
        body = _BLANK_LINE.join(filter(None, map(text_of, self._artifacts)))
        status = text_of(self._status_message)
        if body and status and self.state in _STATUS_FIRST:
            return f"{status}{_BLANK_LINE}{body}"
        return body or status or self._last_agent_text()

    def _last_agent_text(self) -> str | None:
        for message in reversed(self._history):
            if message.get("role") == "agent" and (text := text_of(message)):
                return text
        return text_of(self._last_message)

    # ---------------------------------------------------------------- one method per kind

    def _take_task(self, task: JsonObject) -> None:
        self._note_task(task.get("id"), task.get("contextId"))
        self._take_state(task.get("status") or {})
        self._history = list(task.get("history") or ())
        self._artifacts = copy.deepcopy(list(task.get("artifacts") or ()))
        self._places = {one["artifactId"]: place for place, one in enumerate(self._artifacts)}

    def _take_message(self, message: JsonObject) -> None:
        self._messages += 1
        if message.get("role") == "agent":
            self._last_message = message
        self.context_id = message.get("contextId") or self.context_id
        self.task_id = message.get("taskId") or self.task_id

    def _take_status(self, event: JsonObject) -> None:
        self._note_task(event.get("taskId"), event.get("contextId"))
        self._take_state(event.get("status") or {})

    def _take_artifact(self, event: JsonObject) -> None:
        self._note_task(event.get("taskId"), event.get("contextId"))
        artifact: JsonObject = copy.deepcopy(event.get("artifact", {}))
        artifact_id: str = artifact.get("artifactId", "")
        place = self._places.get(artifact_id)
        if place is None:
            self._places[artifact_id] = len(self._artifacts)
            self._artifacts.append(artifact)
        elif event.get("append") is True:
            known = self._artifacts[place]
            known.setdefault("parts", []).extend(artifact.get("parts", ()))
            known.update({key: artifact[key] for key in _TAKEN_OVER if key in artifact})
        else:
            self._artifacts[place] = artifact

    def _take_state(self, status: JsonObject) -> None:
        state = status.get("state")
        self.state = self.state if state in (None, "", "unknown") else state
        message = status.get("message")
        is_ours = message is not None and message.get("role") == "user"
        self._status_message = None if is_ours else message

    def _note_task(self, task_id: str | None, context_id: str | None) -> None:
        self._is_task = True
        self.task_id = task_id or self.task_id
        self.context_id = context_id or self.context_id


def text_of(holder: JsonObject | None) -> str:
    """The text parts of a message or an artifact.

    Pieces that a stream appended belong together; a message's parts are paragraphs.
    """
    if holder is None:
        return ""
    texts = [part["text"] for part in holder.get("parts") or () if part.get("kind") == "text"]
    separator = "" if "artifactId" in holder else _BLANK_LINE
    return separator.join(texts)


def continuation_task(task_id: str, handle: str, *, state: str | None, streams: bool) -> JsonObject:
    """The `task` member of a continuation; `streams` is false only when the card says so."""
    is_open = state not in TERMINAL
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
