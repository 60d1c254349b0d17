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

from datetime import datetime
from enum import Enum

from openclaw_a2a.model.ids import Json, JsonObject, SessionKey, TaskId
from openclaw_a2a.model.message import JsonStruct, Part


class Started(JsonStruct, frozen=True):
    """The agent has begun."""


class TextDelta(JsonStruct, frozen=True):
    """More text of the current assistant message."""

    text: str


class TextPreview(JsonStruct, frozen=True):
    """The current assistant message so far, or its next piece; see the module's table."""

    text: str


class PartDelta(JsonStruct, frozen=True):
    """More content of the current assistant message."""

    part: Part


class Block(JsonStruct, frozen=True):
    """A finished block of the current assistant message."""

    text: str


class Reply(JsonStruct, frozen=True):
    """The current assistant message, whole."""

    parts: tuple[Part, ...]

    @classmethod
    def of_text(cls, text: str) -> "Reply":
        """A reply that is one text."""
        return cls((Part(text=text),))


class MessageEnd(JsonStruct, frozen=True):
    """The current assistant message is over as it was streamed."""


class ToolReply(JsonStruct, frozen=True):
    """Content that a tool wants shown."""

    parts: tuple[Part, ...]


class ToolPhase(Enum):
    """How far a tool call is."""

    START = "start"
    UPDATE = "update"
    RESULT = "result"


class ToolProgress(JsonStruct, frozen=True):
    """A tool call started, moved on or ended."""

    phase: ToolPhase
    tool_name: str
    call_id: str
    payload: Json = None
    is_error: bool = False


class Note(JsonStruct, frozen=True):
    """A sentence on what is going on."""

    text: str


class InputRequired(JsonStruct, frozen=True):
    """The agent waits for its caller. `resume` comes back with the turn that answers."""

    prompt: str
    resume: Json = None


class Failed(JsonStruct, frozen=True):
    """The agent gives up, and says why."""

    reason: str


class Stopped(JsonStruct, frozen=True):
    """The work was stopped from elsewhere; nothing more is said."""


class Report(JsonStruct, frozen=True):
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


class BackgroundReply(JsonStruct, frozen=True):
    """A message that appeared in a session after its run had ended.

    `reply_id` is the same whenever the same message is told again.
    """

    session_key: SessionKey
    reply_id: str
    parts: tuple[Part, ...]


class PauseResolved(JsonStruct, frozen=True):
    """Somebody else decided what a paused task waited for.

    `reason` is one sentence for the task's history; `resume` is the token the task paused with.
    """

    task_id: TaskId
    reason: str
    resume: Json = None


BackgroundEvent = BackgroundReply | PauseResolved


class RecentTask(JsonStruct, frozen=True):
    """A task an agent worked on lately, with what it left when it paused."""

    task_id: TaskId
    session_key: SessionKey
    status_at: datetime
    is_paused: bool = False
    resume: Json = None


class Approval(JsonStruct, frozen=True):
    """A command that waits for a decision. `task_id` is None when it belongs to no task of ours."""

    id: str
    command: str
    asked_at: datetime
    expires_at: datetime
    cwd: str = ""
    session_key: SessionKey | None = None
    task_id: TaskId | None = None
    warning: str = ""
