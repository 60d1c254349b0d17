"""A gateway in this process whose agents the test makes unavailable and gives profiles."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest

from openclaw_a2a.agents.echo import EchoAgent
from openclaw_a2a.app import Gateway, build_app
from openclaw_a2a.model.card import AgentProfile, AgentSkill
from openclaw_a2a.settings import load_settings

Json = Any


class MoodyAgent(EchoAgent):
    """Echoes; says of itself and of its state what the test wants."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.words: AgentProfile | None = None

    def unavailable_reason(self) -> str | None:
        return self.reason

    def profile(self) -> AgentProfile | None:
        return self.words


def profile(name: str, description: str = "", *skills: str) -> AgentProfile:
    said = tuple(AgentSkill(one, one.title(), f"Does {one}.", ("x",)) for one in skills)
    return AgentProfile(name, description, said)


class ServedGateway:
    """A running gateway: ask it with `get`."""

    def __init__(self, gateway: Gateway, client: httpx2.AsyncClient) -> None:
        self.gateway = gateway
        self.client = client

    async def get(self, path: str, **headers: str) -> Json:
        response = await self.client.get(path, headers=headers)
        assert response.status_code == 200, response.text
        return response.json()


Open = Callable[..., Any]


@pytest.fixture
async def open_gateway(tmp_path) -> AsyncIterator[Open]:
    """`await open_gateway({"main": agent}, account={...}, settings={...})`."""
    async with AsyncExitStack() as stack:

        async def open_one(
            agents: Mapping[str, Any],
            *,
            account: Mapping[str, Json] | None = None,
            settings: Mapping[str, Json] | None = None,
        ) -> ServedGateway:
            overrides: dict[str, Json] = {
                "data": str(tmp_path),
                "store.kind": "memory",
                "log.level": "error",
                "channels.a2a.accounts.default": {"defaultAgentId": "main", **(account or {})},
                **{f"agents.{name}.adapter": "echo" for name in agents},
                **(settings or {}),
            }
            loaded = load_settings(overrides=overrides, environ={})
            gateway = build_app(loaded.settings, agents=dict(agents))
            await stack.enter_async_context(gateway)
            transport = httpx2.ASGITransport(gateway.asgi)
            client = httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1")
            return ServedGateway(gateway, await stack.enter_async_context(client))

        yield open_one


@pytest.fixture
def moody() -> MoodyAgent:
    return MoodyAgent()


@pytest.fixture(name="profile")
def profile_fixture() -> Callable[..., AgentProfile]:
    return profile
