"""The tools of a gateway that runs elsewhere, called over its own HTTP door."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import httpx2
import msgspec

from openclaw_a2a.auth.tool_tokens import ToolCaller
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable, ParseFailed
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.net.sse_reader import SseEvent, SseReader
from openclaw_a2a.tools.registry import OnUpdate, RunTool, Tool, ToolRegistry

_CONNECT_S = 5.0
_LIST_S = 30.0
_SILENCE_S = 600.0
_MOST_EVENT_BYTES = 128 * 1024 * 1024
_OK = 200
_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout)


class _Listed(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    label: str
    description: str
    input_schema: JsonObject


class _List(msgspec.Struct, frozen=True):
    tools: tuple[_Listed, ...]


class _Fault(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""


class _Refusal(msgspec.Struct, frozen=True):
    error: _Fault = _Fault()


@asynccontextmanager
async def open_gateway_tools(address: str, token: str) -> AsyncGenerator[ToolRegistry]:
    """The tools of the gateway at the address.

    A call that is cancelled is cancelled there, too; a call that cannot be made answers with a
    failure, and the next one tries again.

    Raises: AgentUnavailable (nothing answers), AgentFailed (what answers does not let us in).
    """
    # Neither a proxy nor another address may ever see the token.
    async with httpx2.AsyncClient(
        base_url=address.rstrip("/"),
        headers={"Authorization": f"Bearer {token}", "User-Agent": "openclaw-a2a"},
        timeout=httpx2.Timeout(_SILENCE_S, connect=_CONNECT_S),
        trust_env=False,
        follow_redirects=False,
    ) as client:
        yield ToolRegistry([_forwarded(one, client) for one in await _list(client, address)])


async def _list(client: httpx2.AsyncClient, address: str) -> tuple[_Listed, ...]:
    try:
        answer = await client.get("/tools", timeout=_LIST_S)
    except _NEVER_SENT as error:
        raise AgentUnavailable(
            f"nothing answers at {address} ({error})", details={"code": "gateway-unreachable"}
        ) from None
    except httpx2.TransportError as error:
        reason = f"the gateway at {address} did not tell its tools ({type(error).__name__})"
        raise AgentFailed(reason) from None
    if answer.status_code != _OK:
        fault = _fault(answer.status_code, answer.content)
        raise AgentFailed(
            f"the gateway at {address} says: {fault.message}", details={"code": fault.code}
        )
    try:
        return msgspec.json.decode(answer.content, type=_List).tools
    except msgspec.MsgspecError:
        raise AgentFailed(f"what answers at {address}/tools is no openclaw-a2a gateway") from None


def _forwarded(listed: _Listed, client: httpx2.AsyncClient) -> Tool:
    return Tool(
        listed.name, listed.label, listed.description, listed.input_schema, _run(listed, client)
    )


def _run(listed: _Listed, client: httpx2.AsyncClient) -> RunTool:
    async def run(arguments: Json, _caller: ToolCaller, tell: OnUpdate) -> JsonObject:
        try:
            return await _call(client, listed.name, arguments, tell)
        except _NEVER_SENT:
            fault = _Fault("gateway-unreachable", "the gateway does not run; start it again")
        except (httpx2.HTTPError, ParseFailed, msgspec.MsgspecError) as error:
            reason = f"the connection to the gateway was lost ({type(error).__name__})"
            fault = _Fault(
                "connection-lost", f"{reason}; ask with action=status how far the work is"
            )
        return _failed(listed.name, arguments, fault)

    return run


async def _call(
    client: httpx2.AsyncClient, name: str, arguments: Json, tell: OnUpdate
) -> JsonObject:
    headers = {"Accept": "text/event-stream"}
    path = f"/tools/{name}"
    async with client.stream("POST", path, json=arguments, headers=headers) as answer:
        if answer.status_code != _OK:
            fault = _fault(answer.status_code, await answer.aread())
            return _failed(name, arguments, fault)
        reader = SseReader(max_event_bytes=_MOST_EVENT_BYTES)
        async for chunk in answer.aiter_bytes():
            for event in reader.feed(chunk):
                if (result := _take(event, tell)) is not None:
                    return result
    raise ParseFailed("the stream ended without a result")


def _take(event: SseEvent, tell: OnUpdate) -> JsonObject | None:
    """The result, when this event is it; an update is told."""
    if event.event == "result":
        return msgspec.json.decode(event.data, type=JsonObject)
    if event.event == "update":
        tell(msgspec.json.decode(event.data, type=JsonObject))
    return None


def _fault(status: int, body: bytes) -> _Fault:
    try:
        fault = msgspec.json.decode(body, type=_Refusal).error
    except msgspec.MsgspecError:
        fault = _Fault()
    plain = _Fault(f"http-{status}", f"HTTP {status}")
    return fault if fault.code and fault.message else plain


def _failed(name: str, arguments: Json, fault: _Fault) -> JsonObject:
    members = cast("JsonObject", arguments) if isinstance(arguments, dict) else {}
    action: Json = members.get("action")
    return {
        "ok": False,
        "operation": name,
        "action": action if isinstance(action, str) else "unknown",
        "error": {"code": fault.code, "message": fault.message},
    }
