"""Gateway processes to be killed."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.gateway_process import GatewayProcess
from tests.postgres_server import PostgresServer


@pytest.fixture
def gateway_process(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[GatewayProcess]:
    """A gateway process over the kind of store that the test names; not started yet."""
    arguments: list[str] = []
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        arguments = [server.url(), f"crash_{secrets.token_hex(8)}"]
    gateway = GatewayProcess(tmp_path, request.param, *arguments)
    yield gateway
    gateway.close()
