"""How a connection to an OpenClaw gateway is opened: who we are, and what it says about itself."""

import base64
import hashlib
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import msgspec
from msgspec import Raw
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidURI, WebSocketException

from openclaw_a2a.agents.openclaw_gateway.protocol import (
    ErrorPayload,
    Frame,
    Wire,
    decode_as,
    decode_frame,
    decode_object,
    encode_request,
)
from openclaw_a2a.model.errors import AgentUnavailable
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.settings.paths import is_loopback

_MOST_BYTES = 64 * 1024


def sign_device_claims(key_path: str, claims: Sequence[str]) -> dict[str, str]:
    """The device's id, its public key, and its signature over the claims.

    `cryptography` is imported here, because only those who use a device key need it.
    Raises: AgentUnavailable when the key cannot be used.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise AgentUnavailable(
            "The option deviceKey needs the package cryptography; pip install cryptography."
        ) from None
    private = None
    try:
        with Path(key_path).expanduser().open("rb") as stream:
            private = load_pem_private_key(stream.read(_MOST_BYTES), password=None)
    except OSError as error:
        raise _unusable(key_path, error.strerror or str(error)) from error
    except (ValueError, TypeError, RuntimeError) as error:
        raise _unusable(key_path, str(error)) from error
    if not isinstance(private, Ed25519PrivateKey):
        raise _unusable(key_path, "it is no Ed25519 key")
    public = private.public_key().public_bytes_raw()
    device_id = hashlib.sha256(public).hexdigest()
    signature = private.sign("|".join(("v3", device_id, *claims)).encode())
    return {"id": device_id, "publicKey": _base64url(public), "signature": _base64url(signature)}


def _unusable(key_path: str, reason: str) -> AgentUnavailable:
    return AgentUnavailable(
        f"The device key {key_path} cannot be used: {reason};"
        " make one with: openssl genpkey -algorithm ed25519 -out FILE."
    )


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")


PROTOCOL: Final = 4
"""The version of the gateway's protocol that is spoken here."""

OLDEST_OPENCLAW: Final = "2026.8.1"
"""The oldest OpenClaw known to speak it."""

SCOPES: Final = (
    "operator.read",
    "operator.write",
    "operator.approvals",
    "operator.questions",
    "operator.admin",
)
"""Admin is what lets one connection start a run and have its commands decided."""

_CLIENT_ID, _MODE, _ROLE = "gateway-client", "backend", "operator"
_CAPS = ("tool-events", "approvals")
_VERSION = version("openclaw-a2a")
_PLATFORM = sys.platform


class GatewaySite(JsonStruct, frozen=True):
    """Which gateway is meant: agents with the same one share a connection."""

    url: str
    token: str = ""
    """Where the token is found (see `read_token`); empty: there is none."""
    device_key: str = ""
    """Path of the device's private key; empty: the token alone."""


class GatewayAddress(JsonStruct, frozen=True, omit_defaults=False):
    """Where a gateway is and what opens it. Never printed: `token` is the secret itself."""

    url: str
    token: str = ""
    device_key: str = ""

    def __repr__(self) -> str:
        return f"Address({self.url}, (hidden))"


class Challenge(Wire, frozen=True):
    """The gateway's first word."""

    nonce: str = ""
    ts: int = 0


class AttachmentLimits(Wire, frozen=True):
    """Largest attachments, decoded."""

    max_bytes: int | None = None
    max_image_bytes: int | None = None


class GatewayLimits(Wire, frozen=True):
    """The limits a gateway announces; None where it announces none."""

    max_payload: int | None = None
    attachments: AttachmentLimits = AttachmentLimits()


class ServerInfo(Wire, frozen=True):
    """Which gateway it is; `boot_id` is another one after each of its starts."""

    version: str = ""
    boot_id: str = ""


class Granted(Wire, frozen=True):
    """What this connection may do."""

    scopes: tuple[str, ...] = ()


class Features(Wire, frozen=True):
    """What the gateway can do."""

    methods: tuple[str, ...] = ()


