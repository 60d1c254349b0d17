"""Gateways in processes of their own, ended with the test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port
from tests.server.gateway_process import GatewayProcess

MakeGateway = Callable[[dict[str, Any]], GatewayProcess]


@pytest.fixture
def make_gateway(tmp_path: Path) -> Iterator[MakeGateway]:
    made: list[GatewayProcess] = []

    def make(settings: dict[str, Any]) -> GatewayProcess:
        made.append(GatewayProcess(tmp_path, free_port(), settings))
        return made[-1]

    yield make
    for gateway in made:
        gateway.close()
