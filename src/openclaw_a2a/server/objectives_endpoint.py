"""The planning methods over JSON-RPC and HTTP+JSON, and the event stream of an objective."""

from typing import cast

import msgspec

from openclaw_a2a.http.asgi import HttpRequest
from openclaw_a2a.http.sse_stream import EventStream, FrameEncoder, encode_frame, last_event_id
from openclaw_a2a.model.errors import (
    GatewayError,
    InvalidParams,
    MethodNotFound,
    Problem,
    RouteNotFound,
)
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.service import SUBSCRIBE, ObjectiveSubscription, PlanningService
from openclaw_a2a.planning.step_message import EXTENSION_URI
from openclaw_a2a.protocol import errors
from openclaw_a2a.protocol.jsonrpc import Envelope, encode_error, encode_result
from openclaw_a2a.protocol.rest_query import decode_plan_query
from openclaw_a2a.protocol.versions import ProtocolVersion, read_version
from openclaw_a2a.server.account_endpoint import AccountEndpoint
from openclaw_a2a.server.rest_request import REST_FRAMES, RestRequest


class PlanningRequest(msgspec.Struct, frozen=True):
    """A request for a planning method, whatever the transport."""

    http: HttpRequest
    endpoint: AccountEndpoint
    scope: Scope
    planning: PlanningService

    async def stream(self, params: JsonObject, encoder: FrameEncoder) -> None:
        """Stream the changes of an objective until the client leaves.

        Raises: InvalidParams, Overloaded, and what the planning service raises.
        """
        opened: list[ObjectiveSubscription] = []

        async def open_stream() -> EventStream:
            cursor = last_event_id(self.http)
            opened.append(await self.planning.subscribe(params, self.scope, cursor))
            return EventStream(None, 0, opened[0])

        try:
            await self.endpoint.streams.serve(self.http, open_stream, encoder)
        finally:
            for subscription in opened:
                subscription.close()


def find_rpc_call(
    http: HttpRequest, endpoint: AccountEndpoint, scope: Scope, envelope: Envelope
) -> "PlanningRpcCall | None":
    """The call, when its method is a planning method.

    Raises: VersionNotSupported, MethodNotFound (the extension is not activated).
    """
    planning = endpoint.planning
    if planning is None or envelope.method not in {*planning.METHODS, SUBSCRIBE}:
        return None
    if endpoint.planning_methods(http) is None:
        raise MethodNotFound(
            f"{envelope.method} needs the extension: send the header "
            f"A2A-Extensions: {EXTENSION_URI}"
        )
    return PlanningRpcCall(PlanningRequest(http, endpoint, scope, planning), envelope)


class PlanningRpcCall:
    """One JSON-RPC call of a planning method.

    The methods are the same in all protocol versions; errors have the shape of the version that
    the header names.
    """

    def __init__(self, request: PlanningRequest, envelope: Envelope) -> None:
        self.version = read_version(request.http.protocol_version()) or ProtocolVersion.V03
        self._request = request
        self._envelope = envelope

    async def serve(self) -> None:
        """Serve the call. Raises: InvalidParams, Overloaded, what the planning service raises."""
        request, method = self._request, self._envelope.method
        params = require_object(method, msgspec.json.decode(self._envelope.params))
        if method == SUBSCRIBE:
            await request.stream(params, self)
            return
        result = await request.planning.call(method, params, request.scope)
        body = encode_result(self._envelope.id, msgspec.json.encode(result))
        await request.http.respond(200, body)

    def frame(self, sequence: int, body: bytes) -> bytes:
        """One event, in this call's envelope."""
        return encode_frame(encode_result(self._envelope.id, body), sequence=sequence)

    def error_frame(self, error: GatewayError) -> bytes:
        """The error that ends a stream, in this call's envelope."""
        body = encode_error(self._envelope.id, errors.rpc_error(error, self.version))
        return encode_frame(body, event=b"error")

    def streams_early_error(self, error: GatewayError) -> bool:
        """False: an error before the first event is a plain response."""
        return False


def require_object(method: str, params: Json) -> JsonObject:
    """The params of a method, which must be an object. Raises: InvalidParams."""
    if not isinstance(params, dict):
        problem = Problem("params", "must be an object", "type")
        raise InvalidParams(f"{method}: params must be an object", problems=(problem,))
    return cast(JsonObject, params)


REST_ROOTS = frozenset({"objectives", "plans"})
"""The first segments of the paths that are served here."""

_COLLECTION_METHODS = {
    ("POST", "objectives"): "objectives/create",
    ("GET", "objectives"): "objectives/list",
}
_ITEM_METHODS = {
    ("GET", "objectives"): "objectives/get",
    ("PATCH", "objectives"): "objectives/update",
    ("DELETE", "objectives"): "objectives/delete",
    ("GET", "plans"): "plans/get",
    ("PATCH", "plans"): "plans/update",
}
_CUSTOM_METHODS = {
    ("GET", "objectives"): frozenset({"subscribe"}),
    ("POST", "objectives"): frozenset({"replan", "run", "pause", "resume"}),
    ("POST", "plans"): frozenset({"addTasks", "run", "pause", "resume"}),
}


class RestRoute(msgspec.Struct, frozen=True):
    """The method that a path stands for, and the params in the path."""

    method: str
    path_params: dict[str, str] = {}


async def serve_rest(request: RestRequest, segments: list[str]) -> None:
    """Serve a request whose path has these segments; the first is one of `REST_ROOTS`.

    Raises: RouteNotFound, InvalidParams, Overloaded, and what the planning service raises.
    """
    planning = request.endpoint.planning_methods(request.http)
    route = _find_route(request.http.method, segments)
    if planning is None or route is None or route.method not in {*planning.METHODS, SUBSCRIBE}:
        address = f"{request.http.method} {'/'.join(segments)}"
        raise RouteNotFound(
            f"there is no {address[:200]} here; see the agent card for what it offers, and "
            "activate the extension with the header A2A-Extensions"
        )
    params: JsonObject = {**await _read_params(request, route), **route.path_params}
    if route.method == SUBSCRIBE:
        call = PlanningRequest(request.http, request.endpoint, request.scope, planning)
        await call.stream(params, REST_FRAMES)
        return
    result = await planning.call(route.method, params, request.scope)
    await request.respond(msgspec.json.encode(result))


async def _read_params(request: RestRequest, route: RestRoute) -> JsonObject:
    """The params besides those in the path: from the query for GET and DELETE, else the body."""
    http = request.http
    if http.method in ("GET", "DELETE"):
        await request.skip_body()
        return decode_plan_query(http.query())
    if route.path_params and not http.has_body():
        return {}
    return require_object(route.method, msgspec.json.decode(await request.read_body()))


def _find_route(method: str, segments: list[str]) -> RestRoute | None:
    match segments:
        case [root]:
            return _route(_COLLECTION_METHODS.get((method, root)))
        case ["objectives", str(objective_id), "plans"] if method == "POST" and objective_id:
            return RestRoute("plans/create", {"objectiveId": objective_id})
        case [root, str(name)] if name:
            item_id, _, verb = name.rpartition(":")
            if item_id and verb in _CUSTOM_METHODS.get((method, root), ()):
                return RestRoute(f"{root}/{verb}", {"id": item_id})
            return _route(_ITEM_METHODS.get((method, root)), id=name)
        case _:
            return None


def _route(method: str | None, **path_params: str) -> RestRoute | None:
    return None if method is None else RestRoute(method, path_params)
