"""Every kind of store, each in a place of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contracts.store_samples import StoreHarness

from openclaw_a2a.ports import Store

DURABLE = ["json-file", "sqlite", "encrypted"]


@pytest.fixture(params=["memory", *DURABLE])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreHarness]:
    harness = StoreHarness(request.param, tmp_path)
    await harness.store.open()
    yield harness
    await harness.store.close()


@pytest.fixture(params=DURABLE)
async def durable(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreHarness]:
    """A place for a store that keeps what it took beyond its process."""
    harness = StoreHarness(request.param, tmp_path)
    await harness.store.open()
    assert harness.store.is_durable
    yield harness
    await harness.store.close()


@pytest.fixture
def store(harness: StoreHarness) -> Store:
    return harness.store
