"""Asks a gateway about calls, and tells people what to set when it has none."""

import re
from contextlib import AbstractContextManager

import msgspec

from openclaw_a2a.cli.call_shown import CallList, ShownCall
from openclaw_a2a.cli.feature import (
    MOST,
    Feature,
    check_prefix,
    connect_feature,
    fetch,
    list_query,
    next_step,
)
from openclaw_a2a.cli.operator import Operator, OwnGateway, complete
from openclaw_a2a.model.errors import AgentFailed, GatewayError, InvalidRequest, NotAllowed
from openclaw_a2a.model.ids import JsonObject

SEE = "See the calls there are: openclaw-a2a calls list"
_SETTING = re.compile(r"\(((?:tools|agents)\.[\w.*-]+)\)")
_RESTART = "then start the gateway again"
_TURN_ON = (
    "Set tools.agentToAgent.enabled to true and name the agents in tools.agentToAgent.allow, "
    f"{_RESTART}."
)


_CALLS = Feature(
    noun="calls between agents",
    off="calls-off",
    turn_on=_TURN_ON,
    missing="call-not-found",
    see=SEE,
)


def connect_calls(own: OwnGateway) -> AbstractContextManager[Operator]:
    """A client for the calls of a gateway; as `connect_feature`."""
    return connect_feature(own, _CALLS)


def list_calls(operator: Operator, query: dict[str, str]) -> tuple[CallList, bytes]:
    """Some calls, read and as they were sent. Raises: AgentUnavailable, AgentFailed."""
    return fetch(operator, CallList, "calls", query=query)


def show_call(operator: Operator, call_id: str) -> tuple[ShownCall, bytes]:
    """One call, read and as it was sent. Raises: AgentUnavailable, AgentFailed."""
    return fetch(operator, ShownCall, "calls", call_id)


def find_call(operator: Operator, prefix: str) -> str:
    """The id of the call that is or begins with this. Raises: InvalidRequest, AgentFailed."""
    check_prefix(prefix, _CALLS, "a call")
    listed, _ = list_calls(operator, list_query(MOST))
    ids = [one.correlation_id for one in listed.calls]
    return complete(prefix, ids, noun="call", see=SEE)


def use_tool(operator: Operator, name: str, arguments: JsonObject) -> JsonObject:
    """What a tool answers. Raises: AgentUnavailable, AgentFailed."""
    try:
        return msgspec.json.decode(operator.call_tool(name, arguments), type=JsonObject)
    except msgspec.MsgspecError:
        message = f"the tool {name} answered something that is no object"
        raise AgentFailed(message, details={"code": "answer-unreadable"}) from None


def read_object(written: str | bytes, *, what: str, step: str) -> JsonObject:
    """The JSON object that somebody wrote. Raises: InvalidRequest, which says `step`."""
    try:
        return msgspec.json.decode(written, type=JsonObject)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        message = f"{what} is no JSON object: {error}"
        raise InvalidRequest(message, details=next_step("usage", step)) from None


def refusal(result: JsonObject) -> GatewayError:
    """The error for a call that was not even accepted."""
    message = str(result.get("error") or "the call was refused")
    if result.get("status") != "forbidden":
        return InvalidRequest(message, details={"code": "call-refused"})
    found = _SETTING.search(message)
    setting = found[1] if found else "tools.agentToAgent"
    step = _TURN_ON if setting.endswith("enabled") else f"Change {setting}, {_RESTART}."
    return NotAllowed(message, details=next_step("forbidden", step))
