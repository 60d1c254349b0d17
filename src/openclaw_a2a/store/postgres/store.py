"""The PostgreSQL store: for several machines, and where a database server is there already."""

from openclaw_a2a.ports import Store
from openclaw_a2a.store.postgres.address import Address
from openclaw_a2a.store.postgres.database import PostgresDatabase
from openclaw_a2a.store.postgres.records import (
    PostgresDeliveryStore,
    PostgresLogStore,
    PostgresRecordStore,
)
from openclaw_a2a.store.postgres.search import PostgresTaskSearch
from openclaw_a2a.store.postgres.tasks import PostgresTaskStore
from openclaw_a2a.store.rules import Lease, ReportUpgrade


class PostgresStore(PostgresDatabase, Store):
    """A schema of a database and the four stores in it."""

    def __init__(
        self,
        address: Address,
        *,
        connections: int = 8,
        on_upgrade: ReportUpgrade | None = None,
        lease: Lease | None = None,
    ) -> None:
        super().__init__(address, connections=connections, on_upgrade=on_upgrade, lease=lease)
        self.tasks = PostgresTaskStore(self)
        self.deliveries = PostgresDeliveryStore(self)
        self.records = PostgresRecordStore(self)
        self.logs = PostgresLogStore(self)
        self.search_tasks = PostgresTaskSearch(self).search_tasks
