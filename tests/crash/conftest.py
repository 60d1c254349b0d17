"""Gateway processes to be killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.killable import Killable


@pytest.fixture
def killable(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Killable]:
    """A gateway process over the kind of store that the test names; not started yet."""
    gateway = Killable(tmp_path, request.param)
    yield gateway
    gateway.close()
