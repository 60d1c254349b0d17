"""The events of agents: during a run, and outside runs.

During a run an agent yields these in the order things happen. Ending without `Failed` and without
`InputRequired` means success; raising means failure.

    Started           the agent has started (optional; any other event implies it)
    TextDelta         more text of the current assistant message
    TextPreview       the current assistant message so far, or the next piece of it (some hosts mix
                      both): text that starts with what is known replaces it, else it is added
    PartDelta         more content of the current assistant message that is no text
    Block             a finished block of the current assistant message
    Reply             the current assistant message, whole; the next text begins another one
    MessageEnd        the current assistant message is complete as streamed
    ToolReply         content of a tool for the caller
    ToolProgress      a tool call started, progressed or ended
    Note              a progress sentence; the task stays `working`
    InputRequired     the agent needs input of its caller; the run ends, the task pauses
    Failed            the agent failed
    Stopped           the work was stopped outside this gateway; the task ends as canceled
    Report            facts about the run (usage, model) for the task's last status

Outside runs (`SupportsBackgroundEvents`):

    BackgroundReply   a message that appeared in a session after its run had ended
    PauseResolved     what a paused task waited for was decided elsewhere; the task can continue
"""

from datetime import datetime
from enum import Enum

from openclaw_a2a.model.ids import Json, JsonObject, SessionKey, TaskId
from openclaw_a2a.model.message import JsonStruct, Part


class Started(JsonStruct, frozen=True):
    """The agent has started."""


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
    """The current assistant message is complete as it was streamed."""


class ToolReply(JsonStruct, frozen=True):
    """Content of a tool for the caller."""

    parts: tuple[Part, ...]


class ToolPhase(Enum):
    """The progress of a tool call."""

    START = "start"
    UPDATE = "update"
    RESULT = "result"


class ToolProgress(JsonStruct, frozen=True):
    """A tool call started, progressed or ended."""

    phase: ToolPhase
    tool_name: str
    call_id: str
    payload: Json = None
    is_error: bool = False


class Note(JsonStruct, frozen=True):
    """A progress sentence."""

    text: str


class InputRequired(JsonStruct, frozen=True):
    """The agent needs input. `resume` comes back with the turn that answers."""

    prompt: str
    resume: Json = None


class Failed(JsonStruct, frozen=True):
    """The agent failed for a reason."""

    reason: str


class Stopped(JsonStruct, frozen=True):
    """The work was stopped outside this gateway."""


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

    `reply_id` is the same whenever the same message is sent again.
    """

    session_key: SessionKey
    reply_id: str
    parts: tuple[Part, ...]


class PauseResolved(JsonStruct, frozen=True):
    """What a paused task waited for was decided elsewhere.

    `reason` is one sentence for the task's history; `resume` is the token the task paused with.
    """

    task_id: TaskId
    reason: str
    resume: Json = None


BackgroundEvent = BackgroundReply | PauseResolved


class RecentTask(JsonStruct, frozen=True):
    """A recent task of an agent, with the token of its pause."""

    task_id: TaskId
    session_key: SessionKey
    status_at: datetime
    is_paused: bool = False
    resume: Json = None


class Approval(JsonStruct, frozen=True):
    """A command that waits for a decision. `task_id` is None when no task of ours made it."""

    id: str
    command: str
    asked_at: datetime
    expires_at: datetime
    cwd: str = ""
    session_key: SessionKey | None = None
    task_id: TaskId | None = None
    warning: str = ""
