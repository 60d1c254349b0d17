"""A client of one remote agent, over the official client of A2A.

Requests go in as JSON in the form of 1.0; answers come out in the discriminated form.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Protocol
from urllib.parse import quote

from a2a.client.client import ClientCallContext
from a2a.client.transports.base import ClientTransport
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.client.transports.rest import RestTransport
from a2a.client.transports.tenant_decorator import TenantTransportDecorator
from a2a.compat.v0_3.jsonrpc_transport import CompatJsonRpcTransport
from a2a.compat.v0_3.rest_transport import CompatRestTransport
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict, ParseError

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.remote.config import Transport
from openclaw_a2a.remote.errors import RemoteFailure
from openclaw_a2a.remote.request.request_builder import invalid_request
from openclaw_a2a.remote.result.kind_codec import decode_peer_answer
from openclaw_a2a.remote.transport.agent_card import Generation, Interface, PeerCard
from openclaw_a2a.remote.transport.grpc_transport import GrpcConnection, grpc_metadata
from openclaw_a2a.remote.transport.http_transport import AnswerTooLarge, AnswerUnreadable, Connector
from openclaw_a2a.remote.transport.interface_selection import SUPPORTED_TRANSPORTS
from openclaw_a2a.remote.transport.peer_errors import JsonRpcFailure, to_failure

_VERSION_HEADER = "a2a-version"

_Answer = pb.SendMessageResponse | pb.StreamResponse | pb.Task | None


class _KeepsErrors:
    """Raises JSON-RPC errors with everything the peer said: the official ones drop most of it."""

    def _create_jsonrpc_error(self, error_dict: JsonObject) -> Exception:
        return JsonRpcFailure(error_dict)


class _JsonRpcTransport(_KeepsErrors, JsonRpcTransport):
    pass


class _CompatJsonRpcTransport(_KeepsErrors, CompatJsonRpcTransport):
    pass


_TRANSPORTS = {
    (Transport.JSONRPC, Generation.V1_0): _JsonRpcTransport,
    (Transport.JSONRPC, Generation.V0_3): _CompatJsonRpcTransport,
    (Transport.HTTP_JSON, Generation.V1_0): RestTransport,
    (Transport.HTTP_JSON, Generation.V0_3): CompatRestTransport,
}


class PeerConnection(Protocol):
    """The connection to one interface of a peer."""

    def use(self) -> AbstractAsyncContextManager[ClientTransport]:
        """The official transport, ready for one request."""
        ...

    async def close(self) -> None:
        """Close connections that nobody else uses."""
        ...


class _HttpConnection:
    """Uses the HTTP connections that all peers share."""

    def __init__(self, transport: ClientTransport) -> None:
        self._transport = transport

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[ClientTransport]:
        yield self._transport

    async def close(self) -> None:
        """The shared connections stay open."""


class RemoteClient:
    """A client of one remote agent at one interface of its card."""

    def __init__(self, card: PeerCard, interface: Interface, connector: Connector) -> None:
        """The interface must be one of a supported transport and version."""
        self.card = card
        self._tenant = interface.tenant
        self._max_bytes = connector.max_response_bytes
        self._generation = interface.generation or Generation.V1_0
        transport = next(one for one in SUPPORTED_TRANSPORTS if interface.speaks(one))
        self._is_rest = transport is Transport.HTTP_JSON
        self._is_grpc = transport is Transport.GRPC
        if self._is_grpc:
            self._connection: PeerConnection = GrpcConnection(
                interface.url, self._generation, connector
            )
        else:
            # Without this flag the official client would not stream, whatever the peer can do.
            shown = pb.AgentCard(capabilities=pb.AgentCapabilities(streaming=True))
            kind = _TRANSPORTS[transport, self._generation]
            self._connection = _HttpConnection(
                kind(connector.client, shown, interface.url, is_shared_httpx=True)
            )

    def send(self, request: JsonObject, headers: Mapping[str, str]) -> Awaitable[JsonObject]:
        """Send a message; the Message or Task that the peer answers with."""
        message = _build_message(request)
        return self._call(headers, lambda one, call: one.send_message(message, context=call))

    def stream(self, request: JsonObject, headers: Mapping[str, str]) -> AsyncGenerator[JsonObject]:
        """Send a message and follow the answer."""
        message = _build_message(request)
        return self._stream(
            headers, lambda one, call: one.send_message_streaming(message, context=call)
        )

    def subscribe(self, task_id: str, headers: Mapping[str, str]) -> AsyncGenerator[JsonObject]:
        """Follow an existing task."""
        request = pb.SubscribeToTaskRequest(id=self._task_id(task_id))
        return self._stream(headers, lambda one, call: one.subscribe(request, context=call))

    def get(
        self, task_id: str, history_length: int | None, headers: Mapping[str, str]
    ) -> Awaitable[JsonObject]:
        """The task as it is now."""
        try:
            # To JSON, 3.0 is a whole number too.
            length = None if history_length is None else int(history_length)
            request = pb.GetTaskRequest(id=self._task_id(task_id), history_length=length)
        except ValueError as error:
            raise invalid_request(str(error)) from error
        return self._call(headers, lambda one, call: one.get_task(request, context=call))

    def cancel(self, task_id: str, headers: Mapping[str, str]) -> Awaitable[JsonObject]:
        """Cancel a task; the task as it is after that."""
        request = pb.CancelTaskRequest(id=self._task_id(task_id))
        return self._call(headers, lambda one, call: one.cancel_task(request, context=call))

    async def close(self) -> None:
        """Close connections that nobody else uses."""
        await self._connection.close()

    async def _call(
        self,
        headers: Mapping[str, str],
        request: Callable[[ClientTransport, ClientCallContext], Awaitable[_Answer]],
    ) -> JsonObject:
        async with _as_remote_failures(), self._transport() as transport:
            return _decode(await request(transport, self._call_context(headers)))

    async def _stream(
        self,
        headers: Mapping[str, str],
        request: Callable[[ClientTransport, ClientCallContext], AsyncGenerator[pb.StreamResponse]],
    ) -> AsyncGenerator[JsonObject]:
        left = self._max_bytes
        async with (
            _as_remote_failures(),
            self._transport() as transport,
            aclosing(request(transport, self._call_context(headers))) as events,
        ):
            async for event in events:
                # The HTTP client bounds the whole answer; gRPC only each event of it.
                left -= event.ByteSize() if self._is_grpc and event else 0
                if left < 0:
                    raise AnswerTooLarge(f"the answer is larger than {self._max_bytes} bytes")
                yield _decode(event)

    @asynccontextmanager
    async def _transport(self) -> AsyncGenerator[ClientTransport]:
        async with self._connection.use() as transport:
            yield TenantTransportDecorator(transport, self._tenant) if self._tenant else transport

    def _task_id(self, task_id: str) -> str:
        """The id for the official client, which puts it into REST addresses without quoting."""
        if not self._is_rest:
            return task_id
        # Dots alone would be a relative path.
        return quote(task_id, safe="") if task_id.strip(".") else "%2E" * len(task_id)

    def _call_context(self, headers: Mapping[str, str]) -> ClientCallContext:
        if self._is_grpc:  # the official client sends the version itself
            own = {name: value for name, value in headers.items() if name != _VERSION_HEADER}
            return ClientCallContext(service_parameters=grpc_metadata(own))
        version = {_VERSION_HEADER: self._generation.value}
        return ClientCallContext(service_parameters={**headers, **version})


def _decode(answer: _Answer) -> JsonObject:
    if answer is None:  # gRPC could not parse it
        raise AnswerUnreadable("the answer cannot be read")
    return decode_peer_answer(
        pb.StreamResponse(task=answer) if isinstance(answer, pb.Task) else answer
    )


def _build_message(request: JsonObject) -> pb.SendMessageRequest:
    try:
        # Values that JSON cannot hold would fail only while the request is being sent.
        json.dumps(request, allow_nan=False)
        return ParseDict(request, pb.SendMessageRequest())
    except (ParseError, ValueError, OverflowError, RecursionError) as error:
        raise invalid_request(str(error)) from error


@asynccontextmanager
async def _as_remote_failures() -> AsyncGenerator[None]:
    try:
        yield
    except RemoteFailure:
        raise
    except Exception as error:  # the official client raises many kinds; each becomes one failure
        raise to_failure(error) from error
