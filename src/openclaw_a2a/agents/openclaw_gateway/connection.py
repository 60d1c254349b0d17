"""The one connection to an OpenClaw gateway that all its agents share; it heals itself."""

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Mapping
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

import anyio
from msgspec import Raw
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from openclaw_a2a.agents.openclaw_gateway.connect import (
    ConnectFailure,
    GatewayAddress,
    GatewayLimits,
    GatewaySite,
    Hello,
    open_connection,
)
from openclaw_a2a.agents.openclaw_gateway.protocol import (
    ErrorPayload,
    Frame,
    decode_as,
    decode_frame,
    decode_object,
    decode_origin,
    encode_request,
    request_error,
)
from openclaw_a2a.agents.openclaw_gateway.run_registry import RunRegistry
from openclaw_a2a.agents.openclaw_gateway.subscription import (
    ConnectionLost,
    EventFilter,
    EventReceived,
    EventSubscription,
    Reconnected,
    ResponseReceived,
    SubscriptionItem,
)
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable, SettingsInvalid
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.settings.token_reference import resolve_token

log = get_logger(__name__)

_Shape = TypeVar("_Shape")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _HURRIED_PAUSE_S, _MISSED_PAUSE_S = 0.1, 15.0, 0.2, 1.0
_CLOSE_S: Final = 2.0
_STEADY_S: Final = 5.0
_MOST_ODDITIES: Final = 256
_MOST_LET_GO: Final = 1024
_chance: Final = random.SystemRandom()
_GONE: Final = Frame("res", error=ErrorPayload(code="CONNECTION_LOST"))


