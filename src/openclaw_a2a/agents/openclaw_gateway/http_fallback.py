"""Runs a turn over OpenClaw's HTTP API, for gateways whose WebSocket cannot be reached.

It has the same port and token as the WebSocket and fewer features: a run ends with its connection
and cannot be rejoined, questions and approvals do not reach the peer, and answers have no files.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Generator
from contextlib import asynccontextmanager
from typing import Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

import anyio
import httpx2
import msgspec

from openclaw_a2a.agents.openclaw_gateway.connect import GatewayAddress
from openclaw_a2a.agents.openclaw_gateway.protocol import Wire, decode_as
from openclaw_a2a.model.agent_event import AgentEvent, Report, Started, TextDelta
from openclaw_a2a.model.errors import AgentError, AgentFailed, AgentUnavailable, ParseFailed
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.net.http_client import HttpClient
from openclaw_a2a.net.sse_reader import SseReader
from openclaw_a2a.settings.files import is_loopback

_T = TypeVar("_T")

_SCHEMES = {"ws": "http", "wss": "https"}
_PATH: Final = "/v1/chat/completions"
_CONNECT_TIMEOUT_S: Final = 20.0
_CLOSE_TIMEOUT_S: Final = 2.0
_MAX_EVENT_BYTES: Final = 8 * 1024 * 1024
_MAX_ERROR_BYTES: Final = 64 * 1024
_MAX_REASON: Final = 2000


def http_url(url: str) -> str:
    """The HTTP address of a gateway's WebSocket address; HTTP addresses stay as they are."""
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    return urlunsplit((scheme, parts.netloc, parts.path.rstrip("/"), "", ""))


def open_http_client(address: GatewayAddress, *, timeout_s: float) -> HttpClient:
    """A client for the gateway's HTTP API; use it with `async with`.

    `timeout_s` limits each step (connecting, the next bytes), not the whole response.
    """
    url = http_url(address.url)
    headers = {"Authorization": f"Bearer {address.token}"} if address.token else {}
    # A proxy serves gateways on other machines; a request for our own loopback fails there.
    is_remote = not is_loopback(urlsplit(url).hostname or "")
    return HttpClient(base_url=url, headers=headers, timeout=timeout_s, use_proxies=is_remote)


class HttpRunRequest(JsonStruct, frozen=True):
    """A turn for the HTTP API. `images` are attachments as `build_attachments` makes them."""

    agent_id: str
    session_key: str
    message: str
    images: tuple[JsonObject, ...] = ()
    attempt: int = 1


class HttpFallback:
    """Runs turns over HTTP. A run that our own restart interrupts has failed."""

    def __init__(self, address: GatewayAddress, *, timeout_s: float) -> None:
        self.address = address
        self._timeout_s = timeout_s

    async def is_open(self) -> bool:
        """True when the gateway answers over HTTP and accepts our token."""
        try:
            async with open_http_client(self.address, timeout_s=_CONNECT_TIMEOUT_S) as client:
                return (await client.get("/v1/models")).status_code == 200
        except (httpx2.HTTPError, httpx2.InvalidURL):
            return False

    async def run(self, request: HttpRunRequest) -> AsyncGenerator[AgentEvent]:
        """Send the turn, and emit the answer as it arrives.

        Closing the iterator closes the connection, which makes OpenClaw end the run. Raises:
        AgentUnavailable (out of reach, wrong token, no such agent), AgentFailed (the run failed,
        took too long, or was interrupted by our own restart).
        """
        if request.attempt > 1:
            raise AgentFailed(
                "The run was interrupted by a restart and cannot be rejoined over HTTP;"
                " send the message once more, or make the WebSocket reachable."
            )
        deadline = _Deadline(self._timeout_s)
        reader = SseReader(max_event_bytes=_MAX_EVENT_BYTES)
        async with self._open_stream(request, deadline) as response:
            yield Started()
            chunks = response.aiter_bytes()
            while True:
                for event in _parse(reader, await self._next_chunk(chunks, deadline)):
                    if event is None:
                        return
                    yield event

    @asynccontextmanager
    async def _open_stream(
        self, request: HttpRunRequest, deadline: "_Deadline"
    ) -> AsyncGenerator[httpx2.Response]:
        """The successful response; its connection is closed at the end."""
        async with open_http_client(self.address, timeout_s=_CONNECT_TIMEOUT_S) as client:
            http_request = client.build_request("POST", _PATH, **_http_request(request))
            try:
                response = await deadline.wait(client.send(http_request, stream=True))
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                raise AgentUnavailable(
                    f"The connection to OpenClaw at {http_url(self.address.url)} failed"
                    f" ({str(error) or type(error).__name__});"
                    " start its gateway: openclaw gateway run."
                ) from error
            try:
                if response.status_code != 200:
                    raise await self._status_error(response, request.agent_id)
                yield response
            finally:
                with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
                    await response.aclose()

    async def _next_chunk(self, chunks: AsyncIterator[bytes], deadline: "_Deadline") -> bytes:
        try:
            chunk = await deadline.wait(anext(chunks, b""))
        except httpx2.HTTPError:
            chunk = b""
        if not chunk:
            raise AgentUnavailable(
                f"OpenClaw at {http_url(self.address.url)} closed the connection before the"
                " answer was complete; look at its log, and send the message again."
            )
        return chunk

    async def _status_error(self, response: httpx2.Response, agent_id: str) -> AgentError:
        status, url = response.status_code, http_url(self.address.url)
        if status in {401, 403}:
            return token_rejected(self.address)
        if status in {404, 405}:
            return AgentUnavailable(
                f"OpenClaw at {url} has its HTTP API disabled; enable it with"
                " gateway.http.endpoints.chatCompletions.enabled: true."
            )
        reason = await _error_reason(response)
        if status == 400 and reason.lower().startswith("unknown agent"):
            return AgentUnavailable(
                f"OpenClaw at {url} has no agent {agent_id}; openclaw agents list shows them."
            )
        return AgentFailed(f"OpenClaw answered {status}: {reason}")


