"""The tools of another gateway, called over its HTTP endpoints."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import httpx2
import msgspec

from openclaw_a2a.auth.tool_tokens import ToolCaller
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable, ParseFailed
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import as_object
from openclaw_a2a.net.http_client import HttpClient
from openclaw_a2a.net.sse_reader import SseReader
from openclaw_a2a.tools.registry import OnUpdate, Tool, ToolDescription, ToolList, ToolRegistry

_CONNECT_TIMEOUT_S = 5.0
_LIST_TIMEOUT_S = 30.0
_READ_TIMEOUT_S = 600.0
_MAX_BYTES = 128 * 1024 * 1024
_MAX_STREAM_BYTES = 1024 * 1024 * 1024
_OK = 200
_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout)


class _Fault(msgspec.Struct, frozen=True):
    code: str
    message: str


class _Refusal(msgspec.Struct, frozen=True):
    error: _Fault


@asynccontextmanager
async def open_gateway_tools(address: str, token: str) -> AsyncGenerator[ToolRegistry]:
    """The tools of the gateway at the address.

    A call that is cancelled is cancelled there too. A call that cannot be made has a failure as
    its result, and the next one tries again.

    Raises: AgentUnavailable (nothing answers), AgentFailed (the token is not accepted).
    """
    # The client follows no redirects and uses no proxies: only the gateway may see the token.
    async with HttpClient(
        base_url=address.rstrip("/"),
        headers={"Authorization": f"Bearer {token}", "User-Agent": "openclaw-a2a"},
        timeout=httpx2.Timeout(_READ_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S),
        max_response_bytes=_MAX_STREAM_BYTES,
    ) as client:
        yield ToolRegistry([_forwarded(one, client) for one in await _list(client, address)])


async def _list(client: HttpClient, address: str) -> tuple[ToolDescription, ...]:
    try:
        answer = await client.get("/tools", timeout=_LIST_TIMEOUT_S)
    except _NEVER_SENT as error:
        raise AgentUnavailable(
            f"nothing answers at {address} ({error})", details={"code": "gateway-unreachable"}
        ) from None
    except httpx2.TransportError as error:
        reason = f"the gateway at {address} did not list its tools ({type(error).__name__})"
        raise AgentFailed(reason) from None
    if answer.status_code != _OK:
        fault = _fault(answer.status_code, answer.content)
        raise AgentFailed(
            f"the gateway at {address} says: {fault.message}", details={"code": fault.code}
        )
    try:
        return msgspec.json.decode(answer.content, type=ToolList).tools
    except msgspec.MsgspecError:
        raise AgentFailed(f"what answers at {address}/tools is no openclaw-a2a gateway") from None


def _forwarded(listed: ToolDescription, client: HttpClient) -> Tool:
    async def run(arguments: Json, _caller: ToolCaller, report: OnUpdate) -> JsonObject:
        try:
            found = await _call(client, listed.name, arguments, report)
        except _NEVER_SENT:
            found = _Fault("gateway-unreachable", "the gateway does not run; start it again")
        except (httpx2.HTTPError, ParseFailed, msgspec.MsgspecError) as error:
            reason = f"the connection to the gateway was lost ({type(error).__name__})"
            hint = "ask with action=status how far the work is"
            found = _Fault("connection-lost", f"{reason}; {hint}")
        if not isinstance(found, _Fault):
            return found
        action: Json = as_object(arguments).get("action")
        return {
            "ok": False,
            "operation": listed.name,
            "action": action if isinstance(action, str) else "unknown",
            "error": {"code": found.code, "message": found.message},
        }

    return Tool(listed.name, listed.label, listed.description, listed.input_schema, run)


async def _call(
    client: HttpClient, name: str, arguments: Json, report: OnUpdate
) -> JsonObject | _Fault:
    """The result of the tool; its updates are reported. Raises: ParseFailed (there is none)."""
    headers = {"Accept": "text/event-stream"}
    async with client.stream("POST", f"/tools/{name}", json=arguments, headers=headers) as answer:
        if answer.status_code != _OK:
            return _fault(answer.status_code, await answer.aread())
        reader = SseReader(max_event_bytes=_MAX_BYTES)
        async for chunk in answer.aiter_bytes():
            for event in reader.feed(chunk):
                if event.event not in ("result", "update"):
                    continue
                content = msgspec.json.decode(event.data, type=JsonObject)
                if event.event == "result":
                    return content
                report(partial(JsonObject, content))
    raise ParseFailed("the stream ended without a result")


def _fault(status: int, body: bytes) -> _Fault:
    try:
        fault = msgspec.json.decode(body, type=_Refusal).error
    except msgspec.MsgspecError:
        fault = _Fault("", "")
    return fault if fault.code and fault.message else _Fault(f"http-{status}", f"HTTP {status}")
