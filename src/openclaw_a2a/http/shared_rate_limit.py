"""Rate limits that several gateways on one database keep together.

The token buckets are in the database. Each gateway reserves tokens in batches, for about half a
second of a caller's traffic, spends them in memory, and returns unused ones after a second. A
caller that is well below its limit may overdraw by 2 % at each gateway instead of waiting for a
batch.

Nothing is written while no requests come. Without the database each gateway limits on its own.
"""

import asyncio
from collections.abc import Awaitable, Callable

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.http.rate_limit import Rate, RateLimit
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import PeerName
from openclaw_a2a.ports import RateAnswer, RateBucket, RateRequest, RateStore

log = get_logger(__name__)

_AHEAD_S = 0.5
"""For how long a portion should last."""
_COLLECT_S = 0.1
"""The minimum interval between exchanges that no request waits for."""
_GAP_S = 0.005
"""The same for exchanges that a request waits for: several callers share one."""
_EMPTY_S = 0.05
"""How long a caller without tokens is refused before the database is asked again."""
_UNUSED_S = 1.0
_ANSWER_S = 2.0
_RETRY_S = 1.0
_CREDIT = 0.02


class _Allowance:
    """What one caller may do here before the database is asked again."""

    __slots__ = (
        "asked_at",
        "empty_until",
        "has_plenty",
        "limited_by",
        "low",
        "made",
        "made_at",
        "stock",
        "waiting",
    )

    def __init__(self, rate: Rate) -> None:
        self.stock = 0
        """Requests that it may make; negative: made on credit."""
        self.low = 0
        """More are asked for when the stock is below this."""
        self.made = 0
        """Requests since the database was asked."""
        self.made_at = 0.0
        self.asked_at: float | None = None
        self.waiting = 0
        self.has_plenty = True
        self.empty_until = 0.0
        self.limited_by = rate


