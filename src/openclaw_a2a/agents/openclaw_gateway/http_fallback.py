"""Runs a turn over OpenClaw's HTTP API, for gateways whose WebSocket cannot be reached.

It has the same port and token as the WebSocket and fewer features: a run ends with its connection
and cannot be rejoined, questions and approvals do not reach the peer, and answers have no files.
"""

from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import anyio
import httpx2
import msgspec

from openclaw_a2a.agents.openclaw_gateway.agent_directory import GatewayAgent, decode_models
from openclaw_a2a.agents.openclaw_gateway.attachments import build_attachments
from openclaw_a2a.agents.openclaw_gateway.handshake import (
    AUTH_REJECTED,
    GatewayAddress,
    GatewayLimits,
)
from openclaw_a2a.agents.openclaw_gateway.protocol import Wire, decode_as, decode_object
from openclaw_a2a.agents.openclaw_gateway.runs import openclaw_session_key
from openclaw_a2a.agents.prompt import build_prompt
from openclaw_a2a.model.agent_event import AgentEvent, Report, Started, TextDelta
from openclaw_a2a.model.errors import AgentError, AgentFailed, AgentUnavailable, ParseFailed
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.net.http_client import HttpClient
from openclaw_a2a.net.sse_reader import SseReader
from openclaw_a2a.settings.files import is_loopback

_SCHEMES = {"ws": "http", "wss": "https"}
_PATH: Final = "/v1/chat/completions"
_CONNECT_TIMEOUT_S: Final = 20.0
_LIST_TIMEOUT_S: Final = 15.0
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


async def list_agents_over_http(address: GatewayAddress) -> tuple[GatewayAgent, ...]:
    """The gateway's agents; HTTP has their ids only. Raises: AgentUnavailable."""
    url = http_url(address.url)
    try:
        async with open_http_client(address, timeout_s=_LIST_TIMEOUT_S) as client:
            response = await client.get("/v1/models")
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise AgentUnavailable(
            f"OpenClaw at {url} cannot be reached"
            f" ({str(error) or type(error).__name__}); start its gateway: openclaw gateway run."
        ) from None
    if response.status_code in {401, 403}:
        raise AgentUnavailable(f"OpenClaw at {url} {AUTH_REJECTED}")
    if response.status_code != 200:
        raise AgentUnavailable(
            f"OpenClaw at {url} answered {response.status_code} when asked for its agents; enable"
            " its HTTP API with gateway.http.endpoints.chatCompletions.enabled: true, and check"
            " the agent's option url."
        )
    return decode_models(decode_object(response.content))


async def run_over_http(
    address: GatewayAddress, turn: Turn, *, agent_id: str, timeout_s: float
) -> AsyncGenerator[AgentEvent]:
    """Run the turn, and emit the answer as it arrives.

    Closing the iterator closes the connection, which makes OpenClaw end the run. Raises:
    AgentUnavailable (out of reach, wrong token, no such agent), AgentFailed (the run failed,
    took too long, or was interrupted by our own restart).
    """
    # A run ends with its HTTP connection, and that ended with the process.
    if turn.attempt > 1:
        raise AgentFailed(
            "The run was interrupted by a restart and cannot be rejoined over HTTP;"
            " send the message once more, or make the WebSocket reachable."
        )
    ends_at = anyio.current_time() + timeout_s
    url, reader = http_url(address.url), SseReader(max_event_bytes=_MAX_EVENT_BYTES)
    async with open_http_client(address, timeout_s=_CONNECT_TIMEOUT_S) as client:
        request = _build_request(client, turn, agent_id)
        try:
            with _time_limit(ends_at, timeout_s):
                response = await client.send(request, stream=True)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise AgentUnavailable(
                f"The connection to OpenClaw at {url} failed"
                f" ({str(error) or type(error).__name__}); start its gateway: openclaw gateway run."
            ) from error
        try:
            if response.status_code != 200:
                raise await _status_error(response, url, agent_id)
            yield Started()
            chunks = response.aiter_bytes()
            while True:
                chunk = b""
                try:
                    with _time_limit(ends_at, timeout_s):
                        chunk = await anext(chunks, b"")
                # A broken stream looks like an early end: both are reported below, once.
                except httpx2.HTTPError:
                    pass
                if not chunk:
                    raise AgentUnavailable(
                        f"OpenClaw at {url} closed the connection before the answer was complete;"
                        " look at its log, and send the message again."
                    )
                for event in _parse(reader, chunk):
                    if event is None:
                        return
                    yield event
        finally:
            # Closing the response ends the run inside OpenClaw, so a cancellation must not skip it.
            with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
                await response.aclose()


@contextmanager
def _time_limit(ends_at: float, timeout_s: float) -> Generator[None]:
    # One scope for each wait: a scope around the whole run could not contain a `yield`.
    try:
        with anyio.fail_after(ends_at - anyio.current_time()):
            yield
    except TimeoutError:
        raise AgentFailed(
            f"OpenClaw did not finish within {timeout_s:g} seconds and was stopped;"
            " ask for less, or raise timeoutSeconds."
        ) from None


def _build_request(client: HttpClient, turn: Turn, agent_id: str) -> httpx2.Request:
    attachments = build_attachments(turn, GatewayLimits(), only_images=True)
    prompt = build_prompt(turn, attachments.notes)
    images = [
        {
            "type": "image_url",
            "image_url": {"url": f"data:{image['mimeType']};base64,{image['content']}"},
        }
        for image in attachments.attached
    ]
    content = [{"type": "text", "text": prompt}, *images] if images else prompt
    body: JsonObject = {
        "model": f"openclaw/{agent_id}",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": content}],
    }
    session_key = openclaw_session_key(turn.session_key, agent_id)
    return client.build_request(
        "POST",
        _PATH,
        content=msgspec.json.encode(body),
        headers={"Content-Type": "application/json", "x-openclaw-session-key": session_key},
        # No read timeout: a working agent may be silent for long, and the run has its deadline.
        timeout=httpx2.Timeout(None, connect=_CONNECT_TIMEOUT_S),
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
    """The agent events in the chunk; None ends the stream. Raises: AgentFailed."""
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


async def _status_error(response: httpx2.Response, url: str, agent_id: str) -> AgentError:
    status = response.status_code
    if status in {401, 403}:
        return AgentUnavailable(f"OpenClaw at {url} {AUTH_REJECTED}")
    if status in {404, 405}:
        return AgentUnavailable(
            f"OpenClaw at {url} has its HTTP API disabled; enable it with"
            " gateway.http.endpoints.chatCompletions.enabled: true."
        )
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
    said = parsed.error.message if parsed is not None and parsed.error is not None else ""
    said = " ".join((said or content.decode("utf-8", "replace")).split())
    reason = said[:_MAX_REASON] or "no reason given"
    if status == 400 and reason.lower().startswith("unknown agent"):
        return AgentUnavailable(
            f"OpenClaw at {url} has no agent {agent_id}; openclaw agents list shows them."
        )
    return AgentFailed(f"OpenClaw answered {status}: {reason}")
