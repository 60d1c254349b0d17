"""The deliveries of a SQLite store."""

from collections.abc import Awaitable
from typing import NamedTuple

from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.ports import DeliveryPage
from openclaw_a2a.store.errors import no_task
from openclaw_a2a.store.sqlite.database import SqliteDatabase
from openclaw_a2a.store.sqlite.row_codec import DELIVERY_CODE_OF, decode_delivery, to_microseconds
from openclaw_a2a.store.sqlite.transaction import WriteTransaction

_SELECT = """
SELECT d.id, d.kind, d.task, d.body, d.cursor, d.state, d.attempts, d.next_at, d.created_at,
  d.updated_at, d.reason
FROM delivery d"""
_UPDATE = """
UPDATE delivery
SET cursor = ?, state = ?, attempts = ?, next_at = ?, updated_at = ?, reason = ?
WHERE id = ? AND body = ?"""
_DELETE = "DELETE FROM delivery WHERE id = ?"
_COUNT_OTHERS = "SELECT count(*) FROM delivery WHERE task = ? AND kind = ? AND id <> ?"
_SELECT_ONE = f"{_SELECT} WHERE d.id = ?"
_SELECT_OF_TASK = f"{_SELECT} WHERE d.task = ? ORDER BY d.created_at, d.id"
_SELECT_IN_STATE = f"{_SELECT} WHERE d.state = ? AND d.id > ? ORDER BY d.id LIMIT ?"
# A task that is not stored may be about to be created. The terminal states are 3, 4, 5 and 7.
_SELECT_UNFINISHED = f"""
{_SELECT} LEFT JOIN task t ON t.id = d.task
WHERE d.id > ? AND d.id <= ? AND d.state <> 2
  AND (d.state = 1 OR t.id IS NULL OR t.state NOT IN (3, 4, 5, 7) OR d.cursor < t.sequence)
ORDER BY d.id"""
# The same condition for a finished task.
SELECT_HOLDING = """
SELECT 1 FROM delivery d INDEXED BY delivery_by_task
WHERE d.task = ? AND d.state <> 2
  AND (d.state = 1 OR d.cursor < (SELECT t.sequence FROM task t WHERE t.number = ?))
LIMIT 1"""
_SELECT_WINDOW = "SELECT id FROM delivery WHERE id > ? ORDER BY id LIMIT 1 OFFSET ?"
_LAST = DeliveryId("~")
"""Sorts after every id."""


class _Put(NamedTuple):
    delivery: Delivery
    within: int


class SqliteDeliveryStore:
    """The delivery store over a database."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._write = database.writer.write

    def put_delivery(self, delivery: Delivery, *, within: int) -> Awaitable[bool]:
        """Store a delivery; False if its task has too many. Raises: TaskNotFound."""
        return self._write(_put, _Put(delivery, within))

    def update_delivery(self, delivery: Delivery) -> Awaitable[bool]:
        """Store the progress of a delivery; False if it was deleted or its body was replaced."""
        return self._write(_update, delivery)

    def delete_delivery(self, delivery_id: DeliveryId) -> Awaitable[bool]:
        """Delete a delivery; False if there was none."""
        return self._write(_delete, delivery_id)

    async def read_delivery(self, delivery_id: DeliveryId) -> Delivery | None:
        """One delivery."""
        row = self._database.fetch_one(_SELECT_ONE, (delivery_id,))
        return None if row is None else decode_delivery(row)

    async def list_task_deliveries(self, task_id: TaskId) -> list[Delivery]:
        """The deliveries of a task, oldest first."""
        return [
            decode_delivery(row) for row in self._database.fetch_all(_SELECT_OF_TASK, (task_id,))
        ]

    async def list_unfinished_deliveries(self, *, after: DeliveryId, limit: int) -> DeliveryPage:
        """Deliveries that have, or may yet get, something to send."""
        # Most are finished: the window bounds how many of those one query passes over.
        edge = self._database.fetch_one(_SELECT_WINDOW, (after, limit - 1))
        last = _LAST if edge is None else edge[0]
        rows = self._database.fetch_all(_SELECT_UNFINISHED, (after, last))
        found = tuple([decode_delivery(row) for row in rows])
        return DeliveryPage(found, None if edge is None else last)

    async def list_deliveries(
        self, state: DeliveryState, *, after: DeliveryId, limit: int
    ) -> list[Delivery]:
        """Deliveries in a state, by id."""
        values = (DELIVERY_CODE_OF[state], after, limit)
        return [decode_delivery(row) for row in self._database.fetch_all(_SELECT_IN_STATE, values)]


def has_unfinished(transaction: WriteTransaction, task_id: TaskId, number: int) -> bool:
    """True if a finished task still has something to deliver."""
    values = (task_id, number)
    return transaction.connection.execute(SELECT_HOLDING, values).fetchone() is not None


def _put(transaction: WriteTransaction, order: _Put) -> bool:
    delivery = order.delivery
    if transaction.cache.find_task(delivery.task_id) is None:
        raise no_task(delivery.task_id)
    key = (delivery.task_id, delivery.kind, delivery.id)
    if transaction.connection.execute(_COUNT_OTHERS, key).fetchone()[0] >= order.within:
        return False
    transaction.put_delivery(delivery)
    return True


def _update(transaction: WriteTransaction, delivery: Delivery) -> bool:
    row = (
        delivery.cursor,
        DELIVERY_CODE_OF[delivery.state],
        delivery.attempts,
        to_microseconds(delivery.next_at),
        to_microseconds(delivery.updated_at),
        delivery.reason,
        delivery.id,
        delivery.body,
    )
    return transaction.connection.execute(_UPDATE, row).rowcount > 0


def _delete(transaction: WriteTransaction, delivery_id: DeliveryId) -> bool:
    return transaction.connection.execute(_DELETE, (delivery_id,)).rowcount > 0
