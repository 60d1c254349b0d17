"""Every kind of store, each in a place of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.contracts.store_samples import StoreHarness
from tests.postgres_server import PostgresServer
from tests.store.postgres.next_schema import apply_next

from openclaw_a2a.ports import Store

ON_DISK = ["json-file", "sqlite", "encrypted"]
DURABLE = [*ON_DISK, "postgres"]
NEXT_SCHEMA = "postgres-next"
"""A PostgreSQL store with the schema of a newer version, as during a rolling upgrade."""


@asynccontextmanager
async def open_harness(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[StoreHarness]:
    if request.param in ("postgres", NEXT_SCHEMA):
        server: PostgresServer = request.getfixturevalue("postgres")
        async with server.borrow_schema(request.param.replace("-", "_")) as schema:
            if request.param == NEXT_SCHEMA:
                await apply_next(server.url(), schema)
            harness = StoreHarness("postgres", folder, server.url(), schema)
            await harness.store.open()
            yield harness
            await harness.store.close()
        return
    harness = StoreHarness(request.param, folder)
    await harness.store.open()
    yield harness
    await harness.store.close()


@pytest.fixture(params=["memory", *DURABLE, NEXT_SCHEMA])
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
