"""The clients of all targets, made from their cards and shared by all calls."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

import httpx2
import msgspec

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.validation import is_object
from openclaw_a2a.remote.result import RemoteFailure
from openclaw_a2a.remote.target_secrets import header_secrets
from openclaw_a2a.remote.targets import Target, TargetIdentity
from openclaw_a2a.remote.transport.agent_card import (
    EMPTY_CARD,
    PeerCard,
    TokenEndpoint,
    parse_peer_card,
    select_interfaces,
)
from openclaw_a2a.remote.transport.circuit_breaker import CircuitBreaker
from openclaw_a2a.remote.transport.client import RemoteClient
from openclaw_a2a.remote.transport.codec import AnswerUnreadable, decode_json
from openclaw_a2a.remote.transport.http_transport import (
    PeerHttp,
    TargetConnections,
    status_error,
)
from openclaw_a2a.remote.transport.oauth2 import (
    AccessToken,
    ClientCredentials,
    request_token,
    select_token_endpoint,
)
from openclaw_a2a.remote.transport.peer_errors import to_failure

log = get_logger(__name__)

_TokenKey = tuple[TokenEndpoint, str, bytes]

CARD_MAX_AGE = timedelta(minutes=5)
"""An older card is fetched again when targets are listed."""

MAX_CARD_BYTES = 1024 * 1024
"""No card is larger: every target has one in memory, and lists show all of them."""

MAX_TARGETS = 1000
"""The maximum number of cards and clients; the oldest are removed first."""


class CardRecord(msgspec.Struct, frozen=True):
    """The last card of a peer and how its last fetch went."""

    card: PeerCard = EMPTY_CARD
    refreshed_at: datetime | None = None
    error: JsonObject | None = None
    secrets: tuple[str, ...] = ()
    """Secrets that were sent to fetch it, hidden where the peer repeats them."""
    fetch_s: float | None = None
    """How long the last successful fetch took."""


_NO_RECORD = CardRecord()


class ClientPool:
    """Cards by address, clients by target identity, and the circuit breaker of all peers."""

    def __init__(
        self, connections: TargetConnections, *, now: Callable[[], datetime], falls_back: bool
    ) -> None:
        """`falls_back`: other interfaces of a card are tried when the first is unreachable."""
        self._connections = connections
        self._now = now
        self._falls_back = falls_back
        self._records: dict[tuple[str, str], CardRecord] = {}
        self._clients: dict[TargetIdentity, tuple[RemoteClient, ...]] = {}
        self._fetching: SingleFlight[PeerCard] = SingleFlight()
        self.breaker = CircuitBreaker(now)
        self._tokens: dict[_TokenKey, AccessToken] = {}
        self._requesting: SingleFlight[AccessToken] = SingleFlight()

    def record(self, target: Target) -> CardRecord:
        """What is known of the target's card."""
        return self._records.get((target.base_url, target.card_path), _NO_RECORD)

    async def clients(self, target: Target, headers: Mapping[str, str]) -> tuple[RemoteClient, ...]:
        """The clients of a target to try, the preferred one first; made on first use.

        Raises: RemoteFailure.
        """
        known, url = self._clients.get(target.identity), target.base_url
        if known is not None:
            log.debug("a2a.remote_agent.client_pool.cache_hit", target=url)
            return known
        log.debug("a2a.remote_agent.client_pool.cache_miss", target=url)
        # From here to `setdefault` other calls may run: they may build the same clients, too.
        card = await self._fetch_card(target, headers)
        connector = self._connections.connector_for(target)
        interfaces = select_interfaces(card, target)[: None if self._falls_back else 1]
        clients = tuple(RemoteClient(card, one, connector) for one in interfaces)
        while len(self._clients) >= MAX_TARGETS:
            await self._close_clients(next(iter(self._clients)))
        # Another call may have finished first: its clients are in use already.
        return self._clients.setdefault(target.identity, clients)

    async def access_token(
        self, target: Target, credentials: ClientCredentials, headers: Mapping[str, str]
    ) -> str:
        """A valid access token for a target with OAuth 2; a new one shortly before it expires.

        Raises: RemoteFailure.
        """
        client = credentials.client
        endpoint = TokenEndpoint(client.token_url, client.scopes)
        if not client.token_url:
            # The card is public: it names the token URL for all other requests.
            [first, *_] = await self.clients(target, headers)
            offered = select_token_endpoint(first.card, target)
            endpoint = TokenEndpoint(offered.url, client.scopes or offered.scopes)
        key = (endpoint, client.client_id, credentials.digest)
        known = self._tokens.get(key)
        if known is not None and self._now() < known.renew_at:
            return known.value
        http = self._connections.connector_for(target).http

        async def request() -> AccessToken:
            token = await request_token(http, endpoint, credentials, now=self._now())
            while len(self._tokens) >= MAX_TARGETS:
                del self._tokens[next(iter(self._tokens))]
            self._tokens[key] = token
            return token

        return (await self._requesting.run(key, request, name="access token")).value

    def drop_token(self, value: str) -> None:
        """Drop a token that a peer refused, unless another call has replaced it already."""
        for key in [key for key, token in self._tokens.items() if token.value == value]:
            del self._tokens[key]

    async def refresh_card(
        self, target: Target, headers: Mapping[str, str], *, max_age: timedelta
    ) -> None:
        """Fetch the card again when it is older than that. Raises: RemoteFailure."""
        known = self.record(target)
        at = known.refreshed_at if known.error is None else None
        if at is not None and self._now() - at <= max_age:
            return
        card = await self._fetch_card(target, headers)
        if card.interfaces != known.card.interfaces:
            await self.drop_clients(target)

    def record_failure(
        self, target: Target, failure: RemoteFailure, headers: Mapping[str, str] | None = None
    ) -> None:
        """The card could not be fetched with these headers; the last one is kept."""
        known = self.record(target)
        secrets = tuple(dict.fromkeys((*known.secrets, *header_secrets(headers or {}))))
        record = CardRecord(known.card, self._now(), failure.as_object(), secrets, known.fetch_s)
        self._set_record(target, record)

    async def drop_clients(self, target: Target) -> None:
        """Close the clients of a target, so that the next call reads its card again."""
        for identity in list(self._clients):
            if identity[0] == target.base_url:
                await self._close_clients(identity)

    async def close(self) -> None:
        """Close every client."""
        for identity in list(self._clients):
            await self._close_clients(identity)

    async def _close_clients(self, identity: TargetIdentity) -> None:
        for client in self._clients.pop(identity, ()):
            await client.close()

    async def _fetch_card(self, target: Target, headers: Mapping[str, str]) -> PeerCard:
        """Fetch a card; calls that want it with the same headers share one request."""
        key = (target.card_url, target.is_caller_named, frozenset(headers.items()))
        name = f"card of {target.base_url}"  # not the key: it has credentials
        return await self._fetching.run(key, lambda: self._load_card(target, headers), name=name)

    async def _load_card(self, target: Target, headers: Mapping[str, str]) -> PeerCard:
        log.debug("a2a.remote_agent.client_pool.resolve_card", target=target.base_url)
        http = self._connections.connector_for(target).http
        started = time.monotonic()
        try:
            card = parse_peer_card(await fetch_card(http, target.card_url, headers))
        except RemoteFailure as failure:
            self.record_failure(target, failure, headers)
            raise
        fetch_s = time.monotonic() - started
        record = CardRecord(card, self._now(), None, header_secrets(headers), fetch_s)
        self._set_record(target, record)
        return card

    def _set_record(self, target: Target, record: CardRecord) -> None:
        key = target.base_url, target.card_path
        self._records.pop(key, None)
        self._records[key] = record
        while len(self._records) > MAX_TARGETS:
            del self._records[next(iter(self._records))]


