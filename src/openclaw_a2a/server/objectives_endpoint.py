"""The planning methods over JSON-RPC and HTTP+JSON, and the event stream of an objective."""

from collections.abc import Sequence
from typing import cast

import msgspec

from openclaw_a2a.http.asgi import HttpRequest
from openclaw_a2a.http.router import Router
from openclaw_a2a.http.sse_stream import (
    EventStream,
    StoredFrames,
    StreamEvent,
    encode_frame,
    last_event_id,
)
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
from openclaw_a2a.planning.steps import EXTENSION_URI
from openclaw_a2a.protocol import errors
from openclaw_a2a.protocol.jsonrpc import Envelope, around_result, encode_error, encode_result
from openclaw_a2a.protocol.v1 import decode_plan_query
from openclaw_a2a.protocol.versions import ProtocolVersion, read_version
from openclaw_a2a.server.account_endpoint import AccountEndpoint
from openclaw_a2a.server.rest_request import RestRequest

_SWITCHED_OFF = (
    "objectives are switched off in this gateway; whoever runs it sets opt.enabled to true"
)


async def _stream(
    call: "PlanningRpcCall | RestRequest", planning: PlanningService, params: JsonObject
) -> None:
    """Stream the changes of an objective until the client leaves.

    Raises: InvalidParams, Overloaded, and what the planning service raises.
    """
    opened: list[ObjectiveSubscription] = []

    async def open_stream() -> EventStream:
        cursor = last_event_id(call.http)
        opened.append(await planning.subscribe(params, call.scope, cursor))
        return EventStream(None, 0, opened[0])

    try:
        endpoint = call.endpoint
        await endpoint.streams.serve(call.http, open_stream, call, check=endpoint.check_caller)
    finally:
        for subscription in opened:
            subscription.close()


async def _call(
    call: "PlanningRpcCall | RestRequest",
    planning: PlanningService,
    method: str,
    params: JsonObject,
) -> bytes:
    """The encoded result of a method. Raises: what the planning service raises."""
    result = await planning.call(
        method,
        params,
        call.scope,
        address=call.http.client_address,
        is_from_peer=True,
        agents=call.http.caller_agents,
    )
    return msgspec.json.encode(result)


def find_rpc_call(
    http: HttpRequest, endpoint: AccountEndpoint, scope: Scope, envelope: Envelope
) -> "PlanningRpcCall | None":
    """The call, when its method is a planning method.

    Raises: VersionNotSupported, MethodNotFound (planning is off, or not activated).
    """
    if envelope.method not in PlanningService.METHODS and envelope.method != SUBSCRIBE:
        return None
    planning = endpoint.planning
    if planning is None:
        raise MethodNotFound(f"{envelope.method}: {_SWITCHED_OFF}")
    if endpoint.planning_methods(http) is None:
        raise MethodNotFound(
            f"{envelope.method} needs the extension: send the header "
            f"A2A-Extensions: {EXTENSION_URI}"
        )
    version = read_version(http.protocol_version()) or ProtocolVersion.V03
    return PlanningRpcCall(http, endpoint, scope, planning, envelope, version)


class PlanningRpcCall(StoredFrames, msgspec.Struct, frozen=True):
    """One JSON-RPC call of a planning method.

    The methods are the same in all protocol versions; errors have the shape of the version that
    the header names.
    """

    http: HttpRequest
    endpoint: AccountEndpoint
    scope: Scope
    planning: PlanningService
    envelope: Envelope
    version: ProtocolVersion

    async def serve(self) -> None:
        """Serve the call. Raises: InvalidParams, Overloaded, what the planning service raises."""
        method = self.envelope.method
        params = require_object(method, msgspec.json.decode(self.envelope.params))
        if method == SUBSCRIBE and not self.http.is_silent:
            await _stream(self, self.planning, params)
            return
        result = await _call(self, self.planning, method, params)
        await self.http.respond(200, encode_result(self.envelope.id, result))

    def frames(self, events: Sequence[StreamEvent], last: int | None) -> bytes:
        """Events as frames, in this call's envelope."""
        frames: list[bytes] = []
        for one in events:
            body = encode_result(self.envelope.id, one.body)
            frames.append(encode_frame(body, sequence=one.sequence))
        return b"".join(frames)

    def around_frame(self, sequence: int) -> tuple[bytes, bytes]:
        """What is around a result that is encoded already."""
        before, after = around_result(self.envelope.id)
        return b"id: %d\ndata: %b" % (sequence, before), after + b"\n\n"

    def error_frame(self, error: GatewayError) -> bytes:
        """The error that ends a stream, in this call's envelope."""
        body = encode_error(self.envelope.id, errors.rpc_error(error, self.version))
        return encode_frame(body, event=b"error")


