"""The operator's pages of deliveries in trouble: which wait, which were given up, and why."""

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from openclaw_a2a.model.call import CALL_KIND as CALL
from openclaw_a2a.model.call import Call, CallId
from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.errors import DeliveryNotFound
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.push_config import PUSH_KIND, PushConfig
from openclaw_a2a.server.admin.endpoint import AdminEndpoint, AdminRequest

if TYPE_CHECKING:
    from openclaw_a2a.engine.outbox.outbox import Outbox
    from openclaw_a2a.ports import DeliveryStore

MOST = 1000
"""How many deliveries in each state are looked at."""

_SHORT_ID = 8
FindCall = Callable[[CallId], Call | None]
_decoder = msgspec.json.Decoder(PushConfig)


class DeliveryView(JsonStruct, frozen=True, omit_defaults=False):
    """A delivery as the operator sees it: without tokens, credentials and the full address."""

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
    """The deliveries in trouble; those that wait come first, the soonest before the others."""

    deliveries: tuple[DeliveryView, ...]
    is_cut: bool = False
    """True when there are more."""


class DeliveriesAdmin:
    """Lists deliveries in trouble, and has them tried again.

    `outboxes` gives the stores of the gateway, each with what brings its deliveries; `find_call`
    the call whose outcome is to be brought.
    """

    def __init__(
        self, outboxes: "Callable[[], Sequence[tuple[DeliveryStore, Outbox]]]", find_call: FindCall
    ) -> None:
        self._outboxes = outboxes
        self._find_call = find_call

    def add_to(self, door: AdminEndpoint) -> None:
        """Open the pages."""
        door.add_route("GET", "/operator/deliveries", self.list)
        door.add_route("POST", "/operator/deliveries/{}/redeliver", self.redeliver)

    async def list(self, _: AdminRequest) -> DeliveryList:
        """Everything in trouble."""
        found = [
            await store.list_deliveries(state, after=DeliveryId(""), limit=MOST)
            for store, _ in self._outboxes()
            for state in (DeliveryState.WAITING, DeliveryState.DEAD)
        ]
        shown = [self._shown(one) for one in chain.from_iterable(found)]
        shown.sort(key=lambda one: (one.state is DeliveryState.DEAD, one.next_at or one.updated_at))
        return DeliveryList(tuple(shown), any(len(page) == MOST for page in found))

    async def redeliver(self, request: AdminRequest) -> DeliveryView:
        """Try one again, now. Raises: DeliveryNotFound."""
        [wanted] = request.segments
        for store, outbox in self._outboxes():
            if await store.read_delivery(DeliveryId(wanted)) is not None:
                return self._shown(await outbox.redeliver(DeliveryId(wanted)))
        raise DeliveryNotFound(
            f"there is no delivery {wanted[:80]}; list the deliveries to see those in trouble"
        )

    def _shown(self, delivery: Delivery) -> DeliveryView:
        return show_delivery(delivery, self._find_call)


def show_delivery(delivery: Delivery, find_call: FindCall) -> DeliveryView:
    """What the operator may see of a delivery."""
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
    """Whom a delivery is for, as far as the operator may see it."""
    if delivery.kind == PUSH_KIND:
        return _decoder.decode(delivery.body).host
    if delivery.kind != CALL:
        return ""
    call_id = CallId(delivery.body.decode())
    call = find_call(call_id)
    if call is None:
        return f"call {call_id}"
    return f"{call.caller.session_key or call.caller.name} (call {call_id[:_SHORT_ID]})"
