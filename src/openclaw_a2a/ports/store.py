"""The store: everything the gateway keeps, in four parts with one lifetime."""

from typing import Protocol

from openclaw_a2a.ports.delivery_store import DeliveryStore
from openclaw_a2a.ports.log_store import LogStore
from openclaw_a2a.ports.record_store import RecordStore
from openclaw_a2a.ports.replica_store import ReplicaStore
from openclaw_a2a.ports.task_store import TaskStore


class Store(Protocol):
    """One database. Components take the part they need, not the whole."""

    tasks: TaskStore
    deliveries: DeliveryStore
    records: RecordStore
    logs: LogStore
    replicas: ReplicaStore | None = None
    """Set when several gateways can share the store; None: only this one uses it."""
    is_durable: bool
    """True if committed data survives the process."""

    async def open(self) -> None:
        """Open for reading and writing. Raises: StoreLocked, SchemaTooNew, StoreUnavailable."""
        ...

    async def close(self) -> None:
        """Finish the accepted writes and release the files."""
        ...

    async def check(self) -> None:
        """Raises StoreUnavailable if writes cannot succeed, or the writer thread is dead."""
        ...
