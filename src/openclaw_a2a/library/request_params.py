"""What callers of the library hand over as params, in whatever shape they have them."""

from typing import cast

import msgspec

from openclaw_a2a.engine.id_generator import new_id
from openclaw_a2a.model.ids import Json, JsonObject, TaskId
from openclaw_a2a.model.message import Message
from openclaw_a2a.protocol import v03, v1
from openclaw_a2a.protocol.requests import NewPushConfig, SendRequest
from openclaw_a2a.protocol.versions import ProtocolVersion

_WEBHOOKS = ("pushNotificationConfig", "taskPushNotificationConfig")


def read_request(params: Json) -> SendRequest:
    """The request in our structs, in a dict of either protocol version, or in an SDK's object.

    Raises: InvalidParams with every problem, TypeError for what is none of these.
    """
    if isinstance(params, SendRequest):
        return params
    if isinstance(params, Message):
        return SendRequest(message=params)
    return _read_members(to_json_object(params))


def read_push(config: Json, task_id: TaskId, *, wire: ProtocolVersion) -> NewPushConfig:
    """The push configuration; `wire` is what it is spelled in where that cannot be seen.

    Raises: InvalidParams, TypeError.
    """
    if isinstance(config, NewPushConfig):
        return config
    members = to_json_object(config)
    nested = members.get("pushNotificationConfig")
    members = cast("JsonObject", nested) if isinstance(nested, dict) else members
    authentication: Json = members.get("authentication")
    if isinstance(authentication, dict):
        wire = ProtocolVersion.V03 if "schemes" in authentication else ProtocolVersion.V1
    elif hasattr(config, "model_dump"):
        wire = ProtocolVersion.V03
    if wire is ProtocolVersion.V1:
        return v1.decode_push_config(_encode(members), task_id=task_id)
    both = {"taskId": task_id, "pushNotificationConfig": members}
    return v03.decode_push_config(_encode(both))


def to_json_object(value: Json) -> JsonObject:
    """The value as a dict: a dict as it is, an object of an SDK as its JSON. Raises: TypeError."""
    if isinstance(value, dict):
        return cast("JsonObject", value)
    if hasattr(value, "model_dump"):  # the SDK of 0.3
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if hasattr(value, "DESCRIPTOR"):  # the SDK of 1.0
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(value)
    raise TypeError(
        f"params are a {type(value).__name__}; give a Message, a dict in the shape of A2A 1.0 or"
        " 0.3, or the params of an a2a-sdk"
    )


def _read_members(params: JsonObject) -> SendRequest:
    given = params.get("message")
    message: JsonObject = cast("JsonObject", given) if isinstance(given, dict) else {}
    role: Json = message.get("role")
    is_v1 = isinstance(role, str) and role.startswith("ROLE_")
    members = {**params, **_configuration(params, webhook_name=_WEBHOOKS[is_v1])}
    if not is_v1:
        return v03.decode_send(_encode(members), make_message_id=new_id)
    members["message"] = {"messageId": new_id(), **message}
    return v1.decode_send(_encode(members))


def _configuration(params: JsonObject, *, webhook_name: str) -> JsonObject:
    """The configuration with its webhook under this name, unless that is empty."""
    given = params.get("configuration")
    if not isinstance(given, dict):
        return {}
    members = dict(cast("JsonObject", given))
    webhooks: list[Json] = [members.pop(name, None) for name in _WEBHOOKS]
    webhook = next((one for one in webhooks if one is not None), None)
    if webhook is not None and not (isinstance(webhook, dict) and _is_blank(webhook)):
        members[webhook_name] = webhook
    return {"configuration": members}


def _is_blank(webhook: Json) -> bool:
    return not webhook.get("url")


def _encode(value: Json) -> bytes:
    return msgspec.json.encode(value)
