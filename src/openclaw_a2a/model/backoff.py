"""Exponential back-off: how long to wait before the next attempt."""

import msgspec

_MAX_EXPONENT = 60  # keeps 2.0 ** n a finite float for any number of attempts


class Backoff(msgspec.Struct, frozen=True, gc=False):
    """Delays that start at `first_s` and grow by `factor` up to `max_s`.

    `jitter` is the share of a delay that the random roll may take away, so that clients which
    failed together do not retry together.
    """

    first_s: float = 1.0
    max_s: float = 3600.0
    factor: float = 2.0
    jitter: float = 0.5

    def delay_s(
        self, attempt: int, *, roll: float = 0.0, retry_after_s: float | None = None
    ) -> float:
        """The delay after failed attempt number `attempt` (the first is 1).

        `roll` is a random number from 0 to 1. The delay is at least `retry_after_s`, the wait the
        other side asked for, but never more than `max_s`.
        """
        grown = self.first_s * self.factor ** min(max(attempt, 1) - 1, _MAX_EXPONENT)
        delay = min(grown, self.max_s) * (1.0 - roll * self.jitter)
        return max(delay, min(retry_after_s or 0.0, self.max_s))
