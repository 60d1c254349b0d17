"""The A2A 0.3 spelling as types, and the way between it and the model.

One set of types serves both directions. `kind` is optional when read, because the member that is
there says as much, and always set when written.
"""

from datetime import UTC, datetime
from enum import Enum
from typing import Literal, cast

import msgspec
from msgspec import UNSET, UnsetType

from openclaw_a2a.model.ids import ArtifactId, ContextId, Json, JsonObject, MessageId, TaskId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.task import (
    Artifact,
    ArtifactUpdate,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from openclaw_a2a.protocol.common_fields import (
    NOT_BASE64,
    HeaderText,
    HistoryLength,
    InlineWebAddress,
    OptionalContextId,
    OptionalId,
    OptionalMessageId,
    OptionalTaskId,
    RequiredTaskId,
    SchemeName,
    Strings,
    TaskIds,
    WebAddress,
    standard_base64,
)

ONE_CONTENT = "must have exactly one of text, file and data, as its kind says"
ONE_FILE = "must have exactly one of bytes and uri"
OBJECT_ONLY = "must be an object"


class Spelling(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Root of the 0.3 types: camelCase, unknown members ignored, absent members left out."""


class FileSpelling(Spelling, frozen=True):
    """The content of a file part, or where it is."""

    bytes: str | None = None
    uri: str | None = None
    mime_type: str | None = None
    name: str | None = None


class PartSpelling(Spelling, frozen=True):
    """A part of any kind."""

    kind: Literal["text", "file", "data"] | None = None
    text: str | None = None
    file: FileSpelling | None = None
    data: Json | UnsetType = UNSET
    metadata: JsonObject | None = None


class RoleSpelling(Enum):
    """Who speaks."""

    USER = "user"
    AGENT = "agent"


class MessageV03(Spelling, frozen=True):
    """A message."""

    message_id: MessageId
    role: RoleSpelling
    parts: tuple[PartSpelling, ...]
    kind: Literal["message"] | None = None
    context_id: ContextId | None = None
    task_id: TaskId | None = None
    metadata: JsonObject | None = None
    extensions: Strings = None
    reference_task_ids: tuple[TaskId, ...] | None = None


class StateSpelling(Enum):
    """Where a task stands."""

    SUBMITTED = "submitted"
    WORKING = "working"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    INPUT_REQUIRED = "input-required"
    REJECTED = "rejected"
    AUTH_REQUIRED = "auth-required"
    UNSPECIFIED = "unknown"


class StatusSpelling(Spelling, frozen=True):
    """A task's status."""

    state: StateSpelling
    message: MessageV03 | None = None
    timestamp: datetime | None = None


class ArtifactSpelling(Spelling, frozen=True):
    """Something a task produced."""

    artifact_id: ArtifactId
    parts: tuple[PartSpelling, ...]
    name: str | None = None
    description: str | None = None
    metadata: JsonObject | None = None
    extensions: Strings = None


class TaskSpelling(Spelling, frozen=True):
    """A task."""

    kind: Literal["task"]
    id: TaskId
    context_id: ContextId
    status: StatusSpelling
    artifacts: tuple[ArtifactSpelling, ...] | None = None
    history: tuple[MessageV03, ...] | None = None
    metadata: JsonObject | None = None


class StatusUpdateSpelling(Spelling, frozen=True, tag_field="kind", tag="status-update"):
    """A status event; `final` is required of writers and of no use to us as readers."""

    task_id: TaskId
    context_id: ContextId
    status: StatusSpelling
    final: bool | UnsetType = UNSET
    metadata: JsonObject | None = None


class ArtifactUpdateSpelling(Spelling, frozen=True, tag_field="kind", tag="artifact-update"):
    """An artifact event."""

    task_id: TaskId
    context_id: ContextId
    artifact: ArtifactSpelling
    append: bool | None = None
    last_chunk: bool | None = None
    metadata: JsonObject | None = None


EventSpelling = StatusUpdateSpelling | ArtifactUpdateSpelling

_roles = {RoleSpelling.USER: Role.USER, RoleSpelling.AGENT: Role.AGENT}
_role_spellings = {
    Role.USER: RoleSpelling.USER,
    Role.AGENT: RoleSpelling.AGENT,
    Role.UNSPECIFIED: RoleSpelling.AGENT,
}
_states = {spelling: TaskState[spelling.name] for spelling in StateSpelling}
_state_spellings = {state: spelling for spelling, state in _states.items()}


def write_part(part: Part) -> PartSpelling:
    """The part in 0.3; what 0.3 has no place for (a text's media type) is left out."""
    if part.text is not None:
        return PartSpelling("text", text=part.text, metadata=part.metadata)
    if part.is_file:
        file = FileSpelling(part.raw, part.url, part.media_type, part.filename)
        return PartSpelling("file", file=file, metadata=part.metadata)
    # 0.3 knows objects only; anything else travels inside one.
    data = {"value": part.data} if not isinstance(part.data, dict) else cast(JsonObject, part.data)
    return PartSpelling("data", data=data, metadata=part.metadata)


def write_message(message: Message) -> MessageV03:
    """The message in 0.3."""
    return MessageV03(
        message.message_id,
        _role_spellings[message.role],
        tuple([write_part(part) for part in message.parts]),
        "message",
        message.context_id,
        message.task_id,
        message.metadata,
        message.extensions or None,
        message.reference_task_ids or None,
    )


def write_status(status: TaskStatus) -> StatusSpelling:
    """The status in 0.3."""
    message = write_message(status.message) if status.message is not None else None
    return StatusSpelling(_state_spellings[status.state], message, status.timestamp)


def write_artifact(artifact: Artifact) -> ArtifactSpelling:
    """The artifact in 0.3."""
    return ArtifactSpelling(
        artifact.artifact_id,
        tuple([write_part(part) for part in artifact.parts]),
        artifact.name,
        artifact.description,
        artifact.metadata,
        artifact.extensions or None,
    )


def write_task(task: Task) -> TaskSpelling:
    """The task in 0.3."""
    return TaskSpelling(
        "task",
        task.id,
        task.context_id,
        write_status(task.status),
        tuple([write_artifact(artifact) for artifact in task.artifacts]) or None,
        tuple([write_message(message) for message in task.history]) or None,
        task.metadata,
    )


def write_event(event: StatusUpdate | ArtifactUpdate) -> EventSpelling:
    """The event in 0.3, with every boolean said."""
    if isinstance(event, StatusUpdate):
        return StatusUpdateSpelling(
            event.task_id,
            event.context_id,
            write_status(event.status),
            is_terminal(event.status.state),
            event.metadata,
        )
    return ArtifactUpdateSpelling(
        event.task_id,
        event.context_id,
        write_artifact(event.artifact),
        event.append,
        event.last_chunk,
        event.metadata,
    )


def read_part(part: PartSpelling) -> Part:
    """The part in the model.

    Raises:
        msgspec.ValidationError: it has not exactly the content that it should have.
    """
    kind = part.kind or _kind_of(part)
    if kind == "text" and part.text is not None:
        return Part(text=part.text, metadata=part.metadata)
    if kind == "file" and part.file is not None:
        return _read_file(part.file, part.metadata)
    if kind == "data" and part.data is not UNSET:
        if not isinstance(part.data, dict):
            raise msgspec.ValidationError(f"data {OBJECT_ONLY}")
        return Part(data=cast(JsonObject, part.data), metadata=part.metadata)
    raise msgspec.ValidationError(f"a part {ONE_CONTENT}")


def _kind_of(part: PartSpelling) -> str:
    has_data = part.data is not UNSET and part.data is not None
    kinds = [
        kind
        for kind, is_there in (
            ("text", part.text is not None),
            ("file", part.file is not None),
            ("data", has_data),
        )
        if is_there
    ]
    return kinds[0] if len(kinds) == 1 else ""


def _read_file(file: FileSpelling, metadata: JsonObject | None) -> Part:
    if (file.bytes is None) == (file.uri is None):
        raise msgspec.ValidationError(f"a file {ONE_FILE}")
    raw = None
    if file.bytes is not None and (raw := standard_base64(file.bytes)) is None:
        raise msgspec.ValidationError(f"the bytes of a file {NOT_BASE64}")
    return Part(
        raw=raw, url=file.uri, filename=file.name, media_type=file.mime_type, metadata=metadata
    )


def read_role(role: RoleSpelling) -> Role:
    """Who speaks, in the model."""
    return _roles[role]


def decode_message(message: MessageV03) -> Message:
    """The message in the model. Raises: msgspec.ValidationError."""
    return Message(
        message.message_id,
        _roles[message.role],
        tuple([read_part(part) for part in message.parts]),
        message.context_id,
        message.task_id,
        message.metadata,
        message.extensions or (),
        message.reference_task_ids or (),
    )


def _read_status(status: StatusSpelling) -> TaskStatus:
    message = decode_message(status.message) if status.message is not None else None
    timestamp = status.timestamp
    if timestamp is not None and timestamp.tzinfo is None:
        timestamp = timestamp.replace(tzinfo=UTC)
    return TaskStatus(_states[status.state], message, timestamp)


def _read_artifact(artifact: ArtifactSpelling) -> Artifact:
    return Artifact(
        artifact.artifact_id,
        tuple([read_part(part) for part in artifact.parts]),
        artifact.name,
        artifact.description,
        artifact.metadata,
        artifact.extensions or (),
    )


def read_task(task: TaskSpelling) -> Task:
    """The task in the model. Raises: msgspec.ValidationError."""
    return Task(
        task.id,
        task.context_id,
        _read_status(task.status),
        tuple([_read_artifact(artifact) for artifact in task.artifacts or ()]),
        tuple([decode_message(message) for message in task.history or ()]),
        task.metadata,
    )


def read_event(event: EventSpelling) -> StatusUpdate | ArtifactUpdate:
    """The event in the model. Raises: msgspec.ValidationError."""
    if isinstance(event, StatusUpdateSpelling):
        return StatusUpdate(
            event.task_id, event.context_id, _read_status(event.status), event.metadata
        )
    return ArtifactUpdate(
        event.task_id,
        event.context_id,
        _read_artifact(event.artifact),
        bool(event.append),
        bool(event.last_chunk),
        event.metadata,
    )


class Params(msgspec.Struct, frozen=True, rename="camel"):
    """Root of all params: camelCase, unknown members ignored."""


class Authentication(Params, frozen=True):
    """How a webhook wants to be authenticated to."""

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
    """A push configuration inside a send; without an address it is ignored."""

    url: InlineWebAddress = ""


class Configuration(Params, frozen=True):
    """How the answer to a send is wanted."""

    accepted_output_modes: Strings = None
    blocking: bool | None = None
    history_length: HistoryLength = None
    push_notification_config: InlinePush | None = None


class MessageParams(Params, frozen=True):
    """A message from a caller; whether its id may be missing is for the decoder to say."""

    role: RoleSpelling
    parts: tuple[PartSpelling, ...]
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


class CardParams(Params, frozen=True):
    """agent/getAuthenticatedExtendedCard."""