class SharedRateLimit:
    """Counts requests together with the other gateways after `share`; before that, alone."""

    def __init__(
        self, local: RateLimit, supervisor: Supervisor, *, monotonic: Callable[[], float]
    ) -> None:
        self._local = local
        self._supervisor = supervisor
        self._monotonic = monotonic
        rates = local.rates
        self._credit = int(
            _CREDIT * min((one.capacity for one in rates if one.per_second), default=0)
        )
        self._buckets = (
            RateBucket(rates[0].per_second, rates[0].capacity),
            RateBucket(rates[1].per_second, rates[1].capacity),
        )
        self._store: RateStore | None = None
        self._peers: dict[PeerName, _Allowance] = {}
        self._asked: set[PeerName] = set()
        self._done = asyncio.Event()
        """Set when the next exchange is over."""
        self._has_waiting = asyncio.Event()
        self._is_exchanging = False
        self._exchanged_at = float("-inf")
        self._is_shared = True
        self._retry_at = 0.0
        self._sweep = supervisor.timer("rate-limit", self._return_unused)

    def share(self, store: RateStore | None) -> None:
        """Count together with all that use this store; None: alone again."""
        if any(one.per_second for one in self._local.rates):
            self._store = store

    def usage(self) -> dict[PeerName, int]:
        """How many requests of each peer at this gateway count against its rate now."""
        return self._local.usage()

    def count(self, peer: PeerName) -> Awaitable[None] | None:
        """Count one request; None, or an awaitable that completes the count. Raises: Overloaded."""
        if self._store is None:
            return self._local.count(peer)
        now = self._monotonic()
        allowance = self._peers.get(peer)
        if allowance is None:
            allowance = self._peers[peer] = _Allowance(self._local.rates[0])
            self._sweep.start(_UNUSED_S)
        allowance.made += 1
        allowance.made_at = now
        if not self._is_shared:
            if now >= self._retry_at:
                self._ask(peer)
            return self._local.count(peer)
        if allowance.stock > (-self._credit if allowance.has_plenty else 0):
            return self._spend(peer, allowance, now)
        self._check_empty(peer, allowance, now)
        return self._wait(peer, allowance)

    def _spend(self, peer: PeerName, allowance: _Allowance, now: float) -> None:
        self._local.count(peer)  # for the time when the database is unavailable
        allowance.stock -= 1
        if allowance.stock < allowance.low and now >= allowance.empty_until:
            self._ask(peer)

    def _check_empty(self, peer: PeerName, allowance: _Allowance, now: float) -> None:
        if now < allowance.empty_until:
            raise allowance.limited_by.refuse(peer, allowance.empty_until - now)

    async def _wait(self, peer: PeerName, allowance: _Allowance) -> None:
        allowance.waiting += 1
        try:
            while True:
                self._has_waiting.set()
                await self._ask(peer).wait()
                now = self._monotonic()
                if self._store is None or not self._is_shared:
                    return self._local.count(peer)
                if allowance.stock > 0:
                    return self._spend(peer, allowance, now)
                self._check_empty(peer, allowance, now)
        finally:
            allowance.waiting -= 1

    # ---------------------------------------------------------------- the database

    def _ask(self, peer: PeerName) -> asyncio.Event:
        """Request tokens with the next exchange; returns the event that is set after it."""
        self._asked.add(peer)
        if not self._is_exchanging:
            self._is_exchanging = True
            self._supervisor.spawn("rate-exchange", self._exchange_all())
        return self._done

    async def _exchange_all(self) -> None:
        try:
            while self._asked:
                await self._collect()
                await self._exchange()
        finally:
            self._is_exchanging = False

    async def _collect(self) -> None:
        """Wait for requests of other callers to share the exchange; less if it is urgent."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_COLLECT_S):
                await self._has_waiting.wait()
        except TimeoutError:
            pass
        await asyncio.sleep(self._exchanged_at + _GAP_S - loop.time())
        self._exchanged_at = loop.time()

    async def _exchange(self) -> None:
        store = self._store
        asked, self._asked = self._asked, set()
        done, self._done = self._done, asyncio.Event()
        self._has_waiting.clear()
        requests = [self._make_request(peer) for peer in asked if peer in self._peers]
        try:
            if requests and store is not None:
                async with asyncio.timeout(_ANSWER_S):
                    answers = await store.take(requests, self._buckets)
                for request in requests:
                    self._apply(request, answers.get(request.peer))
            self._is_shared = True
        except (GatewayError, TimeoutError) as error:
            self._count_alone(requests, str(error) or f"no answer within {_ANSWER_S:g} s")
        finally:
            done.set()

    def _make_request(self, peer: PeerName) -> RateRequest:
        allowance, now = self._peers[peer], self._monotonic()
        expected = 0
        if allowance.asked_at is not None:
            per_second = allowance.made / max(now - allowance.asked_at, _COLLECT_S)
            expected = int(per_second * _AHEAD_S)
        allowance.made, allowance.asked_at = 0, now
        spent = wanted = 0
        if self._is_unused(allowance, now):
            spent = -allowance.stock
        else:
            spent = max(0, -allowance.stock)
            wanted = max(0, allowance.waiting + expected - max(0, allowance.stock))
        allowance.stock += spent
        return RateRequest(peer, spent, wanted)

    def _apply(self, request: RateRequest, answer: RateAnswer | None) -> None:
        allowance, now = self._peers[request.peer], self._monotonic()
        if answer is None:  # a name that the database cannot keep
            allowance.stock = request.wanted
            return
        allowance.stock += answer.given
        allowance.low = answer.given // 2
        allowance.has_plenty = True
        wait_s = 0.0
        for rate, used in zip(self._local.rates, answer.used, strict=True):
            if not rate.per_second:
                continue
            if used > rate.capacity * 0.75:
                allowance.has_plenty = False
            until_one_s = (1 - rate.capacity + used) / rate.per_second
            if until_one_s > wait_s:
                wait_s, allowance.limited_by = until_one_s, rate
        if request.wanted and not answer.given:
            allowance.empty_until = now + max(wait_s, _EMPTY_S)

    def _count_alone(self, requests: list[RateRequest], reason: str) -> None:
        """Handle an unavailable database: whether the tokens were taken is unknown."""
        for peer, spent, _ in requests:
            self._peers[peer].stock -= spent
        if self._is_shared:
            log.warning("replica.rates_not_shared", reason=reason)
        self._is_shared = False
        self._retry_at = self._monotonic() + _RETRY_S

    # ---------------------------------------------------------------- what is not used

    def _is_unused(self, allowance: _Allowance, now: float) -> bool:
        return not allowance.waiting and now - allowance.made_at >= _UNUSED_S

    def _return_unused(self) -> float | None:
        """Return unused tokens, and remove idle callers."""
        now = self._monotonic()
        for peer, allowance in list(self._peers.items()):
            if not self._is_unused(allowance, now) or peer in self._asked:
                continue
            if allowance.stock and self._is_shared:
                self._ask(peer)
            elif now >= allowance.empty_until and not self._is_exchanging:
                del self._peers[peer]
        return asyncio.get_running_loop().time() + _UNUSED_S if self._peers else None
