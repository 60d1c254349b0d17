"""Every kind of store, each in a place of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from openclaw_a2a.ports import Store

from .store_samples import Shelf


@pytest.fixture(params=["memory", "json-file", "sqlite"])
async def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shelf]:
    shelf = Shelf(request.param, tmp_path)
    await shelf.store.open()
    yield shelf
    await shelf.store.close()


@pytest.fixture
def store(shelf: Shelf) -> Store:
    return shelf.store
