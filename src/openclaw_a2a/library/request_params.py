"""Reads request params in the shapes that library callers use: structs, dicts, SDK objects."""

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
    """The request; `params` are our structs, a dict of either protocol version or an SDK object.

    Raises: InvalidParams with every problem, TypeError.
    """
    if isinstance(params, SendRequest):
        return params
    if isinstance(params, Message):
        return SendRequest(message=params)
    return _read_request(_members(params))


def read_push(config: Json, task_id: TaskId, *, wire: ProtocolVersion) -> NewPushConfig:
    """The push configuration; `wire` is its protocol version where the config does not show it.

    Raises: InvalidParams, TypeError.
    """
    if isinstance(config, NewPushConfig):
        return config
    members = _members(config)
    nested = members.get("pushNotificationConfig")
    members = cast("JsonObject", nested) if isinstance(nested, dict) else members
    authentication: Json = members.get("authentication")
    if isinstance(authentication, dict):
        wire = ProtocolVersion.V03 if "schemes" in authentication else ProtocolVersion.V1
    elif hasattr(config, "model_dump"):
        wire = ProtocolVersion.V03
    if wire is ProtocolVersion.V1:
        return v1.decode_push_config(msgspec.json.encode(members), task_id=task_id)
    both = {"taskId": task_id, "pushNotificationConfig": members}
    return v03.decode_push_config(msgspec.json.encode(both))


def to_json_object(value: Json) -> JsonObject | None:
    """A dict as it is, an object of an a2a-sdk as its JSON, None for anything else."""
    if isinstance(value, dict):
        return cast("JsonObject", value)
    if hasattr(value, "model_dump"):  # a2a-sdk 0.3: pydantic
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if hasattr(value, "DESCRIPTOR"):  # a2a-sdk 1.0: protocol buffers
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(value)
    return None


def _members(params: Json) -> JsonObject:
    members = to_json_object(params)
    if members is None:
        raise TypeError(
            f"params are a {type(params).__name__}; give a Message, a dict in the shape of A2A 1.0"
            " or 0.3, or the params of an a2a-sdk"
        )
    return members


def _read_request(params: JsonObject) -> SendRequest:
    given = params.get("message")
    message: JsonObject = cast("JsonObject", given) if isinstance(given, dict) else {}
    role: Json = message.get("role")
    is_v1 = isinstance(role, str) and role.startswith("ROLE_")
    members = {**params, **_configuration(params, webhook_name=_WEBHOOKS[is_v1])}
    if not is_v1:
        return v03.decode_send(msgspec.json.encode(members), make_message_id=new_id)
    members["message"] = {"messageId": new_id(), **message}
    return v1.decode_send(msgspec.json.encode(members))


def _configuration(params: JsonObject, *, webhook_name: str) -> JsonObject:
    """The configuration with its webhook under this name, unless that is empty."""
    given = params.get("configuration")
    if not isinstance(given, dict):
        return {}
    members = dict(cast("JsonObject", given))
    webhooks: list[Json] = [members.pop(name, None) for name in _WEBHOOKS]
    webhook = next((one for one in webhooks if one is not None), None)
    if webhook is not None and not (
        isinstance(webhook, dict) and not cast("JsonObject", webhook).get("url")
    ):
        members[webhook_name] = webhook
    return {"configuration": members}
