"""A value that comes once, for any number of waiters that may go away at any time."""

import asyncio
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Once(Generic[Value]):
    """Set once, read by everybody. A waiter that is cancelled takes nobody along."""

    __slots__ = ("_value", "_waiters", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._value: Value | None = None
        self._waiters: list[asyncio.Future[None]] | None = None

    def set(self, value: Value) -> None:
        """Set the value, unless it is set already."""
        if self.is_set:
            return
        self.is_set, self._value = True, value
        for waiter in self._waiters or ():
            if not waiter.done():
                waiter.set_result(None)
        self._waiters = None

    async def wait(self, seconds: float | None = None) -> Value:
        """The value, when it is there. Raises: TimeoutError."""
        if not self.is_set:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters = [*(self._waiters or ()), waiter]
            if seconds is None:
                await waiter
            else:
                await asyncio.wait_for(waiter, seconds)
        return self.peek()

    def peek(self) -> Value:
        """The value, which must be set."""
        if not self.is_set:
            raise LookupError("the value is not there yet")
        return self._value  # pyright: ignore[reportReturnType] - None only when Value allows it
