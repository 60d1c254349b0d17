"""The clock that the engine uses; tests pass their own."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Reads the time and waits."""

    def now(self) -> datetime:
        """The current time, UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...
