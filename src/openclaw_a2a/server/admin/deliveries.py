"""Admin routes for failing deliveries: which wait for a retry, which were given up, and why."""

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from openclaw_a2a.model.call import CALL_KIND as CALL
from openclaw_a2a.model.call import Call, CallId
from openclaw_a2a.model.delivery import PUSH_KIND, Delivery, DeliveryId, DeliveryState, PushConfig
from openclaw_a2a.model.errors import DeliveryNotFound
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.server.admin.endpoint import AdminEndpoint, AdminRequest

if TYPE_CHECKING:
    from openclaw_a2a.engine.outbox.outbox import Outbox
    from openclaw_a2a.ports import DeliveryStore

MAX_LISTED = 1000
"""How many deliveries in each state are listed."""

_SHORT_ID = 8
_ORDER = (DeliveryState.WAITING, DeliveryState.SKIPPED, DeliveryState.DEAD)
FindCall = Callable[[CallId], Call | None]
_decoder = msgspec.json.Decoder(PushConfig)


class DeliveryView(JsonStruct, frozen=True, omit_defaults=False):
    """A delivery as the operator sees it: without tokens, credentials and the full URL."""

    id: DeliveryId
    kind: str
    state: DeliveryState
    to: str
    task_id: TaskId
    attempts: int
    reason: str | None
    next_at: datetime | None
    updated_at: datetime


class DeliveryList(JsonStruct, frozen=True, omit_defaults=False):
    """The failing deliveries: those that wait for a retry, the soonest first; those of which
    something was refused and skipped; those given up.
    """

    deliveries: tuple[DeliveryView, ...]
    is_cut: bool = False
    """True when the list is incomplete."""


class DeliveriesAdmin:
    """Lists failing deliveries, and retries them.

    `outboxes` returns the outboxes of the gateway, each with its store; `find_call` the call whose
    outcome a delivery carries.
    """

    def __init__(
        self, outboxes: "Callable[[], Sequence[tuple[DeliveryStore, Outbox]]]", find_call: FindCall
    ) -> None:
        self._outboxes = outboxes
        self._find_call = find_call

    def add_to(self, endpoint: AdminEndpoint) -> None:
        """Add the routes."""
        endpoint.add_route("GET", "/operator/deliveries", self.list)
        endpoint.add_route("POST", "/operator/deliveries/{}/redeliver", self.redeliver)

    async def list(self, _: AdminRequest) -> DeliveryList:
        """All failing deliveries."""
        found = [
            await store.list_deliveries(state, after=DeliveryId(""), limit=MAX_LISTED)
            for store, _ in self._outboxes()
            for state in _ORDER
        ]
        views = [self._view(one) for one in chain.from_iterable(found)]
        views.sort(key=lambda one: (_ORDER.index(one.state), one.next_at or one.updated_at))
        return DeliveryList(tuple(views), any(len(page) == MAX_LISTED for page in found))

    async def redeliver(self, request: AdminRequest) -> DeliveryView:
        """Retry one now. Raises: DeliveryNotFound."""
        [wanted] = request.segments
        for store, outbox in self._outboxes():
            if await store.read_delivery(None, DeliveryId(wanted)) is not None:
                return self._view(await outbox.redeliver(DeliveryId(wanted)))
        raise DeliveryNotFound(
            f"there is no delivery {wanted[:80]}; list the deliveries to see those in trouble"
        )

    def _view(self, delivery: Delivery) -> DeliveryView:
        return view_delivery(delivery, self._find_call)


def view_delivery(delivery: Delivery, find_call: FindCall) -> DeliveryView:
    """The delivery without what the operator may not see."""
    is_waiting = delivery.state is DeliveryState.WAITING
    return DeliveryView(
        id=delivery.id,
        kind=delivery.kind,
        state=delivery.state,
        to=_receiver(delivery, find_call),
        task_id=delivery.task_id,
        attempts=delivery.attempts,
        reason=delivery.reason,
        next_at=delivery.next_at if is_waiting else None,
        updated_at=delivery.updated_at,
    )


def _receiver(delivery: Delivery, find_call: FindCall) -> str:
    """The receiver of a delivery, as far as the operator may see it."""
    if delivery.kind == PUSH_KIND:
        try:
            return _decoder.decode(delivery.body).host
        except (ValueError, RecursionError):
            return "(damaged)"
    if delivery.kind != CALL:
        return ""
    call_id = CallId(delivery.body.decode(errors="replace"))
    call = find_call(call_id)
    if call is None:
        return f"call {call_id}"
    return f"{call.caller.session_key or call.caller.name} (call {call_id[:_SHORT_ID]})"
