"""Waiting for what must not be left half done, such as a thread or the end of a process."""

import asyncio
from typing import TypeVar

import anyio

_Result = TypeVar("_Result")


async def finish(work: asyncio.Future[_Result]) -> _Result:
    """The result of `work`, which goes on to its end even when the caller is cancelled.

    A cancellation that arrives meanwhile is raised afterwards, instead of the result.
    """
    cancellation: asyncio.CancelledError | None = None
    # The scope holds off cancel scopes; the loop holds off a bare `Task.cancel()`.
    with anyio.CancelScope(shield=True):
        while not work.done():
            try:
                await asyncio.wait((work,))
            except asyncio.CancelledError as error:
                cancellation = error
    if cancellation is None:
        return work.result()
    if not work.cancelled():
        work.exception()  # looked at, so that nobody is told it was forgotten
    raise cancellation
