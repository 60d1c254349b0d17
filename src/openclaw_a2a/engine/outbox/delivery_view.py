"""The operator's view of deliveries, for pages and commands: list failing ones, and retry them."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from openclaw_a2a.model.call import CALL_KIND, Call, CallId
from openclaw_a2a.model.delivery import PUSH_KIND, Delivery, DeliveryId, DeliveryState, PushConfig
from openclaw_a2a.model.errors import DeliveryNotFound
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.message import JsonStruct

if TYPE_CHECKING:
    from openclaw_a2a.engine.engine import Engine
    from openclaw_a2a.engine.outbox.outbox import Outbox

MAX_LISTED = 1000
"""How many deliveries in each state are listed."""

IN_TROUBLE = (DeliveryState.WAITING, DeliveryState.SKIPPED, DeliveryState.DEAD)
_SHORT_ID = 8
FindCall = Callable[[CallId], Awaitable[Call | None]]
_decoder = msgspec.json.Decoder(PushConfig)


class DeliveryView(JsonStruct, frozen=True, omit_defaults=False):
    """A delivery for the operator: without tokens, credentials and the full URL."""

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
    """The deliveries in trouble: those that wait for a retry, the soonest first; those of which
    something was refused and skipped; those given up.
    """

    deliveries: tuple[DeliveryView, ...]
    is_cut: bool = False
    """True when the list is incomplete."""


class DeliveryReader:
    """Lists deliveries in trouble, and retries them.

    `find_call` returns the call whose outcome a delivery carries.
    """

    def __init__(self, outboxes: "Mapping[Engine, Outbox]", find_call: FindCall) -> None:
        self._outboxes = outboxes
        self._find_call = find_call

    async def list_in_trouble(self) -> DeliveryList:
        """All deliveries in trouble, up to a limit."""
        found = [
            await engine.store.deliveries.list_deliveries(
                state, after=DeliveryId(""), limit=MAX_LISTED
            )
            for engine in self._outboxes
            for state in IN_TROUBLE
        ]
        # Of a delivery that changed its state between two reads, the later one counts.
        newest = {one.id: one for one in chain.from_iterable(found)}
        views = [await self.view(one) for one in newest.values()]
        views.sort(key=lambda one: (IN_TROUBLE.index(one.state), one.next_at or one.updated_at))
        return DeliveryList(tuple(views), any(len(page) == MAX_LISTED for page in found))

    async def redeliver(self, wanted: DeliveryId) -> DeliveryView:
        """Retry one now. Raises: DeliveryNotFound."""
        for engine, outbox in self._outboxes.items():
            if await engine.store.deliveries.read_delivery(None, wanted) is not None:
                return await self.view(await outbox.redeliver(wanted))
        raise DeliveryNotFound(
            f"there is no delivery {wanted[:80]}; list the deliveries to see those in trouble"
        )

    async def view(self, delivery: Delivery) -> DeliveryView:
        """The delivery without its secrets."""
        is_waiting = delivery.state is DeliveryState.WAITING
        return DeliveryView(
            id=delivery.id,
            kind=delivery.kind,
            state=delivery.state,
            to=await self._find_receiver(delivery),
            task_id=delivery.task_id,
            attempts=delivery.attempts,
            reason=delivery.reason,
            next_at=delivery.next_at if is_waiting else None,
            updated_at=delivery.updated_at,
        )

    async def _find_receiver(self, delivery: Delivery) -> str:
        if delivery.kind != CALL_KIND:
            return webhook_host(delivery)
        call_id = CallId(delivery.body.decode(errors="replace"))
        call = await self._find_call(call_id)
        if call is None:
            return f"call {call_id}"
        return f"{call.caller.session_key or call.caller.name} (call {call_id[:_SHORT_ID]})"


def webhook_host(delivery: Delivery) -> str:
    """The host of a webhook, whose path may be secret; empty for other deliveries."""
    if delivery.kind != PUSH_KIND:
        return ""
    try:
        return _decoder.decode(delivery.body).host
    except (ValueError, RecursionError):
        return "(damaged)"
