"""Every kind of store, each in a place of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contracts.store_samples import Shelf

from openclaw_a2a.ports import Store

DURABLE = ["json-file", "sqlite"]


@pytest.fixture(params=["memory", *DURABLE])
async def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shelf]:
    shelf = Shelf(request.param, tmp_path)
    await shelf.store.open()
    yield shelf
    await shelf.store.close()


@pytest.fixture(params=DURABLE)
async def durable(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shelf]:
    """A place for a store that keeps what it took beyond its process."""
    shelf = Shelf(request.param, tmp_path)
    await shelf.store.open()
    assert shelf.store.is_durable
    yield shelf
    await shelf.store.close()


@pytest.fixture
def store(shelf: Shelf) -> Store:
    return shelf.store
