"""Reading what somebody yields, and closing it when it is read no further."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

_Item = TypeVar("_Item")


@asynccontextmanager
async def closing(steps: AsyncIterator[_Item]) -> AsyncGenerator[AsyncIterator[_Item]]:
    """The iterator; it is closed afterwards, when that is possible."""
    try:
        yield steps
    finally:
        close = getattr(steps, "aclose", None)
        if close is not None:
            await close()
