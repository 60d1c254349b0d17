"""A scripted peer over gRPC, and a TCP relay to it that can be cut."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from a2a.types import a2a_pb2 as pb
from a2a.types import a2a_pb2_grpc
from google.protobuf.json_format import ParseDict
from tests.remote.scripted_peer import card_of, message, scripted, task

from openclaw_a2a.model.ids import JsonObject

Context = Any
Answer = Callable[["GrpcPeer", Context], Awaitable[JsonObject]]
Events = Callable[["GrpcPeer", Context], AsyncIterator[JsonObject]]


async def greet(peer: "GrpcPeer", context: Context) -> JsonObject:
    return message()


@dataclass
class GrpcPeer:
    """What it received, and who went away. `url` is where its card is."""

    answer: Answer
    events: Events | None
    url: str = ""
    port: int = 0
    requests: list[list[tuple[str, str]]] = field(default_factory=list[list[tuple[str, str]]])
    has_request: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, context: Context) -> None:
        pairs = context.invocation_metadata()
        self.requests.append([(key, value) for key, value in pairs if key != "user-agent"])
        self.has_request.set()

    async def answer_call(self, context: Context) -> JsonObject:
        self.hear(context)
        try:
            return await self.answer(self, context)
        except asyncio.CancelledError:
            self.gone.set()
            raise

    async def streamed(self, context: Context) -> AsyncIterator[pb.StreamResponse]:
        self.hear(context)
        assert self.events is not None
        try:
            async for event in self.events(self, context):
                yield ParseDict(event, pb.StreamResponse())
        finally:
            self.gone.set()


class _Servicer(a2a_pb2_grpc.A2AServiceServicer):
    def __init__(self, peer: GrpcPeer) -> None:
        self._peer = peer

    async def SendMessage(self, request: Any, context: Context) -> pb.SendMessageResponse:
        return ParseDict(await self._peer.answer_call(context), pb.SendMessageResponse())

    async def GetTask(self, request: Any, context: Context) -> pb.Task:
        return ParseDict((await self._peer.answer_call(context))["task"], pb.Task())

    async def SendStreamingMessage(
        self, request: Any, context: Context
    ) -> AsyncIterator[pb.StreamResponse]:
        async for event in self._peer.streamed(context):
            yield event

    async def SubscribeToTask(
        self, request: Any, context: Context
    ) -> AsyncIterator[pb.StreamResponse]:
        async for event in self._peer.streamed(context):
            yield event


@asynccontextmanager
async def grpc_peer(
    answer: Answer = greet,
    *,
    events: Events | None = None,
    certificate: Path | None = None,
    address: str = "127.0.0.1:{port}",
    compression: Any = None,
) -> AsyncGenerator[GrpcPeer]:
    """A peer whose card names one gRPC address, as long as the context lasts."""
    peer = GrpcPeer(answer, events)
    server = grpc.aio.server(compression=compression)
    if certificate is None:
        peer.port = server.add_insecure_port("127.0.0.1:0")
    else:
        peer.port = server.add_secure_port("127.0.0.1:0", _credentials(certificate))
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(_Servicer(peer), server)
    await server.start()
    try:
        async with carded(address.format(port=peer.port)) as url:
            peer.url = url
            yield peer
    finally:
        await server.stop(None)


def _credentials(certificate: Path) -> Any:
    pem = certificate.read_bytes()
    return grpc.ssl_server_credentials([(pem, pem)])


@asynccontextmanager
async def carded(address: str, *, tls: ssl.SSLContext | None = None) -> AsyncGenerator[str]:
    """Where the card of a peer is that speaks gRPC at an address."""
    interface = {"url": address, "protocolBinding": "GRPC", "protocolVersion": "1.0"}
    async with scripted(card=card_of("", supportedInterfaces=[interface]), tls=tls) as card:
        yield card.url


class TcpRelay:
    """Carries bytes to a port, until it is cut."""

    def __init__(self, port: int | None) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self.connections = 0
        self.port = 0

    def cut(self) -> None:
        """Break every connection there is; new ones can be made."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self._port is None:
            writer.close()
            return
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, there_writer]
        with suppress(ConnectionError):
            await asyncio.gather(_pump(reader, there_writer), _pump(there_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def relay_to(port: int | None) -> AsyncGenerator[TcpRelay]:
    """A relay to a port; to none, it takes connections and drops them."""
    relay = TcpRelay(port)
    at_work: set[asyncio.Task[None]] = set()

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        work = asyncio.get_running_loop().create_task(relay.carry(reader, writer))
        at_work.add(work)
        work.add_done_callback(at_work.discard)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()
        relay.cut()
        for work in list(at_work):
            work.cancel()
        await asyncio.gather(*at_work, return_exceptions=True)


async def working(peer: GrpcPeer, context: Context) -> JsonObject:
    return task("WORKING")
