"""One remote agent over the official client: requests in, the discriminated JSON form out."""

import importlib.util
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
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
from openclaw_a2a.remote.request.request_builder import unsendable
from openclaw_a2a.remote.result.kind_codec import discriminated
from openclaw_a2a.remote.transport.agent_card import Generation, Interface, PeerCard
from openclaw_a2a.remote.transport.grpc_transport import GrpcLine, metadata
from openclaw_a2a.remote.transport.http_transport import AnswerTooLarge, AnswerUnreadable, Connector
from openclaw_a2a.remote.transport.peer_errors import RpcRefusal, as_failure

_HAS_GRPC = importlib.util.find_spec("grpc") is not None
SUPPORTED = (Transport.JSONRPC, Transport.HTTP_JSON, *((Transport.GRPC,) if _HAS_GRPC else ()))
"""The transports this build speaks."""

_VERSION_HEADER = "a2a-version"


class _SaysAll:
    """Makes errors that hold all that the peer said: the client's own drop most of it."""

    def _create_jsonrpc_error(self, error_dict: JsonObject) -> Exception:
        return RpcRefusal(error_dict)


class _JsonRpc(_SaysAll, JsonRpcTransport):
    pass


class _OldJsonRpc(_SaysAll, CompatJsonRpcTransport):
    pass


_TRANSPORTS = {
    (Transport.JSONRPC, Generation.V1_0): _JsonRpc,
    (Transport.JSONRPC, Generation.V0_3): _OldJsonRpc,
    (Transport.HTTP_JSON, Generation.V1_0): RestTransport,
    (Transport.HTTP_JSON, Generation.V0_3): CompatRestTransport,
}


class Line(Protocol):
    """The way to one address of a peer."""

    def use(self) -> AbstractAsyncContextManager[ClientTransport]:
        """The official client, ready for a request."""
        ...

    async def close(self) -> None:
        """Let go of connections that are its alone."""
        ...


class _HttpLine:
    """Requests on connections that all peers share."""

    def __init__(self, transport: ClientTransport) -> None:
        self._transport = transport

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[ClientTransport]:
        yield self._transport

    async def close(self) -> None:
        """The connections are everybody's."""


