"""A small A2A 1.0 client over JSON-RPC: one card, calls, and streams that can be resumed."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cached_property
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from openclaw_a2a.model.card import AgentCard
from openclaw_a2a.model.errors import AgentError, AgentFailed, AgentUnavailable, ParseFailed
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.net.http_client import (
    ResponseEncoded,
    ResponseTooLarge,
    SyncHttpClient,
    describe_connect_failure,
)
from openclaw_a2a.net.sse_reader import SseReader
from openclaw_a2a.settings import is_loopback

_OK = 200
_HTTP_CODES = {401: "unauthenticated", 403: "not-allowed"}
_ABSENT = msgspec.Raw()


class _Answer(msgspec.Struct, frozen=True):
    result: msgspec.Raw = _ABSENT
    error: Json = None


class _Error(msgspec.Struct, frozen=True):
    """An error of JSON-RPC (`data`) or of HTTP+JSON (`details`)."""

    message: str = ""
    code: int | str | None = None
    data: Json = None
    details: Json = None


class _Detail(msgspec.Struct, frozen=True):
    reason: str = ""
    metadata: JsonObject = msgspec.field(default_factory=dict)


_answers = msgspec.json.Decoder(_Answer)


def read_result(status: int, body: bytes) -> bytes:
    """The result in a JSON-RPC answer. Raises: AgentFailed."""
    try:
        answer = _answers.decode(body)
    except (ValueError, RecursionError):
        raise response_error(status, body) from None
    if answer.error is not None or status != _OK:
        raise response_error(status, body)
    result = bytes(answer.result)
    if not result:
        raise _failed("the answer has neither a result nor an error", "answer-unreadable")
    return result


def response_error(status: int, body: bytes) -> AgentFailed:
    """The error in an answer, of JSON-RPC or HTTP+JSON, or the HTTP status when there is none."""
    try:
        error = msgspec.convert(_answers.decode(body).error, _Error)
    except (ValueError, RecursionError):
        error = _Error()
    message = error.message or f"the answer is HTTP {status} and no A2A answer"
    return _failed(message, _code(error) or _HTTP_CODES.get(status, f"http-{status}"))


def _code(error: _Error) -> str | None:
    """Our own code when our gateway sent it, else the reason in our spelling, else the number."""
    for details in (error.data, error.details):
        try:
            known = msgspec.convert(details, tuple[_Detail, ...])
        except msgspec.ValidationError:
            continue
        for detail in known:
            if detail.reason:
                return str(detail.metadata.get("code") or _kebab(detail.reason))
    if isinstance(error.code, str):
        return _kebab(error.code)
    return f"rpc{error.code}" if error.code and error.code < 0 else None


def _kebab(name: str) -> str:
    return name.lower().replace("_", "-")


def _failed(message: str, code: str) -> AgentFailed:
    return AgentFailed(message, details={"code": code})


# Senders that leave out what is empty leave these out too.
_MAY_BE_MISSING: JsonObject = {
    "description": "",
    "version": "",
    "supportedInterfaces": [],
    "defaultInputModes": [],
    "defaultOutputModes": [],
    "skills": [],
}
_CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
_CONNECT_S = 5.0
_ANSWER_S = 60.0
# Longer than the deadline of a run (3600 s by default): the gateway reports the timeout itself.
_RUN_S = 3700.0
_SLOW = frozenset({"SendMessage", "CancelTask"})
# After any other error the agent may have got the request.
_NEVER_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)

_START = "Start a gateway with: openclaw-a2a up    (or give another address: --url)"
_CHECK = "Check the address, and that the agent runs."
_WRONG_CARD_ADDRESS = (
    "The operator of the agent can correct that; in our settings it is publicBaseUrl."
)


class StreamFrame(msgspec.Struct, frozen=True):
    """One event of a stream as it came: its id, and its bytes."""

    id: str | None
    body: bytes


class Client:
    """Talks to one agent. `url` is its address, or the address of its card."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url.rstrip("/")
        headers = {"A2A-Version": "1.0", "User-Agent": "openclaw-a2a"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        # A proxy to other networks cannot reach this machine.
        is_outside = not is_loopback(_host(self.url))
        self._http = SyncHttpClient(headers=headers, use_proxies=is_outside, follow_redirects=True)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    @cached_property
    def card_bytes(self) -> bytes:
        """The card as it was sent. Raises: AgentUnavailable, AgentFailed."""
        is_card = urlsplit(self.url).path.endswith(".json")
        addresses = [self.url] if is_card else [f"{self.url}{path}" for path in _CARD_PATHS]
        status = 0
        for address in addresses:
            try:
                answer = self._http.get(address, timeout=_CONNECT_S * 2)
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                raise unreachable(self.url, error) from None
            status = answer.status_code
            if status == _OK:
                return answer.content
        raise AgentFailed(
            f"{self.url} has no agent card (HTTP {status} at {addresses[0]})",
            details={"code": "card-not-found", "nextStep": "Check the address after --url."},
        )

    @cached_property
    def card(self) -> AgentCard:
        """The card. Raises: AgentUnavailable, AgentFailed."""
        try:
            members = msgspec.json.decode(self.card_bytes, type=JsonObject)
            capabilities = {"streaming": False, **members.get("capabilities", {})}
            whole = {**_MAY_BE_MISSING, **members, "capabilities": capabilities}
            return msgspec.convert(whole, AgentCard)
        except (ValueError, TypeError, RecursionError) as error:
            raise _failed(
                f"the card of {self.url} is no A2A 1.0 card: {error}", "card-invalid"
            ) from None

    def address(self, binding: str) -> str:
        """The address of this binding of A2A 1.0. Raises: AgentFailed."""
        interfaces = self.card.supported_interfaces
        for interface in interfaces:
            is_version_1 = interface.protocol_version.split(".")[0] == "1"
            if interface.protocol_binding == binding and is_version_1:
                return interface.url
        known = [f"{one.protocol_binding} {one.protocol_version}" for one in interfaces]
        spoken = f"it speaks {', '.join(known)}" if known else "its card names no 1.0 address"
        message = f"{self.url} does not speak A2A 1.0 over {binding}; {spoken}"
        raise _failed(message, "binding-not-offered")

    def call(self, method: str, params: JsonObject) -> bytes:
        """The result of a call. Raises: AgentUnavailable, AgentFailed."""
        wait = _RUN_S if method in _SLOW else _ANSWER_S
        answer = self._send("POST", self.address("JSONRPC"), wait, _request(method, params))
        return read_result(answer.status_code, answer.content)

    def stream(
        self, method: str, params: JsonObject, *, last_event_id: str | None = None
    ) -> Iterator[StreamFrame]:
        """The events of a streaming call as they come.

        Raises: AgentUnavailable (the connection fails), AgentFailed (the agent rejects the call).
        """
        headers = {"Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        address = self.address("JSONRPC")
        wait = httpx2.Timeout(_ANSWER_S, connect=_CONNECT_S)
        try:
            with self._http.stream(
                "POST", address, json=_request(method, params), headers=headers, timeout=wait
            ) as answer:
                yield from read_frames(answer, address, read_result)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._broken(address, error) from None

    def delete_task(self, task_id: str) -> None:
        """Delete an ended task; an addition of this gateway, not of the protocol.

        Raises: AgentUnavailable, AgentFailed.
        """
        address = f"{self.address('HTTP+JSON').rstrip('/')}/tasks/{quote(task_id, safe='')}"
        answer = self._send("DELETE", address, _ANSWER_S)
        if answer.status_code != _OK:
            raise response_error(answer.status_code, answer.content)

    def _send(
        self, method: str, address: str, timeout_s: float, body: Json = None
    ) -> httpx2.Response:
        wait = httpx2.Timeout(timeout_s, connect=_CONNECT_S)
        try:
            return self._http.request(method, address, json=body, timeout=wait)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._broken(address, error) from None

    def _broken(self, address: str, error: httpx2.HTTPError | httpx2.InvalidURL) -> AgentError:
        """The error for a request without a usable answer."""
        if isinstance(error, ResponseEncoded | ResponseTooLarge | httpx2.TooManyRedirects):
            return _failed(str(error), "answer-unreadable")
        if isinstance(error, httpx2.InvalidURL) or not _host(address):
            message = f"the card at {self.url} names {address[:200]!r}, which is no address"
            return _failed(message, "card-invalid")
        if not isinstance(error, _NEVER_SENT):
            return connection_lost(address)
        failure = unreachable(address, error)
        if urlsplit(address).netloc != urlsplit(self.url).netloc:
            failure.message += f"; the card at {self.url} names {address} as its address"
            failure.details["nextStep"] = _WRONG_CARD_ADDRESS
        return failure


def read_frames(
    answer: httpx2.Response, address: str, read: Callable[[int, bytes], bytes]
) -> Iterator[StreamFrame]:
    """The events of an answer that is a stream, or the one event of any other.

    `read` gets a status and a body, and raises the error in it.

    Raises: AgentUnavailable, AgentFailed, httpx2.TransportError.
    """
    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        yield StreamFrame(None, read(answer.status_code, answer.read()))
        return
    reader = SseReader()
    try:
        for chunk in answer.iter_raw():
            for event in reader.feed(chunk):
                yield StreamFrame(event.id, read(_OK, event.data.encode()))
    except ParseFailed as error:
        raise _failed(error.message, "stream-unreadable") from None
    except ResponseTooLarge:  # The rest comes with the next stream, after the last event.
        raise connection_lost(address) from None


@contextmanager
def transport_errors(address: str) -> Generator[None]:
    """Raises: AgentUnavailable, in place of the errors of the HTTP library."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise unreachable(address, error) from None
    except httpx2.TransportError:
        raise connection_lost(address) from None


def unreachable(address: str, error: Exception) -> AgentUnavailable:
    """The error for an address where nothing answers."""
    return AgentUnavailable(
        f"nothing answers at {address} ({describe_connect_failure(error)})",
        details={
            "code": "gateway-unreachable",
            "nextStep": _START if is_loopback(_host(address)) else _CHECK,
        },
    )


def connection_lost(address: str) -> AgentUnavailable:
    """The error for a request that was sent and not answered."""
    message = f"the connection to {address} was lost"
    return AgentUnavailable(message, details={"code": "connection-lost"})


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _request(method: str, params: JsonObject) -> JsonObject:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
