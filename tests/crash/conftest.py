"""Gateway processes to be killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.gateway_process import GatewayProcess


@pytest.fixture
def gateway_process(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[GatewayProcess]:
    """A gateway process over the kind of store that the test names; not started yet."""
    gateway = GatewayProcess(tmp_path, request.param)
    yield gateway
    gateway.close()
