"""Ask OpenClaw and wait for the answer: no task, no polling.

Needs the program `openclaw` on the PATH.  Usage: python openclaw_sync.py Say hello
"""

import asyncio
import sys

from openclaw_a2a import OpenClawAgentAdapter


async def main(text: str) -> None:
    """Print what the agent `main` answers."""
    async with OpenClawAgentAdapter(agent_id="main", async_mode=False) as adapter:
        message = {"role": "ROLE_USER", "parts": [{"text": text}], "contextId": "example"}
        answer = await adapter.handle({"message": message})
        print(answer.text)


asyncio.run(main(" ".join(sys.argv[1:]) or "Say hello."))
