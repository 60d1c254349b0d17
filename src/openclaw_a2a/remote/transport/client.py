"""A client of one remote agent at one interface of its card."""

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing, contextmanager
from urllib.parse import quote, urlencode
from uuid import uuid4

import httpx2
import msgspec

from openclaw_a2a.model.errors import ParseFailed
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import drop_none, is_object
from openclaw_a2a.net.sse_reader import SseReader
from openclaw_a2a.protocol.versions import ProtocolVersion
from openclaw_a2a.remote.config import Transport
from openclaw_a2a.remote.transport.agent_card import Interface, PeerCard
from openclaw_a2a.remote.transport.codec import (
    AnswerUnreadable,
    PeerOperation,
    WireFormat,
    decode_json,
    decode_peer_answer,
    encode_send,
)
from openclaw_a2a.remote.transport.http_transport import (
    Connector,
    PeerHttp,
    body_of,
    status_error,
)
from openclaw_a2a.remote.transport.peer_errors import (
    PeerError,
    read_rest_error,
    read_rpc_error,
    to_failure,
)

_VERSION_HEADER = "a2a-version"
_EXTENSIONS_HEADER = "a2a-extensions"
_METHOD_NOT_ALLOWED = 405


class RemoteClient:
    """Sends requests to a peer, and decodes its answers. Every failure is a RemoteFailure."""

    def __init__(self, card: PeerCard, interface: Interface, connector: Connector) -> None:
        """The interface must be one of a supported transport and version. Raises: RemoteFailure."""
        self.card = card
        protocol = interface.protocol or ProtocolVersion.V1
        self._has_generations = interface.has_generations
        if interface.speaks(Transport.GRPC):
            # Imported here because most installations have no grpc.
            from openclaw_a2a.remote.transport.grpc_transport import GrpcWire

            self._wire = GrpcWire(interface, protocol, connector)
        else:
            is_rest = interface.speaks(Transport.HTTP_JSON)
            binding = _RestBinding if is_rest else _JsonRpcBinding
            version = "1.1" if interface.has_generations else protocol.value
            self._wire = _HttpWire(binding(interface, protocol), version, connector)

    async def send(self, request: JsonObject, headers: Mapping[str, str]) -> JsonObject:
        """Send a message; the Message or Task that the peer answers with."""
        return await self._wire.call(PeerOperation.SEND, request, headers)

    def stream(self, request: JsonObject, headers: Mapping[str, str]) -> AsyncGenerator[JsonObject]:
        """Send a message and follow the answer."""
        return self._wire.stream(PeerOperation.STREAM, request, headers)

    def subscribe(self, task_id: str, headers: Mapping[str, str]) -> AsyncGenerator[JsonObject]:
        """Follow an existing task."""
        return self._wire.stream(PeerOperation.SUBSCRIBE, {"id": task_id}, headers)

    async def get(
        self,
        task_id: str,
        history_length: int | None,
        headers: Mapping[str, str],
        *,
        after_generation: int | None = None,
    ) -> JsonObject:
        """The task as it is now; after this generation of it, when the peer can wait for that."""
        asked: JsonObject = drop_none({"id": task_id, "historyLength": history_length})
        if after_generation is not None and self._has_generations:
            asked["currentGeneration"] = after_generation
        return await self._wire.call(PeerOperation.GET, asked, headers)

    async def cancel(self, task_id: str, headers: Mapping[str, str]) -> JsonObject:
        """Cancel a task; the task as it is after that."""
        return await self._wire.call(PeerOperation.CANCEL, {"id": task_id}, headers)

    async def close(self) -> None:
        """Close connections that no other client uses."""
        await self._wire.close()


# -------------------------------------------------------------------- HTTP


class HttpCall(msgspec.Struct, frozen=True):
    """An HTTP request for an operation. `id` is that of a JSON-RPC request."""

    method: str
    url: httpx2.URL
    body: bytes | None = None
    id: str = ""


