"""Comparisons of the objectives in memory with those that other gateways wrote."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.engine.controlled_agent import TIMEOUT_S

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.planning.shared_repository import SharedObjectiveRepository
from openclaw_a2a.planning.state import CommandContext
from openclaw_a2a.store import create_store


class ControlledReads:
    """What replicas share, which has no objectives; its second read fails."""

    id = "a"
    poll_s = 0.01

    def __init__(self) -> None:
        self.reads = 0
        self.is_reading, self.may_end = asyncio.Event(), asyncio.Event()

    async def list_shared_logs(self, _kind: str) -> list[Any]:
        self.reads += 1
        number = self.reads
        self.is_reading.set()
        await self.may_end.wait()
        if number == 2:
            raise StoreUnavailable("the database is away")
        return []


async def test_a_comparison_that_failed_is_made_again_for_who_waited_for_it() -> None:
    store = create_store("memory", path=None)
    await store.open()
    replicas: Any = ControlledReads()
    repository = SharedObjectiveRepository(
        store.logs,
        store.records,
        Supervisor("test"),
        lambda: CommandContext(datetime(2026, 1, 5, 10, tzinfo=UTC), lambda: "n"),
        replicas,
    )
    first = asyncio.create_task(repository.compare())
    async with asyncio.timeout(TIMEOUT_S):
        await replicas.is_reading.wait()
        # Both begin while the first one reads, so that it is not enough for them.
        others = [asyncio.create_task(repository.compare()) for _ in range(3)]
        await asyncio.sleep(0)
        replicas.may_end.set()
        await first
        with pytest.raises(StoreUnavailable):
            await others[0]
        await asyncio.gather(*others[1:])
    assert replicas.reads == 3, "the fourth waited for a read that succeeded"


class FailingHeads:
    """The logs of a store; the list of their heads fails when the test says so."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.failures = 0
        self.was_read = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def list_log_heads(self, kind: str, *, after: str, limit: int) -> Any:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("the database is away")
        self.was_read.set()
        return await self._inner.list_log_heads(kind, after=after, limit=limit)


async def test_a_comparison_of_archived_objectives_that_failed_is_made_again_soon() -> None:
    store = create_store("memory", path=None)
    await store.open()
    replicas: Any = ControlledReads()
    replicas.may_end.set()
    logs: Any = FailingHeads(store.logs)
    repository = SharedObjectiveRepository(
        logs,
        store.records,
        Supervisor("test"),
        lambda: CommandContext(datetime(2026, 1, 5, 10, tzinfo=UTC), lambda: "n"),
        replicas,
    )
    await repository.load_index()
    logs.was_read.clear()
    logs.failures = 1
    repository.on_changed(None)
    following = asyncio.create_task(repository.follow())
    async with asyncio.timeout(TIMEOUT_S):
        await logs.was_read.wait()
    following.cancel()
    assert not logs.failures
