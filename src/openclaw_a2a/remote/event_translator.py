"""Translates the events of a remote task into the events of an agent."""

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
from openclaw_a2a.remote.result import LAST_STATES, PAUSED_STATES, TERMINAL_STATES
from openclaw_a2a.remote.result_builder import text_of

_TOOL = "tool"
_TOOL_RESULT = "tool-result-"


class _SentArtifact:
    """What was passed on of an artifact so far."""

    def __init__(self) -> None:
        self.chunks: list[str] = []
        """Joined only to compare with a whole artifact: joining per chunk would be quadratic."""
        self.other_parts = 0

    @property
    def text(self) -> str:
        if len(self.chunks) > 1:
            self.chunks = ["".join(self.chunks)]
        return self.chunks[0] if self.chunks else ""


class RemoteEventTranslator:
    """Translates the events of one run. Nothing is passed on twice, even if the peer repeats it.

    Each artifact is a message of its own. What a tool of the remote agent does is a note.
    """

    def __init__(self) -> None:
        self.has_reply = False
        """True when something was passed on that answers the message."""
        self.status_text = ""
        """The text of the last status."""
        self._sent: dict[str, _SentArtifact] = {}
        self._open: str | None = None
        """The artifact whose message is still growing."""

    def translate(self, event: JsonObject) -> list[AgentEvent]:
        """The agent events for an event, message or task of the peer."""
        kind: str = event["kind"]
        if kind == "message":
            return self._reply("", event["parts"])
        if kind == "artifact-update":
            is_append = event.get("append") is True
            is_whole = not is_append and event.get("lastChunk") is True
            return self._artifact(event["artifact"], is_append=is_append, is_whole=is_whole)
        if kind == "status-update":
            return self._status(event["status"])
        events = self._status(event["status"])
        is_over = event["status"]["state"] in LAST_STATES
        for artifact in event.get("artifacts", ()):
            events += self._artifact(artifact, is_append=False, is_whole=is_over)
        return events

    def _status(self, status: JsonObject) -> list[AgentEvent]:
        message: JsonObject = status.get("message") or {}
        text = text_of(message) if message.get("role") == "agent" else ""
        is_new = bool(text.strip()) and text != self.status_text
        self.status_text = text
        is_working = status["state"] not in TERMINAL_STATES | PAUSED_STATES
        return [Note(text)] if is_new and is_working else []

    def _artifact(
        self, artifact: JsonObject, *, is_append: bool, is_whole: bool
    ) -> list[AgentEvent]:
        artifact_id: str = artifact["artifactId"]
        sent = self._sent.setdefault(artifact_id, _SentArtifact())
        parts: list[JsonObject] = artifact["parts"]
        texts = [one["text"] for one in parts if one["kind"] == "text"]
        # As chunks: an artifact that grows is compared with what was sent of it.
        text, others = "".join(texts), [one for one in parts if one["kind"] != "text"]
        metadata: JsonObject = artifact.get("metadata") or {}
        source: Json = metadata.get("source")
        if not is_append:
            if not text.startswith(sent.text) or len(others) < sent.other_parts:
                # Another text than before: it replaces what was sent.
                sent.chunks = [text] if text else []
                sent.other_parts = len(others)
                return self._tool_events(parts, source) or self._reply(artifact_id, parts)
            text, others = text[len(sent.text) :], others[sent.other_parts :]
        is_new = not sent.chunks and not sent.other_parts
        if text:
            sent.chunks.append(text)
        sent.other_parts += len(others)
        if not text and not others:
            return []
        if tool_events := self._tool_events(parts, source):
            return tool_events
        # Several texts are paragraphs, if nothing follows; a reply would end the message here.
        if is_new and (others or (len(texts) > 1 and is_whole)):
            return self._reply(artifact_id, parts)
        events = self._switch_to(artifact_id)
        self._open = artifact_id
        deltas = [TextDelta(text)] if text else []
        return [*events, *deltas, *map(PartDelta, _parts(others))]

    def _tool_events(self, parts: list[JsonObject], source: Json) -> list[AgentEvent]:
        """What belongs to a tool of the remote agent; gateways of our kind mark it."""
        if source == _TOOL:
            return [Note(text_of({"parts": parts}))]
        if isinstance(source, str) and source.startswith(_TOOL_RESULT):
            return [ToolReply(_parts(parts))]
        return []

    def _reply(self, artifact_id: str, parts: list[JsonObject]) -> list[AgentEvent]:
        """A whole message; it replaces its own beginning."""
        events = self._switch_to(artifact_id)
        self._open = None
        return [*events, Reply(_parts(parts))]

    def _switch_to(self, artifact_id: str) -> list[AgentEvent]:
        """End the message that was growing when another one begins."""
        self.has_reply = True
        return [MessageEnd()] if self._open not in (None, artifact_id) else []


def _parts(parts: list[JsonObject]) -> tuple[Part, ...]:
    built: list[Part] = []
    for part in parts:
        if part["kind"] == "text":
            built.append(Part.of_text(part["text"]))
        elif part["kind"] == "data":
            built.append(Part.of_data(part["data"]))
        else:
            file: JsonObject = part["file"]
            content, url = file.get("bytes"), file.get("uri")
            name, media_type = file.get("name"), file.get("mimeType")
            built.append(Part(raw=content, url=url, filename=name, media_type=media_type))
    return tuple(built)