def token_rejected(address: GatewayAddress) -> AgentUnavailable:
    """The error for a token that the gateway's HTTP API does not accept."""
    return AgentUnavailable(
        f"OpenClaw at {http_url(address.url)} does not accept the token;"
        " set the agent's option token to the gateway.auth.token of OpenClaw's configuration."
    )


class _Error(Wire, frozen=True):
    message: str = ""


class _Delta(Wire, frozen=True):
    content: str | None = None


class _Choice(Wire, frozen=True):
    delta: _Delta = _Delta()


class _Chunk(Wire, frozen=True, rename=None):
    choices: tuple[_Choice, ...] = ()
    error: _Error | None = None
    usage: Json = None


def _parse(reader: SseReader, chunk: bytes) -> Generator[AgentEvent | None]:
    """The agent events in the chunk; None is the end of the stream.

    Raises: AgentFailed when the run failed, or sent something that is not a stream.
    """
    try:
        frames = reader.feed(chunk)
    except ParseFailed as error:
        raise AgentFailed(f"OpenClaw's answer cannot be read: {error.message}") from None
    for frame in frames:
        if frame.data.strip() == "[DONE]":
            yield None
            return
        parsed = decode_as(_Chunk, frame.data.encode())
        if parsed is None:
            continue
        if parsed.error is not None:
            reason = parsed.error.message[:_MAX_REASON] or "no reason given"
            raise AgentFailed(f"OpenClaw failed: {reason}")
        text = "".join(choice.delta.content or "" for choice in parsed.choices)
        if text:
            yield TextDelta(text)
        if parsed.usage is not None:
            yield Report({"usage": parsed.usage})


class _Deadline:
    """The deadline of a whole run; each wait has the time that is left."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._ends_at = anyio.current_time() + timeout_s

    async def wait(self, result: Awaitable[_T]) -> _T:
        try:
            with anyio.fail_after(self._ends_at - anyio.current_time()):
                return await result
        except TimeoutError:
            raise AgentFailed(
                f"OpenClaw did not finish within {self._timeout_s:g} seconds and was stopped;"
                " ask for less, or raise timeoutSeconds."
            ) from None


def _http_request(request: HttpRunRequest) -> dict[str, Json]:
    images = [
        {
            "type": "image_url",
            "image_url": {"url": f"data:{image['mimeType']};base64,{image['content']}"},
        }
        for image in request.images
    ]
    text = {"type": "text", "text": request.message}
    body: JsonObject = {
        "model": f"openclaw/{request.agent_id}",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": [text, *images] if images else request.message}],
    }
    headers = {
        "Content-Type": "application/json",
        "x-openclaw-session-key": request.session_key,
    }
    # No read timeout: a working agent may be silent for long, and the run has its own deadline.
    timeout = httpx2.Timeout(None, connect=_CONNECT_TIMEOUT_S)
    return {"content": msgspec.json.encode(body), "headers": headers, "timeout": timeout}


async def _error_reason(response: httpx2.Response) -> str:
    """The message of an error response, of limited length."""
    content = b""
    try:
        with anyio.move_on_after(_CONNECT_TIMEOUT_S):
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > _MAX_ERROR_BYTES:
                    break
    except httpx2.HTTPError:
        content = b""
    parsed = decode_as(_Chunk, content)
    reason = parsed.error.message if parsed is not None and parsed.error is not None else ""
    reason = " ".join((reason or content.decode("utf-8", "replace")).split())
    return reason[:_MAX_REASON] or "no reason given"
