"""Limits how many requests a caller may make, with token buckets for each.

`AccountEndpoint.admit` counts every A2A request once, `ToolGuard` every request to tools. Calls
between agents and plan steps do not pass there; `engine/scheduling/session_queue` limits their
runs.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from openclaw_a2a.model.errors import Overloaded
from openclaw_a2a.model.ids import PeerName

_MAX_PEERS = 10_000
"""Above so many, peers whose buckets are full again are forgotten; they lose nothing by that."""


class RequestLimit(Protocol):
    """Counts requests; `RateLimit` does it for one process, others may for several together."""

    def count(self, peer: PeerName) -> None:
        """Count one request. Raises: Overloaded."""
        ...


class _Rate(NamedTuple):
    """How fast a bucket refills, and how much it holds."""

    per_second: float
    capacity: float
    said: str
    setting: str


class RateLimit:
    """Two buckets for each peer: one for bursts, of two seconds, and one of a minute."""

    def __init__(
        self, *, per_second: float, per_minute: float, monotonic: Callable[[], float]
    ) -> None:
        """A rate of 0 limits nothing."""
        rates = [
            _Rate(
                per_second,
                max(1.0, per_second * 2),
                f"{per_second:g} requests a second",
                "limits.perPeerRate",
            ),
            _Rate(
                per_minute / 60,
                max(1.0, per_minute),
                f"{per_minute:g} requests a minute",
                "limits.perPeerRequests",
            ),
        ]
        self._rates = [rate for rate in rates if rate.per_second]
        self._monotonic = monotonic
        self._buckets: dict[PeerName, tuple[float, list[float]]] = {}
        self._forget_at = _MAX_PEERS

    def count(self, peer: PeerName) -> None:
        """Count one request. Raises: Overloaded."""
        now = self._monotonic()
        levels = self._levels(peer, now)
        for rate, level in zip(self._rates, levels, strict=True):
            if level < 1:
                # Nothing is taken: a peer that keeps asking is still served at its rate.
                raise Overloaded(
                    f"{peer} makes more than {rate.said}; slow down",
                    retry_after_s=(1 - level) / rate.per_second,
                    setting=rate.setting,
                )
        if len(self._buckets) >= self._forget_at:
            self._forget_idle(now)
        self._buckets[peer] = (now, [level - 1 for level in levels])

    def _levels(self, peer: PeerName, now: float) -> list[float]:
        since, levels = self._buckets.get(peer, (now, [rate.capacity for rate in self._rates]))
        return [
            min(rate.capacity, level + (now - since) * rate.per_second)
            for rate, level in zip(self._rates, levels, strict=True)
        ]

    def _forget_idle(self, now: float) -> None:
        full = [rate.capacity for rate in self._rates]
        self._buckets = {
            peer: bucket
            for peer, bucket in self._buckets.items()
            if self._levels(peer, now) != full
        }
        # Twice as many as were kept: looking at all of them stays rare when none is idle.
        self._forget_at = max(_MAX_PEERS, 2 * len(self._buckets))