class Hello(Wire, frozen=True):
    """What a gateway says when it lets us in."""

    protocol: int = 0
    server: ServerInfo = ServerInfo()
    features: Features = Features()
    auth: Granted = Granted()
    policy: GatewayLimits = GatewayLimits()


def read_hello(payload: Raw, address: GatewayAddress) -> Hello:
    """The gateway's greeting. Raises: AgentUnavailable when it is none we understand."""
    hello = decode_as(Hello, payload)
    if hello is None:
        raise AgentUnavailable(
            f"What answers at {address.url} is no OpenClaw gateway that we understand;"
            " check the url, and update OpenClaw."
        )
    if hello.protocol != PROTOCOL:
        raise protocol_mismatch(address, hello.protocol)
    return hello


def protocol_mismatch(address: GatewayAddress, spoken: int | None) -> AgentUnavailable:
    """The error for a gateway of another protocol version."""
    if spoken is not None and spoken > PROTOCOL:
        return AgentUnavailable(
            f"OpenClaw at {address.url} speaks protocol {spoken}, which is newer than {PROTOCOL};"
            " update openclaw-a2a."
        )
    which = f"protocol {spoken}" if spoken else "another protocol"
    return AgentUnavailable(
        f"OpenClaw at {address.url} speaks {which}, and {PROTOCOL} is needed;"
        f" update OpenClaw to {OLDEST_OPENCLAW} or newer."
    )


def connect_params(address: GatewayAddress, challenge: Challenge) -> JsonObject:
    """The parameters of `connect`. Raises: AgentUnavailable when the device's key is unusable."""
    params: JsonObject = {
        "minProtocol": PROTOCOL,
        "maxProtocol": PROTOCOL,
        "client": {
            "id": _CLIENT_ID,
            "mode": _MODE,
            "version": _VERSION,
            "platform": _PLATFORM,
            "displayName": "openclaw-a2a",
        },
        "role": _ROLE,
        "scopes": list(SCOPES),
        "caps": list(_CAPS),
    }
    if address.token:
        params["auth"] = {"token": address.token}
    if address.device_key:
        claims = (_CLIENT_ID, _MODE, _ROLE, ",".join(SCOPES), str(challenge.ts))
        signed = (*claims, address.token, challenge.nonce, _PLATFORM, "")
        proof = sign_device_claims(address.device_key, signed)
        params["device"] = {**proof, "signedAt": challenge.ts, "nonce": challenge.nonce}
    return params


def connect_error(address: GatewayAddress, refusal: ErrorPayload) -> AgentUnavailable:
    """The error for a gateway that does not let us in, with what to do about it."""
    code = refusal.detail_code or refusal.code
    if code == "PROTOCOL_MISMATCH":
        spoken = decode_object(refusal.details).get("expectedProtocol")
        return protocol_mismatch(address, spoken if isinstance(spoken, int) else None)
    if code in {"AUTH_TOKEN_MISSING", "DEVICE_IDENTITY_REQUIRED"} and not address.token:
        return AgentUnavailable(
            f"OpenClaw at {address.url} wants a token and none is set;"
            ' set the agent\'s option token, for example "env:OPENCLAW_GATEWAY_TOKEN".'
        )
    if code in {"AUTH_TOKEN_MISMATCH", "AUTH_TOKEN_MISSING", "AUTH_UNAUTHORIZED"}:
        return AgentUnavailable(
            f"OpenClaw at {address.url} does not accept the token;"
            " set the agent's option token to the gateway.auth.token of OpenClaw's configuration."
        )
    if code in {"PAIRING_REQUIRED", "NOT_PAIRED", "DEVICE_IDENTITY_REQUIRED"}:
        return AgentUnavailable(
            f"OpenClaw at {address.url} wants this device paired: on its machine run"
            " openclaw devices list, then openclaw devices approve with the request's id"
            " (the agent's option deviceKey names our key)."
        )
    return AgentUnavailable(
        f"OpenClaw at {address.url} does not let us in: {refusal.message or code or 'no reason'};"
        " run openclaw gateway status on its machine."
    )


