"""What tests of planning share."""

import pytest

from .desk import Desk


@pytest.fixture
def desk() -> Desk:
    """A desk with a new objective, Party."""
    desk = Desk()
    desk.call("objectives/create", name="Party")
    return desk