class _HttpWire:
    """Operations over HTTP: JSON in, JSON or server-sent events out.

    Parameters are in the format of A2A 1.0; the binding says how they and the answers look.
    """

    def __init__(
        self, binding: "_JsonRpcBinding | _RestBinding", version: str, connector: Connector
    ) -> None:
        self._binding = binding
        self._is_old = version == ProtocolVersion.V03.value
        self._version = version
        self._http: PeerHttp = connector.http
        self._limit = connector.max_response_bytes

    async def call(
        self, operation: PeerOperation, params: JsonObject, headers: Mapping[str, str]
    ) -> JsonObject:
        with _as_failure():
            call = self._binding.build(operation, params)
            sent = self._headers(call, headers, "application/json")
            response, body = await self._http.request(call.method, call.url, sent, call.body)
            if not response.is_success:
                raise self._status_error(response, body)
            result = self._binding.read_result(decode_json(body), call)
            return decode_peer_answer(result, self._binding.wire)

    async def stream(
        self, operation: PeerOperation, params: JsonObject, headers: Mapping[str, str]
    ) -> AsyncGenerator[JsonObject]:
        with _as_failure():
            call = self._binding.build(operation, params)
            sent = self._headers(call, headers, "text/event-stream")
            async with aclosing(self._events(call, sent)) as answers:
                async for answer in answers:
                    result = self._binding.read_result(decode_json(answer.encode()), call)
                    yield decode_peer_answer(result, self._binding.wire)

    async def close(self) -> None:
        """The connections are shared by all clients of the target."""

    async def _events(self, call: HttpCall, headers: dict[str, str]) -> AsyncGenerator[str]:
        """The answers of a stream, as they come; a peer may also answer with one of plain JSON."""
        async with self._http.open(call.method, call.url, headers, call.body) as response:
            kind = response.headers.get("content-type", "")
            is_refused = response.status_code == _METHOD_NOT_ALLOWED and call.body is None
            if is_refused and call.method != "GET":  # peers differ in how a task is subscribed to
                events = self._events(msgspec.structs.replace(call, method="GET"), headers)
            elif response.is_success and "text/event-stream" in kind:
                events = self._read_events(response)
            else:
                body = await response.aread()
                if not response.is_success:
                    raise self._status_error(response, body)
                yield body.decode("utf-8", "replace")
                return
            async with aclosing(events):
                async for event in events:
                    yield event

    async def _read_events(self, response: httpx2.Response) -> AsyncGenerator[str]:
        reader = SseReader(max_event_bytes=self._limit)
        async for chunk in body_of(response):
            for event in reader.feed(chunk):
                if event.event == "error":
                    raise self._stream_error(event.data)
                if event.data:
                    yield event.data

    def _stream_error(self, data: str) -> PeerError:
        try:
            error = self._binding.read_error(decode_json(data.encode()), 0)
        except AnswerUnreadable:
            error = None
        return error or PeerError(
            f"the peer ended the stream with an error: {data}", name="StreamError"
        )

    def _status_error(self, response: httpx2.Response, body: bytes) -> Exception:
        """The error for a response with a status of failure."""
        status, failure = response.status_code, status_error(response, body)
        # Its body says more than its status, when it is an error of the protocol.
        try:
            error = self._binding.read_error(decode_json(body), status)
        except AnswerUnreadable:
            error = self._binding.read_error(None, status)
        if error is None:
            return failure
        error.__cause__ = failure
        return error

    def _headers(self, call: HttpCall, headers: Mapping[str, str], accept: str) -> dict[str, str]:
        sent = {"accept": accept, **headers, _VERSION_HEADER: self._version}
        if call.body is not None:
            sent["content-type"] = "application/json"
        if self._is_old and _EXTENSIONS_HEADER in sent:
            sent[f"x-{_EXTENSIONS_HEADER}"] = sent[_EXTENSIONS_HEADER]
        return sent


@contextmanager
def _as_failure() -> Generator[None]:
    """Every error of a request is a RemoteFailure."""
    try:
        yield
    except (httpx2.HTTPError, httpx2.InvalidURL, PeerError, AnswerUnreadable, ParseFailed) as error:
        raise to_failure(error) from error


_METHODS = {
    PeerOperation.SEND: ("SendMessage", "message/send"),
    PeerOperation.STREAM: ("SendStreamingMessage", "message/stream"),
    PeerOperation.SUBSCRIBE: ("SubscribeToTask", "tasks/resubscribe"),
    PeerOperation.GET: ("GetTask", "tasks/get"),
    PeerOperation.CANCEL: ("CancelTask", "tasks/cancel"),
}
"""The methods of 1.0 and of 0.3."""


