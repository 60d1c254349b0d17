"""One remote agent over the official client: requests in, the discriminated JSON form out."""

import importlib.util
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from urllib.parse import quote

import httpx
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
from openclaw_a2a.outbound.cards import Generation, Interface, PeerCard
from openclaw_a2a.outbound.config import Transport
from openclaw_a2a.outbound.discriminated import discriminated
from openclaw_a2a.outbound.failure import RemoteFailure
from openclaw_a2a.outbound.grpc_transport import make_transport
from openclaw_a2a.outbound.outgoing import unsendable
from openclaw_a2a.outbound.peer_errors import RpcRefusal, as_failure

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


class Peer:
    """A client of one remote agent, made from its card."""

    def __init__(self, card: PeerCard, interface: Interface, transport: ClientTransport) -> None:
        self.card = card
        self.interface = interface
        is_shared = bool(interface.tenant)
        self._transport = (
            TenantTransportDecorator(transport, interface.tenant) if is_shared else transport
        )
        self._is_rest = interface.speaks(Transport.HTTP_JSON)

    @classmethod
    def of_card(cls, card: PeerCard, interface: Interface, client: httpx.AsyncClient) -> "Peer":
        """A peer reached at one of its card's interfaces, which must be one we speak."""
        transport = next(one for one in SUPPORTED if interface.speaks(one))
        shown = pb.AgentCard(capabilities=pb.AgentCapabilities(streaming=True))
        generation = interface.generation or Generation.V1_0
        if transport is Transport.GRPC:
            return cls(card, interface, make_transport(interface.url, shown, generation))
        kind = _TRANSPORTS[transport, generation]
        return cls(card, interface, kind(client, shown, interface.url, is_shared_httpx=True))

    async def send(self, request: JsonObject, headers: Mapping[str, str]) -> JsonObject:
        """Send a message (1.0 spelling); the Message or Task that came back."""
        async with _failing_clearly():
            message = _message(request)
            answer = await self._transport.send_message(message, context=self._call(headers))
            return discriminated(answer)

    async def stream(
        self, request: JsonObject, headers: Mapping[str, str]
    ) -> AsyncIterator[JsonObject]:
        """Send a message (1.0 spelling) and follow what comes of it."""
        async with _failing_clearly():
            message = _message(request)
            events = self._transport.send_message_streaming(message, context=self._call(headers))
            async with aclosing(events):
                async for event in events:
                    yield discriminated(event)

    async def subscribe(
        self, task_id: str, headers: Mapping[str, str]
    ) -> AsyncIterator[JsonObject]:
        """Follow a task that exists."""
        async with _failing_clearly():
            request = pb.SubscribeToTaskRequest(id=self._named(task_id))
            events = self._transport.subscribe(request, context=self._call(headers))
            async with aclosing(events):
                async for event in events:
                    yield discriminated(event)

    async def get(
        self, task_id: str, history_length: int | None, headers: Mapping[str, str]
    ) -> JsonObject:
        """The task as it is now."""
        async with _failing_clearly():
            request = _question(self._named(task_id), history_length)
            task = await self._transport.get_task(request, context=self._call(headers))
            return discriminated(pb.StreamResponse(task=task))

    async def cancel(self, task_id: str, headers: Mapping[str, str]) -> JsonObject:
        """Ask the peer to stop a task; the task as it is then."""
        async with _failing_clearly():
            request = pb.CancelTaskRequest(id=self._named(task_id))
            task = await self._transport.cancel_task(request, context=self._call(headers))
            return discriminated(pb.StreamResponse(task=task))

    async def close(self) -> None:
        """Let go of connections that are ours alone."""
        if self.interface.speaks(Transport.GRPC):
            await self._transport.close()

    def _named(self, task_id: str) -> str:
        """The id as the client takes it, which writes it into addresses as it is."""
        if not self._is_rest:
            return task_id
        # Dots alone are no name in an address but a way out of the folder.
        return quote(task_id, safe="") if task_id.strip(".") else "%2E" * len(task_id)

    def _call(self, headers: Mapping[str, str]) -> ClientCallContext:
        if self.interface.speaks(Transport.GRPC):
            return ClientCallContext(service_parameters=dict(headers))
        generation = self.interface.generation or Generation.V1_0
        return ClientCallContext(service_parameters={**headers, _VERSION_HEADER: generation.value})


def _message(request: JsonObject) -> pb.SendMessageRequest:
    try:
        return ParseDict(request, pb.SendMessageRequest())
    except ParseError as error:
        raise unsendable(str(error)) from error


def _question(task_id: str, history_length: int | None) -> pb.GetTaskRequest:
    try:
        return pb.GetTaskRequest(id=task_id, history_length=history_length)
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
