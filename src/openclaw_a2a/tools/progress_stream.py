"""Runs a tool and passes its updates on, in order, to a client that may be slow."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from openclaw_a2a.auth.tool_tokens import ToolCaller
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.tools.registry import BuildUpdate, Tool

_MAX_WAITING = 256
ShowUpdate = Callable[[JsonObject], Awaitable[None]]


class Heartbeat(msgspec.Struct, frozen=True):
    """What to send when a tool has no update for so long."""

    interval_s: float
    send: Callable[[], Awaitable[None]]


async def run_with_progress(
    tool: Tool,
    arguments: Json,
    caller: ToolCaller,
    show: ShowUpdate,
    *,
    heartbeat: Heartbeat | None = None,
) -> JsonObject:
    """The tool's result, after its updates were shown.

    A client that is slow misses updates, and never holds up the tool. Raises: what `show` raises.
    """
    updates: asyncio.Queue[BuildUpdate | None] = asyncio.Queue(_MAX_WAITING)

    def report(build: BuildUpdate) -> None:
        if not updates.full():
            updates.put_nowait(build)

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_show_all(updates, show, heartbeat))
            result = await tool.run(arguments, caller, report)
            if updates.full():
                updates.get_nowait()
            updates.put_nowait(None)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return result


async def _show_all(
    updates: "asyncio.Queue[BuildUpdate | None]", show: ShowUpdate, heartbeat: Heartbeat | None
) -> None:
    # One task sends updates and heartbeats, so that they never interleave on the connection.
    while True:
        try:
            async with asyncio.timeout(None if heartbeat is None else heartbeat.interval_s):
                build = await updates.get()
        except TimeoutError:
            if heartbeat is not None:
                await heartbeat.send()
            continue
        if build is None:
            return
        await show(build())
