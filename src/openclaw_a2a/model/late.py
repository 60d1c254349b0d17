"""What an agent says outside its runs: late replies, and pauses that somebody else ended.

LateReply         a message that appeared in a session when no run of ours was under way
PauseOver         what a paused task waited for is decided; the task can go on
"""

from datetime import datetime

from openclaw_a2a.model.ids import Json, SessionKey, TaskId
from openclaw_a2a.model.message import Part, Record


class LateReply(Record, frozen=True):
    """A message that appeared in a session after its run had ended.

    `reply_id` is the same whenever the same message is told again.
    """

    session_key: SessionKey
    reply_id: str
    parts: tuple[Part, ...]


class PauseOver(Record, frozen=True):
    """Somebody else decided what a paused task waited for.

    `reason` is one sentence for the task's history; `resume` is the token the task paused with.
    """

    task_id: TaskId
    reason: str
    resume: Json = None


LateEvent = LateReply | PauseOver


class RecentTask(Record, frozen=True):
    """A task an agent worked on lately, with what it left when it paused."""

    task_id: TaskId
    session_key: SessionKey
    status_at: datetime
    is_paused: bool = False
    resume: Json = None
