"""What the operator sees of deliveries."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.outbox.delivery_view import DeliveryReader
from openclaw_a2a.engine.outbox.outbox import Outbox
from openclaw_a2a.model.call import Call, CallId
from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState, new_delivery
from openclaw_a2a.model.ids import TaskId

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class ChangingDeliveries:
    """A store in which a delivery is given up right after the waiting ones were read."""

    def __init__(self) -> None:
        made = new_delivery("push", TaskId("t"), "n", b"{}", cursor=0, now=NOW)
        self._delivery = msgspec.structs.replace(made, state=DeliveryState.WAITING)

    async def list_deliveries(
        self, state: DeliveryState, *, after: DeliveryId, limit: int
    ) -> list[Delivery]:
        assert (after, limit) == ("", 1000)
        found = [self._delivery] if self._delivery.state is state else []
        if state is DeliveryState.WAITING:
            self._delivery = msgspec.structs.replace(self._delivery, state=DeliveryState.DEAD)
        return found


class ChangingEngine:
    """What the reader uses of an engine."""

    def __init__(self) -> None:
        self.store = SimpleNamespace(deliveries=ChangingDeliveries())


async def test_a_delivery_that_is_given_up_while_deliveries_are_read_is_listed_once() -> None:
    async def find_call(call_id: CallId) -> Call | None:
        raise AssertionError(call_id)

    reader = DeliveryReader(cast("dict[Engine, Outbox]", {ChangingEngine(): None}), find_call)
    [shown] = (await reader.list_in_trouble()).deliveries
    assert shown.state is DeliveryState.DEAD
