"""The bench agent behind our gateway: it answers as the text of the message says.

echo:X       one reply holding the text
chunks:N:B   N pieces of B bytes of one reply
hist:N       N notes on the progress
hold:S       nothing for S seconds
"""

import asyncio
from collections.abc import AsyncIterator

from openclaw_a2a.model.agent_event import AgentEvent, Note, Reply, TextDelta
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery


class BenchAgent:
    """An agent that costs nothing itself, so that only the gateway is measured."""

    recovery = Recovery.REPEAT

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Answer; between two pieces everybody else gets their turn."""
        kind, *rest = turn.body.split(":")
        match kind, rest:
            case "chunks", [count, size]:
                piece = TextDelta("x" * int(size))
                for _ in range(int(count)):
                    yield piece
                    await asyncio.sleep(0)
            case "hist", [count]:
                for step in range(int(count)):
                    yield Note(f"step {step}")
                    await asyncio.sleep(0)
            case "hold", [seconds]:
                await asyncio.sleep(float(seconds))
            case _:
                yield Reply.of_text(turn.body)

    async def close(self) -> None:
        """There is nothing to let go of."""
