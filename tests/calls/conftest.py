"""A gateway of agents that call each other."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.calls.call_gateway import CallGateway, call_gateway_in


@pytest.fixture
async def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CallGateway]:
    """A gateway whose gateway is open."""
    monkeypatch.chdir(tmp_path)
    async with call_gateway_in(tmp_path) as one:
        await one.open()
        yield one
