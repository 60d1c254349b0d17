"""Repeats a request over the network after failures that are safe to repeat."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from openclaw_a2a.model.backoff import Backoff

_T = TypeVar("_T")


async def retry(
    request: Callable[[], Awaitable[_T]],
    *,
    attempts: int,
    backoff: Backoff,
    is_safe: Callable[[Exception], bool],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> _T:
    """The first answer, or the error of the last attempt.

    `is_safe` decides whether a failed request may be made again: only the caller knows whether the
    other side can have acted on it.
    """
    for attempt in range(1, attempts):
        try:
            return await request()
        except Exception as error:
            if not is_safe(error):
                raise
        await sleep(backoff.delay_s(attempt))
    return await request()
