"""Fixtures of the planning tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.planning.checked_objective import CheckedObjective
from tests.planning.gateway_harness import PlanningHarness, planning_harness_in


@pytest.fixture
def checked() -> CheckedObjective:
    """A new objective, Party."""
    checked = CheckedObjective()
    checked.call("objectives/create", name="Party")
    return checked


@pytest.fixture
async def harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PlanningHarness]:
    """A harness with a running gateway."""
    monkeypatch.chdir(tmp_path)
    async with planning_harness_in(tmp_path) as one:
        await one.open()
        yield one
