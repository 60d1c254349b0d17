"""Connections to peers over gRPC, for installations with the extra `grpc`."""

import asyncio
import importlib
import re
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from urllib.parse import urlsplit

import httpx2
from a2a.client.client import ClientCallContext
from a2a.client.transports.base import ClientTransport
from a2a.client.transports.tenant_decorator import TenantTransportDecorator
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import is_list, is_object
from openclaw_a2a.net.http_client import CONNECT_S, ResponseTooLarge
from openclaw_a2a.protocol.versions import ProtocolVersion
from openclaw_a2a.remote.request_builder import invalid_header, invalid_request
from openclaw_a2a.remote.result import RemoteFailure
from openclaw_a2a.remote.transport.agent_card import Interface
from openclaw_a2a.remote.transport.codec import AnswerUnreadable, PeerOperation, decode_peer_answer
from openclaw_a2a.remote.transport.http_transport import Connector
from openclaw_a2a.remote.transport.peer_errors import to_failure

_METADATA_KEY = re.compile(r"(?!grpc-)[0-9a-z_.-]+(?<!-bin)")
_METADATA_VALUE = re.compile(r"[\x20-\x7e]*")
_METADATA_HINT = (
    "over gRPC, names of service parameters are letters, digits, dots, - and _ (neither grpc-... "
    "nor ...-bin), and values are plain characters without tabs"
)
_CHANNEL_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
    # Whether a request is safe to repeat is decided in `actions`.
    ("grpc.enable_retries", 0),
    # Without waiting after a failed connection, and without sharing one between names.
    ("grpc.use_local_subchannel_pool", 1),
    # A few compressed bytes can become very many.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.per_message_decompression", 0),
)


_VERSION_HEADER = "a2a-version"
_MAX_EXACT_FLOAT = 2**53


class GrpcWire:
    """Operations over gRPC, with the official client."""

    def __init__(
        self, interface: Interface, protocol: ProtocolVersion, connector: Connector
    ) -> None:
        self._connection = GrpcConnection(interface.url, protocol, connector)
        self._tenant = interface.tenant
        self._max_bytes = connector.max_response_bytes

    async def call(
        self, operation: PeerOperation, params: JsonObject, headers: Mapping[str, str]
    ) -> JsonObject:
        """The answer to a request. Raises: RemoteFailure."""
        async with self._open(headers) as (transport, context):
            answer: pb.SendMessageResponse | pb.Task | None
            if operation is PeerOperation.SEND:
                answer = await transport.send_message(_build_message(params), context=context)
            elif operation is PeerOperation.GET:
                length = params.get("historyLength")
                asked = pb.GetTaskRequest(id=params["id"], history_length=length)
                answer = await transport.get_task(asked, context=context)
            else:
                ended = pb.CancelTaskRequest(id=params["id"])
                answer = await transport.cancel_task(ended, context=context)
            return _decode(answer)

    async def stream(
        self, operation: PeerOperation, params: JsonObject, headers: Mapping[str, str]
    ) -> AsyncGenerator[JsonObject]:
        """The answers of a stream. Raises: RemoteFailure."""
        left = self._max_bytes
        async with self._open(headers) as (transport, context):
            if operation is PeerOperation.STREAM:
                message = _build_message(params)
                answers = transport.send_message_streaming(message, context=context)
            else:
                asked = pb.SubscribeToTaskRequest(id=params["id"])
                answers = transport.subscribe(asked, context=context)
            async with aclosing(answers) as events:
                async for event in events:
                    # gRPC bounds each event, not the whole answer.
                    left -= event.ByteSize() if event else 0
                    if left < 0:
                        limit = self._max_bytes
                        raise ResponseTooLarge(f"the answer is larger than {limit} bytes")
                    yield _decode(event)

    async def close(self) -> None:
        """Close the channel once no request uses it."""
        await self._connection.close()

    @asynccontextmanager
    async def _open(
        self, headers: Mapping[str, str]
    ) -> AsyncGenerator[tuple[ClientTransport, ClientCallContext]]:
        """The official transport and call context for one request with these headers."""
        try:
            # The official client sends the version itself.
            own = {name: value for name, value in headers.items() if name != _VERSION_HEADER}
            context = ClientCallContext(service_parameters=grpc_metadata(own))
            async with self._connection.use() as transport:
                tenant = self._tenant
                named = TenantTransportDecorator(transport, tenant) if tenant else transport
                yield named, context
        except RemoteFailure:
            raise
        except Exception as error:  # the official client raises many kinds
            raise to_failure(error) from error


def _build_message(request: JsonObject) -> pb.SendMessageRequest:
    try:
        _check_numbers(request)
        return ParseDict(request, pb.SendMessageRequest())
    except (ParseError, ValueError, OverflowError, RecursionError) as error:
        raise invalid_request(str(error)) from error


def _check_numbers(value: Json) -> None:
    """Refuse what would arrive as another number. Raises: RemoteFailure."""
    if is_object(value):
        for member in value.values():
            _check_numbers(member)
    elif is_list(value):
        for item in value:
            _check_numbers(item)
    elif isinstance(value, int) and abs(value) > _MAX_EXACT_FLOAT and int(float(value)) != value:
        raise invalid_request(
            f"the number {value} cannot be sent over gRPC, which would round it; send it as a text"
        )


def _decode(answer: pb.SendMessageResponse | pb.StreamResponse | pb.Task | None) -> JsonObject:
    if answer is None:
        raise AnswerUnreadable("the answer cannot be read")
    return decode_peer_answer(_whole_numbers(MessageToDict(answer)))


