"""A command that an agent may run only when a person says so."""

from datetime import datetime

from openclaw_a2a.model.ids import SessionKey, TaskId
from openclaw_a2a.model.message import Record


class Approval(Record, frozen=True):
    """A command that waits for a decision. `task_id` is None when it belongs to no task of ours."""

    id: str
    command: str
    asked_at: datetime
    expires_at: datetime
    cwd: str = ""
    session_key: SessionKey | None = None
    task_id: TaskId | None = None
    warning: str = ""