async def fetch_card(http: PeerHttp, url: str, headers: Mapping[str, str]) -> JsonObject:
    """The JSON object of a card. Raises: RemoteFailure."""
    try:
        response, body = await http.request("GET", url, headers, limit=MAX_CARD_BYTES)
        if not response.is_success:
            raise status_error(response, body)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise to_failure(error) from error
    reason = "it is not a JSON object"
    try:
        if is_object(card := decode_json(body)):
            return card
    except AnswerUnreadable as error:
        reason = str(error)
    kind = response.headers.get("content-type", "of no content type")
    raise RemoteFailure.peer(
        "NoCard",
        f"there is no agent card at {url}: what is there is {kind}, and {reason}",
        "check the target's baseUrl and cardPath",
    )


_Result = TypeVar("_Result")


@dataclass
class _Flight(Generic[_Result]):
    task: "asyncio.Task[_Result]"
    waiters: int = 0


class SingleFlight(Generic[_Result]):
    """Runs work once for all callers that want it at the same time.

    A caller that is cancelled leaves the result to the others; with the last caller the work ends.
    """

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[_Result]] = {}
        self._supervisor = Supervisor("single-flight")

    async def run(
        self,
        key: Hashable,
        work: Callable[[], Coroutine[Any, Any, _Result]],
        *,
        name: str = "flight",
    ) -> _Result:
        """The result of the work with this key, which is started unless it runs already.

        `name` names the task that does it, in logs too.
        """
        flight = self._flights.get(key)
        if flight is None:
            flight = _Flight(self._supervisor.start(name, work()))
            self._flights[key] = flight
        flight.waiters += 1
        try:
            # Shielded: a caller that is cancelled must not cancel the work of the others.
            return await asyncio.shield(flight.task)
        finally:
            flight.waiters -= 1
            # Removed before it has ended, so that no request joins work that is being cancelled.
            if flight.waiters == 0 and self._flights.get(key) is flight:
                del self._flights[key]
                if flight.task.cancel():
                    await asyncio.wait({flight.task})