def require_object(method: str, params: Json) -> JsonObject:
    """The params of a method, which must be an object. Raises: InvalidParams."""
    if not isinstance(params, dict):
        problem = Problem("params", "must be an object", "type")
        raise InvalidParams(f"{method}: params must be an object", problems=(problem,))
    return cast(JsonObject, params)


REST_ROOTS = frozenset({"objectives", "plans"})
"""The first segments of the paths that are served here."""

ROUTES = Router[str]()
for _method, _pattern, _planning_method in (
    ("POST", "objectives", "objectives/create"),
    ("GET", "objectives", "objectives/list"),
    ("GET", "objectives/{}", "objectives/get"),
    ("PATCH", "objectives/{}", "objectives/update"),
    ("DELETE", "objectives/{}", "objectives/delete"),
    ("GET", "objectives/{}:subscribe", SUBSCRIBE),
    ("POST", "objectives/{}:replan", "objectives/replan"),
    ("POST", "objectives/{}:run", "objectives/run"),
    ("POST", "objectives/{}:pause", "objectives/pause"),
    ("POST", "objectives/{}:resume", "objectives/resume"),
    ("POST", "objectives/{}/plans", "plans/create"),
    ("GET", "plans/{}", "plans/get"),
    ("PATCH", "plans/{}", "plans/update"),
    ("POST", "plans/{}:addTasks", "plans/addTasks"),
    ("POST", "plans/{}:run", "plans/run"),
    ("POST", "plans/{}:pause", "plans/pause"),
    ("POST", "plans/{}:resume", "plans/resume"),
):
    ROUTES.add_route(_method, _pattern, _planning_method)


async def serve_rest(request: RestRequest, segments: list[str]) -> None:
    """Serve a request whose path has these segments; the first is one of `REST_ROOTS`.

    Raises: RouteNotFound, MethodNotAllowed, InvalidParams, Overloaded, and what the planning
    service raises.
    """
    if request.endpoint.planning is None:
        raise RouteNotFound(_SWITCHED_OFF)
    planning = request.endpoint.planning_methods(request.http)
    path = "/".join(segments)
    route = ROUTES.find(request.http.method, path)
    if planning is None or route is None:
        _, ids = ROUTES.find_address(path)
        error = None
        # What follows a colon is a verb and no part of an id: an unknown one is no address.
        if planning is not None and not any(":" in item_id for item_id in ids):
            error = ROUTES.method_error(request.http.method, path)
        raise error or RouteNotFound(
            f"there is no {request.http.method} {path[:200]} here; see the agent card for what it "
            "offers, and activate the extension with the header A2A-Extensions"
        )
    method, ids = route
    params = await _read_params(request, method, has_id=bool(ids))
    for item_id in ids:
        name = "objectiveId" if method == "plans/create" else "id"
        if params.setdefault(name, item_id) != item_id:
            reason = f"must be {item_id[:100]}, as in the address, or left out"
            problem = Problem(name, reason)
            raise InvalidParams(
                f"The parameters of {method} are not valid: {name} {reason}.", problems=(problem,)
            )
    if method == SUBSCRIBE:
        await _stream(request, planning, params)
        return
    await request.respond(await _call(request, planning, method, params))


async def _read_params(request: RestRequest, method: str, *, has_id: bool) -> JsonObject:
    """The params besides the id in the path: from the query for GET and DELETE, else the body."""
    http = request.http
    if http.method in ("GET", "DELETE"):
        await request.skip_body()
        return decode_plan_query(http.query())
    if has_id and not http.has_body():
        return {}
    return require_object(method, msgspec.json.decode(await request.read_body()))
