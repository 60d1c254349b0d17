"""Push configurations: the webhooks of tasks."""

from datetime import datetime
from urllib.parse import urlsplit

import msgspec

from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.message import JsonStruct

PUSH_KIND = "push"
"""The kind of deliveries that are push notifications."""


class PushConfig(JsonStruct, frozen=True):
    """A webhook of one task.

    `version` is the protocol version of the request that created it; notifications are sent in
    the same one. Token and credentials are shown to the webhook and its owner only.
    """

    id: str
    task_id: TaskId
    url: str
    version: str = msgspec.field(name="wire")  # its name in stored data
    created_at: datetime
    token: str | None = None
    schemes: tuple[str, ...] = ()
    credentials: str | None = None

    @property
    def host(self) -> str:
        """The part of the URL that the operator may see."""
        parts = urlsplit(self.url)
        return parts.netloc.rpartition("@")[2]

    def __repr__(self) -> str:
        return f"PushConfig(id={self.id!r}, task_id={self.task_id!r}, host={self.host!r})"
