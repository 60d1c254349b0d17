"""A gateway with tools for each test that wants one."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.tools.tool_gateway import ToolGateway, serve_gateway


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ToolGateway]:
    async with serve_gateway(tmp_path) as found:
        yield found


@pytest.fixture
def serve(tmp_path: Path) -> Any:
    """Serve a gateway with other settings."""

    def begin(**more: Any) -> AbstractAsyncContextManager[ToolGateway]:
        return serve_gateway(tmp_path, **more)

    return begin
