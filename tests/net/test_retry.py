"""Requests are repeated only after failures that are safe to repeat."""

import pytest

from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.net.retry import retry

BACKOFF = Backoff(first_s=0.2, factor=5.0, max_s=1.0, jitter=0.0)


class Requests:
    """Fails as often as it is told, then answers."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.made = 0
        self.slept: list[float] = []

    async def make(self) -> str:
        self.made += 1
        if self.failures:
            raise self.failures.pop(0)
        return "answer"

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def run(self, attempts: int = 3) -> str:
        return await retry(
            self.make,
            attempts=attempts,
            backoff=BACKOFF,
            is_safe=lambda error: isinstance(error, OSError),
            sleep=self.sleep,
        )


async def test_a_safe_failure_is_repeated_after_a_growing_delay() -> None:
    requests = Requests(OSError(), OSError())
    assert await requests.run() == "answer"
    assert (requests.made, requests.slept) == (3, [0.2, 1.0])


async def test_an_unsafe_failure_is_not_repeated() -> None:
    requests = Requests(ValueError())
    with pytest.raises(ValueError):
        await requests.run()
    assert (requests.made, requests.slept) == (1, [])


async def test_the_last_failure_is_raised() -> None:
    requests = Requests(OSError("first"), OSError("second"), OSError("third"))
    with pytest.raises(OSError, match="third"):
        await requests.run()
    assert requests.made == 3
