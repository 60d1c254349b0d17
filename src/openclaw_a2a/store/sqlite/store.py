"""The SQLite store: the default, durable and fast on one machine."""

from functools import partial
from pathlib import Path

from openclaw_a2a.ports import Store
from openclaw_a2a.store import commands
from openclaw_a2a.store.rules import ReportUpgrade
from openclaw_a2a.store.sqlite import records, tasks
from openclaw_a2a.store.sqlite.database import Handlers, SqliteDatabase
from openclaw_a2a.store.sqlite.records import (
    SqliteDeliveryStore,
    SqliteLogStore,
    SqliteRecordStore,
)
from openclaw_a2a.store.sqlite.search import search_tasks
from openclaw_a2a.store.sqlite.tasks import SqliteTaskStore
from openclaw_a2a.store.sqlite.transaction import WriteTransaction

_HANDLERS: Handlers = {
    commands.Submit: WriteTransaction.submit,
    commands.ChangeTask: WriteTransaction.change_task,
    commands.StartRun: WriteTransaction.start_run,
    commands.FinishRun: WriteTransaction.finish_run,
    commands.ClaimRuns: tasks.claim_runs,
    commands.PutDelivery: records.put_delivery,
    commands.UpdateDelivery: records.update_delivery,
    commands.DeleteDelivery: records.delete_delivery,
    commands.PutRecord: records.put_record,
    commands.UpdateRecord: records.update_record,
    commands.DeleteRecord: records.delete_record,
}


class SqliteStore(SqliteDatabase, Store):
    """A database file and the four stores in it."""

    def __init__(self, path: str | Path, on_upgrade: ReportUpgrade | None = None) -> None:
        super().__init__(path, _HANDLERS, on_upgrade)
        self.tasks = SqliteTaskStore(self)
        self.deliveries = SqliteDeliveryStore(self)
        self.records = SqliteRecordStore(self)
        self.logs = SqliteLogStore(self)
        self.search_tasks = partial(search_tasks, self.path)
