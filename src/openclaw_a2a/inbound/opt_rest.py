"""The methods of planning over HTTP+JSON: paths decide."""

import msgspec

from openclaw_a2a.inbound.opt_desk import SUBSCRIBE
from openclaw_a2a.inbound.opt_rpc import read_params
from openclaw_a2a.inbound.opt_stream import PlanVisit
from openclaw_a2a.inbound.visit import BARE, Visit
from openclaw_a2a.model.errors import RouteNotFound
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.wire.rest import decode_plan_query

ROOTS = frozenset({"objectives", "plans"})
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


class PlanRoute(msgspec.Struct, frozen=True):
    """The method that an address stands for, and the params that the address itself names."""

    method: str
    named: dict[str, str] = {}


async def serve(visit: Visit, segments: list[str]) -> None:
    """Answer a request whose path has these segments, of which the first is one of `ROOTS`.

    Raises: RouteNotFound, InvalidParams, Overloaded, and what planning refuses.
    """
    planning = visit.door.planning_methods(visit.exchange)
    route = _find(visit.exchange.method, segments)
    if planning is None or route is None or route.method not in {*planning.METHODS, SUBSCRIBE}:
        address = f"{visit.exchange.method} {'/'.join(segments)}"
        raise RouteNotFound(
            f"there is no {address[:200]} here; see the agent card for what it offers, and "
            "activate the extension with the header A2A-Extensions"
        )
    params: JsonObject = {**await _read(visit, route), **route.named}
    if route.method == SUBSCRIBE:
        asked = PlanVisit(visit.exchange, visit.door, visit.scope, planning)
        await asked.stream(params, BARE)
        return
    result = await planning.call(route.method, params, visit.scope)
    await visit.answer(msgspec.json.encode(result))


async def _read(visit: Visit, route: PlanRoute) -> JsonObject:
    """What the request says besides its address: GET and DELETE as query, others as body."""
    exchange = visit.exchange
    if exchange.method in ("GET", "DELETE"):
        await visit.skip_body()
        return decode_plan_query(exchange.query())
    if route.named and not exchange.has_body():
        return {}
    return read_params(route.method, msgspec.json.decode(await visit.body()))


def _find(method: str, segments: list[str]) -> PlanRoute | None:
    match segments:
        case [root]:
            return _route(_AT_ROOT.get((method, root)))
        case ["objectives", str(objective_id), "plans"] if method == "POST" and objective_id:
            return PlanRoute("plans/create", {"objectiveId": objective_id})
        case [root, str(name)] if name:
            item_id, _, verb = name.rpartition(":")
            if item_id and verb in _VERBS.get((method, root), ()):
                return PlanRoute(f"{root}/{verb}", {"id": item_id})
            return _route(_ON_ONE.get((method, root)), id=name)
        case _:
            return None


def _route(method: str | None, **named: str) -> PlanRoute | None:
    return None if method is None else PlanRoute(method, named)
