"""The connection to one OpenClaw gateway, shared by all its agents and reopened when it breaks.

State: `_socket` is set while connected; `_failure` is set while the last attempt failed or the
connection broke; both are None only before the first attempt. One task, the connection loop, opens
the socket and is the only reader of it. Requests belong to the socket they were sent on: when it
closes, every entry of `_pending` is answered with a lost connection and removed, so no caller can
wait for a response that cannot arrive. Subscriptions outlive the socket: each has `ConnectionLost`
in its queue after the last event of the old socket, and `Reconnected` before the first of the new.
"""

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

import anyio
import msgspec
from msgspec import Raw
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from openclaw_a2a.agents.openclaw_gateway.handshake import (
    CLOSE_TIMEOUT_S,
    ConnectFailed,
    GatewayAddress,
    GatewayLimits,
    GatewaySite,
    Hello,
    open_connection,
)
from openclaw_a2a.agents.openclaw_gateway.protocol import (
    NO_ORIGIN,
    ErrorPayload,
    Frame,
    Origin,
    decode_as,
    decode_frame,
    decode_object,
    decode_origin,
    encode_request,
    request_error,
)
from openclaw_a2a.agents.openclaw_gateway.runs import RunRegistry
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable
from openclaw_a2a.model.ids import JsonObject

log = get_logger(__name__)

_T = TypeVar("_T")

_BACKOFF: Final = Backoff(first_s=0.1, max_s=15.0)
# A turn is waiting for its answer: reconnect quickly, at the price of more attempts.
_BACKOFF_DURING_TURN: Final = Backoff(first_s=0.1, max_s=1.0)
_MIN_DELAY_S: Final = 0.2  # also when a caller waits, so that a refusing gateway is not flooded
_STABLE_S: Final = 5.0  # a connection that lasted so long resets the back-off
# Kinds of unusable input that are logged; their names come from the gateway, so they are bounded.
_MAX_REPORTED: Final = 256
_LOST_RESPONSE: Final = Frame("res", error=ErrorPayload(code="CONNECTION_LOST"))
# A reader that is slower than the run drops events and reads the history: memory stays bounded.
_MAX_ITEMS: Final = 4096  # of one subscription
_MAX_BYTES: Final = 16 * 1024 * 1024
_random: Final = random.SystemRandom()


class EventReceived(msgspec.Struct, frozen=True, gc=False):
    """An event, its payload not decoded yet. `origin` is set in subscriptions to one session."""

    event: str
    payload: Raw
    origin: Origin = NO_ORIGIN


class ResponseReceived(msgspec.Struct, frozen=True, gc=False):
    """A response to a posted request."""

    request_id: str
    frame: Frame


class EventsDropped(msgspec.Struct, frozen=True):
    """The queue was full: earlier events are lost, read the history instead."""


class ConnectionLost(msgspec.Struct, frozen=True):
    """The connection is gone; runs may continue inside OpenClaw."""


class Reconnected(msgspec.Struct, frozen=True):
    """There is a new connection; `is_restarted` when the gateway is another process now."""

    is_restarted: bool


SubscriptionItem = EventReceived | ResponseReceived | EventsDropped | ConnectionLost | Reconnected


class EventSubscription:
    """One reader's bounded queue of items, in order of arrival; a slow reader delays no other."""

    def __init__(self, events: frozenset[str]) -> None:
        self.events = events
        self.requests: set[str] = set()
        """Ids of posted requests whose responses belong in this queue."""
        self._queue: deque[SubscriptionItem] = deque()
        self._bytes = 0
        self._arrived = anyio.Event()

    async def next(self, timeout_s: float | None = None) -> SubscriptionItem | None:
        """The next item; None after `timeout_s` seconds without one."""
        while not self._queue:
            # A fresh event per wait: put() may have set the old one for an item already taken.
            self._arrived = anyio.Event()
            with anyio.move_on_after(timeout_s) as scope:
                await self._arrived.wait()
            if scope.cancelled_caught:
                return None
        item = self._queue.popleft()
        if isinstance(item, EventReceived):
            self._bytes -= len(memoryview(item.payload))
        return item

    def drop_events(self) -> None:
        """Drop the queued events; responses and connection changes stay."""
        dropped = EventReceived | EventsDropped
        self._queue = deque(one for one in self._queue if not isinstance(one, dropped))
        self._bytes = 0

    def put(self, item: SubscriptionItem) -> None:
        """Add an item; never blocks, because the connection loop calls it for every frame.

        A full queue drops its events and tells the reader with `EventsDropped`.
        """
        if isinstance(item, EventReceived):
            self._bytes += len(memoryview(item.payload))
            if len(self._queue) >= _MAX_ITEMS or self._bytes > _MAX_BYTES:
                self.drop_events()
                # In front of the responses: what they refer to may be among the lost events.
                self._queue.appendleft(EventsDropped())
                self._arrived.set()
                return
        # Responses and connection changes are never dropped: few, and nothing else replaces them.
        self._queue.append(item)
        self._arrived.set()


