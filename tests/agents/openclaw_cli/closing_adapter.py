"""A process that cancels tasks of an adapter and closes it: `closing_adapter.py MOMENT...`.

Run with warnings as errors, what is left behind by a moment is on standard error: a coroutine that
nobody awaited, a pipe or a loop that nobody closed. The fake command is in the variables.
"""

import asyncio
import gc
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from openclaw_a2a import OpenClawAgentAdapter
from openclaw_a2a.model.task import TaskState, is_terminal

Moment = Callable[[OpenClawAgentAdapter], Awaitable[None]]
WAIT_S = 240.0


async def start(adapter: OpenClawAgentAdapter, text: str = "hang", context: str = "c") -> str:
    parts = [{"kind": "text", "text": text}]
    message = {"role": "user", "parts": parts, "messageId": text, "contextId": context}
    return (await adapter.handle({"message": message})).id


async def state_of(adapter: OpenClawAgentAdapter, task_id: str) -> TaskState:
    task = await adapter.get_task(task_id)
    assert task is not None
    return task.status.state


def has_logged(member: str) -> bool:
    """True when the fake command has said something about itself."""
    log = Path(os.environ["FAKE_LOG"])
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return any(member in json.loads(line) for line in lines)


async def logged(member: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while not has_logged(member):  # noqa: ASYNC110 - another process says it
            await asyncio.sleep(0.01)


async def at_once(adapter: OpenClawAgentAdapter) -> None:
    await adapter.cancel_task(await start(adapter))


async def as_it_starts(adapter: OpenClawAgentAdapter) -> None:
    task_id = await start(adapter)
    await logged("argv")
    await adapter.cancel_task(task_id)


async def at_work(adapter: OpenClawAgentAdapter) -> None:
    task_id = await start(adapter)
    await logged("child")
    await adapter.cancel_task(task_id)


async def queued(adapter: OpenClawAgentAdapter) -> None:
    await start(adapter)
    await adapter.cancel_task(await start(adapter, "two"))


async def ended(adapter: OpenClawAgentAdapter) -> None:
    task_id = await start(adapter, "hi")
    async with asyncio.timeout(WAIT_S):
        while not is_terminal(await state_of(adapter, task_id)):  # noqa: ASYNC110 - as clients do
            await asyncio.sleep(0.01)
    await adapter.cancel_task(task_id)


async def several(adapter: OpenClawAgentAdapter) -> None:
    task_id = await start(adapter)
    await logged("child")
    await asyncio.gather(*(adapter.cancel_task(task_id) for _ in range(3)))


async def not_awaited(adapter: OpenClawAgentAdapter) -> None:
    """The cancellation is under way when the adapter is closed."""
    task_id = await start(adapter)
    await logged("child")
    canceling = asyncio.create_task(adapter.cancel_task(task_id))
    await asyncio.sleep(0)
    await adapter.close()
    await asyncio.gather(canceling, return_exceptions=True)


async def interrupted(adapter: OpenClawAgentAdapter) -> None:
    """Whoever canceled the task is canceled too, after more and more steps of the loop."""
    for steps in range(4):
        task_id = await start(adapter, f"hang {steps}", f"c-{steps}")
        canceling = asyncio.create_task(adapter.cancel_task(task_id))
        for _ in range(steps):
            await asyncio.sleep(0)
        canceling.cancel()
        await asyncio.gather(canceling, return_exceptions=True)


async def with_webhook(adapter: OpenClawAgentAdapter) -> None:
    """The webhook of the canceled task does not answer: its notification is under way."""
    asked = asyncio.Event()

    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    for steps in (None, 0, 1, 5):
        async with await asyncio.start_server(stay_silent, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            task_id = await start(adapter, f"hang {steps}", f"c-{steps}")
            webhook = {"url": f"http://127.0.0.1:{port}/"}
            assert await adapter.set_push_notification_config(task_id, webhook)
            await adapter.cancel_task(task_id)
            if steps is None:
                async with asyncio.timeout(WAIT_S):
                    await asked.wait()
            for _ in range(steps or 0):
                await asyncio.sleep(0)
            await adapter.close()


async def closed_in_between(adapter: OpenClawAgentAdapter) -> None:
    """The first close is interrupted; the next one finishes it."""
    await adapter.cancel_task(await start(adapter))
    await start(adapter, "two")
    closing = asyncio.create_task(adapter.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)


MOMENTS: dict[str, Moment] = {
    one.__name__: one
    for one in (
        at_once,
        as_it_starts,
        at_work,
        queued,
        ended,
        several,
        not_awaited,
        interrupted,
        with_webhook,
        closed_in_between,
    )
}


async def play(moment: Moment) -> None:
    names = ("OPENCLAW_STATE_DIR", "FAKE_LOG")
    adapter = OpenClawAgentAdapter(
        openclaw_path=os.environ["FAKE_PROGRAM"], env_vars={one: os.environ[one] for one in names}
    )
    await moment(adapter)
    await adapter.close()
    await adapter.close()


def run(work: Coroutine[Any, Any, None]) -> None:
    """In a loop that is closed as it is: `asyncio.run` would cancel and await what is left."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(work)
    left = asyncio.all_tasks(loop)
    loop.close()
    assert not left, left


if __name__ == "__main__":
    logging.getLogger("openclaw_a2a").addHandler(logging.NullHandler())
    for name in sys.argv[1:]:
        Path(os.environ["FAKE_LOG"]).unlink(missing_ok=True)
        run(play(MOMENTS[name]))
        gc.collect()
