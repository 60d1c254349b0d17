"""The params of A2A 0.3 methods as types: what must be there, and within which bounds."""

from typing import Literal

import msgspec

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.wire.parts import (
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
)
from openclaw_a2a.wire.v03_shapes import PartSpelling, RoleSpelling


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
