"""Records of every kind in plain dictionaries: the meaning that every kind of store shares."""

from collections.abc import Iterable
from datetime import datetime

from openclaw_a2a.ports import KeptRecord


class RecordRows:
    """Records by kind and id, the one put last at the end."""

    def __init__(self, rows: Iterable[KeptRecord] = ()) -> None:
        self._rows: dict[tuple[str, str], KeptRecord] = {}
        for row in rows:
            self.put(row)

    def all(self) -> Iterable[KeptRecord]:
        """Every record, in the order in which they were put."""
        return self._rows.values()

    def put(self, record: KeptRecord) -> None:
        """Keep a record, in the place of one of its kind with its id."""
        self._rows.pop((record.kind, record.id), None)
        self._rows[record.kind, record.id] = record

    def change(self, record: KeptRecord) -> bool:
        """Keep the next version of a record at its place; False when it is not the next one."""
        kept = self.get(record.kind, record.id)
        expected = None if record.version == 0 else record.version - 1
        if (None if kept is None else kept.version) != expected:
            return False
        self._rows[record.kind, record.id] = record
        return True

    def get(self, kind: str, record_id: str) -> KeptRecord | None:
        """One record."""
        return self._rows.get((kind, record_id))

    def drop(self, kind: str, record_id: str) -> bool:
        """Forget a record; False when there was none."""
        return self._rows.pop((kind, record_id), None) is not None

    def of_kind(self, kind: str) -> list[KeptRecord]:
        """All records of a kind."""
        return [row for row in self._rows.values() if row.kind == kind]

    def forget(self, before: datetime | None) -> None:
        """Let go of the records whose time was over by then."""
        if before is not None:
            gone = [key for key, row in self._rows.items() if row.expires_at < before]
            for key in gone:
                del self._rows[key]