_MOST_FRAME_BYTES: Final = 64 * 1024 * 1024
_OPEN_S: Final = 20.0
_PING_S, _PONG_S = 20.0, 60.0
"""A busy gateway may take long to answer a ping; a dead one never does."""


class ConnectFailure(msgspec.Struct, frozen=True):
    """Why there is no connection; `is_final` when trying again changes nothing by itself."""

    error: AgentUnavailable
    is_final: bool = False


async def open_connection(
    address: GatewayAddress,
) -> tuple[ClientConnection, Hello] | ConnectFailure:
    """A connection that was let in, or why there is none."""
    try:
        with anyio.fail_after(_OPEN_S):
            return await _open(address)
    except TimeoutError:
        return ConnectFailure(_silent(address))
    except InvalidURI:
        return ConnectFailure(_no_url(address), is_final=True)
    except InvalidHandshake as error:
        return ConnectFailure(_something_else(address, str(error)))
    except (OSError, WebSocketException) as error:
        return ConnectFailure(_unreachable(address, error))
    except (ValueError, ImportError) as error:  # a name that is none; a proxy we cannot speak to
        return ConnectFailure(_unreachable(address, error))


async def _open(address: GatewayAddress) -> tuple[ClientConnection, Hello] | ConnectFailure:
    # A proxy is for gateways elsewhere; asking one for our own loopback only fails.
    proxy = None if is_loopback(urlsplit(address.url).hostname or "") else True
    socket = await connect(
        address.url,
        max_size=_MOST_FRAME_BYTES,
        open_timeout=None,
        close_timeout=2.0,
        ping_interval=_PING_S,
        ping_timeout=_PONG_S,
        compression=None,
        proxy=proxy,
    )
    is_in = False
    try:
        entered = await _enter(socket, address)
        if isinstance(entered, ConnectFailure):
            return entered
        is_in = True
        return socket, entered
    finally:
        if not is_in:
            await _drop(socket)


async def _enter(socket: ClientConnection, address: GatewayAddress) -> Hello | ConnectFailure:
    try:
        challenge = await _read_until(socket, is_answer=False)
        params = connect_params(address, decode_as(Challenge, challenge.payload) or Challenge())
        await socket.send(encode_request("connect", "connect", params), text=True)
        answer = await _read_until(socket, is_answer=True)
        if answer.ok:
            return read_hello(answer.payload, address)
    except AgentUnavailable as error:
        return ConnectFailure(error, is_final=True)
    refusal = answer.error or ErrorPayload()
    return ConnectFailure(connect_error(address, refusal), is_final=not refusal.is_temporary)


async def _read_until(socket: ClientConnection, *, is_answer: bool) -> Frame:
    """The challenge, or the answer to `connect`; what else arrives before is of no use."""
    while True:
        frame = decode_frame(await socket.recv(decode=False))
        if frame is None:
            continue
        if is_answer and frame.type == "res" and frame.id == "connect":
            return frame
        if not is_answer and frame.event == "connect.challenge":
            return frame


async def _drop(socket: ClientConnection) -> None:
    with anyio.move_on_after(2.0, shield=True):
        await socket.close()


def _silent(address: GatewayAddress) -> AgentUnavailable:
    return AgentUnavailable(
        f"OpenClaw at {address.url} took the connection and said nothing for {_OPEN_S:g} seconds;"
        " check that its gateway runs: openclaw gateway status."
    )


def _no_url(address: GatewayAddress) -> AgentUnavailable:
    return AgentUnavailable(
        f"{address.url} is no WebSocket address;"
        " set the agent's option url, for example ws://127.0.0.1:18789."
    )


def _something_else(address: GatewayAddress, reason: str) -> AgentUnavailable:
    return AgentUnavailable(
        f"What answers at {address.url} is no OpenClaw gateway ({reason});"
        " check the agent's option url."
    )


def _unreachable(address: GatewayAddress, error: Exception) -> AgentUnavailable:
    number = getattr(error, "errno", None)
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    reason = os.strerror(number) if isinstance(number, int) and number > 0 else said
    return AgentUnavailable(
        f"OpenClaw at {address.url} cannot be reached ({reason});"
        " start its gateway: openclaw gateway run."
    )
