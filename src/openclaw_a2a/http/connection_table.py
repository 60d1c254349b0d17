"""The connections of a server: limits on new ones, and timeouts of open ones.

One timer checks the `deadline` of all connections, so a request sets an attribute instead of a
timer. In every phase a client that reads nothing for `server.sendSeconds` is disconnected.
"""

import asyncio
import os
import sys
from operator import attrgetter
from typing import Protocol

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.http.request_limits import EventBursts
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import TooManyConnections
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.url_policy import client_network
from openclaw_a2a.settings import Limits, ServerSettings

log = get_logger(__name__)

REMOTE_ADDRESS_CONNECTIONS = 256
"""Default limit of connections per address; this machine has none by default."""

PROGRESS_BYTES = 64 * 1024
"""How much of a response a slow client must read in `server.sendSeconds`."""

_STALLED_S = 1.0
"""After so long a blocked client counts as not reading. Every client blocks for a moment."""
_SWEEP_S = 1.0
_MOST_REFUSED = 128  # connections past the limit that are answered at the same time
_EVICTED_SHARE = 64
_EXPIRED_AT_ONCE = 100
_EXPIRED_PAUSE_S = 0.005  # requests are served while thousands expire together
_SPARE_FILES = 2048 + 64
"""Kept free: for clients that come at once, as many as uvicorn lets wait to be accepted, and for
the store, agents and requests of our own. Past the limit of the system all that wait are dropped.
"""


