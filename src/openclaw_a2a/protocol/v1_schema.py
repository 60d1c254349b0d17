"""The parameters of A2A 1.0 methods as types, with their bounds."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from openclaw_a2a.model.ids import JsonObject, MessageId
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.protocol.requests import MAX_PAGE_SIZE
from openclaw_a2a.protocol.validation import (
    HeaderText,
    HistoryLength,
    InlineWebAddress,
    OptionalContextId,
    OptionalId,
    OptionalTaskId,
    Params,
    PossibleMessageId,
    RequiredId,
    RequiredMessageId,
    RequiredTaskId,
    SchemeName,
    Strings,
    TaskIds,
    WebAddress,
)

ENUMS = (
    ("ROLE_UNSPECIFIED", "ROLE_USER", "ROLE_AGENT"),
    (
        "TASK_STATE_UNSPECIFIED",
        "TASK_STATE_SUBMITTED",
        "TASK_STATE_WORKING",
        "TASK_STATE_COMPLETED",
        "TASK_STATE_FAILED",
        "TASK_STATE_CANCELED",
        "TASK_STATE_INPUT_REQUIRED",
        "TASK_STATE_REJECTED",
        "TASK_STATE_AUTH_REQUIRED",
    ),
)
"""The names of the enumerations, by their numbers in the proto file."""

_PageSize = Annotated[int, Meta(ge=1, le=MAX_PAGE_SIZE)] | None


class Authentication(Params, frozen=True):
    """The credentials that a webhook expects."""

    scheme: SchemeName
    credentials: HeaderText | None = None


class PushParams(Params, frozen=True):
    """A push configuration, alone or inside a send."""

    url: WebAddress
    id: OptionalId = None
    task_id: OptionalTaskId = None
    token: HeaderText | None = None
    authentication: Authentication | None = None
    tenant: str | None = None


class InlinePush(PushParams, frozen=True):
    """A push configuration inside a send; without a URL it is ignored."""

    url: InlineWebAddress = ""


class Configuration(Params, frozen=True):
    """Options of a send."""

    accepted_output_modes: Strings = None
    task_push_notification_config: InlinePush | None = None
    history_length: HistoryLength = None
    return_immediately: bool | None = None


class MessageParams(Params, frozen=True):
    """A message from a caller."""

    message_id: RequiredMessageId
    role: Literal["ROLE_USER"]
    parts: Annotated[tuple[Part, ...], Meta(min_length=1)]
    context_id: OptionalContextId = None
    task_id: OptionalTaskId = None
    metadata: JsonObject | None = None
    extensions: Strings = None
    reference_task_ids: TaskIds = None


class SendParams(Params, frozen=True):
    """SendMessage and SendStreamingMessage."""

    message: MessageParams
    configuration: Configuration | None = None
    metadata: JsonObject | None = None
    tenant: str | None = None


class UnnamedMessageParams(MessageParams, frozen=True, kw_only=True):
    """A message whose id may be missing; the gateway then makes one."""

    message_id: PossibleMessageId = MessageId("")


class UnnamedSendParams(SendParams, frozen=True, kw_only=True):
    """SendMessage and SendStreamingMessage, where the message may have no id."""

    message: UnnamedMessageParams


class GetParams(Params, frozen=True):
    """GetTask."""

    id: RequiredTaskId
    history_length: HistoryLength = None
    tenant: str | None = None


class ListParams(Params, frozen=True):
    """ListTasks."""

    context_id: OptionalContextId = None
    status: TaskState | None = None
    page_size: _PageSize = None
    page_token: str | None = None
    history_length: HistoryLength = None
    status_timestamp_after: Annotated[datetime, Meta(tz=True)] | None = None
    include_artifacts: bool | None = None
    tenant: str | None = None


class TaskParams(Params, frozen=True):
    """CancelTask and SubscribeToTask."""

    id: RequiredTaskId
    tenant: str | None = None


class PushItemParams(Params, frozen=True):
    """GetTaskPushNotificationConfig and DeleteTaskPushNotificationConfig."""

    task_id: RequiredTaskId
    id: RequiredId
    tenant: str | None = None


class PushListParams(Params, frozen=True):
    """ListTaskPushNotificationConfigs."""

    task_id: RequiredTaskId
    # ProtoJSON writes an absent number that is not marked optional as zero.
    page_size: Annotated[int, Meta(ge=0, le=MAX_PAGE_SIZE)] | None = None
    page_token: str | None = None
    tenant: str | None = None