class GatewayConnection:
    """A connection to one gateway, made again whenever it breaks."""

    def __init__(self, site: GatewaySite, environ: Mapping[str, str] | None = None) -> None:
        self.site = site
        self.address = GatewayAddress(site.url, device_key=site.device_key)
        """With the token as it was when the connection was tried last."""
        self.runs = RunRegistry()
        self._environ = environ
        self._socket: ClientConnection | None = None
        self._hello: Hello | None = None
        self._failure: ConnectFailure | None = None
        """Why the last attempt failed; None while connected and before the first attempt."""
        self._changed = anyio.Event()
        self._hurry = anyio.Event()
        self._numbers = itertools.count(1)
        self._calls: dict[str, asyncio.Future[Frame]] = {}
        self._posted: dict[str, EventSubscription] = {}
        self._by_session: dict[str, list[EventSubscription]] = {}
        self._others: list[EventSubscription] = []
        self._let_go: deque[str] = deque(maxlen=_MOST_LET_GO)
        """Requests whose answers nobody waits for any more."""
        self._oddities: set[str] = set()
        self._keeper: asyncio.Task[None] | None = None
        self._users = 0

    # ---------------------------------------------------------------- what users ask

    @property
    def hello(self) -> Hello | None:
        """The greeting of the connection that is there now; None when there is none."""
        return self._hello if self._socket is not None else None

    @property
    def limits(self) -> GatewayLimits:
        """The limits of the gateway, as it announced them last."""
        return self._hello.policy if self._hello is not None else GatewayLimits()

    def unavailable_reason(self) -> str | None:
        """Why the gateway cannot be used now, with what to do; None when it can."""
        return None if self._failure is None else self._failure.error.message

    async def wait_connected(self, within_s: float) -> Hello:
        """Wait for the connection. Raises: AgentUnavailable with the reason."""
        with anyio.move_on_after(within_s):
            while (hello := self.hello) is None:
                if self._failure is not None and self._failure.is_final:
                    raise AgentUnavailable(self._failure.error.message)
                self._hurry.set()
                await self._changed.wait()
            return hello
        raise AgentUnavailable(self.unavailable_reason() or self._silence(within_s))

    async def call(self, method: str, params: JsonObject, *, timeout_s: float) -> JsonObject:
        """Ask the gateway for something. The connection must be there; see `connected`.

        Raises: AgentFailed (it refused; `refusal_code` tells the code), AgentUnavailable (it cannot
        do it now, the connection is gone, or there was no answer in time: it may have been done).
        """
        return decode_object(await self._ask(method, params, timeout_s))

    async def read(
        self, shape: type[_Shape], method: str, params: JsonObject, *, timeout_s: float
    ) -> _Shape:
        """The same as `call`, with the answer as a struct (or whatever type it is)."""
        answer = decode_as(shape, await self._ask(method, params, timeout_s))
        if answer is None:
            raise AgentFailed(
                f"OpenClaw at {self.address.url} answered {method} in a way we do not understand;"
                " update openclaw-a2a, or OpenClaw."
            )
        return answer

    async def _ask(self, method: str, params: JsonObject, timeout_s: float) -> Raw:
        request_id = str(next(self._numbers))
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._calls[request_id] = answer
        try:
            with anyio.fail_after(timeout_s):
                await self._send(encode_request(request_id, method, params))
                frame = await answer
        except TimeoutError:
            raise AgentUnavailable(
                f"OpenClaw at {self.address.url} did not answer {method} within {timeout_s:g}"
                " seconds; look at its log, or try again."
            ) from None
        finally:
            if self._calls.pop(request_id, None) is not None and not answer.done():
                self._let_go.append(request_id)
        if frame is _GONE:
            raise self._gone()
        if not frame.ok:
            raise request_error(method, frame.error or ErrorPayload())
        return frame.payload

    async def post(self, method: str, params: JsonObject, listening: EventSubscription) -> str:
        """Send a request whose answers, however many, come to the listener; its id.

        Raises: AgentUnavailable (not connected: nothing was sent), AgentFailed (too large).
        """
        request_id = str(next(self._numbers))
        self._posted[request_id] = listening
        listening.requests.add(request_id)
        await self._send(encode_request(request_id, method, params))
        return request_id

    def subscribe(self, wanted: EventFilter) -> EventSubscription:
        """Begin to listen. Use the result with `with`: leaving it ends the listening."""
        listening = EventSubscription(wanted, self._stop_listening)
        if wanted.session_key is None:
            self._others.append(listening)
        else:
            self._by_session.setdefault(wanted.session_key, []).append(listening)
        return listening

    # ---------------------------------------------------------------- sharing

    def acquire(self) -> None:
        """Somebody more uses the link; the first one starts it."""
        self._users += 1
        if self._keeper is None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep_connected())

    async def release(self) -> None:
        """Somebody uses it no longer; the last one closes it."""
        self._users -= 1
        keeper = self._keeper
        if self._users == 0 and keeper is not None:
            self._keeper = None
            keeper.cancel()
            await asyncio.wait((keeper,))

    @property
    def is_in_use(self) -> bool:
        """False when nobody uses the link (any more)."""
        return self._users > 0

    # ---------------------------------------------------------------- the connection

    async def _keep_connected(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            began = anyio.current_time()
            try:
                is_let_in = await self._connect()
            except Exception:  # one broad catch: a fault of ours must not end the link for good
                log.exception("openclaw-link-failed", url=self.site.url)
                is_let_in = False
            if is_let_in and anyio.current_time() - began > _STEADY_S:
                pause_s = _FIRST_PAUSE_S
            await self._pause(pause_s * _chance.uniform(0.5, 1.0))
            is_missed = bool(self._by_session)  # a turn is under way
            pause_s = min(pause_s * 2, _MISSED_PAUSE_S if is_missed else _LONGEST_PAUSE_S)

    async def _connect(self) -> bool:
        """One attempt, and the connection to its end when there is one; False when not let in."""
        opened = await self._open()
        if isinstance(opened, ConnectFailure):
            self._note_failure(opened)
            return False
        await self._live_through(*opened)
        return True

    async def _open(self) -> tuple[ClientConnection, Hello] | ConnectFailure:
        """Try once, with the token as it is now: somebody may have changed it."""
        try:
            self.address = resolve_address(self.site, self._environ)
        except AgentUnavailable as error:
            return ConnectFailure(error, is_final=True)
        return await open_connection(self.address)

    async def _pause(self, pause_s: float) -> None:
        """Wait before the next attempt; whoever needs the connection shortens it."""
        with anyio.move_on_after(pause_s):
            await anyio.sleep(min(pause_s, _HURRIED_PAUSE_S))
            self._hurry = anyio.Event()
            await self._hurry.wait()

    async def _live_through(self, socket: ClientConnection, hello: Hello) -> None:
        """One connection, from when it was let in to its end."""
        reason = "it was closed"
        self._take_up(socket, hello)
        try:
            while True:
                self._take(await socket.recv(decode=False))
        except ConnectionClosed as error:
            reason = str(error)
        finally:
            self._let_down(reason)
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await socket.close()

    def _take_up(self, socket: ClientConnection, hello: Hello) -> None:
        earlier, self._hello = self._hello, hello
        self._socket, self._failure = socket, None
        self._tell_change()
        log.info("openclaw-connected", url=self.address.url, version=hello.server.version)
        if earlier is not None:
            is_restarted = earlier.server.boot_id != hello.server.boot_id
            self._tell_everybody(Reconnected(hello, is_restarted))

    def _let_down(self, reason: str) -> None:
        log.info("openclaw-disconnected", url=self.address.url, reason=reason)
        self._socket = None
        self._failure = ConnectFailure(
            AgentUnavailable(
                f"The connection to OpenClaw at {self.address.url} was lost ({reason});"
                " it is being made again. If that lasts, start it: openclaw gateway run."
            )
        )
        calls, self._calls = self._calls, {}
        for answer in calls.values():
            if not answer.done():
                answer.set_result(_GONE)
        for listening in self._posted.values():
            listening.requests.clear()
        self._posted.clear()
        self._tell_everybody(ConnectionLost(reason))
        self._tell_change()

    def _note_failure(self, failure: ConnectFailure) -> None:
        known = self._failure
        self._failure = failure
        if known is None or known.error.message != failure.error.message:
            log.warning("openclaw-unavailable", reason=failure.error.message)
        self._tell_change()

    def _tell_change(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def _send(self, frame: bytes) -> None:
        limit = self.limits.max_payload
        if limit is not None and len(frame) > limit:
            raise AgentFailed(
                f"The message is {len(frame)} bytes for OpenClaw, which takes at most {limit};"
                " send less, or smaller files."
            )
        socket = self._socket
        if socket is None:
            raise self._gone()
        try:
            await socket.send(frame, text=True)
        except ConnectionClosed:
            raise self._gone() from None

    def _gone(self) -> AgentUnavailable:
        return AgentUnavailable(
            self.unavailable_reason()
            or f"There is no connection to OpenClaw at {self.address.url};"
            " start its gateway: openclaw gateway run."
        )

    def _silence(self, within_s: float) -> str:
        return (
            f"OpenClaw at {self.address.url} did not answer within {within_s:g} seconds;"
            " check that its gateway runs: openclaw gateway status."
        )

    # ---------------------------------------------------------------- what arrives

    def _take(self, raw: bytes) -> None:
        frame = decode_frame(raw)
        if frame is None:
            self._note_oddity("a frame that cannot be read")
        elif frame.type == "event":
            self._take_event(frame.event, frame.payload)
        elif frame.type == "res":
            self._take_answer(frame)
        else:
            self._note_oddity(f"a frame of type {frame.type[:40]}")

    def _take_event(self, event: str, payload: Raw) -> None:
        for listening in self._others:
            if event in listening.wanted.events:
                listening.put(EventReceived(event, payload))
        if self._by_session:
            origin = decode_origin(payload)
            for listening in self._by_session.get(origin.session or "", ()):
                if event in listening.wanted.events:
                    listening.put(EventReceived(event, payload, origin))

    def _take_answer(self, frame: Frame) -> None:
        answer = self._calls.get(frame.id)
        if answer is not None:
            if not answer.done():
                answer.set_result(frame)
            return
        listening = self._posted.get(frame.id)
        if listening is not None:
            listening.put(ResponseReceived(frame.id, frame))
        elif frame.id not in self._let_go:
            self._note_oddity("an answer to no question of ours")

    def _note_oddity(self, what: str) -> None:
        """Say once what the gateway sent that is of no use; the rest would fill the log."""
        if what not in self._oddities and len(self._oddities) < _MOST_ODDITIES:
            self._oddities.add(what)
            log.warning("openclaw-sent-something-odd", url=self.address.url, what=what)

    def _tell_everybody(self, heard: SubscriptionItem) -> None:
        for listening in itertools.chain(self._others, *self._by_session.values()):
            listening.put(heard)

    def _stop_listening(self, listening: EventSubscription) -> None:
        for request_id in listening.requests:
            self._posted.pop(request_id, None)
            self._let_go.append(request_id)
        listening.requests.clear()
        session = listening.wanted.session_key
        group = self._others if session is None else self._by_session.get(session, [])
        if listening in group:
            group.remove(listening)
        if session is not None and not group:
            self._by_session.pop(session, None)


def resolve_address(site: GatewaySite, environ: Mapping[str, str] | None) -> GatewayAddress:
    """The site with its token, read now. Raises: AgentUnavailable when there is none."""
    try:
        token = resolve_token(site.token, environ=environ) if site.token else ""
    except SettingsInvalid as error:
        reason = f"There is no token for OpenClaw at {site.url}: {error.message}."
        raise AgentUnavailable(reason) from None
    return GatewayAddress(site.url, token, site.device_key)


_links: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[GatewaySite, GatewayConnection]] = (
    WeakKeyDictionary()
)
"""The links of each event loop; agents of the same gateway find each other's here."""


def acquire_connection(
    site: GatewaySite, *, environ: Mapping[str, str] | None = None
) -> GatewayConnection:
    """The link to this gateway, started when nobody had it; give it back with `release_link`.

    `environ` is where references to variables are looked up; None: the process's own.
    """
    links = _links.setdefault(asyncio.get_running_loop(), {})
    link = links.get(site)
    if link is None:
        link = links[site] = GatewayConnection(site, environ)
    link.acquire()
    return link


async def release_connection(link: GatewayConnection) -> None:
    """The caller uses the link no longer; the last one closes it."""
    await link.release()
    links = _links.get(asyncio.get_running_loop(), {})
    if not link.is_in_use and links.get(link.site) is link:
        del links[link.site]
