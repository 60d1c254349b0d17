"""Time, as the engine needs it."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Time, so that tests can have their own."""

    def now(self) -> datetime:
        """The time of day, UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...
