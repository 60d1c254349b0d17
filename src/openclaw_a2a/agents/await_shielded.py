"""Waits for work that must not be left half done, such as a thread or the end of a process."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from openclaw_a2a.engine.supervisor import Supervisor

_Result = TypeVar("_Result")


async def run_shielded(name: str, work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of `work`, which runs to its end even when the caller is cancelled.

    A cancellation that arrives meanwhile is raised afterwards, unless the work itself failed.
    """
    return await await_shielded(Supervisor("agents").start(name, work))


async def await_shielded(work: asyncio.Task[_Result]) -> _Result:
    """The result of a task that has begun already; otherwise as `run_shielded`."""
    cancellation: asyncio.CancelledError | None = None
    # The scope holds off cancel scopes of anyio; the loop holds off a bare `Task.cancel()`.
    with anyio.CancelScope(shield=True):
        while not work.done():
            try:
                await asyncio.wait((work,))
            except asyncio.CancelledError as error:
                cancellation = error
    result = work.result()
    if cancellation is not None:
        raise cancellation
    await anyio.lowlevel.checkpoint_if_cancelled()
    return result