class _JsonRpcBinding:
    """JSON-RPC: one address, the operation is the method."""

    def __init__(self, interface: Interface, protocol: ProtocolVersion) -> None:
        self._url = parse_url(interface.url)
        self._is_old = protocol is ProtocolVersion.V03
        self._tenant = interface.tenant
        self.wire = WireFormat.V03 if self._is_old else WireFormat.V1

    def build(self, operation: PeerOperation, params: JsonObject) -> HttpCall:
        if operation in (PeerOperation.SEND, PeerOperation.STREAM):
            params = encode_send(params, self.wire)
        if self._tenant:
            params = {**params, "tenant": self._tenant}
        request_id = uuid4().hex
        body: JsonObject = {
            "jsonrpc": "2.0",
            "id": request_id,
            "method": _METHODS[operation][self._is_old],
            "params": params,
        }
        return HttpCall("POST", self._url, msgspec.json.encode(body), request_id)

    def read_result(self, answer: Json, call: HttpCall) -> Json:
        """The result in an answer. Raises: PeerError (it is an error), AnswerUnreadable."""
        if not is_object(answer):
            raise AnswerUnreadable("the answer is not a JSON-RPC answer")
        if "error" in answer and (error := read_rpc_error(answer["error"])):
            raise error
        # Without an id it can only be the answer to this request.
        if answer.get("id") not in (None, call.id):
            raise AnswerUnreadable("the answer is the answer to another request: its id differs")
        if "result" not in answer:
            raise AnswerUnreadable("the answer has neither a result nor an error")
        return answer["result"]

    def read_error(self, answer: Json, status: int) -> PeerError | None:
        """The error in an answer with this HTTP status; 0 for an event of a stream."""
        # With an HTTP status of failure the body may come from a proxy.
        if not is_object(answer) or (status and "jsonrpc" not in answer):
            return None
        return read_rpc_error(answer.get("error"))


_PATHS = {
    PeerOperation.SEND: ("POST", "/message:send"),
    PeerOperation.STREAM: ("POST", "/message:stream"),
    PeerOperation.SUBSCRIBE: ("POST", "/tasks/{id}:subscribe"),
    PeerOperation.GET: ("GET", "/tasks/{id}"),
    PeerOperation.CANCEL: ("POST", "/tasks/{id}:cancel"),
}


class _RestBinding:
    """HTTP+JSON: the operation is a path; errors are HTTP statuses."""

    def __init__(self, interface: Interface, protocol: ProtocolVersion) -> None:
        is_old = protocol is ProtocolVersion.V03
        self._tenant = "" if is_old else interface.tenant
        prefix = "/v1" if is_old else f"/{quote(self._tenant, safe='')}" if self._tenant else ""
        self._root = f"{interface.url.removesuffix('/')}{prefix}"
        # Parsed once: it takes a tenth of the time of a send.
        self._message_urls = {
            operation: parse_url(self._root + _PATHS[operation][1])
            for operation in (PeerOperation.SEND, PeerOperation.STREAM)
        }
        self.wire = WireFormat.V03_REST if is_old else WireFormat.V1

    def build(self, operation: PeerOperation, params: JsonObject) -> HttpCall:
        method, path = _PATHS[operation]
        if (url := self._message_urls.get(operation)) is not None:
            sent = encode_send(params, self.wire)
            sent = {**sent, "tenant": self._tenant} if self._tenant else sent
            return HttpCall(method, url, msgspec.json.encode(sent))
        path = path.format(id=_path_segment(params["id"]))
        query = {key: value for key, value in params.items() if key != "id"}
        path += f"?{urlencode(query)}" if query else ""
        is_new_cancel = operation is PeerOperation.CANCEL and self.wire is WireFormat.V1
        return HttpCall(method, parse_url(self._root + path), b"{}" if is_new_cancel else None)

    def read_result(self, answer: Json, call: HttpCall) -> Json:
        del call
        return answer

    def read_error(self, answer: Json, status: int) -> PeerError | None:
        return read_rest_error(answer, status)


def parse_url(url: str) -> httpx2.URL:
    """The address. Raises: RemoteFailure."""
    try:
        return httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise to_failure(error) from error


def _path_segment(task_id: str) -> str:
    """The id as one segment of a path; dots alone would be a relative path."""
    return quote(task_id, safe="") if task_id.strip(".") else "%2E" * len(task_id)
