"""Admits the requests of callers: each within its rate, and in fair turns.

`AccountEndpoint.admit` admits every A2A request once, `ToolGuard` every request to tools. Calls
between agents and plan steps do not pass there; a limit for those, or one per agent, belongs in
`engine/tasks/submit.submit`, through which every message comes. Rates are per caller; how many runs
an agent, a caller or the gateway has at once is limited by `engine/scheduling/session_queue`.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from openclaw_a2a.model.errors import Overloaded
from openclaw_a2a.model.ids import PeerName

_MAX_PEERS = 10_000
"""Above this number, peers with full buckets are removed; they lose nothing by that."""

_REFUSAL_PAUSE_S = 0.25
"""Delay of a refusal past the rate: a client that retries at once cannot retry faster."""
_REFUSAL_GAP_S = 0.01
"""The minimum interval between two refusals of one caller, on all its connections."""
_MOST_REFUSAL_S = 2.0
"""The maximum delay of a refusal: a delayed request occupies memory."""


_BEGUN_PER_TURN = 4
"""How many requests of one caller begin in a turn of the event loop."""


class RequestLimit(Protocol):
    """Counts requests: `RateLimit` for one process, `SharedRateLimit` for several together."""

    def count(self, peer: PeerName) -> Awaitable[None] | None:
        """Count one request; None, or an awaitable that completes the count. Raises: Overloaded."""
        ...

    def usage(self) -> dict[PeerName, int]:
        """How many requests of each peer count against its rate now, of the last minute at most."""
        ...


class Rate(NamedTuple):
    """How fast a bucket refills, and how much it holds."""

    per_second: float
    capacity: float
    said: str
    setting: str

    def refuse(self, peer: PeerName, retry_after_s: float) -> Overloaded:
        """The error for a request past this rate."""
        return Overloaded(
            f"{peer} makes more than {self.said}; slow down",
            retry_after_s=retry_after_s,
            setting=self.setting,
        )


class RateLimit:
    """Two buckets for each peer: one for bursts, of two seconds, and one of a minute."""

    def __init__(
        self, *, per_second: float, per_minute: float, monotonic: Callable[[], float]
    ) -> None:
        """A rate of 0 limits nothing."""
        self.rates = [
            Rate(
                per_second,
                max(1.0, per_second * 2),
                f"{per_second:g} requests a second",
                "limits.perPeerRate",
            ),
            Rate(
                per_minute / 60,
                max(1.0, per_minute),
                f"{per_minute:g} requests a minute",
                "limits.perPeerRequests",
            ),
        ]
        """Of a second and of a minute, also where they limit nothing."""
        self._rates = [rate for rate in self.rates if rate.per_second]
        self._monotonic = monotonic
        self._buckets: dict[PeerName, tuple[float, list[float]]] = {}
        self._forget_at = _MAX_PEERS

    def count(self, peer: PeerName) -> None:
        """Count one request. Raises: Overloaded."""
        now = self._monotonic()
        levels = self._levels(peer, now)
        for rate, level in zip(self._rates, levels, strict=True):
            if level < 1:
                # No token is taken: a peer that keeps retrying is still served at its rate.
                raise rate.refuse(peer, (1 - level) / rate.per_second)
        if len(self._buckets) >= self._forget_at:
            self._forget_idle(now)
        self._buckets[peer] = (now, [level - 1 for level in levels])

    def usage(self) -> dict[PeerName, int]:
        """How many requests of each peer count against its rate now, of the last minute at most."""
        now = self._monotonic()
        if not self._rates:
            return {}
        return {
            peer: round(self._rates[-1].capacity - self._levels(peer, now)[-1])
            for peer in self._buckets
        }

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
        # Twice as many as are left: a scan of all peers stays rare even if none is idle.
        self._forget_at = max(_MAX_PEERS, 2 * len(self._buckets))


class RequestAdmission:
    """Admits requests: each caller within its rate, and a few per turn of the event loop.

    A caller may send hundreds of requests at once. If they all began in one turn, the requests of
    other callers would wait for all of them; this way they wait for a few at most.
    """

    def __init__(self, rate_limit: RequestLimit) -> None:
        self._rate_limit = rate_limit
        # Invariant: a caller with waiting requests has used its turn; further requests wait, too.
        self._begun: dict[PeerName, int] = {}
        """How many requests of a caller have begun in this turn."""
        self._waiting: dict[PeerName, deque[asyncio.Future[None]]] = {}
        self._refused_at: dict[PeerName, float] = {}
        """When the last refusal of a caller is due."""

    async def admit(self, caller: PeerName) -> None:
        """Wait until a request may begin, which it must do at once. Raises: Overloaded."""
        try:
            waiting = self._rate_limit.count(caller)
            if waiting is not None:
                await waiting
        except Overloaded:
            await self._wait_refused(caller)
            raise
        begun = self._begun.get(caller, 0)
        if begun < _BEGUN_PER_TURN:
            if not self._begun:
                asyncio.get_running_loop().call_soon(self._begin_turn)
            self._begun[caller] = begun + 1
            return
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(ticket)
        await ticket

    def _begin_turn(self) -> None:
        """Admit a few waiting requests of each caller; requests of this turn come after them."""
        self._begun = {}
        for caller, waiting in list(self._waiting.items()):
            begun = 0
            while waiting and begun < _BEGUN_PER_TURN:
                ticket = waiting.popleft()
                if not ticket.done():  # otherwise its request was cancelled
                    ticket.set_result(None)
                    begun += 1
            if begun:
                self._begun[caller] = begun
            if not waiting:
                del self._waiting[caller]
        if self._begun:
            asyncio.get_running_loop().call_soon(self._begin_turn)

    async def _wait_refused(self, caller: PeerName) -> None:
        now = asyncio.get_running_loop().time()
        if len(self._refused_at) > _MAX_PEERS:
            self._refused_at = {one: at for one, at in self._refused_at.items() if at > now}
        at = max(now + _REFUSAL_PAUSE_S, self._refused_at.get(caller, 0.0) + _REFUSAL_GAP_S)
        at = self._refused_at[caller] = min(at, now + _MOST_REFUSAL_S)
        await asyncio.sleep(at - now)
