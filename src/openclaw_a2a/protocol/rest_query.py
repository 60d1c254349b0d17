"""Decodes query parameters of the HTTP+JSON binding into the same requests as JSON-RPC."""

from collections.abc import Mapping

import msgspec

from openclaw_a2a.model.errors import Problem
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import invalid_params
from openclaw_a2a.protocol.requests import GetRequest, ListRequest, PushListRequest
from openclaw_a2a.protocol.v1 import decode_get, decode_list, decode_push_list

_MAX_DIGITS = 18

_booleans = {"true": True, "false": False}


def decode_get_query(params: Mapping[str, str], *, task_id: str) -> GetRequest:
    """The query of GET /tasks/{id}; the id comes from the path. Raises: InvalidParams."""
    members = _typed(params, integers=("historyLength",))
    members["id"] = task_id
    return decode_get(_encode(members))


def decode_list_query(params: Mapping[str, str]) -> ListRequest:
    """The query of GET /tasks. Raises: InvalidParams."""
    members = _typed(
        params,
        integers=("pageSize", "historyLength"),
        booleans=("includeArtifacts", "include_artifacts"),
    )
    for name in ("status", "statusTimestampAfter", "status_timestamp_after"):
        if not members.get(name):
            members.pop(name, None)
    return decode_list(_encode(members))


def decode_push_list_query(params: Mapping[str, str], *, task_id: str) -> PushListRequest:
    """The query of GET /tasks/{id}/pushNotificationConfigs. Raises: InvalidParams."""
    members = _typed(params, integers=("pageSize",))
    members["taskId"] = task_id
    return decode_push_list(_encode(members))


def decode_plan_query(params: Mapping[str, str]) -> JsonObject:
    """The query of a GET or DELETE of objectives and plans, as the parameters of their methods.

    Raises: InvalidParams.
    """
    given = {
        name: text
        for name, text in params.items()
        if name != "A2A-Version" and (text or name not in ("status", "pageToken"))
    }
    booleans = ("includePlans", "includeTasks", "cancel")
    members = _typed(given, integers=("pageSize",), booleans=booleans)
    _encode(members)
    return members


def _typed(
    params: Mapping[str, str], *, integers: tuple[str, ...], booleans: tuple[str, ...] = ()
) -> JsonObject:
    """The parameters as JSON members.

    Text that is no number or boolean stays text, so that the decoder reports it together with
    all other problems.
    """
    members: JsonObject = dict(params)
    for name in integers:
        if name in members:
            members[name] = _integer(params[name])
    for name in booleans:
        if name in members:
            members[name] = _booleans.get(params[name], params[name])
    return members


def _integer(text: str) -> Json:
    digits = text.removeprefix("-")
    is_integer = digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS
    return int(text) if is_integer else text


def _encode(members: JsonObject) -> bytes:
    try:
        return msgspec.json.encode(members)
    except UnicodeEncodeError:
        raise invalid_params([Problem("query", "must be UTF-8")]) from None
