"""The deliveries of a SQLite store: their writes and the questions about them."""

import sqlite3
from typing import NamedTuple

from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.ports import DeliveryPage
from openclaw_a2a.store import errors
from openclaw_a2a.store.sqlite.row_codec import DELIVERY_CODE_OF, decode_delivery, to_microseconds
from openclaw_a2a.store.sqlite.transaction import SqliteBatch

_SELECT = """
SELECT d.id, d.kind, d.task, d.body, d.cursor, d.state, d.attempts, d.next_at, d.created_at,
  d.updated_at, d.reason
FROM delivery d"""
_SAVE = """
UPDATE delivery
SET cursor = ?, state = ?, attempts = ?, next_at = ?, updated_at = ?, reason = ?
WHERE id = ? AND body = ?"""
_DROP = "DELETE FROM delivery WHERE id = ?"
_COUNT_OTHERS = "SELECT count(*) FROM delivery WHERE task = ? AND kind = ? AND id <> ?"
_SELECT_ONE = f"{_SELECT} WHERE d.id = ?"
_SELECT_OF_TASK = f"{_SELECT} WHERE d.task = ? ORDER BY d.created_at, d.id"
_SELECT_IN_STATE = f"{_SELECT} WHERE d.state = ? AND d.id > ? ORDER BY d.id LIMIT ?"
# A task that is not there may be about to come to be. The ended states are 3, 4, 5 and 7.
_SELECT_UNFINISHED = f"""
{_SELECT} LEFT JOIN task t ON t.id = d.task
WHERE d.id > ? AND d.id <= ? AND d.state <> 2
  AND (d.state = 1 OR t.id IS NULL OR t.state NOT IN (3, 4, 5, 7) OR d.cursor < t.sequence)
ORDER BY d.id"""
# The same for an ended task.
SELECT_HOLDING = """
SELECT 1 FROM delivery d INDEXED BY delivery_by_task
WHERE d.task = ? AND d.state <> 2
  AND (d.state = 1 OR d.cursor < (SELECT t.sequence FROM task t WHERE t.number = ?))
LIMIT 1"""
_SELECT_WINDOW = "SELECT id FROM delivery WHERE id > ? ORDER BY id LIMIT 1 OFFSET ?"
_LAST = DeliveryId("~")
"""Comes after every id."""


class Put(NamedTuple):
    """A delivery to keep, unless its task has too many."""

    delivery: Delivery
    within: int


def put(batch: SqliteBatch, order: Put) -> bool:
    """Keep a delivery, in the place of one with its id. Raises: TaskNotFound."""
    delivery = order.delivery
    if batch.live.find_task(delivery.task_id) is None:
        raise errors.no_task(delivery.task_id)
    key = (delivery.task_id, delivery.kind, delivery.id)
    if batch.connection.execute(_COUNT_OTHERS, key).fetchone()[0] >= order.within:
        return False
    batch.put_delivery(delivery)
    return True


def save(batch: SqliteBatch, delivery: Delivery) -> bool:
    """Keep how far a delivery is; False when it is gone, or has another body now."""
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
    return batch.connection.execute(_SAVE, row).rowcount > 0


def drop(batch: SqliteBatch, delivery_id: DeliveryId) -> bool:
    """Forget a delivery; False when there was none."""
    return batch.connection.execute(_DROP, (delivery_id,)).rowcount > 0


def holds(batch: SqliteBatch, task_id: TaskId, number: int) -> bool:
    """True while something of an ended task is still to be brought."""
    return batch.connection.execute(SELECT_HOLDING, (task_id, number)).fetchone() is not None


class DeliveryReader:
    """The questions about deliveries, over one read-only connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def one(self, delivery_id: DeliveryId) -> Delivery | None:
        """One delivery."""
        row = self._connection.execute(_SELECT_ONE, (delivery_id,)).fetchone()
        return None if row is None else decode_delivery(row)

    def of_task(self, task_id: TaskId) -> list[Delivery]:
        """The deliveries of a task, oldest first."""
        return [
            decode_delivery(row) for row in self._connection.execute(_SELECT_OF_TASK, (task_id,))
        ]

    def unfinished(self, after: DeliveryId, limit: int) -> DeliveryPage:
        """Deliveries that have, or may yet get, something to bring."""
        # Most are finished: the window bounds how many of those one question walks over.
        edge = self._connection.execute(_SELECT_WINDOW, (after, limit - 1)).fetchone()
        last = _LAST if edge is None else edge[0]
        rows = self._connection.execute(_SELECT_UNFINISHED, (after, last))
        found = tuple(decode_delivery(row) for row in rows)
        return DeliveryPage(found, None if edge is None else last)

    def in_state(self, state: DeliveryState, after: DeliveryId, limit: int) -> list[Delivery]:
        """Deliveries in a state, in order of their ids."""
        rows = self._connection.execute(_SELECT_IN_STATE, (DELIVERY_CODE_OF[state], after, limit))
        return [decode_delivery(row) for row in rows]
