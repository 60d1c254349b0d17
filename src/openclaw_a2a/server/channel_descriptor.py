"""The inbound channel as a host describes it: its ids and capabilities; it sends nothing itself."""

from typing import Literal, NoReturn

from openclaw_a2a.model.errors import UnsupportedOperation
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.message import JsonStruct


class ChannelCapabilities(JsonStruct, frozen=True, omit_defaults=False):
    """The capabilities of the channel."""

    chat_types: tuple[str, ...] = ("direct",)
    reply: bool = False
    block_streaming: bool = True


class QueuedReplyMode(JsonStruct, frozen=True, omit_defaults=False):
    """How later replies reach the channel: with the id of the task they belong to."""

    mode: Literal["protocol"] = "protocol"


class ChannelDescriptor(JsonStruct, frozen=True, omit_defaults=False):
    """The ids and capabilities of the channel."""

    id: str = "a2a"
    plugin_id: str = "openclaw-a2a-inbound"
    label: str = "A2A Inbound"
    docs_path: str = "/channels/a2a"
    capabilities: ChannelCapabilities = ChannelCapabilities()
    queued_reply: QueuedReplyMode = QueuedReplyMode()


CHANNEL = ChannelDescriptor()
"""The inbound A2A channel."""


class OutboundRefusal:
    """Outbound delivery of the channel: not supported.

    Remote agents are called with the tool `remote_agent`, which has its own target policy.
    """

    delivery_mode: Literal["direct"] = "direct"

    async def send_text(self, to: str, text: str, **more: Json) -> NoReturn:
        """Not supported. Raises: UnsupportedOperation."""
        raise _unsupported(to)

    async def send_media(self, to: str, media_url: str, **more: Json) -> NoReturn:
        """Not supported. Raises: UnsupportedOperation."""
        raise _unsupported(to)

    async def send_payload(self, to: str, payload: Json, **more: Json) -> NoReturn:
        """Not supported. Raises: UnsupportedOperation."""
        raise _unsupported(to)


def _unsupported(to: str) -> UnsupportedOperation:
    return UnsupportedOperation(
        f"A2A_OUTBOUND_DELIVERY_UNSUPPORTED: nothing can be sent to {to[:80]} through the channel "
        "a2a; call remote agents with the tool remote_agent instead"
    )
