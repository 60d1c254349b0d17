"""What tests of planning share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.planning.desk import Desk
from tests.planning.workshop import Workshop, workshop_in


@pytest.fixture
def desk() -> Desk:
    """A desk with a new objective, Party."""
    desk = Desk()
    desk.call("objectives/create", name="Party")
    return desk


@pytest.fixture
async def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Workshop]:
    """A workshop whose gateway is open."""
    monkeypatch.chdir(tmp_path)
    async with workshop_in(tmp_path) as one:
        await one.open()
        yield one
