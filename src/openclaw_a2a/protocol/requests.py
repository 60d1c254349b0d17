"""What a caller asks for, the same on every wire: decoders make these, the doors serve them."""

from datetime import datetime

import msgspec

from openclaw_a2a.model.ids import ContextId, JsonObject, TaskId
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.protocol.versions import ProtocolVersion

DEFAULT_PAGE_SIZE = 50
"""How many tasks a page has when the caller does not say."""

MAX_PAGE_SIZE = 100
"""The most a page may have."""


class NewPushConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how a caller wants to be told about a task; `wire` is how it said so."""

    url: str
    wire: ProtocolVersion
    id: str | None = None
    task_id: TaskId | None = None
    token: str | None = None
    schemes: tuple[str, ...] = ()
    credentials: str | None = None
    tenant: str | None = None

    def __repr__(self) -> str:
        return f"PushWish(id={self.id!r}, task_id={self.task_id!r})"  # the rest may be secret


class SendRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A message for the agent, and how its answer is wanted."""

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
    """One task to cancel or to follow."""

    id: TaskId
    tenant: str | None = None


class PushRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One push configuration of a task; without an id (0.3 only) the task's only one."""

    task_id: TaskId
    id: str | None = None
    tenant: str | None = None


class PushListRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The push configurations of a task."""

    task_id: TaskId
    page_size: int = DEFAULT_PAGE_SIZE
    page_token: str = ""
    tenant: str | None = None


class CardRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The card for callers that are known."""

    tenant: str | None = None
