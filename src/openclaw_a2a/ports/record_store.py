"""The record store: small versioned values with an expiry (agent calls, remote task handles)."""

from collections.abc import Awaitable
from datetime import datetime
from typing import Protocol

import msgspec


class Record(msgspec.Struct, frozen=True, gc=False):
    """A value under a kind and an id. `version` counts its updates, for optimistic locking."""

    kind: str
    id: str
    body: bytes
    expires_at: datetime
    version: int = 0


class RecordStore(Protocol):
    """Records by kind and id.

    Writes take effect in call order and are durable when their awaitable returns.
    """

    def put_record(self, record: Record) -> Awaitable[None]:
        """Store a record, replacing any version with the same kind and id."""
        ...

    def update_record(self, record: Record) -> Awaitable[bool]:
        """Store the next version of a record; its position in `list_records` stays.

        False, and nothing changes, if the stored version is not the one before; version 0 must
        be new.
        """
        ...

    def delete_record(self, kind: str, record_id: str) -> Awaitable[bool]:
        """Delete a record; False if there was none."""
        ...

    async def read_record(self, kind: str, record_id: str) -> Record | None:
        """One record."""
        ...

    async def list_records(self, kind: str) -> list[Record]:
        """All records of a kind, in the order in which they were put."""
        ...
