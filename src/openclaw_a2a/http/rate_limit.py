"""Limits how many requests a peer may make, with a token bucket for each.

`AccountEndpoint.admit` counts every A2A request once. Calls between agents and plan steps do not
pass there; `engine/scheduling/session_queue` limits their runs.
"""

from collections.abc import Callable

from openclaw_a2a.model.errors import Overloaded
from openclaw_a2a.model.ids import PeerName


class RateLimit:
    """A bucket for each peer that refills at `per_second` and holds two seconds' worth.

    Peers are the configured ones, so the number of buckets is bounded.
    """

    def __init__(self, per_second: float, *, monotonic: Callable[[], float]) -> None:
        self._per_second = per_second
        self._capacity = max(1.0, per_second * 2)
        self._monotonic = monotonic
        self._buckets: dict[PeerName, tuple[float, float]] = {}

    def count(self, peer: PeerName) -> None:
        """Count one request. Raises: Overloaded."""
        now = self._monotonic()
        left, since = self._buckets.get(peer, (self._capacity, now))
        left = min(self._capacity, left + (now - since) * self._per_second)
        if left < 1:
            wait_s = (1 - left) / self._per_second
            # Nothing is taken: a peer that keeps asking is still served at its rate.
            raise Overloaded(
                f"{peer} makes more than {self._per_second:g} requests a second; slow down",
                retry_after_s=wait_s,
            )
        self._buckets[peer] = (left - 1, now)
