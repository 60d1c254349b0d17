"""The peers we talk to: their cards, clients for each, and how healthy they are."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import httpx
import msgspec
import structlog

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.outbound.cards import EMPTY_CARD, PeerCard, read_card
from openclaw_a2a.outbound.failure import Code, RemoteFailure
from openclaw_a2a.outbound.flights import Flights
from openclaw_a2a.outbound.health import Health
from openclaw_a2a.outbound.interfaces import usable_interfaces
from openclaw_a2a.outbound.network import Network
from openclaw_a2a.outbound.peer import Peer
from openclaw_a2a.outbound.peer_errors import as_failure
from openclaw_a2a.outbound.targets import Identity, Target

log = structlog.get_logger(__name__)

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


class Catalog:
    """Cards by address and clients by identity, shared by all calls."""

    def __init__(self, network: Network, *, now: Callable[[], datetime]) -> None:
        self._network = network
        self._now = now
        self._records: dict[str, CardRecord] = {}
        self._peers: dict[Identity, tuple[Peer, ...]] = {}
        self._fetching: Flights[PeerCard] = Flights()
        self.health = Health(now)

    def record(self, target: Target) -> CardRecord:
        """What is known of the target's card."""
        return self._records.get(target.card_url, CardRecord())

    async def peers(self, target: Target, headers: Mapping[str, str]) -> tuple[Peer, ...]:
        """The clients of a target, the chosen one first; made on first use.

        Raises: RemoteFailure.
        """
        known = self._peers.get(target.identity)
        if known is not None:
            log.debug("a2a.remote_agent.client_pool.cache_hit", target=target.base_url)
            return known
        log.debug("a2a.remote_agent.client_pool.cache_miss", target=target.base_url)
        card = await self._fetch(target, headers)
        reach = self._network.to(target)
        peers = tuple(Peer.of_card(card, one, reach) for one in usable_interfaces(card, target))
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

    async def _let_go(self, identity: Identity) -> None:
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
            response = await self._network.to(target).client.get(address, headers=headers)
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
        Code.PEER,
        f"there is no agent card at {address}: {reason}",
        {"errorName": "NoCard", "hint": "check the target's baseUrl and cardPath"},
    )
