"""Deliveries, records and logs in dictionaries: the semantics every kind of store shares."""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from heapq import nsmallest
from itertools import islice

from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.ports import LogAppend, LogHead, LogLine, Record, StoredLog


class DeliveryTable:
    """Deliveries by id and by task."""

    def __init__(self, rows: Iterable[Delivery] = ()) -> None:
        self._rows: dict[DeliveryId, Delivery] = {}
        self._ids_by_task: dict[TaskId, dict[DeliveryId, None]] = {}
        for row in rows:
            self.put(row)

    def all(self) -> Iterable[Delivery]:
        """Every delivery."""
        return self._rows.values()

    def put(self, delivery: Delivery, *, within: int | None = None) -> bool:
        """Store a delivery; False if its task has `within` others of its kind."""
        if within is not None and self._count_others(delivery) >= within:
            return False
        self._rows[delivery.id] = delivery
        self._ids_by_task.setdefault(delivery.task_id, {})[delivery.id] = None
        return True

    def update(self, delivery: Delivery) -> bool:
        """Store the progress of a delivery; False if it was deleted or its body was replaced."""
        known = self._rows.get(delivery.id)
        if known is None or known.body != delivery.body:
            return False
        self._rows[delivery.id] = delivery
        return True

    def delete(self, delivery_id: DeliveryId) -> bool:
        """Delete a delivery; False if there was none."""
        row = self._rows.pop(delivery_id, None)
        if row is None:
            return False
        ids = self._ids_by_task[row.task_id]
        del ids[delivery_id]
        if not ids:
            del self._ids_by_task[row.task_id]
        return True

    def delete_of_task(self, task_id: TaskId) -> None:
        """Delete the deliveries of a task."""
        for delivery_id in self._ids_by_task.pop(task_id, {}):
            del self._rows[delivery_id]

    def get(self, delivery_id: DeliveryId) -> Delivery | None:
        """One delivery."""
        return self._rows.get(delivery_id)

    def of_task(self, task_id: TaskId) -> list[Delivery]:
        """The deliveries of a task, oldest first."""
        rows = [self._rows[one] for one in self._ids_by_task.get(task_id, {})]
        return sorted(rows, key=lambda row: (row.created_at, row.id))

    def in_state(self, state: DeliveryState, *, after: DeliveryId, limit: int) -> list[Delivery]:
        """Deliveries in a state, by id."""
        return self.page(lambda row: row.state is state, after=after, limit=limit)

    def page(
        self, matches: Callable[[Delivery], bool], *, after: DeliveryId, limit: int
    ) -> list[Delivery]:
        """Deliveries that match, by id."""
        rows = (row for row in self._rows.values() if row.id > after and matches(row))
        return nsmallest(limit, rows, key=lambda row: row.id)

    def _count_others(self, delivery: Delivery) -> int:
        rows = (self._rows[one] for one in self._ids_by_task.get(delivery.task_id, {}))
        return sum(row.kind == delivery.kind and row.id != delivery.id for row in rows)


class RecordTable:
    """Records by kind and id, in the order in which they were put."""

    def __init__(self, rows: Iterable[Record] = ()) -> None:
        self._rows: dict[tuple[str, str], Record] = {}
        for row in rows:
            self.put(row)

    def all(self) -> Iterable[Record]:
        """Every record, in the order in which they were put."""
        return self._rows.values()

    def put(self, record: Record) -> None:
        """Store a record at the end, replacing one with its kind and id."""
        self._rows.pop((record.kind, record.id), None)
        self._rows[record.kind, record.id] = record

    def update(self, record: Record) -> bool:
        """Store the next version of a record in place; False if it is not the next one."""
        stored = self.get(record.kind, record.id)
        expected = None if record.version == 0 else record.version - 1
        if (None if stored is None else stored.version) != expected:
            return False
        self._rows[record.kind, record.id] = record
        return True

    def get(self, kind: str, record_id: str) -> Record | None:
        """One record."""
        return self._rows.get((kind, record_id))

    def delete(self, kind: str, record_id: str) -> bool:
        """Delete a record; False if there was none."""
        return self._rows.pop((kind, record_id), None) is not None

    def of_kind(self, kind: str) -> list[Record]:
        """All records of a kind."""
        return [row for row in self._rows.values() if row.kind == kind]

    def purge(self, before: datetime | None) -> None:
        """Delete the records that expired before."""
        if before is not None:
            gone = [key for key, row in self._rows.items() if row.expires_at < before]
            for key in gone:
                del self._rows[key]


class _LogRow:
    __slots__ = ("id", "is_closed", "lines", "updated_at")

    def __init__(self, log_id: str) -> None:
        self.id = log_id
        self.lines: list[LogLine] = []
        self.is_closed = False
        self.updated_at = datetime.now(UTC)

    @property
    def sequence(self) -> int:
        return self.lines[-1].sequence if self.lines else 0

    def append(self, change: LogAppend) -> None:
        self.lines += change.lines()
        self.is_closed = change.leaves_closed(self.is_closed)
        self.updated_at = datetime.now(UTC)

    def stored(self) -> StoredLog:
        return StoredLog(self.id, tuple(self.lines), self.is_closed)

    def head(self) -> LogHead:
        return LogHead(self.id, self.sequence, self.is_closed, self.updated_at)


class LogTable:
    """Logs by kind and id."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], _LogRow] = {}
        self._ids: dict[str, list[str]] = {}

    def append(self, change: LogAppend) -> bool:
        """Append lines to a log; False if it is not at `change.after`."""
        key = change.kind, change.log_id
        row = self._rows.get(key)
        if not change.bodies or change.after != (0 if row is None else row.sequence):
            return False
        if row is None:
            row = self._rows[key] = _LogRow(change.log_id)
            insort(self._ids.setdefault(change.kind, []), change.log_id)
        row.append(change)
        return True

    def get(self, kind: str, log_id: str) -> StoredLog | None:
        """One log."""
        row = self._rows.get((kind, log_id))
        return None if row is None else row.stored()

    def page_open(self, kind: str, after: str, limit: int) -> list[StoredLog]:
        """Logs that are not closed, by id."""
        rows = (row for row in self._after(kind, after) if not row.is_closed)
        return [row.stored() for row in islice(rows, limit)]

    def page(self, kind: str, after: str, limit: int) -> list[LogHead]:
        """All logs, by id."""
        return [row.head() for row in islice(self._after(kind, after), limit)]

    def delete(self, kind: str, log_id: str) -> bool:
        """Delete a log; False if there was none."""
        was_stored = self._rows.pop((kind, log_id), None) is not None
        if was_stored:
            self._ids[kind].remove(log_id)
        return was_stored

    def _after(self, kind: str, after: str) -> Iterator[_LogRow]:
        ids = self._ids.get(kind, [])
        return (self._rows[kind, log_id] for log_id in ids[bisect_right(ids, after) :])
