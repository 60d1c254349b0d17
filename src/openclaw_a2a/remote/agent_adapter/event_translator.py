"""What a remote agent tells about its task, as the events of an agent of ours."""

from typing import cast

from openclaw_a2a.model.agent_event import (
    AgentEvent,
    MessageEnd,
    Note,
    PartDelta,
    Reply,
    TextDelta,
    ToolReply,
)
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import Part
from openclaw_a2a.remote.result.progress import PAUSED, TERMINAL, text_of

_TOOL = "tool"
_TOOL_RESULT = "tool-result-"


class _Said:
    """What was said of an artifact so far."""

    def __init__(self) -> None:
        self.text = ""
        self.others = 0


class RemoteEventTranslator:
    """The story of one run: however often it is told what the task is like, nothing is said twice.

    Each artifact is a message of its own. What a tool of the remote agent does is a note.
    """

    def __init__(self) -> None:
        self.has_spoken = False
        """True when there is something that answers."""
        self.last_words = ""
        """What the remote agent said with its last status."""
        self._said: dict[str, _Said] = {}
        self._open: str | None = None
        """The artifact whose message is still growing."""

    def take(self, event: JsonObject) -> list[AgentEvent]:
        """What is to be said because of something that the peer told."""
        kind: str = event["kind"]
        if kind == "message":
            return self._reply("", event["parts"])
        if kind == "artifact-update":
            return self._take_artifact(event["artifact"], is_more=event.get("append") is True)
        if kind == "status-update":
            return self._take_status(event["status"])
        events = self._take_status(event["status"])
        for artifact in event.get("artifacts", ()):
            events += self._take_artifact(artifact, is_more=False)
        return events

    def _take_status(self, status: JsonObject) -> list[AgentEvent]:
        message: JsonObject = status.get("message") or {}
        words = text_of(message) if message.get("role") == "agent" else ""
        is_news = bool(words.strip()) and words != self.last_words
        self.last_words = words
        is_at_work = status["state"] not in TERMINAL | PAUSED
        return [Note(words)] if is_news and is_at_work else []

    def _take_artifact(self, artifact: JsonObject, *, is_more: bool) -> list[AgentEvent]:
        artifact_id: str = artifact["artifactId"]
        known = self._said.setdefault(artifact_id, _Said())
        parts: list[JsonObject] = artifact["parts"]
        text, others = text_of(artifact), [one for one in parts if one["kind"] != "text"]
        metadata: JsonObject = artifact.get("metadata") or {}
        source: Json = metadata.get("source")
        if not is_more:
            if not text.startswith(known.text) or len(others) < known.others:
                known.text, known.others = text, len(others)
                return self._of_tool(parts, source) or self._reply(artifact_id, parts)
            text, others = text[len(known.text) :], others[known.others :]
        is_new = not known.text and not known.others
        known.text += text
        known.others += len(others)
        if not text and not others:
            return []
        if of_tool := self._of_tool(parts, source):
            return of_tool
        if is_new and others:
            return self._reply(artifact_id, parts)
        return self._grow(artifact_id, text, others)

    def _of_tool(self, parts: list[JsonObject], source: Json) -> list[AgentEvent]:
        """What belongs to a tool of the remote agent, as gateways of our kind mark it."""
        if source == _TOOL:
            return [Note(text_of({"parts": parts}))]
        if isinstance(source, str) and source.startswith(_TOOL_RESULT):
            return [ToolReply(_parts(parts))]
        return []

    def _grow(self, artifact_id: str, text: str, others: list[JsonObject]) -> list[AgentEvent]:
        events = self._turn_to(artifact_id)
        self._open = artifact_id
        if text:
            events.append(TextDelta(text))
        return [*events, *[PartDelta(part) for part in _parts(others)]]

    def _reply(self, artifact_id: str, parts: list[JsonObject]) -> list[AgentEvent]:
        """A message that is there as a whole; it takes the place of its own beginning."""
        events = self._turn_to(artifact_id)
        self._open = None
        return [*events, Reply(_parts(parts))]

    def _turn_to(self, artifact_id: str) -> list[AgentEvent]:
        """End the message that was growing, when another one comes."""
        self.has_spoken = True
        return [MessageEnd()] if self._open not in (None, artifact_id) else []


def _parts(parts: list[JsonObject]) -> tuple[Part, ...]:
    return tuple(map(_part, parts))


def _part(part: JsonObject) -> Part:
    if part["kind"] == "text":
        return Part.of_text(part["text"])
    if part["kind"] == "data":
        return Part.of_data(part["data"])
    file = cast("JsonObject", part["file"])
    return Part(
        raw=file.get("bytes"),
        url=file.get("uri"),
        filename=file.get("name"),
        media_type=file.get("mimeType"),
    )
