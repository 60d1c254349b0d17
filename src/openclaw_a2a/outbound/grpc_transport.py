"""The gRPC transport of the official client, for installations that have grpc."""

import importlib
from urllib.parse import urlsplit

from a2a.client.transports.base import ClientTransport
from a2a.types import a2a_pb2 as pb

from openclaw_a2a.model.ids import Json
from openclaw_a2a.outbound.bounds import MOST_BYTES
from openclaw_a2a.outbound.cards import Generation

_SECURE = ("https", "grpcs")
_OPTIONS = (("grpc.max_receive_message_length", MOST_BYTES), ("grpc.enable_http_proxy", 0))


def make_transport(url: str, card: pb.AgentCard, generation: Generation) -> ClientTransport:
    """A transport to the address, which may or may not have a scheme."""
    # Imported here because most installations do without it.
    from a2a.client.transports.grpc import GrpcTransport
    from a2a.compat.v0_3.grpc_transport import CompatGrpcTransport

    kind = CompatGrpcTransport if generation is Generation.V0_3 else GrpcTransport
    return kind(_channel(url), card)


def _channel(url: str) -> Json:
    grpc: Json = importlib.import_module("grpc")  # it has no types of its own
    parts = urlsplit(url if "://" in url else f"//{url}")
    if parts.scheme in _SECURE:
        credentials = grpc.ssl_channel_credentials()
        return grpc.aio.secure_channel(parts.netloc, credentials, options=list(_OPTIONS))
    return grpc.aio.insecure_channel(parts.netloc, options=list(_OPTIONS))
