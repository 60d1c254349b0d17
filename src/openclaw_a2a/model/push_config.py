"""Where and how a caller wants to be told about a task while it is not looking."""

from datetime import datetime
from urllib.parse import urlsplit

from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.message import JsonStruct

PUSH_KIND = "push"
"""The kind of delivery that brings push notifications."""


class PushConfig(JsonStruct, frozen=True):
    """A webhook of one task.

    `wire` is the protocol version that made it; what is sent is spelled in that version. Token
    and credentials are for the webhook and its owner, and nobody else ever sees them.
    """

    id: str
    task_id: TaskId
    url: str
    wire: str
    created_at: datetime
    token: str | None = None
    schemes: tuple[str, ...] = ()
    credentials: str | None = None

    @property
    def host(self) -> str:
        """The part of the address that people who run the gateway may see."""
        parts = urlsplit(self.url)
        return parts.netloc.rpartition("@")[2]

    def __repr__(self) -> str:
        return f"PushConfig(id={self.id!r}, task_id={self.task_id!r}, host={self.host!r})"
