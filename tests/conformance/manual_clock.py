"""A clock that tests advance."""

from datetime import UTC, datetime, timedelta

import anyio


class ManualClock:
    """A clock a test can put forward; its sleepers wake at once when it is."""

    def __init__(self, ahead: timedelta = timedelta()) -> None:
        self._ahead = ahead
        self._moved = anyio.Event()

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    async def sleep(self, seconds: float) -> None:
        until = self.now() + timedelta(seconds=seconds)
        while (left := (until - self.now()).total_seconds()) > 0:
            with anyio.move_on_after(left):
                await self._moved.wait()

    def advance(self, delta: timedelta) -> None:
        self._ahead += delta
        moved, self._moved = self._moved, anyio.Event()
        moved.set()
