"""Deliveries in plain dictionaries: the meaning that every kind of store shares."""

from collections.abc import Callable, Iterable
from heapq import nsmallest

from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.ids import TaskId


class DeliveryRows:
    """Deliveries by id and by task."""

    def __init__(self, rows: Iterable[Delivery] = ()) -> None:
        self._rows: dict[DeliveryId, Delivery] = {}
        self._of_task: dict[TaskId, dict[DeliveryId, None]] = {}
        for row in rows:
            self.put(row)

    def all(self) -> Iterable[Delivery]:
        """Every delivery."""
        return self._rows.values()

    def put(self, delivery: Delivery, *, within: int | None = None) -> bool:
        """Keep a delivery, unless its task has `within` others of its kind."""
        if within is not None and self._others(delivery) >= within:
            return False
        self._rows[delivery.id] = delivery
        self._of_task.setdefault(delivery.task_id, {})[delivery.id] = None
        return True

    def save(self, delivery: Delivery) -> bool:
        """Keep how far a delivery is; False when it is gone, or has another body now."""
        known = self._rows.get(delivery.id)
        if known is None or known.body != delivery.body:
            return False
        self._rows[delivery.id] = delivery
        return True

    def drop(self, delivery_id: DeliveryId) -> bool:
        """Forget a delivery; False when there was none."""
        row = self._rows.pop(delivery_id, None)
        if row is None:
            return False
        rows = self._of_task[row.task_id]
        del rows[delivery_id]
        if not rows:
            del self._of_task[row.task_id]
        return True

    def drop_task(self, task_id: TaskId) -> None:
        """Forget the deliveries of a task."""
        for delivery_id in self._of_task.pop(task_id, {}):
            del self._rows[delivery_id]

    def get(self, delivery_id: DeliveryId) -> Delivery | None:
        """One delivery."""
        return self._rows.get(delivery_id)

    def of_task(self, task_id: TaskId) -> list[Delivery]:
        """The deliveries of a task, oldest first."""
        rows = [self._rows[one] for one in self._of_task.get(task_id, {})]
        return sorted(rows, key=lambda row: (row.created_at, row.id))

    def in_state(self, state: DeliveryState, *, after: DeliveryId, limit: int) -> list[Delivery]:
        """Deliveries in a state, in order of their ids."""
        return self.page(lambda row: row.state is state, after=after, limit=limit)

    def page(
        self, is_wanted: Callable[[Delivery], bool], *, after: DeliveryId, limit: int
    ) -> list[Delivery]:
        """Deliveries that a test lets through, in order of their ids."""
        rows = (row for row in self._rows.values() if row.id > after and is_wanted(row))
        return nsmallest(limit, rows, key=lambda row: row.id)

    def _others(self, delivery: Delivery) -> int:
        rows = (self._rows[one] for one in self._of_task.get(delivery.task_id, {}))
        return sum(row.kind == delivery.kind and row.id != delivery.id for row in rows)
