"""The changes of an objective as a stream of events."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import cast

import msgspec

from openclaw_a2a.http.asgi import HttpRequest
from openclaw_a2a.http.sse_stream import EventStream, FrameEncoder, last_event_id
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    GatewayError,
    GatewayFault,
    InvalidParams,
    MethodNotFound,
    Problem,
    RouteNotFound,
)
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.step_message import EXTENSION_URI
from openclaw_a2a.protocol import errors, sse
from openclaw_a2a.protocol.jsonrpc import Envelope, encode_error, encode_result
from openclaw_a2a.protocol.rest_query import decode_plan_query
from openclaw_a2a.protocol.versions import ProtocolVersion, read_version
from openclaw_a2a.server.account_endpoint import AccountEndpoint
from openclaw_a2a.server.objectives_extension import (
    SUBSCRIBE,
    ObjectiveChange,
    PlanningService,
)
from openclaw_a2a.server.rest_request import REST_FRAMES, RestRequest

log = get_logger(__name__)


class PlanningRequest(msgspec.Struct, frozen=True):
    """A request about objectives: who asks whom, at which door."""

    exchange: HttpRequest
    door: AccountEndpoint
    scope: Scope
    planning: PlanningService

    async def stream(self, params: JsonObject, spelling: FrameEncoder) -> None:
        """Answer with the changes of an objective, as long as the reader stays.

        Raises: InvalidParams, Overloaded, and what planning refuses.
        """
        following: list[ChangeFollower] = []

        async def opening() -> EventStream:
            cursor = last_event_id(self.exchange)
            changes = await self.planning.subscribe(params, self.scope, cursor)
            following.append(ChangeFollower(changes))
            return EventStream(None, 0, following[0])

        try:
            await self.door.streams.serve(self.exchange, opening, spelling)
        finally:
            for follower in following:
                await follower.close()


class ToldChange(msgspec.Struct, frozen=True):
    """A change in the bytes that a stream shows."""

    sequence: int
    body: bytes


class ChangeFollower:
    """One reader of an objective's changes: it asks for the next when it has shown the last."""

    def __init__(self, changes: AsyncIterator[ObjectiveChange]) -> None:
        self._changes = changes
        self._next: asyncio.Task[ToldChange | None] | None = None
        self.is_over = False

    def stop(self) -> None:
        """The reader is gone: whoever waits in `take` gets an answer at once."""
        self.is_over = True
        if self._next is not None:
            self._next.cancel()

    async def next_events(self, wait_s: float) -> Sequence[ToldChange]:
        """The next change; nothing when none came in time or no more are to come."""
        coming = self._next or asyncio.get_running_loop().create_task(self._fetch())
        self._next = coming
        await asyncio.wait({coming}, timeout=wait_s)
        if self.is_over or not coming.done():
            return ()
        self._next = None
        change = coming.result()
        self.is_over = change is None
        return () if change is None else (change,)

    async def close(self) -> None:
        """Let go of the changes."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait({self._next})
            if not self._next.cancelled():
                self._next.exception()
        if isinstance(self._changes, AsyncGenerator):
            await cast(AsyncGenerator[ObjectiveChange], self._changes).aclose()

    async def _fetch(self) -> ToldChange | None:
        try:
            change = await anext(self._changes, None)
            if change is None:
                return None
            return ToldChange(change.sequence, msgspec.json.encode(change.body))
        except GatewayError:
            raise
        except Exception as error:  # the answer has begun: all that can be told is its end
            log.exception("changes-broken")
            raise GatewayFault("internal error") from error


def find_rpc_call(
    exchange: HttpRequest, door: AccountEndpoint, scope: Scope, envelope: Envelope
) -> "PlanCall | None":
    """The call, when its method is one of planning and this request may use it.

    Raises: VersionNotSupported, MethodNotFound (it was not asked for).
    """
    planning = door.planning_methods(exchange)
    if planning is None:
        if door.planning is not None and envelope.method in {*door.planning.METHODS, SUBSCRIBE}:
            raise MethodNotFound(
                f"{envelope.method} needs the extension: send the header "
                f"A2A-Extensions: {EXTENSION_URI}"
            )
        return None
    if envelope.method not in planning.METHODS and envelope.method != SUBSCRIBE:
        return None
    return PlanCall(PlanningRequest(exchange, door, scope, planning), envelope)


class PlanCall:
    """One call of a method of planning.

    The methods belong to no generation: errors are told in the one that the header names.
    """

    def __init__(self, visit: PlanningRequest, envelope: Envelope) -> None:
        self.wire = read_version(visit.exchange.protocol_version()) or ProtocolVersion.V03
        self._visit = visit
        self._envelope = envelope

    async def serve(self) -> None:
        """Answer. Raises: InvalidParams, Overloaded, and what planning refuses."""
        visit, method = self._visit, self._envelope.method
        params = require_object(method, msgspec.json.decode(self._envelope.params))
        if method == SUBSCRIBE:
            await visit.stream(params, self)
            return
        result = await visit.planning.call(method, params, visit.scope)
        body = encode_result(self._envelope.id, msgspec.json.encode(result))
        await visit.exchange.respond(200, body)

    def frame(self, sequence: int, body: bytes) -> bytes:
        """One change, in this call's envelope."""
        return sse.frame(encode_result(self._envelope.id, body), sequence=sequence)

    def error_frame(self, error: GatewayError) -> bytes:
        """The error that ends a stream, in this call's envelope."""
        body = encode_error(self._envelope.id, errors.rpc_error(error, self.wire))
        return sse.frame(body, event=b"error")

    def streams_early_error(self, error: GatewayError) -> bool:
        """An error before the first change is a plain answer."""
        return False


