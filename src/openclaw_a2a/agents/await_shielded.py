"""Waiting for what must not be left half done, such as a thread or the end of a process."""

import asyncio
from typing import TypeVar

import anyio
import anyio.lowlevel

_Result = TypeVar("_Result")


async def await_shielded(work: asyncio.Future[_Result]) -> _Result:
    """The result of `work`, which goes on to its end even when the caller is cancelled.

    A cancellation that arrives meanwhile is raised afterwards, unless the work itself failed.
    """
    cancellation: asyncio.CancelledError | None = None
    # The scope holds off cancel scopes; the loop holds off a bare `Task.cancel()`.
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