def _whole_numbers(value: Json) -> Json:
    """JSON with whole numbers as integers: protocol buffers make floats of all numbers."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _MAX_EXACT_FLOAT else value
    if is_object(value):
        return {key: _whole_numbers(member) for key, member in value.items()}
    if is_list(value):
        return [_whole_numbers(item) for item in value]
    return value


class _RequestChannel:
    """A channel for one request: cancels the streams that were not read to their end."""

    def __init__(self, channel: Json) -> None:
        # The two methods with which the official client makes calls and starts streams.
        self.unary_unary = channel.unary_unary
        self._unary_stream = channel.unary_stream
        self._streams: list[Json] = []

    def unary_stream(self, *names: Json, **options: Json) -> Json:
        """Start streams that end with the request."""
        start = self._unary_stream(*names, **options)

        def start_stream(*request: Json, **more: Json) -> Json:
            self._streams.append(start(*request, **more))
            return self._streams[-1]

        return start_stream

    def cancel_streams(self) -> None:
        """End the call at the peer: its messages are not read any more."""
        for stream in self._streams:
            stream.cancel()


class _OpenChannel:
    """A connected channel, and how many requests use it."""

    def __init__(self, channel: Json) -> None:
        self.channel = channel
        self.users = 0
        self.is_current = True

    async def close_when_unused(self) -> None:
        """Close it once it is replaced and the last request has ended."""
        if not self.is_current and self.users == 0:
            await self.channel.close()


class GrpcConnection:
    """The connection to one address, with or without a scheme.

    A request is made only on a connected channel: what fails before that was never sent, and is
    safe to repeat.
    """

    def __init__(self, url: str, protocol: ProtocolVersion, connector: Connector) -> None:
        self._address = urlsplit(url if "://" in url else f"//{url}")
        self._is_secure = self._address.scheme in ("https", "grpcs")
        self._protocol = protocol
        self._connector = connector
        self._connecting = asyncio.Lock()
        self._connection: _OpenChannel | None = None

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[ClientTransport]:
        """The official transport, connected. Raises: httpx2.ConnectError, RemoteFailure."""
        # Imported here because most installations have no grpc.
        from a2a.client.transports.grpc import GrpcTransport
        from a2a.compat.v0_3.grpc_transport import CompatGrpcTransport

        async with self._connecting:  # one connection attempt for all requests that wait
            opened = self._connection
            if opened is None or opened.channel.get_state().name != "READY":
                await self.close()
                self._connection = opened = await self._connect()
        # Requests on a channel that is replaced meanwhile keep it open until they end.
        opened.users += 1
        calls = _RequestChannel(opened.channel)
        kind = CompatGrpcTransport if self._protocol is ProtocolVersion.V03 else GrpcTransport
        card = pb.AgentCard(capabilities=pb.AgentCapabilities(streaming=True))
        channel: Json = calls
        try:
            yield kind(channel, card)
        finally:
            calls.cancel_streams()
            opened.users -= 1
            await opened.close_when_unused()

    async def close(self) -> None:
        """Close the channel once no request uses it."""
        opened, self._connection = self._connection, None
        if opened is not None:
            opened.is_current = False
            await opened.close_when_unused()

    async def _connect(self) -> _OpenChannel:
        url = self._address
        host, port = url.hostname or "", url.port or (443 if self._is_secure else 80)
        addresses = await self._connector.find(host, port)
        for address in addresses:
            channel = self._channel(address, port)
            if await _wait_connected(channel, within_s=CONNECT_S / len(addresses)):
                return _OpenChannel(channel)
        about = " or its certificate is not trusted" if self._is_secure else ""
        raise httpx2.ConnectError(f"{host}:{port} takes no connection over gRPC{about}")

    def _channel(self, address: str, port: int) -> Json:
        """A channel to an IP address, for the name that the address was found for."""
        grpc: Json = importlib.import_module("grpc")  # it has no types of its own
        options = [
            *_CHANNEL_OPTIONS,
            ("grpc.max_receive_message_length", self._connector.max_response_bytes),
            ("grpc.default_authority", self._address.netloc.rpartition("@")[2]),
        ]
        there = f"ipv6:[{address}]:{port}" if ":" in address else f"ipv4:{address}:{port}"
        if not self._is_secure:
            return grpc.aio.insecure_channel(there, options=options)
        options.append(("grpc.ssl_target_name_override", self._address.hostname or ""))
        # The certificates that HTTP trusts, in the form of gRPC.
        trusted = self._connector.tls.get_ca_certs(binary_form=True)
        roots = "".join(map(ssl.DER_cert_to_PEM_cert, trusted)).encode("ascii")
        credentials = grpc.ssl_channel_credentials(roots)
        return grpc.aio.secure_channel(there, credentials, options=options)


def grpc_metadata(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers as metadata of gRPC. Raises: RemoteFailure."""
    for name, value in headers.items():
        if _METADATA_KEY.fullmatch(name) is None or _METADATA_VALUE.fullmatch(value) is None:
            raise invalid_header(name, _METADATA_HINT)
    return dict(headers)


async def _wait_connected(channel: Json, *, within_s: float) -> bool:
    """True once the channel is connected; otherwise it is closed."""
    is_connected = False
    try:
        async with asyncio.timeout(within_s):
            state = channel.get_state(try_to_connect=True)
            while state.name in ("IDLE", "CONNECTING"):
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
            is_connected = state.name == "READY"
    except TimeoutError:
        pass
    finally:
        if not is_connected:
            await channel.close()
    return is_connected
