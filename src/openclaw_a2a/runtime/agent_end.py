"""How an agent's stream of events is left: closed, and where it raised."""

import traceback
from collections.abc import AsyncIterator

from openclaw_a2a.model.reply import AgentEvent


async def close_stream(stream: AsyncIterator[AgentEvent]) -> None:
    """Stop reading; what the agent started has ended when this returns."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()


def raised_at(error: Exception) -> str:
    """The line that raised, for whoever wrote the agent."""
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "unknown"
