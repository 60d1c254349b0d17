"""OpenClaw's HTTP side: the same port as its WebSocket, opened with the same token."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

import anyio
import httpx2
import msgspec

from openclaw_a2a.agents.openclaw_gateway.connect import GatewayAddress
from openclaw_a2a.agents.openclaw_gateway.protocol import Wire, decode_as
from openclaw_a2a.model.agent_event import AgentEvent, Report, Started, TextDelta
from openclaw_a2a.model.errors import AgentError, AgentFailed, AgentUnavailable
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.ports import Recovery
from openclaw_a2a.settings.paths import is_loopback

_SCHEMES = {"ws": "http", "wss": "https"}


def http_url(url: str) -> str:
    """The address of the HTTP side for a WebSocket address; HTTP addresses stay as they are."""
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    return urlunsplit((scheme, parts.netloc, parts.path.rstrip("/"), "", ""))


def open_http_client(address: GatewayAddress, *, timeout_s: float) -> httpx2.AsyncClient:
    """A client for the gateway's HTTP side; use it with `async with`.

    `timeout_s` is for each step (connecting, the next bytes), not for the whole answer.
    """
    url = http_url(address.url)
    headers = {"Authorization": f"Bearer {address.token}"} if address.token else {}
    # A proxy is for gateways elsewhere; asking one for our own loopback only fails.
    is_elsewhere = not is_loopback(urlsplit(url).hostname or "")
    return httpx2.AsyncClient(
        base_url=url, headers=headers, timeout=timeout_s, trust_env=is_elsewhere
    )


_Result = TypeVar("_Result")

_PATH: Final = "/v1/chat/completions"
_CONNECT_S: Final = 20.0
_CLOSE_S: Final = 2.0
_MOST_EVENT_BYTES: Final = 8 * 1024 * 1024
_MOST_ERROR_BYTES: Final = 64 * 1024
_MOST_WORDS: Final = 2000


class HttpRunRequest(JsonStruct, frozen=True):
    """A turn in OpenClaw's words: whom to ask in which session, what, and with which images.

    `images` are attachments as `build_attachments` makes them.
    """

    agent_id: str
    session_key: str
    message: str
    images: tuple[JsonObject, ...] = ()
    attempt: int = 1


class HttpFallback:
    """Asks a gateway over HTTP. What is interrupted by our own end has failed."""

    recovery: Final = Recovery.FAIL

    def __init__(self, address: GatewayAddress, *, timeout_s: float) -> None:
        self.address = address
        self._timeout_s = timeout_s

    async def is_open(self) -> bool:
        """True when the gateway answers over HTTP and knows our token."""
        try:
            async with open_http_client(self.address, timeout_s=_CONNECT_S) as door:
                return (await door.get("/v1/models")).status_code == 200
        except (httpx2.HTTPError, httpx2.InvalidURL):
            return False

    async def run(self, question: HttpRunRequest) -> AsyncIterator[AgentEvent]:
        """Ask, and tell the answer as it comes.

        Closing the iterator closes the connection, and with it OpenClaw ends the run. Raises:
        AgentUnavailable (out of reach, wrong token, no such agent), AgentFailed (the run failed,
        took too long, or is one that our own restart interrupted).
        """
        if question.attempt > 1:
            raise AgentFailed(
                "The run was interrupted by a restart, and over HTTP OpenClaw cannot be asked for"
                " it again; send the message once more, or let the WebSocket be reached."
            )
        deadline = _Deadline(self._timeout_s)
        reader = _EventReader()
        async with self._answer(question, deadline) as response:
            yield Started()
            pieces = response.aiter_bytes()
            while not reader.is_done:
                for event in reader.take(await self._next_piece(pieces, deadline)):
                    yield event

    @asynccontextmanager
    async def _answer(
        self, question: HttpRunRequest, deadline: "_Deadline"
    ) -> AsyncGenerator[httpx2.Response]:
        """The accepted answer, whose connection is closed in the end."""
        async with open_http_client(self.address, timeout_s=_CONNECT_S) as door:
            request = door.build_request("POST", _PATH, **_as_request(question))
            with _failing_in_words(self.address):
                response = await deadline.wait(door.send(request, stream=True))
            try:
                if response.status_code != 200:
                    raise await self._refused(response, question.agent_id)
                yield response
            finally:
                with anyio.move_on_after(_CLOSE_S, shield=True):
                    await response.aclose()

    async def _next_piece(self, pieces: AsyncIterator[bytes], deadline: "_Deadline") -> bytes:
        with _failing_in_words(self.address):
            piece = await deadline.wait(anext(pieces, b""))
        if not piece:
            raise AgentUnavailable(
                f"OpenClaw at {http_url(self.address.url)} closed the connection before the"
                " answer was complete; look at its log, and send the message again."
            )
        return piece

    async def _refused(self, response: httpx2.Response, agent_id: str) -> AgentError:
        status, url = response.status_code, http_url(self.address.url)
        if status in {401, 403}:
            return AgentUnavailable(
                f"OpenClaw at {url} does not accept the token; set the agent's option token to the"
                " gateway.auth.token of OpenClaw's configuration."
            )
        if status in {404, 405}:
            return AgentUnavailable(
                f"OpenClaw at {url} has its HTTP side closed; open it with"
                " gateway.http.endpoints.chatCompletions.enabled: true."
            )
        said = await _words_of(response)
        if status == 400 and said.lower().startswith("unknown agent"):
            return AgentUnavailable(
                f"OpenClaw at {url} has no agent {agent_id}; openclaw agents list shows them."
            )
        return AgentFailed(f"OpenClaw answered {status}: {said}")


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


class _EventReader:
    """Server-sent events as they arrive in pieces."""

    def __init__(self) -> None:
        self.is_done = False
        self._rest = b""

    def take(self, piece: bytes) -> Iterator[AgentEvent]:
        """What the piece completes. Raises: AgentFailed when the run failed."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > _MOST_EVENT_BYTES:
            raise AgentFailed(
                f"OpenClaw sent an event of more than {_MOST_EVENT_BYTES} bytes; ask for less."
            )
        for line in lines:
            if not self.is_done and line.startswith(b"data:"):
                yield from self._read(line[5:].strip())

    def _read(self, payload: bytes) -> Iterator[AgentEvent]:
        if payload == b"[DONE]":
            self.is_done = True
            return
        chunk = decode_as(_Chunk, payload)
        if chunk is None:
            return
        if chunk.error is not None:
            said = chunk.error.message[:_MOST_WORDS] or "no reason given"
            raise AgentFailed(f"OpenClaw failed: {said}")
        text = "".join(choice.delta.content or "" for choice in chunk.choices)
        if text:
            yield TextDelta(text)
        if chunk.usage is not None:
            yield Report({"usage": chunk.usage})


