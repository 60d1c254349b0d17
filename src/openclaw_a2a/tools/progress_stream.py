"""Runs a tool while its updates are passed on, in order, to somebody who may be slow."""

import asyncio
from collections.abc import Awaitable, Callable

from openclaw_a2a.auth.tool_tokens import ToolCaller
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.tools.registry import Tool

_MOST_WAITING = 256
_STOP_S = 5.0
Show = Callable[[JsonObject], Awaitable[None]]


async def run_with_progress(
    tool: Tool, arguments: Json, caller: ToolCaller, show: Show
) -> JsonObject:
    """The tool's answer, after every update was shown.

    Whoever is slow to be shown updates misses some of them, and never holds up the tool.
    """
    updates: asyncio.Queue[JsonObject | None] = asyncio.Queue(_MOST_WAITING)

    def tell(update: JsonObject) -> None:
        if not updates.full():
            updates.put_nowait(update)

    showing = asyncio.ensure_future(_show_all(updates, show))
    try:
        answer = await tool.run(arguments, caller, tell)
        if updates.full():
            updates.get_nowait()
        updates.put_nowait(None)
        await showing
        return answer
    finally:
        await cancel_and_wait(showing)


async def cancel_and_wait(*tasks: "asyncio.Future[Json]") -> None:
    """End tasks, and wait until they have ended; how they ended is nobody's concern any more."""
    for task in tasks:
        task.cancel()
    ended, _ = await asyncio.wait(tasks, timeout=_STOP_S)
    for task in ended:
        if not task.cancelled():
            task.exception()


async def _show_all(updates: "asyncio.Queue[JsonObject | None]", show: Show) -> None:
    while (update := await updates.get()) is not None:
        await show(update)
