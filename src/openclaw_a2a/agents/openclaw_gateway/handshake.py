"""How a connection to an OpenClaw gateway is opened: who we are, and what it says about itself."""

import sys
from importlib.metadata import version
from typing import Final

from msgspec import Raw

from openclaw_a2a.agents.openclaw_gateway.device import prove
from openclaw_a2a.agents.openclaw_gateway.frames import (
    Refusal,
    Wire,
    read_as,
    read_object,
)
from openclaw_a2a.model.errors import AgentUnavailable
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.message import Record

PROTOCOL: Final = 4
"""The version of the gateway's protocol that is spoken here."""

OLDEST: Final = "2026.8.1"
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


class Site(Record, frozen=True):
    """Which gateway is meant: agents with the same one share a connection."""

    url: str
    token: str = ""
    """Where the token is found (see `read_token`); empty: there is none."""
    device_key: str = ""
    """Path of the device's private key; empty: the token alone."""


class Address(Record, frozen=True, omit_defaults=False):
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


class Attachments(Wire, frozen=True):
    """Largest attachments, decoded."""

    max_bytes: int | None = None
    max_image_bytes: int | None = None


class Policy(Wire, frozen=True):
    """The limits a gateway announces; None where it announces none."""

    max_payload: int | None = None
    attachments: Attachments = Attachments()


class Server(Wire, frozen=True):
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
    server: Server = Server()
    features: Features = Features()
    auth: Granted = Granted()
    policy: Policy = Policy()


def read_hello(payload: Raw, address: Address) -> Hello:
    """The gateway's greeting. Raises: AgentUnavailable when it is none we understand."""
    hello = read_as(Hello, payload)
    if hello is None:
        raise AgentUnavailable(
            f"What answers at {address.url} is no OpenClaw gateway that we understand;"
            " check the url, and update OpenClaw."
        )
    if hello.protocol != PROTOCOL:
        raise too_old(address, hello.protocol)
    return hello


def too_old(address: Address, spoken: int | None) -> AgentUnavailable:
    """The error for a gateway of another protocol version."""
    if spoken is not None and spoken > PROTOCOL:
        return AgentUnavailable(
            f"OpenClaw at {address.url} speaks protocol {spoken}, which is newer than {PROTOCOL};"
            " update openclaw-a2a."
        )
    which = f"protocol {spoken}" if spoken else "another protocol"
    return AgentUnavailable(
        f"OpenClaw at {address.url} speaks {which}, and {PROTOCOL} is needed;"
        f" update OpenClaw to {OLDEST} or newer."
    )


def connect_params(address: Address, challenge: Challenge) -> JsonObject:
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
        proof = prove(address.device_key, signed)
        params["device"] = {**proof, "signedAt": challenge.ts, "nonce": challenge.nonce}
    return params


def refused_entry(address: Address, refusal: Refusal) -> AgentUnavailable:
    """The error for a gateway that does not let us in, with what to do about it."""
    code = refusal.detail_code or refusal.code
    if code == "PROTOCOL_MISMATCH":
        spoken = read_object(refusal.details).get("expectedProtocol")
        return too_old(address, spoken if isinstance(spoken, int) else None)
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
