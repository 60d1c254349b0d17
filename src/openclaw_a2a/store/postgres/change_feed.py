"""Notifications between replicas: which tasks and logs changed, and what one asks of another.

Notifications have a connection of their own and are sent after the commit: commits that notify wait
for each other on one lock of the whole server. When it is idle a change is sent at once; while one
is under way others are collected, and go together. Each replica has a channel.

A notification is a hint. One that is lost costs time, not data: replicas also ask for changes every
few seconds, and much more often when none arrive (a pooler in transaction mode drops them).

Payloads
    t ID...    these tasks changed
    l NAME...  these logs changed; a name is KIND/ID
    *          any task or log may have changed
    h          there are requests
    d          some deliveries are this replica's now
    a NUMBER   a request is answered
    j          a replica came
    w          a replica is gone, and some of its work was left to others
    p NUMBER   from this replica to itself, to see that notifications come
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import OwnerId, TaskId
from openclaw_a2a.ports import ReplicaListener
from openclaw_a2a.store.postgres.address import LOST, Address, Session, driver
from openclaw_a2a.store.postgres.stored_text import shown_id

log = get_logger(__name__)

_MAX_IDS = 150
_MAX_BYTES = 7900
"""Of a payload, which may have 8,000 bytes."""
_COLLECT_S = 0.002
_PROBE_S = 5.0
_PROBE_WAIT_S = 2.0
_RETRY = Backoff(first_s=0.1, max_s=5.0)
_NOTIFY = "SELECT pg_notify(channel, $1) FROM unnest($2::text[]) AS channel"


def channel_of(replica: OwnerId) -> str:
    """The channel on which a replica listens."""
    return f"openclaw_a2a_{replica}"


class ChangeFeed:
    """The notifications of one replica, in both directions."""

    def __init__(
        self, address: Address, on_joined: Callable[[], None], on_work_left: Callable[[], None]
    ) -> None:
        """`on_joined`: another replica has come. `on_work_left`: one that is gone left work."""
        self._address = address
        self._signals = {"j": on_joined, "w": on_work_left}
        self.is_deaf = False
        """True when the last notification to ourselves did not arrive."""
        self._listener: ReplicaListener | None = None
        self._connection: Session = None
        self._name = OwnerId("")
        self._others: tuple[str, ...] = ()
        self._changed: dict[TaskId, None] = {}
        self._changed_logs: dict[str, None] = {}
        self._messages: list[tuple[str, str]] = []  # channel and payload
        self._wake = asyncio.Event()
        self._probe: tuple[int, float] | None = None
        self._probe_count = 0
        self.lag_ms: float | None = None
        """Of the last notification to ourselves; None while none arrive."""

    def listen(self, name: OwnerId, listener: ReplicaListener) -> None:
        """Use this name from now on."""
        self._name, self._listener = name, listener
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()  # connected again with the new channel
        self._wake.set()

    def set_others(self, names: Iterable[OwnerId]) -> None:
        """Notify these replicas from now on."""
        self._others = tuple(channel_of(name) for name in names)

    def publish(self, tasks: Iterable[TaskId], logs: Iterable[tuple[str, str]] = ()) -> None:
        """Notify the others that these tasks and logs changed; call after the commit."""
        if self._others:
            self._changed.update(dict.fromkeys(tasks))
            self._changed_logs.update(dict.fromkeys([f"{kind}/{name}" for kind, name in logs]))
            self._wake.set()

    def send(self, receiver: OwnerId, payload: str) -> None:
        """Send a payload to one replica."""
        self._messages.append((channel_of(receiver), payload))
        self._wake.set()

    def send_to_others(self, payload: str) -> None:
        """Send a payload to every other replica."""
        self._messages += [(channel, payload) for channel in self._others]
        self._wake.set()

    async def run(self) -> None:
        """Connect, listen and send, as long as the store is open."""
        attempt = 0
        while True:
            try:
                await self._serve()
                attempt = 0
            except (driver.PostgresError, *LOST, GatewayError) as error:
                reason = self._address.explain(error).message
                log.warning("replica.feed_lost", reason=reason)
            finally:
                connection, self._connection = self._connection, None
                self.lag_ms, self._probe = None, None
                if connection is not None:
                    connection.terminate()
            attempt += 1
            await asyncio.sleep(_RETRY.delay_s(attempt))

    async def _serve(self) -> None:
        # Known to `listen` from the beginning: a new name may come before this one is listened to.
        connection = self._connection = await self._address.connect()
        await connection.add_listener(channel_of(self._name), self._receive)
        if self._listener is not None:  # anything may have come while nobody listened
            self._listener.on_changed(None)
            self._listener.on_logs_changed(None)
            self._listener.on_handoff()
            self._listener.on_deliveries()
        next_probe = 0.0
        while self._connection is connection:
            now = time.monotonic()
            if now >= next_probe:
                next_probe = now + _PROBE_S
                await self._send_probe(connection, now)
            timeout_s = next_probe - time.monotonic()
            try:
                async with asyncio.timeout(max(0.0, timeout_s)):
                    await self._wake.wait()
            except TimeoutError:
                continue
            self._wake.clear()
            if self._connection is connection:
                await self._send_collected(connection)

    async def _send_probe(self, connection: Session, now: float) -> None:
        if self._probe is not None and now - self._probe[1] > _PROBE_WAIT_S:
            if self.lag_ms is not None or self._probe_count == 1:
                log.warning(
                    "replica.notifications_missing",
                    hint="they do not pass a pooler in transaction mode; until they come, this "
                    "replica asks for changes twice a second",
                )
            self.lag_ms, self.is_deaf = None, True
        self._probe_count += 1
        self._probe = self._probe_count, now
        await connection.execute(_NOTIFY, f"p {self._probe_count}", [channel_of(self._name)])

    async def _send_collected(self, connection: Session) -> None:
        messages, self._messages = self._messages, []
        changed, self._changed = self._changed, {}
        logs, self._changed_logs = self._changed_logs, {}
        by_payload: dict[str, list[str]] = {}
        for channel, payload in messages:
            by_payload.setdefault(payload, []).append(channel)
        for kind, names in (("t", changed), ("l", logs)):
            if names and self._others:
                by_payload.setdefault(_name_all(kind, names), []).extend(self._others)
        for payload, channels in by_payload.items():
            await connection.execute(_NOTIFY, payload, channels)
        if changed or logs:
            await asyncio.sleep(_COLLECT_S)

    # ---------------------------------------------------------------- from the others

    def _receive(self, _connection: Session, _pid: int, _channel: str, payload: str) -> None:
        kind, _, rest = payload.partition(" ")
        listener = self._listener
        if kind == "p" and self._probe is not None and rest == str(self._probe[0]):
            self.lag_ms = (time.monotonic() - self._probe[1]) * 1000
            self._probe, self.is_deaf = None, False
        elif (signal := self._signals.get(kind)) is not None:
            signal()
        elif listener is None:
            return
        elif kind == "t":
            listener.on_changed([TaskId(one) for one in rest.split(" ")])
        elif kind == "l":
            listener.on_logs_changed([_split_name(one) for one in rest.split(" ")])
        elif kind == "*":
            listener.on_changed(None)
            listener.on_logs_changed(None)
        elif kind == "h":
            listener.on_handoff()
        elif kind == "d":
            listener.on_deliveries()
        elif kind == "a" and rest.isdecimal():
            listener.on_answer(int(rest))


def _name_all(kind: str, names: Collection[str]) -> str:
    """The payload for these names; that for anything if there are many, or ids with spaces."""
    payload = " ".join((kind, *names))
    is_small = len(names) <= _MAX_IDS and len(payload.encode()) < _MAX_BYTES
    return payload if is_small and payload.count(" ") == len(names) else "*"


def _split_name(name: str) -> tuple[str, str]:
    kind, _, log_id = name.partition("/")
    return kind, shown_id(log_id)
