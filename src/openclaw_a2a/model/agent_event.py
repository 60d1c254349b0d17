"""The events of agents: during a run (`AgentEvent`), and outside runs (`BackgroundEvent`).

During a run an agent yields events in the order things happen. Ending without `Failed` and without
`InputRequired` means success; raising means failure. The text events build up one assistant
message at a time: `TextDelta`, `TextPreview`, `PartDelta` and `Block` add to the current one,
`Reply` and `MessageEnd` complete it, and the next text begins another one.
"""

from datetime import datetime
from enum import Enum

from openclaw_a2a.model.ids import Json, JsonObject, SessionKey, TaskId
from openclaw_a2a.model.message import JsonStruct, Part


class Started(JsonStruct, frozen=True):
    """The agent has started (optional: any other event implies it)."""


class TextDelta(JsonStruct, frozen=True):
    """More text of the current assistant message."""

    text: str


class TextPreview(JsonStruct, frozen=True):
    """The current assistant message so far, or the next piece of it; some hosts mix both.

    Text that starts with the known text replaces it; any other text is appended.
    """

    text: str


class PartDelta(JsonStruct, frozen=True):
    """More content of the current assistant message that is no text."""

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
    """A progress sentence; the task stays `working`."""

    text: str


class InputRequired(JsonStruct, frozen=True):
    """The agent needs input of its caller: the run ends and the task pauses.

    `resume` comes back with the turn that answers.
    """

    prompt: str
    resume: Json = None


class Failed(JsonStruct, frozen=True):
    """The agent failed for a reason."""

    reason: str


class Stopped(JsonStruct, frozen=True):
    """The work was stopped outside this gateway; the task ends as canceled."""


class Report(JsonStruct, frozen=True):
    """Facts about the run (usage, model) for the metadata of the task's last status."""

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
    """What a paused task waited for was decided elsewhere; the task can continue.

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
    """A command, or a held task, that waits for a decision.

    `task_id` is None when no task of ours made it; `expires_at` is None when it waits for ever.
    """

    id: str
    command: str
    asked_at: datetime
    expires_at: datetime | None
    cwd: str = ""
    session_key: SessionKey | None = None
    task_id: TaskId | None = None
    warning: str = ""
