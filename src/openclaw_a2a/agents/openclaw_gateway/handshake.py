"""Opens a WebSocket to an OpenClaw gateway: challenge, `connect`, hello, and why it failed."""

import base64
import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
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
from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.settings.files import is_loopback
from openclaw_a2a.settings.tokens import resolve_token

PROTOCOL: Final = 4  # the supported version of the gateway protocol
OLDEST_OPENCLAW: Final = "2026.8.1"  # the oldest OpenClaw that supports this protocol version
SCOPES: Final = (
    "operator.read",
    "operator.write",
    "operator.approvals",
    "operator.questions",
    "operator.admin",
)
"""The requested scopes. Without admin a connection cannot decide approvals of its own runs."""

AUTH_REJECTED: Final = (
    "does not accept the token;"
    " set the agent's option token to the gateway.auth.token of OpenClaw's configuration."
)
CLOSE_TIMEOUT_S: Final = 2.0

_CLIENT_ID, _MODE, _ROLE = "gateway-client", "backend", "operator"
_CAPABILITIES = ("tool-events", "approvals")
_VERSION = version("openclaw-a2a")
_PLATFORM = sys.platform
_MAX_KEY_BYTES: Final = 64 * 1024
# Above OpenClaw's own limit for frames, so that a long history does not close the connection.
_MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
_OPEN_TIMEOUT_S: Final = 20.0
# A busy gateway may need long to answer a ping; a dead one never answers.
_PING_INTERVAL_S, _PING_TIMEOUT_S = 20.0, 60.0


class ConnectFailed(Exception):
    """There is no connection; `is_final` when a retry alone cannot help.

    `is_starting`: a gateway answered that is not ready yet. Turned into AgentUnavailable where a
    caller needs the connection.
    """

    def __init__(self, message: str, *, is_final: bool = False, is_starting: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.is_final = is_final
        self.is_starting = is_starting


class GatewaySite(JsonStruct, frozen=True):
    """Identifies a gateway: agents with equal sites share one connection.

    `token` is a reference (see `resolve_token`) or empty; `device_key` is the path of the device's
    private key, or empty to authenticate with the token alone.
    """

    url: str
    token: str = ""
    device_key: str = ""

    def resolve(self, environ: Mapping[str, str] | None) -> "GatewayAddress":
        """The address with the token as it is now. Raises: ConnectFailed when there is none.

        `environ` resolves `env:` references; None: the process's own environment.
        """
        try:
            token = resolve_token(self.token, environ=environ) if self.token else ""
        except SettingsInvalid as error:
            reason = f"There is no token for OpenClaw at {self.url}: {error.message}."
            raise ConnectFailed(reason, is_final=True) from None
        return GatewayAddress(self.url, token, self.device_key)


class GatewayAddress(JsonStruct, frozen=True, omit_defaults=False):
    """A site with its token resolved. `token` is the secret itself, so it is never printed."""

    url: str
    token: str = ""
    device_key: str = ""

    def __repr__(self) -> str:
        return f"GatewayAddress({self.url}, (hidden))"


class Challenge(Wire, frozen=True):
    """The gateway's first frame; a device signs its nonce."""

    nonce: str = ""
    ts: int = 0


class AttachmentLimits(Wire, frozen=True):
    """Largest attachments, in decoded bytes."""

    max_bytes: int | None = None
    max_image_bytes: int | None = None


class GatewayLimits(Wire, frozen=True):
    """The limits a gateway announces; None where it announces none."""

    max_payload: int | None = None
    attachments: AttachmentLimits = AttachmentLimits()


class ServerInfo(Wire, frozen=True):
    """The gateway's version and process; `boot_id` changes with each of its starts."""

    version: str = ""
    boot_id: str = ""


class Hello(Wire, frozen=True):
    """The response to a successful `connect`."""

    protocol: int = 0
    server: ServerInfo = ServerInfo()
    policy: GatewayLimits = GatewayLimits()


async def open_connection(address: GatewayAddress) -> tuple[ClientConnection, Hello]:
    """An authenticated connection. Raises: ConnectFailed."""
    url = address.url
    try:
        with anyio.fail_after(_OPEN_TIMEOUT_S):
            return await _open(address)
    except TimeoutError:
        raise ConnectFailed(
            f"OpenClaw at {url} accepted the connection and sent nothing for"
            f" {_OPEN_TIMEOUT_S:g} seconds; check that its gateway runs: openclaw gateway status."
        ) from None
    except InvalidURI:
        raise ConnectFailed(
            f"{url} is no WebSocket address;"
            " set the agent's option url, for example ws://127.0.0.1:18789.",
            is_final=True,
        ) from None
    except InvalidHandshake as error:
        raise ConnectFailed(
            f"What answers at {url} is no OpenClaw gateway ({error}); check the agent's option url."
        ) from None
    # ValueError: an invalid host name; ImportError: a proxy that needs a package we do not have.
    except (OSError, WebSocketException, ValueError, ImportError) as error:
        number = getattr(error, "errno", None)
        if isinstance(number, int) and number > 0:
            reason = os.strerror(number)
        else:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ConnectFailed(
            f"OpenClaw at {url} cannot be reached ({reason});"
            " start its gateway: openclaw gateway run."
        ) from None


async def _open(address: GatewayAddress) -> tuple[ClientConnection, Hello]:
    # A proxy serves gateways on other machines; a request for our own loopback fails there.
    proxy = None if is_loopback(urlsplit(address.url).hostname or "") else True
    socket = await connect(
        address.url,
        max_size=_MAX_FRAME_BYTES,
        # `open_connection` limits the whole handshake, its two frames included.
        open_timeout=None,
        close_timeout=CLOSE_TIMEOUT_S,
        ping_interval=_PING_INTERVAL_S,
        ping_timeout=_PING_TIMEOUT_S,
        # Most gateways are on this machine; compressing every delta costs more than it saves.
        compression=None,
        proxy=proxy,
    )
    try:
        # The gateway speaks first: a device has to sign the nonce of its challenge.
        challenge = await _receive(socket, event="connect.challenge")
        params = connect_params(address, decode_as(Challenge, challenge.payload) or Challenge())
        await socket.send(encode_request("connect", "connect", params), text=True)
        response = await _receive(socket)
        if not response.ok:
            raise connect_error(address, response.error or ErrorPayload())
        hello = decode_as(Hello, response.payload)
        if hello is None:
            raise ConnectFailed(
                f"What answers at {address.url} is no supported OpenClaw gateway;"
                " check the url, and update OpenClaw.",
                is_final=True,
            )
        if hello.protocol != PROTOCOL:
            raise protocol_mismatch(address, hello.protocol)
    except BaseException:  # also when the attempt is cancelled or takes too long
        with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
            await socket.close()
        raise
    return socket, hello


async def _receive(socket: ClientConnection, *, event: str = "") -> Frame:
    """The next event of this name, or the response to `connect`; other frames are skipped."""
    while True:
        frame = decode_frame(await socket.recv(decode=False))
        if frame is None:
            continue
        is_response = frame.type == "res" and frame.id == "connect"
        if frame.event == event if event else is_response:
            return frame


def connect_params(address: GatewayAddress, challenge: Challenge) -> JsonObject:
    """The parameters of `connect`. Raises: ConnectFailed when the device key is unusable."""
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
        "caps": list(_CAPABILITIES),
    }
    if address.token:
        params["auth"] = {"token": address.token}
    if address.device_key:
        claims = (_CLIENT_ID, _MODE, _ROLE, ",".join(SCOPES), str(challenge.ts))
        # The order is OpenClaw's: `v3|id|client|mode|role|scopes|ts|token|nonce|platform|family`.
        signed = (*claims, address.token, challenge.nonce, _PLATFORM, "")
        proof = _sign_device_claims(address.device_key, signed)
        params["device"] = {**proof, "signedAt": challenge.ts, "nonce": challenge.nonce}
    return params


