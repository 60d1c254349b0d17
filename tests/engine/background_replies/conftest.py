"""Gateways with an agent that sends background events, over every kind of store."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.conformance.asgi_client import AsgiClient
from tests.conformance.conftest import Json, make_gateway
from tests.conformance.protocol_clients import V1Client

from openclaw_a2a.app import Gateway
from openclaw_a2a.engine.engine import SystemClock
from openclaw_a2a.ports import Agent, Clock

TASKS = {"agentStyle": "task-generating"}


class FastClock(SystemClock):
    """On it a second is over in a millisecond."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 1000)


class GatewayHarness:
    """One gateway at a time over one folder."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._folder = folder
        self._running = AsyncExitStack()

    async def open(
        self,
        agent: Agent | Mapping[str, Agent],
        *,
        account: Mapping[str, Json] | None = None,
        settings: Mapping[str, Json] | None = None,
        clock: Clock | None = None,
    ) -> Gateway:
        """Start a gateway; every answer is a task unless the account says otherwise."""
        gateway = make_gateway(
            agent,
            data=self._folder,
            account={**TASKS, **(account or {})},
            settings={"store.kind": self.kind, "limits.cancelSeconds": 1, **(settings or {})},
            clock=clock,
        )
        return await self._running.enter_async_context(gateway)

    async def client(self, agent: Agent, **more: Json) -> V1Client:
        """A client of a gateway that was just started."""
        return V1Client(AsgiClient((await self.open(agent, **more)).asgi))

    async def close(self) -> None:
        """Stop the gateway."""
        await self._running.aclose()


@pytest.fixture(params=["memory", "json-file", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of store."""
    return request.param


@pytest.fixture
async def gateways(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[GatewayHarness]:
    """One gateway at a time over that kind of store."""
    monkeypatch.chdir(tmp_path)
    one = GatewayHarness(kind, tmp_path)
    yield one
    await one.close()
