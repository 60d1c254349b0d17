"""The objects of A2A 0.3 and the parameters of its methods as types.

One set of object types serves both directions. `kind` is optional in what is read, because the
member that is there says as much, and always set in what is written.
"""

from datetime import datetime
from enum import Enum
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from openclaw_a2a.model.ids import ArtifactId, ContextId, Json, JsonObject, MessageId, TaskId
from openclaw_a2a.protocol.validation import (
    HeaderText,
    HistoryLength,
    InlineWebAddress,
    OptionalContextId,
    OptionalId,
    OptionalMessageId,
    OptionalTaskId,
    Params,
    RequiredTaskId,
    SchemeName,
    Strings,
    TaskIds,
    WebAddress,
)

ONE_CONTENT = "must have exactly one of text, file and data, as its kind says"
ONE_FILE = "must have exactly one of bytes and uri"
OBJECT_ONLY = "must be an object"


class ObjectV03(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of the objects: camelCase, unknown members are ignored, absent ones left out."""


class FileV03(ObjectV03, frozen=True):
    """The content of a file part, or where it is."""

    bytes: str | None = None
    uri: str | None = None
    mime_type: str | None = None
    name: str | None = None


class PartV03(ObjectV03, frozen=True):
    """A part of any kind."""

    kind: Literal["text", "file", "data"] | None = None
    text: str | None = None
    file: FileV03 | None = None
    data: Json | UnsetType = UNSET
    metadata: JsonObject | None = None


class RoleV03(Enum):
    """The sender of a message."""

    USER = "user"
    AGENT = "agent"


class MessageV03(ObjectV03, frozen=True):
    """A message."""

    message_id: MessageId
    role: RoleV03
    parts: tuple[PartV03, ...]
    kind: Literal["message"] | None = None
    context_id: ContextId | None = None
    task_id: TaskId | None = None
    metadata: JsonObject | None = None
    extensions: Strings = None
    reference_task_ids: tuple[TaskId, ...] | None = None


class StateV03(Enum):
    """The state of a task."""

    SUBMITTED = "submitted"
    WORKING = "working"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    INPUT_REQUIRED = "input-required"
    REJECTED = "rejected"
    AUTH_REQUIRED = "auth-required"
    UNSPECIFIED = "unknown"


class StatusV03(ObjectV03, frozen=True):
    """The status of a task."""

    state: StateV03
    message: MessageV03 | None = None
    timestamp: datetime | None = None


class ArtifactV03(ObjectV03, frozen=True):
    """An artifact."""

    artifact_id: ArtifactId
    parts: tuple[PartV03, ...]
    name: str | None = None
    description: str | None = None
    metadata: JsonObject | None = None
    extensions: Strings = None


class TaskV03(ObjectV03, frozen=True):
    """A task."""

    kind: Literal["task"]
    id: TaskId
    context_id: ContextId
    status: StatusV03
    artifacts: tuple[ArtifactV03, ...] | None = None
    history: tuple[MessageV03, ...] | None = None
    metadata: JsonObject | None = None


class StatusUpdateV03(ObjectV03, frozen=True, tag_field="kind", tag="status-update"):
    """A status event; `final` is always written and never read."""

    task_id: TaskId
    context_id: ContextId
    status: StatusV03
    final: bool | UnsetType = UNSET
    metadata: JsonObject | None = None


class ArtifactUpdateV03(ObjectV03, frozen=True, tag_field="kind", tag="artifact-update"):
    """An artifact event."""

    task_id: TaskId
    context_id: ContextId
    artifact: ArtifactV03
    append: bool | None = None
    last_chunk: bool | None = None
    metadata: JsonObject | None = None


EventV03 = StatusUpdateV03 | ArtifactUpdateV03


class Authentication(Params, frozen=True):
    """The credentials that a webhook expects."""

    schemes: tuple[SchemeName, ...]
    credentials: HeaderText | None = None


class PushMembers(Params, frozen=True):
    """A push configuration without its task."""

    url: WebAddress
    id: OptionalId = None
    token: HeaderText | None = None
    authentication: Authentication | None = None


class PushParams(Params, frozen=True):
    """tasks/pushNotificationConfig/set."""

    task_id: RequiredTaskId
    push_notification_config: PushMembers


class InlinePush(PushMembers, frozen=True):
    """A push configuration inside a send; without a URL it is ignored."""

    url: InlineWebAddress = ""


class Configuration(Params, frozen=True):
    """Options of a send."""

    accepted_output_modes: Strings = None
    blocking: bool | None = None
    history_length: HistoryLength = None
    push_notification_config: InlinePush | None = None


class MessageParams(Params, frozen=True):
    """A message from a caller; the decoder decides whether its id may be missing."""

    role: RoleV03
    parts: tuple[PartV03, ...]
    message_id: OptionalMessageId = None
    kind: Literal["message"] | None = None
    context_id: OptionalContextId = None
    task_id: OptionalTaskId = None
    metadata: JsonObject | None = None
    extensions: Strings = None
    reference_task_ids: TaskIds = None


class SendParams(Params, frozen=True):
    """message/send and message/stream."""

    message: MessageParams
    configuration: Configuration | None = None
    metadata: JsonObject | None = None


class GetParams(Params, frozen=True):
    """tasks/get."""

    id: RequiredTaskId
    history_length: HistoryLength = None


class TaskParams(Params, frozen=True):
    """tasks/cancel, tasks/resubscribe and tasks/pushNotificationConfig/list."""

    id: RequiredTaskId


class PushItemParams(Params, frozen=True):
    """tasks/pushNotificationConfig/get and /delete."""

    id: RequiredTaskId
    push_notification_config_id: OptionalId = None