class RemoteClient:
    """A client of one remote agent, made from its card."""

    def __init__(self, card: PeerCard, interface: Interface, line: Line, *, limit: int) -> None:
        self.card = card
        self.interface = interface
        self._line = line
        self._limit = limit
        self._is_rest = interface.speaks(Transport.HTTP_JSON)
        self._is_grpc = interface.speaks(Transport.GRPC)

    @classmethod
    def of_card(cls, card: PeerCard, interface: Interface, reach: Connector) -> "RemoteClient":
        """A peer reached at one of its card's interfaces, which must be one we speak."""
        transport = next(one for one in SUPPORTED if interface.speaks(one))
        generation = interface.generation or Generation.V1_0
        if transport is Transport.GRPC:
            line: Line = GrpcLine(interface.url, generation, reach)
        else:
            kind = _TRANSPORTS[transport, generation]
            shown = pb.AgentCard(capabilities=pb.AgentCapabilities(streaming=True))
            line = _HttpLine(kind(reach.client, shown, interface.url, is_shared_httpx=True))
        return cls(card, interface, line, limit=reach.max_response_bytes)

    async def send(self, request: JsonObject, headers: Mapping[str, str]) -> JsonObject:
        """Send a message (1.0 spelling); the Message or Task that came back."""
        async with _failing_clearly():
            message = _message(request)
            async with self._transport() as transport:
                answer = await transport.send_message(message, context=self._call(headers))
            return _shown(answer)

    async def stream(
        self, request: JsonObject, headers: Mapping[str, str]
    ) -> AsyncIterator[JsonObject]:
        """Send a message (1.0 spelling) and follow what comes of it."""
        async with _failing_clearly():
            message, call = _message(request), self._call(headers)
            async with self._transport() as transport:
                events = transport.send_message_streaming(message, context=call)
                async for event in self._bounded(events):
                    yield _shown(event)

    async def subscribe(
        self, task_id: str, headers: Mapping[str, str]
    ) -> AsyncIterator[JsonObject]:
        """Follow a task that exists."""
        async with _failing_clearly():
            request = pb.SubscribeToTaskRequest(id=self._named(task_id))
            call = self._call(headers)
            async with self._transport() as transport:
                async for event in self._bounded(transport.subscribe(request, context=call)):
                    yield _shown(event)

    async def get(
        self, task_id: str, history_length: int | None, headers: Mapping[str, str]
    ) -> JsonObject:
        """The task as it is now."""
        async with _failing_clearly():
            request = _question(self._named(task_id), history_length)
            async with self._transport() as transport:
                task = await transport.get_task(request, context=self._call(headers))
            return _shown(task)

    async def cancel(self, task_id: str, headers: Mapping[str, str]) -> JsonObject:
        """Ask the peer to stop a task; the task as it is then."""
        async with _failing_clearly():
            request = pb.CancelTaskRequest(id=self._named(task_id))
            async with self._transport() as transport:
                task = await transport.cancel_task(request, context=self._call(headers))
            return _shown(task)

    async def close(self) -> None:
        """Let go of connections that are ours alone."""
        await self._line.close()

    @asynccontextmanager
    async def _transport(self) -> AsyncGenerator[ClientTransport]:
        tenant = self.interface.tenant
        async with self._line.use() as transport:
            yield TenantTransportDecorator(transport, tenant) if tenant else transport

    async def _bounded(
        self, events: AsyncGenerator[pb.StreamResponse]
    ) -> AsyncGenerator[pb.StreamResponse]:
        """The events, until they are more than we read of one answer.

        HTTP counts the bytes itself; gRPC bounds each event, but not all of them together.
        """
        left = self._limit
        async with aclosing(events):
            async for event in events:
                left -= event.ByteSize() if self._is_grpc and event else 0
                if left < 0:
                    raise AnswerTooLarge(f"the answer is larger than {self._limit} bytes")
                yield event

    def _named(self, task_id: str) -> str:
        """The id as the client takes it, which writes it into addresses as it is."""
        if not self._is_rest:
            return task_id
        # Dots alone are no name in an address but a way out of the folder.
        return quote(task_id, safe="") if task_id.strip(".") else "%2E" * len(task_id)

    def _call(self, headers: Mapping[str, str]) -> ClientCallContext:
        if self._is_grpc:  # the official client says the version itself
            own = {name: value for name, value in headers.items() if name != _VERSION_HEADER}
            return ClientCallContext(service_parameters=metadata(own))
        generation = self.interface.generation or Generation.V1_0
        return ClientCallContext(service_parameters={**headers, _VERSION_HEADER: generation.value})


def how_to_add(transports: Iterable[str]) -> str:
    """What to do about transports that are not spoken here, when something can be done."""
    is_missing = not _HAS_GRPC and Transport.GRPC.value in transports
    return "; install openclaw-a2a[grpc] to have gRPC" if is_missing else ""


def _shown(
    answer: pb.SendMessageResponse | pb.StreamResponse | pb.Task | None,
) -> JsonObject:
    """An answer in the discriminated form; gRPC has none when it could not read it."""
    if answer is None:
        raise AnswerUnreadable("the answer cannot be read")
    return discriminated(pb.StreamResponse(task=answer) if isinstance(answer, pb.Task) else answer)


def _message(request: JsonObject) -> pb.SendMessageRequest:
    try:
        json.dumps(request, allow_nan=False)  # what has no form in JSON is found too late else
        return ParseDict(request, pb.SendMessageRequest())
    except (ParseError, ValueError, OverflowError, RecursionError) as error:
        raise unsendable(str(error)) from error


def _question(task_id: str, history_length: int | None) -> pb.GetTaskRequest:
    # To JSON, 3.0 is a whole number too.
    length = None if history_length is None else int(history_length)
    try:
        return pb.GetTaskRequest(id=task_id, history_length=length)
    except ValueError as error:
        raise unsendable(str(error)) from error


@asynccontextmanager
async def _failing_clearly() -> AsyncGenerator[None]:
    try:
        yield
    except RemoteFailure:
        raise
    except Exception as error:  # the official client raises many kinds; each becomes one failure
        raise as_failure(error) from error