class _Deadline:
    """The end of a whole run; each wait in it has what is left."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._ends_at = anyio.current_time() + timeout_s

    async def wait(self, result: Awaitable[_Result]) -> _Result:
        try:
            with anyio.fail_after(self._ends_at - anyio.current_time()):
                return await result
        except TimeoutError:
            raise AgentFailed(
                f"OpenClaw did not finish within {self._timeout_s:g} seconds and was stopped;"
                " ask for less, or raise timeoutSeconds."
            ) from None


@contextmanager
def _failing_in_words(address: GatewayAddress) -> Generator[None]:
    """What goes wrong on the connection, as an error that says what to do."""
    try:
        yield
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise AgentUnavailable(
            f"The connection to OpenClaw at {http_url(address.url)} failed"
            f" ({str(error) or type(error).__name__}); start its gateway: openclaw gateway run."
        ) from error


def _as_request(question: HttpRunRequest) -> dict[str, Json]:
    images = [
        {
            "type": "image_url",
            "image_url": {"url": f"data:{image['mimeType']};base64,{image['content']}"},
        }
        for image in question.images
    ]
    text = {"type": "text", "text": question.message}
    body: JsonObject = {
        "model": f"openclaw/{question.agent_id}",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": [text, *images] if images else question.message}],
    }
    headers = {
        "Content-Type": "application/json",
        "x-openclaw-session-key": question.session_key,
    }
    # The silence of a working agent is no fault: the run's own deadline bounds every wait.
    timeout = httpx2.Timeout(None, connect=_CONNECT_S)
    return {"content": msgspec.json.encode(body), "headers": headers, "timeout": timeout}


async def _words_of(response: httpx2.Response) -> str:
    """What an error response says, within bounds."""
    content = b""
    try:
        with anyio.move_on_after(_CONNECT_S):
            async for piece in response.aiter_bytes():
                content += piece
                if len(content) > _MOST_ERROR_BYTES:
                    break
    except httpx2.HTTPError:
        content = b""
    answer = decode_as(_Chunk, content)
    said = answer.error.message if answer is not None and answer.error is not None else ""
    return " ".join((said or content.decode("utf-8", "replace")).split())[:_MOST_WORDS] or (
        "no reason given"
    )
