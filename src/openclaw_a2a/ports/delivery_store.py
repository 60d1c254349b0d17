"""The delivery store: the subscribers of tasks, and the progress of each delivery."""

from collections.abc import Awaitable
from typing import Protocol, runtime_checkable

import msgspec

from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.turn import Scope


class DeliveryPage(msgspec.Struct, frozen=True, gc=False):
    """One page of deliveries, and the id to continue after (None: this is the last page)."""

    deliveries: tuple[Delivery, ...]
    next_after: DeliveryId | None = None


class DeliveryStore(Protocol):
    """Durable deliveries: push notifications, call outcomes, plan step updates.

    Writes take effect in call order and are durable when their awaitable returns.
    """

    def put_delivery(self, delivery: Delivery, *, within: int) -> Awaitable[bool]:
        """Store a delivery, replacing one with the same id.

        False if its task already has `within` others of its kind. Raises: TaskNotFound.
        """
        ...

    def update_delivery(self, delivery: Delivery) -> Awaitable[bool]:
        """Store the progress of a delivery; False if it was deleted or its body was replaced."""
        ...

    def delete_delivery(self, delivery_id: DeliveryId) -> Awaitable[bool]:
        """Delete a delivery; False if there was none."""
        ...

    async def read_delivery(
        self, scope: Scope | None, delivery_id: DeliveryId, *, only_own: bool = False
    ) -> Delivery | None:
        """One delivery, if its task is in scope (None: any scope).

        `only_own`: and if this gateway is the one of several on the store that sends it.
        """
        ...

    async def list_task_deliveries(
        self, scope: Scope | None, task_id: TaskId, *, only_own: bool = False
    ) -> list[Delivery]:
        """The deliveries of a task, oldest first; none if the task is not in scope.

        `only_own`: only those that this gateway sends, if several share the store.
        """
        ...

    async def list_unfinished_deliveries(self, *, after: DeliveryId, limit: int) -> DeliveryPage:
        """Deliveries that have, or may yet get, something to send, by id.

        All except dead ones, and those of finished tasks that were sent up to the last event. At
        most `limit` deliveries are examined, so a page can be empty and still not be the last.
        """
        ...

    async def list_deliveries(
        self, state: DeliveryState, *, after: DeliveryId, limit: int
    ) -> list[Delivery]:
        """Deliveries in a state, by id."""
        ...


@runtime_checkable
class SupportsBodyReplacement(Protocol):
    """A delivery store whose deliveries others may be sending."""

    def replace_body(
        self, delivery_id: DeliveryId, *, known: bytes, body: bytes
    ) -> Awaitable[bool]:
        """Change the body of a delivery and nothing else; False if it is not as it is known."""
        ...
