"""The tools that the gateway offers, and running one for a client that may be slow."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any

import msgspec

from openclaw_a2a.auth.tool_tokens import ToolCaller
from openclaw_a2a.model.ids import Json, JsonObject

BuildUpdate = Callable[[], JsonObject]
OnUpdate = Callable[[BuildUpdate], None]
"""Reports progress. The update is built only when it is shown: it may be large."""

RunTool = Callable[[Json, ToolCaller, OnUpdate], Coroutine[Any, Any, JsonObject]]


def ignore_update(_build: BuildUpdate) -> None:
    """For callers that want the result only."""


def ignore_result(_result: JsonObject) -> None:
    """For tools that need not know whether a result was written."""


class ToolDescription(msgspec.Struct, frozen=True, rename="camel"):
    """A tool for those who may call it."""

    name: str
    label: str
    description: str
    input_schema: JsonObject


class ToolList(msgspec.Struct, frozen=True):
    """The body of `GET /tools`."""

    tools: tuple[ToolDescription, ...]


class Tool(msgspec.Struct, frozen=True):
    """A tool. It answers every call with an object and raises nothing but a cancellation."""

    name: str
    label: str
    description: str
    schema: JsonObject
    run: RunTool
    on_written: Callable[[JsonObject], None] = ignore_result
    """Called when a result was written to the caller's connection."""
    on_lost: Callable[[JsonObject], None] = ignore_result
    """Called instead when the caller had disconnected before."""
    is_offered: bool = True
    """False for a tool that is switched off: it is not listed, and answers why."""


class ToolRegistry:
    """The tools by name: enabled tools are listed, disabled ones can only be looked up."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._offered = [tool for tool in self._tools.values() if tool.is_offered]

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._offered)

    def __len__(self) -> int:
        return len(self._offered)

    def find(self, name: str) -> Tool | None:
        """The tool, also one that is switched off."""
        return self._tools.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the offered tools, in the order of registration."""
        return tuple(tool.name for tool in self._offered)

    def encode(self) -> bytes:
        """The JSON that describes the offered tools, as `GET /tools` has it."""
        listed = [
            ToolDescription(one.name, one.label, one.description, one.schema)
            for one in self._offered
        ]
        return msgspec.json.encode(ToolList(tuple(listed)))


_MAX_WAITING = 256
ShowUpdate = Callable[[JsonObject], Awaitable[None]]


class Heartbeat(msgspec.Struct, frozen=True):
    """`send` is called whenever a tool has reported no update for `interval_s`."""

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

    A client that is slow misses updates, the oldest first, and never holds up the tool; the next
    update says how many. Raises: what `show` raises.
    """
    unshown: JsonObject | None = None
    updates = _WaitingUpdates()

    try:
        async with asyncio.TaskGroup() as group:
            # When showing fails, the group cancels the tool: its client is gone.
            group.create_task(_show_all(updates, show, heartbeat))
            result = unshown = await tool.run(arguments, caller, updates.put)
            updates.close()
        unshown = None
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        # The client disconnected while the last updates were shown: the tool has returned, so
        # that neither a cancellation nor the write of its result will tell it.
        if unshown is not None:
            tool.on_lost(unshown)
    return result


class _WaitingUpdates:
    """The newest updates that were not shown yet; the oldest are dropped, and counted."""

    def __init__(self) -> None:
        self._waiting: deque[BuildUpdate] = deque()
        self._dropped = 0
        self._is_closed = False
        self._changed = asyncio.Event()

    def put(self, build: BuildUpdate) -> None:
        if len(self._waiting) == _MAX_WAITING:
            self._waiting.popleft()
            self._dropped += 1
        self._waiting.append(build)
        self._changed.set()

    def close(self) -> None:
        """Nothing follows."""
        self._is_closed = True
        self._changed.set()

    async def next(self) -> JsonObject | None:
        """The oldest update, with how many were dropped before it; None at the end."""
        while not self._waiting:
            if self._is_closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        update = self._waiting.popleft()()
        dropped, self._dropped = self._dropped, 0
        return {**update, "dropped_updates": dropped} if dropped else update


async def _show_all(
    updates: _WaitingUpdates, show: ShowUpdate, heartbeat: Heartbeat | None
) -> None:
    # One task sends updates and heartbeats, so that they never interleave on the connection.
    while True:
        try:
            async with asyncio.timeout(None if heartbeat is None else heartbeat.interval_s):
                update = await updates.next()
        except TimeoutError:
            if heartbeat is not None:
                await heartbeat.send()
            continue
        if update is None:
            return
        await show(update)
