"""The methods of planning over JSON-RPC, for both protocol generations."""

from typing import cast

import msgspec

from openclaw_a2a.inbound.door import Door
from openclaw_a2a.inbound.http import Exchange
from openclaw_a2a.inbound.opt_desk import SUBSCRIBE, URI
from openclaw_a2a.inbound.opt_stream import PlanVisit
from openclaw_a2a.model.errors import GatewayError, InvalidParams, MethodNotFound, Problem
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.wire import errors, sse
from openclaw_a2a.wire.jsonrpc import Envelope, encode_error, encode_result
from openclaw_a2a.wire.versions import Wire, read_version


def find(exchange: Exchange, door: Door, scope: Scope, envelope: Envelope) -> "PlanCall | None":
    """The call, when its method is one of planning and this request may use it.

    Raises: VersionNotSupported, MethodNotFound (it was not asked for).
    """
    planning = door.planning_methods(exchange)
    if planning is None:
        if door.planning is not None and envelope.method in {*door.planning.METHODS, SUBSCRIBE}:
            raise MethodNotFound(
                f"{envelope.method} needs the extension: send the header A2A-Extensions: {URI}"
            )
        return None
    if envelope.method not in planning.METHODS and envelope.method != SUBSCRIBE:
        return None
    return PlanCall(PlanVisit(exchange, door, scope, planning), envelope)


class PlanCall:
    """One call of a method of planning.

    The methods belong to no generation: errors are told in the one that the header names.
    """

    def __init__(self, visit: PlanVisit, envelope: Envelope) -> None:
        self.wire = read_version(visit.exchange.version()) or Wire.V03
        self._visit = visit
        self._envelope = envelope

    async def serve(self) -> None:
        """Answer. Raises: InvalidParams, Overloaded, and what planning refuses."""
        visit, method = self._visit, self._envelope.method
        params = read_params(method, msgspec.json.decode(self._envelope.params))
        if method == SUBSCRIBE:
            await visit.stream(params, self)
            return
        result = await visit.planning.call(method, params, visit.scope)
        body = encode_result(self._envelope.id, msgspec.json.encode(result))
        await visit.exchange.answer(200, body)

    def frame(self, sequence: int, body: bytes) -> bytes:
        """One change, in this call's envelope."""
        return sse.frame(encode_result(self._envelope.id, body), sequence=sequence)

    def fault(self, error: GatewayError) -> bytes:
        """The error that ends a stream, in this call's envelope."""
        body = encode_error(self._envelope.id, errors.rpc_error(error, self.wire))
        return sse.frame(body, event=b"error")

    def streams_early(self, error: GatewayError) -> bool:
        """An error before the first change is a plain answer."""
        return False


def read_params(method: str, params: Json) -> JsonObject:
    """The params of a method, which are by name. Raises: InvalidParams."""
    if not isinstance(params, dict):
        problem = Problem("params", "must be an object", "type")
        raise InvalidParams(f"{method}: params must be an object", problems=(problem,))
    return cast(JsonObject, params)
