"""Connections to peers over gRPC with the official client, for installations that have grpc."""

import asyncio
import importlib
import re
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import SplitResult, urlsplit

import httpx
from a2a.client.transports.base import ClientTransport
from a2a.types import a2a_pb2 as pb

from openclaw_a2a.model.ids import Json
from openclaw_a2a.remote.request.request_builder import no_header
from openclaw_a2a.remote.transport.agent_card import Generation
from openclaw_a2a.remote.transport.http_transport import CONNECT_S, Connector

_SECURE = ("https", "grpcs")
_KEY = re.compile(r"(?!grpc-)[0-9a-z_.-]+(?<!-bin)")
_VALUE = re.compile(r"[\x20-\x7e]*")
_NOT_METADATA = (
    "over gRPC, names of service parameters are letters, digits, dots, - and _ (neither grpc-... "
    "nor ...-bin), and values are plain characters without tabs"
)
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
    # Only we know whether a request may be sent again.
    ("grpc.enable_retries", 0),
    # A connection that failed is made anew at once, and belongs to one name.
    ("grpc.use_local_subchannel_pool", 1),
    # Packed answers are not asked for: a few bytes of them can become very many.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.per_message_decompression", 0),
)


class _RequestChannel:
    """A channel for one request: streams that nobody reads to their end are ended with it."""

    def __init__(self, channel: Json) -> None:
        self._channel = channel
        self._streams: list[Json] = []

    def unary_unary(self, *names: Json, **options: Json) -> Json:
        """How the official client makes plain calls."""
        return self._channel.unary_unary(*names, **options)

    def unary_stream(self, *names: Json, **options: Json) -> Json:
        """How the official client begins streams."""
        begin = self._channel.unary_stream(*names, **options)

        def begin_and_keep(*request: Json, **more: Json) -> Json:
            self._streams.append(begin(*request, **more))
            return self._streams[-1]

        return begin_and_keep

    def end(self) -> None:
        """Tell the peer that nobody listens any more."""
        for stream in self._streams:
            stream.cancel()


class _Connection:
    """A channel that is connected, and how many requests use it."""

    def __init__(self, channel: Json, generation: Generation) -> None:
        self.channel = channel
        self._generation = generation
        self._users = 0
        self._is_wanted = True

    @asynccontextmanager
    async def used(self) -> AsyncGenerator[ClientTransport]:
        """The official client, for one request.

        The channel stays open meanwhile: its closing would break off what is under way.
        """
        self._users += 1
        calls = _RequestChannel(self.channel)
        try:
            yield _client(calls, self._generation)
        finally:
            calls.end()
            self._users -= 1
            await self._close_when_unused()

    async def retire(self) -> None:
        """Close it as soon as nobody uses it."""
        self._is_wanted = False
        await self._close_when_unused()

    async def _close_when_unused(self) -> None:
        if not self._is_wanted and self._users == 0:
            await self.channel.close()


class GrpcLine:
    """The way to one address, which may or may not have a scheme.

    A request is made only on a connection that stands: what fails before that was never sent.
    """

    def __init__(self, url: str, generation: Generation, reach: Connector) -> None:
        self._place = urlsplit(url if "://" in url else f"//{url}")
        self._generation = generation
        self._reach = reach
        self._connecting = asyncio.Lock()
        self._connection: _Connection | None = None

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[ClientTransport]:
        """The official client, connected. Raises: httpx.ConnectError, RemoteFailure."""
        async with (await self._connected()).used() as transport:
            yield transport

    async def close(self) -> None:
        """Let go of the connection once nobody uses it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.retire()

    async def _connected(self) -> _Connection:
        async with self._connecting:
            known = self._connection
            if known is not None and known.channel.get_state().name == "READY":
                return known
            await self.close()
            self._connection = await self._connect()
            return self._connection

    async def _connect(self) -> _Connection:
        place = self._place
        host, port = place.hostname or "", place.port or (443 if self._is_secure else 80)
        addresses = await self._reach.find(host, port)
        for address in addresses:
            channel = self._channel(address, port)
            if await _stands(channel, within_s=CONNECT_S / len(addresses)):
                return _Connection(channel, self._generation)
        about = " or its certificate is not trusted" if self._is_secure else ""
        raise httpx.ConnectError(f"{host}:{port} takes no connection over gRPC{about}")

    @property
    def _is_secure(self) -> bool:
        return self._place.scheme in _SECURE

    def _channel(self, address: str, port: int) -> Json:
        """A channel to an address, for the name that the address was found for."""
        grpc: Json = importlib.import_module("grpc")  # it has no types of its own
        options = [
            *_OPTIONS,
            ("grpc.max_receive_message_length", self._reach.max_response_bytes),
            ("grpc.default_authority", _authority(self._place)),
        ]
        there = f"ipv6:[{address}]:{port}" if ":" in address else f"ipv4:{address}:{port}"
        if not self._is_secure:
            return grpc.aio.insecure_channel(there, options=options)
        options.append(("grpc.ssl_target_name_override", self._place.hostname or ""))
        credentials = grpc.ssl_channel_credentials(_roots(self._reach.tls))
        return grpc.aio.secure_channel(there, credentials, options=options)


def _client(channel: Json, generation: Generation) -> ClientTransport:
    # Imported here because most installations do without it.
    from a2a.client.transports.grpc import GrpcTransport
    from a2a.compat.v0_3.grpc_transport import CompatGrpcTransport

    kind = CompatGrpcTransport if generation is Generation.V0_3 else GrpcTransport
    return kind(channel, pb.AgentCard(capabilities=pb.AgentCapabilities(streaming=True)))


def metadata(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers as gRPC sends them. Raises: RemoteFailure."""
    for name, value in headers.items():
        if _KEY.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            raise no_header(name, _NOT_METADATA)
    return dict(headers)


async def _stands(channel: Json, *, within_s: float) -> bool:
    """True once the channel is connected; otherwise it is closed."""
    stands = False
    try:
        async with asyncio.timeout(within_s):
            state = channel.get_state(try_to_connect=True)
            while state.name in ("IDLE", "CONNECTING"):
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
            stands = state.name == "READY"
    except TimeoutError:
        pass
    finally:
        if not stands:
            await channel.close()
    return stands


def _authority(place: SplitResult) -> str:
    return place.netloc.rpartition("@")[2]


def _roots(trusted: ssl.SSLContext) -> bytes:
    """Whom we trust over HTTP, as gRPC wants to be told."""
    certificates = trusted.get_ca_certs(binary_form=True)
    return "".join(map(ssl.DER_cert_to_PEM_cert, certificates)).encode("ascii")
