"""Every kind of store, each in a place of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.contracts.store_samples import StoreHarness
from tests.postgres_server import PostgresServer

from openclaw_a2a.ports import Store

ON_DISK = ["json-file", "sqlite", "encrypted"]
DURABLE = [*ON_DISK, "postgres"]


@asynccontextmanager
async def open_harness(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[StoreHarness]:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        async with server.borrow_schema() as schema:
            harness = StoreHarness("postgres", folder, server.url(), schema)
            await harness.store.open()
            yield harness
            await harness.store.close()
        return
    harness = StoreHarness(request.param, folder)
    await harness.store.open()
    yield harness
    await harness.store.close()


@pytest.fixture(params=["memory", *DURABLE])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreHarness]:
    async with open_harness(request, tmp_path) as harness:
        yield harness


@pytest.fixture(params=DURABLE)
async def durable(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreHarness]:
    """A place for a store that keeps what it took beyond its process."""
    async with open_harness(request, tmp_path) as harness:
        assert harness.store.is_durable
        yield harness


@pytest.fixture(params=ON_DISK)
async def on_disk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreHarness]:
    """A place for a durable store that writes files itself."""
    async with open_harness(request, tmp_path) as harness:
        yield harness


@pytest.fixture
def store(harness: StoreHarness) -> Store:
    return harness.store
