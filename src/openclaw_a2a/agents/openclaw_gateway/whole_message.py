"""Messages of a transcript in full: a session's history shows the long ones cut off."""

from typing import Final

from msgspec import Raw

from openclaw_a2a.agents.openclaw_gateway.frames import Wire
from openclaw_a2a.agents.openclaw_gateway.link import Link
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import JsonObject

_ASK_S: Final = 60.0


class _Message(Wire, frozen=True):
    content: Raw = Raw(b"null")


class _Answer(Wire, frozen=True):
    message: _Message | None = None


async def whole_content(link: Link, session_key: str, message_id: str) -> Raw | None:
    """All that a message says; None when the gateway does not give it out.

    Raises: AgentUnavailable.
    """
    params: JsonObject = {"sessionKey": session_key, "messageId": message_id}
    try:
        answer = await link.read(_Answer, "chat.message.get", params, timeout_s=_ASK_S)
    except AgentFailed:
        return None
    return None if answer.message is None else answer.message.content
