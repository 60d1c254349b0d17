"""Ask OpenClaw, get a task at once, and look at it until it has ended.

Needs the program `openclaw` on the PATH.  Usage: python openclaw_polling_client.py Say hello
"""

import asyncio
import sys

from openclaw_a2a import OpenClawAgentAdapter

ENDED = {"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED"}


async def main(text: str) -> None:
    """Print every state of the task, and its last message."""
    async with OpenClawAgentAdapter(agent_id="main") as adapter:
        message = {"role": "ROLE_USER", "parts": [{"text": text}], "contextId": "example"}
        task = await adapter.handle({"message": message})
        while task.status.state.value not in ENDED:
            print(task.id, task.status.state.value, flush=True)
            await asyncio.sleep(1)
            task = await adapter.get_task(task.id)
        print(task.id, task.status.state.value)
        print(task.status.message.text)


asyncio.run(main(" ".join(sys.argv[1:]) or "Say hello."))