def _sign_device_claims(key_path: str, claims: Sequence[str]) -> dict[str, str]:
    """The device's id, public key, and signature over the claims. Raises: ConnectFailed."""
    try:  # imported here: only users of a device key need it
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise ConnectFailed(
            "The option deviceKey needs the package cryptography; pip install cryptography.",
            is_final=True,
        ) from None
    try:
        with Path(key_path).expanduser().open("rb") as stream:
            private = load_pem_private_key(stream.read(_MAX_KEY_BYTES), password=None)
        if not isinstance(private, Ed25519PrivateKey):
            raise TypeError("it is no Ed25519 key")
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConnectFailed(
            f"The device key {key_path} cannot be used: {reason};"
            " make one with: openssl genpkey -algorithm ed25519 -out FILE.",
            is_final=True,
        ) from error
    public = private.public_key().public_bytes_raw()
    device_id = hashlib.sha256(public).hexdigest()
    signature = private.sign("|".join(("v3", device_id, *claims)).encode())
    return {"id": device_id, "publicKey": _base64url(public), "signature": _base64url(signature)}


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")


# -------------------------------------------------------------------- errors


def protocol_mismatch(address: GatewayAddress, found: int | None) -> ConnectFailed:
    """The error for a gateway with another protocol version."""
    if found is not None and found > PROTOCOL:
        problem = f"protocol {found}, which is newer than {PROTOCOL}; update openclaw-a2a."
    else:
        which = f"protocol {found}" if found else "another protocol"
        fix = f"update OpenClaw to {OLDEST_OPENCLAW} or newer."
        problem = f"{which}, and {PROTOCOL} is needed; {fix}"
    return ConnectFailed(f"OpenClaw at {address.url} speaks {problem}", is_final=True)


def connect_error(address: GatewayAddress, payload: ErrorPayload) -> ConnectFailed:
    """The error for a refused `connect`, with what to do about it."""
    code = payload.detail_code or payload.code
    if payload.is_temporary:
        reason = f" ({payload.message})" if payload.message else ""
        return ConnectFailed(
            f"OpenClaw at {address.url} is not ready yet{reason}; it is tried again by itself.",
            is_starting=True,
        )
    if code == "PROTOCOL_MISMATCH":
        found = decode_object(payload.details).get("expectedProtocol")
        return protocol_mismatch(address, found if isinstance(found, int) else None)
    if code in {"AUTH_TOKEN_MISSING", "DEVICE_IDENTITY_REQUIRED"} and not address.token:
        problem = (
            "wants a token and none is set;"
            ' set the agent\'s option token, for example "env:OPENCLAW_GATEWAY_TOKEN".'
        )
    elif code in {"AUTH_TOKEN_MISMATCH", "AUTH_TOKEN_MISSING", "AUTH_UNAUTHORIZED"}:
        problem = AUTH_REJECTED
    elif code in {"PAIRING_REQUIRED", "NOT_PAIRED", "DEVICE_IDENTITY_REQUIRED"}:
        problem = (
            "wants this device paired: on its machine run openclaw devices list, then openclaw"
            " devices approve with the request's id (the agent's option deviceKey names our key)."
        )
    else:
        reason = payload.message or code or "no reason"
        problem = f"refused the connection: {reason}; run openclaw gateway status on its machine."
    return ConnectFailed(f"OpenClaw at {address.url} {problem}", is_final=True)
