"""Requests as the server handles them, the same for every protocol version and binding."""

from datetime import datetime

import msgspec

from openclaw_a2a.model.ids import ContextId, JsonObject, TaskId
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.protocol.versions import ProtocolVersion

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 100


class NewPushConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A push configuration as a caller sends it.

    `url_path` is where the URL stands in the parameters, for error messages. `version` is the
    protocol version of the request; notifications are sent in the same one.
    """

    url: str
    version: ProtocolVersion = msgspec.field(name="wire")  # stored by the library under this name
    url_path: str = "url"
    id: str | None = None
    task_id: TaskId | None = None
    token: str | None = None
    schemes: tuple[str, ...] = ()
    credentials: str | None = None
    tenant: str | None = None

    def __repr__(self) -> str:
        return f"NewPushConfig(id={self.id!r}, task_id={self.task_id!r})"  # the rest is secret


class SendRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A message for the agent, with the options of the send."""

    message: Message
    is_blocking: bool = True
    accepted_output_modes: tuple[str, ...] = ()
    history_length: int | None = None
    push: NewPushConfig | None = None
    metadata: JsonObject | None = None
    tenant: str | None = None


class GetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One task, with at most `history_length` messages of its history (None: all)."""

    id: TaskId
    history_length: int | None = None
    tenant: str | None = None


class ListRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the caller's tasks."""

    context_id: ContextId | None = None
    state: TaskState | None = None
    page_size: int = DEFAULT_PAGE_SIZE
    page_token: str = ""
    history_length: int | None = None
    status_since: datetime | None = None
    include_artifacts: bool = False
    tenant: str | None = None


class TaskRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One task to cancel or to subscribe to."""

    id: TaskId
    tenant: str | None = None


class PushConfigRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One push configuration of a task; without an id (0.3 only) the task's only one."""

    task_id: TaskId
    id: str | None = None
    tenant: str | None = None


class PushListRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the push configurations of a task."""

    task_id: TaskId
    page_size: int = DEFAULT_PAGE_SIZE
    page_token: str = ""
    tenant: str | None = None
