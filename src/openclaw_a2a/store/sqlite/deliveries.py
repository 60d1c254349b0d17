"""The deliveries of a SQLite store."""

from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import DeliveryPage
from openclaw_a2a.store.columns import DELIVERY_CODE_OF
from openclaw_a2a.store.commands import (
    DeleteDelivery,
    DeliveryWrites,
    PutDelivery,
    UpdateDelivery,
)
from openclaw_a2a.store.rules import no_task
from openclaw_a2a.store.sqlite.database import DatabasePart, Row, bind_scope
from openclaw_a2a.store.sqlite.transaction import (
    WriteTransaction,
    decode_delivery,
    encode_delivery,
)

_SELECT = """
SELECT d.id, d.kind, d.task, d.body, d.cursor, d.next_at, d.created_at, d.updated_at, d.state,
  d.attempts, d.reason
FROM delivery d"""
_UPDATE = """
UPDATE delivery
SET cursor = ?, next_at = ?, created_at = ?, updated_at = ?, state = ?, attempts = ?, reason = ?
WHERE id = ? AND body = ?"""
_DELETE = "DELETE FROM delivery WHERE id = ?"
_COUNT_OTHERS = "SELECT count(*) FROM delivery WHERE task = ? AND kind = ? AND id <> ?"
_IN_SCOPE = """(:principal IS NULL OR EXISTS (
  SELECT 1 FROM task t
  WHERE t.id = d.task AND t.principal = :principal AND t.account = :account))"""
_SELECT_ONE = f"{_SELECT} WHERE d.id = :id AND {_IN_SCOPE}"
_SELECT_OF_TASK = f"{_SELECT} WHERE d.task = :task AND {_IN_SCOPE} ORDER BY d.created_at, d.id"
_SELECT_IN_STATE = f"{_SELECT} WHERE d.state = ? AND d.id > ? ORDER BY d.id LIMIT ?"
# A task that is not stored may be about to be created. The terminal states are 3, 4, 5 and 7.
_SELECT_UNFINISHED = f"""
{_SELECT} LEFT JOIN task t ON t.id = d.task
WHERE d.id > ? AND d.id <= ? AND d.state <> 2
  AND (d.state = 1 OR t.id IS NULL OR t.state NOT IN (3, 4, 5, 7) OR d.cursor < t.sequence)
ORDER BY d.id"""
_SELECT_WINDOW = "SELECT id FROM delivery WHERE id > ? ORDER BY id LIMIT 1 OFFSET ?"
_LAST = DeliveryId("~")
"""Sorts after every id."""


class SqliteDeliveryStore(DatabasePart, DeliveryWrites):
    """The delivery store over a database."""

    async def read_delivery(
        self, scope: Scope | None, delivery_id: DeliveryId, *, only_own: bool = False
    ) -> Delivery | None:
        values = {"id": delivery_id, **bind_scope(scope)}
        # A damaged one looks deleted: its receiver is not known.
        found = self._decode(self._database.fetch_all(_SELECT_ONE, values))
        return found[0] if found else None

    async def list_task_deliveries(
        self, scope: Scope | None, task_id: TaskId, *, only_own: bool = False
    ) -> list[Delivery]:
        values = {"task": task_id, **bind_scope(scope)}
        return self._decode(self._database.fetch_all(_SELECT_OF_TASK, values))

    async def list_unfinished_deliveries(self, *, after: DeliveryId, limit: int) -> DeliveryPage:
        # Most are finished: the window bounds how many of those one query passes over.
        edge = self._database.fetch_one(_SELECT_WINDOW, (after, limit - 1))
        last = _LAST if edge is None else edge[0]
        rows = self._database.fetch_all(_SELECT_UNFINISHED, (after, last))
        return DeliveryPage(tuple(self._decode(rows)), None if edge is None else last)

    async def list_deliveries(
        self, state: DeliveryState, *, after: DeliveryId, limit: int
    ) -> list[Delivery]:
        values = (DELIVERY_CODE_OF[state], after, limit)
        return self._decode(self._database.fetch_all(_SELECT_IN_STATE, values))

    def _decode(self, rows: list[Row]) -> list[Delivery]:
        return self._decode_rows("delivery", decode_delivery, rows)


def put_delivery(transaction: WriteTransaction, command: PutDelivery) -> bool:
    """False if the task has too many. Raises: TaskNotFound."""
    delivery = command.delivery
    # Through the cache: a task that was created in this group has no row yet.
    if transaction.cache.find_task(delivery.task_id) is None:
        raise no_task(delivery.task_id)
    key = (delivery.task_id, delivery.kind, delivery.id)
    count = transaction.connection.execute(_COUNT_OTHERS, key).fetchone()[0]
    if command.within is not None and count >= command.within:
        return False
    transaction.put_delivery(delivery)
    return True


def update_delivery(transaction: WriteTransaction, command: UpdateDelivery) -> bool:
    """False if it was deleted or its body was replaced."""
    # The body works as a version: an attempt that began before the subscription was replaced must
    # not move the cursor of the new one.
    row = encode_delivery(command.delivery)
    return transaction.connection.execute(_UPDATE, (*row[4:], row[0], row[3])).rowcount > 0


def delete_delivery(transaction: WriteTransaction, command: DeleteDelivery) -> bool:
    """False if there was none."""
    return transaction.connection.execute(_DELETE, (command.delivery_id,)).rowcount > 0
