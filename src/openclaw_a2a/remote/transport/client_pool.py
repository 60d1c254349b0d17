"""Work that several callers want at the same time and that is done once."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

import httpx
import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure
from openclaw_a2a.remote.targets import Target, TargetIdentity
from openclaw_a2a.remote.transport.agent_card import EMPTY_CARD, PeerCard, read_card
from openclaw_a2a.remote.transport.circuit_breaker import CircuitBreaker
from openclaw_a2a.remote.transport.client import RemoteClient
from openclaw_a2a.remote.transport.http_transport import TargetConnections
from openclaw_a2a.remote.transport.interface_selection import usable_interfaces
from openclaw_a2a.remote.transport.peer_errors import as_failure

Result = TypeVar("Result")


class _Flight(Generic[Result]):
    def __init__(self, task: "asyncio.Task[Result]") -> None:
        self.task = task
        self.waiters = 0


class SingleFlight(Generic[Result]):
    """What is under way, by what it is about.

    Whoever goes away leaves the others their result; when the last one goes, the work ends.
    """

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[Result]] = {}

    async def join(self, key: Hashable, start: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """The result of the work under this key, which is started when it is not under way."""
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.ensure_future(start()))
        flight.waiters += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiters -= 1
            if flight.waiters == 0:
                await self._end(key, flight)

    async def _end(self, key: Hashable, flight: _Flight[Result]) -> None:
        # Gone before it has ended, so that nobody joins what is being ended.
        if self._flights.get(key) is flight:
            del self._flights[key]
        if not flight.task.done():
            flight.task.cancel()
            await asyncio.wait({flight.task})


log = get_logger(__name__)

_card_decoder = msgspec.json.Decoder(JsonObject)

CARD_AGE = timedelta(minutes=5)
"""A card older than this is fetched again when targets are listed."""

MOST_PEERS = 1000
"""So many clients are kept; the oldest goes first."""


class CardRecord(msgspec.Struct, frozen=True):
    """The newest card of a peer and how its last fetch went."""

    card: PeerCard = EMPTY_CARD
    refreshed_at: datetime | None = None
    error: JsonObject | None = None

    def is_stale(self, now: datetime) -> bool:
        """True when it should be fetched again."""
        if self.refreshed_at is None or self.error is not None:
            return True
        return now - self.refreshed_at > CARD_AGE


class ClientPool:
    """Cards by address and clients by identity, shared by all calls."""

    def __init__(self, network: TargetConnections, *, now: Callable[[], datetime]) -> None:
        self._network = network
        self._now = now
        self._records: dict[str, CardRecord] = {}
        self._peers: dict[TargetIdentity, tuple[RemoteClient, ...]] = {}
        self._fetching: SingleFlight[PeerCard] = SingleFlight()
        self.health = CircuitBreaker(now)

    def record(self, target: Target) -> CardRecord:
        """What is known of the target's card."""
        return self._records.get(target.card_url, CardRecord())

    async def peers(self, target: Target, headers: Mapping[str, str]) -> tuple[RemoteClient, ...]:
        """The clients of a target, the chosen one first; made on first use.

        Raises: RemoteFailure.
        """
        known = self._peers.get(target.identity)
        if known is not None:
            log.debug("a2a.remote_agent.client_pool.cache_hit", target=target.base_url)
            return known
        log.debug("a2a.remote_agent.client_pool.cache_miss", target=target.base_url)
        card = await self._fetch(target, headers)
        reach = self._network.connector_for(target)
        peers = tuple(
            RemoteClient.of_card(card, one, reach) for one in usable_interfaces(card, target)
        )
        while len(self._peers) >= MOST_PEERS:
            await self._let_go(next(iter(self._peers)))
        return self._peers.setdefault(target.identity, peers)

    async def refresh(self, target: Target, headers: Mapping[str, str]) -> None:
        """Fetch the card again when it is old. Raises: RemoteFailure."""
        known = self.record(target)
        if not known.is_stale(self._now()):
            return
        card = await self._fetch(target, headers)
        if card.interfaces != known.card.interfaces:
            await self.forget_peers(target)

    def note_failure(self, target: Target, failure: RemoteFailure) -> None:
        """The card could not be fetched; what was known of it stays."""
        known = self.record(target).card
        self._keep(target, CardRecord(known, self._now(), failure.as_object()))

    async def forget_peers(self, target: Target) -> None:
        """The next call begins with the card: the peer may have moved."""
        for identity in [one for one in self._peers if one.base_url == target.base_url]:
            await self._let_go(identity)

    async def close(self) -> None:
        """Let go of every client."""
        for identity in list(self._peers):
            await self._let_go(identity)

    async def _let_go(self, identity: TargetIdentity) -> None:
        for peer in self._peers.pop(identity, ()):
            await peer.close()

    async def _fetch(self, target: Target, headers: Mapping[str, str]) -> PeerCard:
        """Fetch a card; everybody who asks for it in the same way shares one request."""
        key = (target.card_url, target.is_callers, frozenset(headers.items()))
        return await self._fetching.join(key, lambda: self._load(target, dict(headers)))

    async def _load(self, target: Target, headers: dict[str, str]) -> PeerCard:
        log.debug("a2a.remote_agent.client_pool.resolve_card", target=target.base_url)
        try:
            card = read_card(await self._get(target, headers))
        except RemoteFailure as failure:
            self.note_failure(target, failure)
            raise
        self._keep(target, CardRecord(card, self._now()))
        return card

    def _keep(self, target: Target, record: CardRecord) -> None:
        self._records.pop(target.card_url, None)
        self._records[target.card_url] = record
        while len(self._records) > MOST_PEERS:
            del self._records[next(iter(self._records))]

    async def _get(self, target: Target, headers: dict[str, str]) -> JsonObject:
        address = target.card_url
        try:
            response = await self._network.connector_for(target).client.get(
                address, headers=headers
            )
            response.raise_for_status()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise as_failure(error) from error
        try:
            return _card_decoder.decode(response.content)
        except ValueError as error:
            kind = response.headers.get("content-type", "of no content type")
            raise _no_card(address, f"what is there is {kind} and no JSON object") from error


def _no_card(address: str, reason: str) -> RemoteFailure:
    return RemoteFailure(
        ErrorCode.PEER,
        f"there is no agent card at {address}: {reason}",
        {"errorName": "NoCard", "hint": "check the target's baseUrl and cardPath"},
    )
