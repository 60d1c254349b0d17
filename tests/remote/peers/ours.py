"""A peer on our own inbound: `python ours.py PORT`.

It does as the text says; see a2a_sdk_1_0.py.
"""

import asyncio
import sys
from collections.abc import AsyncIterator

from openclaw_a2a import Turn, serve
from openclaw_a2a.model.agent_event import AgentEvent, InputRequired, Note


async def answer(text: str, turn: Turn) -> AsyncIterator[str | AgentEvent]:
    """Talks."""
    kind, _, rest = text.partition(":")
    if kind == "hello":
        yield "hello back"
        return
    yield Note("at work")  # what a message cannot hold makes a task of the answer
    if kind == "ask":
        yield InputRequired("which colour?")
    elif kind == "hold":
        yield "holding"
        await asyncio.sleep(60)
    elif kind == "slow":
        await asyncio.sleep(1.5)
        yield "at last"
    elif kind == "chunks":
        for index in range(int(rest)):
            yield f"<{index}>"
    else:
        yield rest or text


if __name__ == "__main__":
    serve(
        answer,
        name="answer",
        port=int(sys.argv[1]),
        settings={"channels.a2a.accounts.default.agentStyle": "hybrid", "store.kind": "memory"},
    )