class ClientConnection(Protocol):
    """What the table needs of a connection."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    client: tuple[str, int] | None
    network: str
    """The network of the client, by which connections are counted."""
    unsent: int
    """The bytes that the client had not read at the last check."""
    held: int
    """What the application kept for the client at that time."""
    deadline: float

    def held_bytes(self) -> int:
        """What the application keeps in memory for this client, to be sent next."""
        ...

    @property
    def is_waiting(self) -> bool:
        """True while it waits for a request of its client."""
        ...

    @property
    def is_answering(self) -> bool:
        """True while a request is served."""
        ...

    def expire(self, now: float) -> None:
        """The deadline has passed."""
        ...

    def close(self, now: float) -> None:
        """Close it when everything was sent."""
        ...

    def abort(self) -> None:
        """Close it at once."""
        ...


class ConnectionTable:
    """The connections of one server, with their limits and timeouts."""

    def __init__(
        self, limits: Limits, server: ServerSettings, supervisor: Supervisor | None = None
    ) -> None:
        supervisor = supervisor or Supervisor()
        self.limits = limits
        self.server = server
        self._open: set[ClientConnection] = set()
        self._refused: set[ClientConnection] = set()
        self._per_network: dict[str, int] = {}
        # Insertion order is the order in which they stopped to read.
        self._blocked: dict[ClientConnection, float] = {}
        # At most: of a connection what it was when it stopped to read.
        self._unsent = 0
        self._held = 0  # by the application, for clients that do not read
        shortest = min(server.header_seconds, server.idle_seconds, server.send_seconds)
        self._sweep_s = max(0.05, min(_SWEEP_S, shortest / 4))
        self._timer = supervisor.timer("connection sweep", self._sweep, retry_s=self._sweep_s)
        self._bursts = EventBursts(supervisor=supervisor)

    def admit(self, connection: ClientConnection, transport: asyncio.Transport) -> None:
        """Count a new connection, and make room for it. Raises: TooManyConnections."""
        network, is_local = client_network(connection.client[0] if connection.client else "")
        limit = self.limits.per_address_connections
        if limit is None and not is_local:
            limit = REMOTE_ADDRESS_CONNECTIONS
        if limit is not None and self._per_network.get(network, 0) >= limit:
            raise TooManyConnections(
                f"{limit} connections from your address are open; close some, or try again later",
                setting="limits.perAddressConnections",
            )
        if len(self._open) >= self.limits.connections:
            setting = "limits.connections"
            reason = f"{self.limits.connections} connections are open"
        else:
            setting = ""
            reason = _file_shortage(transport.get_extra_info("socket").fileno())
        if reason and not self._evict(f"{reason} ({setting})" if setting else reason):
            raise TooManyConnections(f"{reason}; try again later", setting=setting)
        connection.network = network
        self._per_network[network] = self._per_network.get(network, 0) + 1
        self._open.add(connection)
        self._timer.start(self._sweep_s)

    def keep_refused(self, connection: ClientConnection) -> bool:
        """Keep a refused connection for a moment, so that its client can be told why.

        False when as many as possible are kept already.
        """
        if len(self._refused) >= _MOST_REFUSED:
            return False
        self._refused.add(connection)
        self._timer.start(self._sweep_s)
        return True

    def remove(self, connection: ClientConnection) -> None:
        """Stop counting a connection: it is closed, or it closes and nothing is left to send."""
        if connection in self._blocked:
            self.unblock(connection)
        self._refused.discard(connection)
        if connection not in self._open:
            return
        self._open.discard(connection)
        left = self._per_network.pop(connection.network) - 1
        if left:
            self._per_network[connection.network] = left

    def block(self, connection: ClientConnection) -> None:
        """The client reads more slowly than the server writes."""
        self._count_blocked(connection, connection.loop.time())
        if connection.unsent > self.limits.connection_unsent_bytes:
            self._disconnect(connection, "limits.connectionUnsentBytes")
        elif self._unsent > self.limits.unsent_bytes:
            self._disconnect_longest_blocked()

    def _count_blocked(self, connection: ClientConnection, now: float) -> None:
        self._blocked[connection] = now + self.server.send_seconds
        connection.unsent = connection.transport.get_write_buffer_size()
        connection.held = connection.held_bytes()
        self._unsent += connection.unsent
        self._held += connection.held

    def unblock(self, connection: ClientConnection) -> None:
        """Note that a client has read everything, or is gone."""
        if self._blocked.pop(connection, None) is not None:
            self._unsent -= connection.unsent
            self._held -= connection.held

    def report(self, event: str, *, reason: str, **fields: Json) -> None:
        """Log the first of many equal events, and later how many there were."""
        self._bursts.report(log.warning, event, {"reason": reason}, **fields)

    def _evict(self, reason: str, share: int = _EVICTED_SHARE) -> bool:
        """Close some connections without a request, the longest waiting; False without any."""
        waiting = [one for one in self._open if one.is_waiting]
        # Those with the earliest deadline, nearly always without a complete head. Several at once,
        # because each search scans all connections.
        waiting.sort(key=attrgetter("deadline"))
        for connection in waiting[: max(1, len(waiting) // share)]:
            self.report("http.connections_evicted", reason=reason)
            connection.abort()
        return bool(waiting)

    def _disconnect_longest_blocked(self) -> None:
        self._unsent = 0
        for connection in self._blocked:
            connection.unsent = connection.transport.get_write_buffer_size()
            self._unsent += connection.unsent
        for connection in list(self._blocked):
            if self._unsent <= self.limits.unsent_bytes:
                return
            self._disconnect(connection, "limits.unsentBytes")

    def _cut_stalled(self, now: float) -> None:
        """Disconnect clients that do not read, while too many bytes are held for them."""
        latest = now - _STALLED_S + self.server.send_seconds
        for connection, deadline in list(self._blocked.items()):
            if self._held <= self.limits.answer_bytes or deadline > latest:
                return
            if connection.held:
                self._disconnect(connection, "limits.answerBytes")

    def _disconnect(self, connection: ClientConnection, setting: str) -> None:
        client = connection.client[0] if connection.client else None
        self.report(
            "http.client_not_reading",
            reason=f"past {setting}",
            client=client,
            bytes=connection.unsent + connection.held,
        )
        self.unblock(connection)
        # Later: the transport may be in the middle of a write.
        connection.loop.call_soon(connection.abort)

    def _sweep(self) -> float | None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._expire([one for one in (*self._open, *self._refused) if one.deadline <= now], loop)
        for connection in [one for one, deadline in self._blocked.items() if deadline <= now]:
            self._check_progress(connection, now)
        self._cut_stalled(now)
        answering = (one for one in self._open if one.is_answering)
        for connection in [one for one in answering if one.transport.is_closing()]:
            connection.close(now)
        # Also without new clients: without a free file descriptor none can be accepted.
        reason = _file_shortage(_lowest_free_file())
        if reason and not self._evict(reason, share=4):
            self.report("http.connection_refused", reason=reason)
        return now + self._sweep_s if self._open or self._refused else None

    def _expire(self, connections: list[ClientConnection], loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection in connections[:_EXPIRED_AT_ONCE]:
            # Some of the delayed ones have sent the rest of their request by now.
            if connection.deadline > now:
                continue
            try:
                connection.expire(now)
            except Exception:  # the other connections must still be closed
                log.exception("http.connection_failed")
                connection.abort()
        if len(connections) > _EXPIRED_AT_ONCE:
            rest = connections[_EXPIRED_AT_ONCE:]
            loop.call_later(_EXPIRED_PAUSE_S, self._expire, rest, loop)

    def _check_progress(self, connection: ClientConnection, now: float) -> None:
        size = connection.transport.get_write_buffer_size()
        if size > connection.unsent - PROGRESS_BYTES:
            self._disconnect(connection, "server.sendSeconds")
            return
        # Moved to the end: the order is that of the deadlines.
        self.unblock(connection)
        self._count_blocked(connection, now)


def _file_shortage(number: int) -> str:
    """What is wrong when a new file has this number; empty when nothing is.

    A system gives the lowest free number: at a high one nearly all below it are taken.
    """
    if sys.platform == "win32":
        return ""
    import resource

    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY or number < most - min(_SPARE_FILES, most // 4):
        return ""
    return f"the process may have only {most} open files"


def _lowest_free_file() -> int:
    try:
        number = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return sys.maxsize
    os.close(number)
    return number
