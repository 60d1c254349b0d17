"""What an agent tells while it works: the vocabulary between agents and the engine.

An agent yields these in the order things happen and then simply ends. Ending without `Failed`
and without `InputRequired` means success; raising means failure.

    Started           the agent has begun (optional; the first other event implies it)
    TextDelta         more text of the current assistant message
    TextPreview       the current assistant message so far, or the next piece of it (some hosts mix
                      both): text that starts with what is known replaces it, else it is added
    PartDelta         more content of the current assistant message that is no text
    Block             a finished block of the current assistant message
    Reply             the current assistant message, whole; the next text begins another one
    MessageEnd        the current assistant message is over as streamed; the next text is another
    ToolReply         content that a tool wants shown
    ToolProgress      a tool call started, moved on or ended
    Note              a sentence on what is going on; the task stays `working`
    InputRequired     the agent waits for its caller; the run ends here, the task stays open
    Failed            the agent gives up
    Stopped           the work was stopped from elsewhere; the task ends as canceled
    Report            facts about the run (usage, model) for the task's last status
"""

from enum import Enum

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import Part, Record


class Started(Record, frozen=True):
    """The agent has begun."""


class TextDelta(Record, frozen=True):
    """More text of the current assistant message."""

    text: str


class TextPreview(Record, frozen=True):
    """The current assistant message so far, or its next piece; see the module's table."""

    text: str


class PartDelta(Record, frozen=True):
    """More content of the current assistant message."""

    part: Part


class Block(Record, frozen=True):
    """A finished block of the current assistant message."""

    text: str


class Reply(Record, frozen=True):
    """The current assistant message, whole."""

    parts: tuple[Part, ...]

    @classmethod
    def of_text(cls, text: str) -> "Reply":
        """A reply that is one text."""
        return cls((Part(text=text),))


class MessageEnd(Record, frozen=True):
    """The current assistant message is over as it was streamed."""


class ToolReply(Record, frozen=True):
    """Content that a tool wants shown."""

    parts: tuple[Part, ...]


class ToolPhase(Enum):
    """How far a tool call is."""

    START = "start"
    UPDATE = "update"
    RESULT = "result"


class ToolProgress(Record, frozen=True):
    """A tool call started, moved on or ended."""

    phase: ToolPhase
    tool_name: str
    call_id: str
    payload: Json = None
    is_error: bool = False


class Note(Record, frozen=True):
    """A sentence on what is going on."""

    text: str


class InputRequired(Record, frozen=True):
    """The agent waits for its caller. `resume` comes back with the turn that answers."""

    prompt: str
    resume: Json = None


class Failed(Record, frozen=True):
    """The agent gives up, and says why."""

    reason: str


class Stopped(Record, frozen=True):
    """The work was stopped from elsewhere; nothing more is said."""


class Report(Record, frozen=True):
    """Facts about the run for the metadata of the task's last status."""

    metadata: JsonObject


AgentEvent = (
    Started
    | TextDelta
    | TextPreview
    | PartDelta
    | Block
    | Reply
    | MessageEnd
    | ToolReply
    | ToolProgress
    | Note
    | InputRequired
    | Failed
    | Stopped
    | Report
)
