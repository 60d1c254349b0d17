"""What several attacks share: a gateway that stays up between them."""

from collections.abc import Iterator

import pytest
from tests.conftest import GatewayProcess


@pytest.fixture(scope="session")
def standing_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with an echo agent and without peers, for attacks that leave nothing behind.

    The test of a worker that ends last fails when it has printed a traceback.
    """
    accounts = {"default": {"defaultAgentId": "main", "agentStyle": "task-generating"}}
    config: dict[str, object] = {
        "agents": {"main": {"adapter": "echo"}},
        "channels": {"a2a": {"accounts": accounts}},
    }
    gateway = GatewayProcess(tmp_path_factory.mktemp("standing"), config, {})
    gateway.start()
    yield gateway
    gateway.stop()
    assert "Traceback (most recent call last)" not in gateway.output(), gateway.output()
