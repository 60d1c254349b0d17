"""A gateway in this process, its admin token, and agents with approvals."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.asgi_client import AsgiClient

from openclaw_a2a.app import build_app
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.ports import Agent
from openclaw_a2a.settings import load_settings

OpenGateway = Callable[..., Awaitable[AsgiClient]]


@pytest.fixture
async def open_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[OpenGateway]:
    """Start a gateway with agents: `await open_gateway({"main": agent}, data=folder)`."""
    monkeypatch.chdir(tmp_path)
    async with AsyncExitStack() as running:

        async def open_one(
            agents: Mapping[str, Agent], *, settings: Mapping[str, Any] | None = None
        ) -> AsgiClient:
            overrides = {
                "data": str(tmp_path / "data"),
                "store.kind": "memory",
                "log.level": "error",
                **{f"agents.{name}.adapter": "echo" for name in agents},
                "channels.a2a.accounts.default.defaultAgentId": next(iter(agents)),
                **(settings or {}),
            }
            loaded = load_settings(overrides=overrides, environ={})
            named = {AgentId(name): one for name, one in agents.items()}
            gateway = build_app(loaded.settings, agents=named)
            await running.enter_async_context(gateway)
            return AsgiClient(gateway.asgi)

        yield open_one


@pytest.fixture
def token(tmp_path: Path) -> Callable[[], str]:
    """The operator's token of the gateway."""
    return lambda: (tmp_path / "data" / "operator.token").read_text(encoding="ascii").strip()
