"""The SQLite store: the default, durable and fast on one machine."""

from pathlib import Path

from openclaw_a2a.store.sqlite.database import SqliteDatabase
from openclaw_a2a.store.sqlite.deliveries import SqliteDeliveryStore
from openclaw_a2a.store.sqlite.logs import SqliteLogStore
from openclaw_a2a.store.sqlite.records import SqliteRecordStore
from openclaw_a2a.store.sqlite.tasks import SqliteTaskStore


class SqliteStore(SqliteDatabase):
    """A database file and the four stores in it."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.tasks = SqliteTaskStore(self)
        self.deliveries = SqliteDeliveryStore(self)
        self.records = SqliteRecordStore(self)
        self.logs = SqliteLogStore(self)
