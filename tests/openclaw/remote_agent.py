"""A remote agent in a process of its own: `python remote_agent.py PORT FOLDER`.

It does as the text says: `question` asks back and goes on with the answer, `slowly` tells
something and then nothing more until it is stopped, anything else is heard.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator

from openclaw_a2a import Turn, serve
from openclaw_a2a.model.agent_event import InputRequired


async def answer(text: str, turn: Turn) -> AsyncGenerator[str | InputRequired]:
    if turn.resume is not None:
        yield f"deployed after {text}"
    elif text.startswith("question"):
        yield InputRequired("Deploy now?", resume={"asked": text})
    elif text.startswith("slowly"):
        yield "first words"
        await asyncio.Event().wait()
    else:
        yield f"heard {text}"


if __name__ == "__main__":
    style = {"channels.a2a.accounts.default.agentStyle": "task-generating"}
    quiet = {"data": sys.argv[2], "log.level": "error"}
    sys.exit(serve(answer, name="Remote", port=int(sys.argv[1]), settings={**quiet, **style}))