class GatewayConnection:
    """A connection that reopens itself from `start` to `stop`; see `acquire_connection`."""

    def __init__(self, site: GatewaySite, environ: Mapping[str, str] | None = None) -> None:
        self.site = site
        self.address = GatewayAddress(site.url, device_key=site.device_key)
        """With the token as it was at the last attempt."""
        self.runs = RunRegistry()
        self.users = 0
        self._environ = environ
        self._socket: ClientConnection | None = None
        self._hello: Hello | None = None
        self._failure: ConnectFailed | None = None
        self._changed = anyio.Event()
        """Wakes those who wait for a connection, after every attempt and every loss."""
        self._wanted = anyio.Event()
        """Wakes the connection loop out of its back-off: a request waits for a connection."""
        self._last_request = 0
        self._pending: dict[str, asyncio.Future[Frame] | EventSubscription] = {}
        self._subscriptions: dict[str | None, list[EventSubscription]] = {}
        """By session key; None for the events of all sessions."""
        self._reported: set[str] = set()
        self._supervisor = Supervisor(f"openclaw {site.url}")

    def start(self) -> None:
        """Start the connection loop."""
        self._supervisor.run_loop("openclaw.connection", self._stay_connected())

    async def stop(self) -> None:
        """End the loop, and with it the connection."""
        await self._supervisor.stop()

    # ---------------------------------------------------------------- requests

    @property
    def hello(self) -> Hello | None:
        """The hello of the current connection; None while there is no connection."""
        return self._hello if self._socket is not None else None

    @property
    def limits(self) -> GatewayLimits:
        """The limits the gateway announced last."""
        return self._hello.policy if self._hello is not None else GatewayLimits()

    def unavailable_reason(self) -> str | None:
        """Why the gateway cannot be used now, with what to do; None when it can."""
        # First: without the loop nothing reconnects, whatever `_failure` says.
        for reason in self._supervisor.dead_loops.values():
            return f"The connection loop to OpenClaw has stopped ({reason}); restart the gateway."
        return None if self._failure is None else self._failure.message

    async def wait_connected(self, timeout_s: float) -> Hello:
        """Wait for the connection. Raises: AgentUnavailable with the reason."""
        with anyio.move_on_after(timeout_s):
            while (hello := self.hello) is None:
                # A wrong token or protocol: waiting cannot help. The loop goes on trying all the
                # same, so that a corrected token is found.
                if self._failure is not None and self._failure.is_final:
                    raise AgentUnavailable(self._failure.message)
                # The loop may be in its back-off: only this wakes it before the delay is over.
                self._wanted.set()
                # Set after every attempt and every loss; the loop around it looks at the new state.
                await self._changed.wait()
            return hello
        raise AgentUnavailable(
            self.unavailable_reason()
            or f"OpenClaw at {self.address.url} did not answer within {timeout_s:g} seconds;"
            " check that its gateway runs: openclaw gateway status."
        )

    async def call(self, method: str, params: JsonObject, *, timeout_s: float) -> JsonObject:
        """Send a request and return its response. Needs a connection, see `wait_connected`.

        Raises: AgentFailed (refused; `error_code` tells the code), AgentUnavailable (temporarily
        refused, connection lost, or no response in time: the request may have been executed).
        """
        return decode_object(await self._request(method, params, timeout_s))

    async def read(
        self, kind: type[_T], method: str, params: JsonObject, *, timeout_s: float
    ) -> _T:
        """The same as `call`, with the response decoded as `kind`."""
        response = decode_as(kind, await self._request(method, params, timeout_s))
        if response is None:
            raise AgentFailed(
                f"OpenClaw at {self.address.url} answered {method} in an unknown format;"
                " update openclaw-a2a, or OpenClaw."
            )
        return response

    async def _request(self, method: str, params: JsonObject, timeout_s: float) -> Raw:
        # Resolved by `_dispatch` or, when the connection is lost, by `_set_disconnected`; both run
        # in the connection loop.
        response: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        request_id = self._register(response)
        try:
            with anyio.fail_after(timeout_s):
                await self._send(encode_request(request_id, method, params))
                frame = await response
        except TimeoutError:
            raise AgentUnavailable(
                f"OpenClaw at {self.address.url} did not answer {method} within {timeout_s:g}"
                " seconds; look at its log, or try again."
            ) from None
        finally:
            # A response that arrives after the timeout finds no entry and is dropped.
            self._pending.pop(request_id, None)
        # The request may have been executed: callers that must not repeat it look before they send.
        if frame is _LOST_RESPONSE:
            raise self._not_connected()
        if not frame.ok:
            raise request_error(method, frame.error or ErrorPayload())
        return frame.payload

    async def post(self, method: str, params: JsonObject, subscription: EventSubscription) -> str:
        """Send a request whose responses, possibly several, go to the subscription; its id.

        Raises: AgentUnavailable (not connected: nothing was sent), AgentFailed (too large).
        """
        # Stays registered after the first response: `agent` is answered twice.
        request_id = self._register(subscription)
        subscription.requests.add(request_id)
        # If it raises, the entry stays until the subscription ends or the socket closes: harmless.
        await self._send(encode_request(request_id, method, params))
        return request_id

    def _register(self, waiter: asyncio.Future[Frame] | EventSubscription) -> str:
        # Registered before the request is sent: its response may arrive before `send` returns.
        self._last_request += 1
        request_id = str(self._last_request)
        self._pending[request_id] = waiter
        return request_id

    async def _send(self, frame: bytes) -> None:
        limit = self.limits.max_payload
        if limit is not None and len(frame) > limit:
            raise AgentFailed(
                f"The message is {len(frame)} bytes for OpenClaw, which takes at most {limit};"
                " send less, or smaller files."
            )
        if self._socket is None:
            raise self._not_connected()
        try:
            await self._socket.send(frame, text=True)
        except ConnectionClosed:
            raise self._not_connected() from None

    def _not_connected(self) -> AgentUnavailable:
        return AgentUnavailable(
            self.unavailable_reason()
            or f"There is no connection to OpenClaw at {self.address.url};"
            " start its gateway: openclaw gateway run."
        )

    @contextmanager
    def subscribe(
        self, events: frozenset[str], session_key: str | None = None
    ) -> Generator[EventSubscription]:
        """Subscribe to the events of these names, of one session only when a key is given."""
        subscription = EventSubscription(events)
        group = self._subscriptions.setdefault(session_key, [])
        group.append(subscription)
        try:
            yield subscription
        finally:
            # Responses that arrive from now on are those of a caller that stopped waiting.
            for request_id in subscription.requests:
                self._pending.pop(request_id, None)
            group.remove(subscription)
            if not group:
                del self._subscriptions[session_key]

    # ---------------------------------------------------------------- the connection loop

    async def _stay_connected(self) -> None:
        attempt = 0
        while True:
            started = anyio.current_time()
            is_connected = False
            try:
                # Resolved at each attempt, so that a corrected token needs no restart.
                self.address = self.site.resolve(self._environ)
                opened = await open_connection(self.address)
                is_connected = True
                await self._receive_frames(*opened)
            except ConnectFailed as failure:
                if self._failure is None or self._failure.message != failure.message:
                    log.warning("openclaw.unavailable", reason=failure.message)
                self._failure = failure
                self._notify_change()
            except Exception:  # a defect of ours must not end the connection for good
                log.exception("openclaw.connection_loop_failed", url=self.site.url)
            # Here the socket is closed, its requests are answered and its subscribers know.
            is_stable = is_connected and anyio.current_time() - started > _STABLE_S
            # A gateway that accepts and drops connections at once is still backed off from.
            attempt = 1 if is_stable else attempt + 1
            # Turns subscribe to a session; the background watcher and deliveries to None.
            has_turn = any(key is not None for key in self._subscriptions)
            backoff = _BACKOFF_DURING_TURN if has_turn else _BACKOFF
            delay_s = backoff.delay_s(attempt, roll=_random.random())
            with anyio.move_on_after(delay_s):
                await anyio.sleep(min(delay_s, _MIN_DELAY_S))
                # Reset after the minimum: callers that ask from now on want a new attempt.
                self._wanted = anyio.Event()
                await self._wanted.wait()

    async def _receive_frames(self, socket: ClientConnection, hello: Hello) -> None:
        """Dispatch what arrives on the socket until it closes or the loop is cancelled."""
        earlier, self._hello = self._hello, hello
        # The state before the wake-up: a caller that wakes sends on this socket at once.
        self._socket, self._failure = socket, None
        self._notify_change()
        log.info("openclaw.connected", url=self.address.url, version=hello.server.version)
        if earlier is not None:
            # Before any frame of the new connection: a run is looked up first, then followed.
            self._publish(Reconnected(earlier.server.boot_id != hello.server.boot_id))
        reason = "it was closed"
        try:
            while True:
                # Nothing in `_dispatch` waits: a slow reader must not hold up the others.
                self._dispatch(await socket.recv(decode=False))
        except ConnectionClosed as error:
            reason = str(error)
        finally:
            self._set_disconnected(reason)
            # Shielded: when `stop` cancels the loop, the closing handshake still gets its time.
            with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
                await socket.close()

    def _set_disconnected(self, reason: str) -> None:
        log.info("openclaw.connection_lost", url=self.address.url, reason=reason)
        # The state first: a waiter that is woken below must not find the dead socket.
        self._socket = None
        self._failure = ConnectFailed(
            f"The connection to OpenClaw at {self.address.url} was lost ({reason});"
            " it is being made again. If that lasts, start it: openclaw gateway run."
        )
        # A new dict: what is registered from now on belongs to the next socket.
        pending, self._pending = self._pending, {}
        for waiter in pending.values():
            if isinstance(waiter, EventSubscription):
                waiter.requests.clear()
            elif not waiter.done():
                waiter.set_result(_LOST_RESPONSE)
        # After the events that arrived before: a subscriber reads them first, then the loss.
        self._publish(ConnectionLost())
        self._notify_change()

    def _notify_change(self) -> None:
        # A new event before the old one is set: a waiter that wakes and waits again must not spin.
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def _publish(self, item: SubscriptionItem) -> None:
        for subscription in itertools.chain.from_iterable(self._subscriptions.values()):
            subscription.put(item)

    # ---------------------------------------------------------------- received frames

    def _dispatch(self, raw: bytes) -> None:
        frame = decode_frame(raw)
        if frame is None:
            self._report_once("a frame that cannot be decoded")
        elif frame.type == "event":
            self._dispatch_event(frame.event, frame.payload)
        elif frame.type != "res":
            self._report_once(f"a frame of type {frame.type[:40]}")
        elif isinstance(waiter := self._pending.get(frame.id), EventSubscription):
            waiter.put(ResponseReceived(frame.id, frame))
        elif waiter is not None:
            if not waiter.done():
                waiter.set_result(frame)
        elif not (frame.id.isdecimal() and int(frame.id) <= self._last_request):
            # A smaller id is a request whose caller stopped waiting.
            self._report_once("a response to an unknown request")

    def _dispatch_event(self, event: str, payload: Raw) -> None:
        everything = self._subscriptions.get(None, ())
        for subscription in everything:
            if event in subscription.events:
                subscription.put(EventReceived(event, payload))
        # True while there is a group besides that of all sessions, which has the key None.
        if len(self._subscriptions) > bool(everything):
            # Decoded once for all, and only while there are subscriptions to single sessions.
            origin = decode_origin(payload)
            for subscription in self._subscriptions.get(origin.session or "", ()):
                if event in subscription.events:
                    subscription.put(EventReceived(event, payload, origin))

    def _report_once(self, what: str) -> None:
        """Log unusable input once per kind: a broken gateway would fill the log."""
        if what not in self._reported and len(self._reported) < _MAX_REPORTED:
            self._reported.add(what)
            log.warning("openclaw.unexpected_frame", url=self.address.url, what=what)


_connections: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[GatewaySite, GatewayConnection]] = (
    WeakKeyDictionary()
)
"""The connections of each event loop, shared by agents of the same gateway."""


def acquire_connection(
    site: GatewaySite, *, environ: Mapping[str, str] | None = None
) -> GatewayConnection:
    """The connection to this gateway, started by its first user. See `release_connection`."""
    connections = _connections.setdefault(asyncio.get_running_loop(), {})
    connection = connections.get(site)
    if connection is None:
        # No await from the lookup to here, so two agents that start at once share one connection.
        connection = connections[site] = GatewayConnection(site, environ)
        connection.start()
    connection.users += 1
    return connection


async def release_connection(connection: GatewayConnection) -> None:
    """Give a connection back; the last user closes it."""
    connection.users -= 1
    if connection.users == 0:
        # Removed before it is stopped: `acquire` returns a new connection meanwhile.
        _connections.get(asyncio.get_running_loop(), {}).pop(connection.site, None)
        await connection.stop()
