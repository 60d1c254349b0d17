"""The options of an agent of a running OpenClaw gateway."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

_MAX_INT = 2**31 - 1

DEFAULT_URL = "ws://127.0.0.1:18789"
"""The default address of an OpenClaw gateway."""


class OpenClawGatewayOptions(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True
):
    """Which OpenClaw, which of its agents, and how it is reached."""

    url: Annotated[
        str,
        Meta(pattern=r"^(wss?|https?)://", description="Address of the OpenClaw gateway."),
    ] = DEFAULT_URL
    token: Annotated[
        str,
        Meta(
            pattern=r"^((env|file|openclaw-config):.+)?$",
            description="Where its token is: env:NAME or file:PATH.",
        ),
    ] = ""
    device_key: Annotated[
        str,
        Meta(
            pattern=r"^(file:.+)?$",
            description="Ed25519 key of this device, file:PATH; for gateways that want pairing.",
        ),
    ] = ""
    agent_id: Annotated[
        str, Meta(description="OpenClaw's agent; left out when OpenClaw has only one.")
    ] = ""
    thinking: Annotated[
        str, Meta(description="Thinking level of a turn; left out: OpenClaw's own choice.")
    ] = ""
    timeout_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=_MAX_INT)] | None,
        Meta(description="When OpenClaw gives a turn up; left out: its own limit."),
    ] = None
    connect_seconds: Annotated[
        float, Meta(gt=0, le=_MAX_INT, description="How long a turn waits for the connection.")
    ] = 15.0
    extra_system_prompt: Annotated[
        str, Meta(description="Added to the agent's system prompt in every turn.")
    ] = ""
    road: Annotated[
        Literal["auto", "websocket", "http"],
        Meta(description="How it is reached; auto takes HTTP where only that is open."),
    ] = "auto"

    @property
    def socket_url(self) -> str:
        """The WebSocket address."""
        scheme, colon, rest = self.url.partition(":")
        return {"http": "ws", "https": "wss"}.get(scheme, scheme) + colon + rest
