"""What tests of planning share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.planning.checked_objective import CheckedObjective
from tests.planning.gateway_harness import PlanningGateway, planning_gateway_in


@pytest.fixture
def desk() -> CheckedObjective:
    """A desk with a new objective, Party."""
    desk = CheckedObjective()
    desk.call("objectives/create", name="Party")
    return desk


@pytest.fixture
async def workshop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PlanningGateway]:
    """A workshop whose gateway is open."""
    monkeypatch.chdir(tmp_path)
    async with planning_gateway_in(tmp_path) as one:
        await one.open()
        yield one
