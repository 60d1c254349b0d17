"""What several attacks share: a gateway that stays up between them."""

from collections.abc import Iterator

import pytest
from tests.conftest import GatewayProcess

from openclaw_a2a.auth.admin_token import read_admin_token


@pytest.fixture(scope="session")
def standing_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with an echo agent and without peers, for attacks that leave nothing behind."""
    home = tmp_path_factory.mktemp("standing")
    accounts = {"default": {"defaultAgentId": "main", "agentStyle": "task-generating"}}
    config: dict[str, object] = {
        "agents": {"main": {"adapter": "echo"}},
        "channels": {"a2a": {"accounts": accounts}},
        "data": str(home),
        "opt": {"enabled": True},
        "tools": {"agentToAgent": {"enabled": True, "allow": ["*"]}},
    }
    gateway = GatewayProcess(home, config, {})
    gateway.start()
    yield gateway
    gateway.stop()
    assert "Traceback (most recent call last)" not in gateway.output(), gateway.output()


@pytest.fixture
def operator_token(standing_gateway: GatewayProcess) -> str:
    """The token of the operator of that gateway, which is valid for its tools, too."""
    return read_admin_token(standing_gateway.home)