def require_object(method: str, params: Json) -> JsonObject:
    """The params of a method, which are by name. Raises: InvalidParams."""
    if not isinstance(params, dict):
        problem = Problem("params", "must be an object", "type")
        raise InvalidParams(f"{method}: params must be an object", problems=(problem,))
    return cast(JsonObject, params)


REST_ROOTS = frozenset({"objectives", "plans"})
"""What the paths of planning begin with."""

_AT_ROOT = {
    ("POST", "objectives"): "objectives/create",
    ("GET", "objectives"): "objectives/list",
}
_ON_ONE = {
    ("GET", "objectives"): "objectives/get",
    ("PATCH", "objectives"): "objectives/update",
    ("DELETE", "objectives"): "objectives/delete",
    ("GET", "plans"): "plans/get",
    ("PATCH", "plans"): "plans/update",
}
_VERBS = {
    ("GET", "objectives"): frozenset({"subscribe"}),
    ("POST", "objectives"): frozenset({"replan", "run", "pause", "resume"}),
    ("POST", "plans"): frozenset({"addTasks", "run", "pause", "resume"}),
}


class RestRoute(msgspec.Struct, frozen=True):
    """The method that an address stands for, and the params that the address itself names."""

    method: str
    named: dict[str, str] = {}


async def serve_rest(visit: RestRequest, segments: list[str]) -> None:
    """Answer a request whose path has these segments, of which the first is one of `ROOTS`.

    Raises: RouteNotFound, InvalidParams, Overloaded, and what planning refuses.
    """
    planning = visit.endpoint.planning_methods(visit.http)
    route = _find(visit.http.method, segments)
    if planning is None or route is None or route.method not in {*planning.METHODS, SUBSCRIBE}:
        address = f"{visit.http.method} {'/'.join(segments)}"
        raise RouteNotFound(
            f"there is no {address[:200]} here; see the agent card for what it offers, and "
            "activate the extension with the header A2A-Extensions"
        )
    params: JsonObject = {**await _read(visit, route), **route.named}
    if route.method == SUBSCRIBE:
        asked = PlanningRequest(visit.http, visit.endpoint, visit.scope, planning)
        await asked.stream(params, REST_FRAMES)
        return
    result = await planning.call(route.method, params, visit.scope)
    await visit.respond(msgspec.json.encode(result))


async def _read(visit: RestRequest, route: RestRoute) -> JsonObject:
    """What the request says besides its address: GET and DELETE as query, others as body."""
    exchange = visit.http
    if exchange.method in ("GET", "DELETE"):
        await visit.skip_body()
        return decode_plan_query(exchange.query())
    if route.named and not exchange.has_body():
        return {}
    return require_object(route.method, msgspec.json.decode(await visit.read_body()))


def _find(method: str, segments: list[str]) -> RestRoute | None:
    match segments:
        case [root]:
            return _route(_AT_ROOT.get((method, root)))
        case ["objectives", str(objective_id), "plans"] if method == "POST" and objective_id:
            return RestRoute("plans/create", {"objectiveId": objective_id})
        case [root, str(name)] if name:
            item_id, _, verb = name.rpartition(":")
            if item_id and verb in _VERBS.get((method, root), ()):
                return RestRoute(f"{root}/{verb}", {"id": item_id})
            return _route(_ON_ONE.get((method, root)), id=name)
        case _:
            return None


def _route(method: str | None, **named: str) -> RestRoute | None:
    return None if method is None else RestRoute(method, named)
