"""A gateway in this process with a scripted agent, and clients of both protocol versions."""

import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.conformance.asgi_client import AsgiClient

from openclaw_a2a.app import Gateway, build_app
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.ports import Agent, Clock, Store
from openclaw_a2a.settings import load_settings

Json = Any


class Start(Protocol):
    """Starts a gateway with one account and one agent, and returns a client of it."""

    async def __call__(
        self,
        agent: Agent | Mapping[str, Agent],
        *,
        account: Mapping[str, Json] | None = None,
        settings: Mapping[str, Json] | None = None,
        clock: Clock | None = None,
    ) -> AsgiClient: ...


def make_gateway(
    agent: Agent | Mapping[str, Agent],
    *,
    data: Path,
    account: Mapping[str, Json] | None = None,
    settings: Mapping[str, Json] | None = None,
    clock: Clock | None = None,
    store: Store | None = None,
) -> Gateway:
    """A gateway that keeps everything in memory unless the settings say otherwise."""
    agents = agent if isinstance(agent, Mapping) else {"main": agent}
    overrides = {
        "data": str(data),
        "store.kind": "memory",
        "log.level": "error",
        "channels.a2a.accounts.default": {"defaultAgentId": "main", **(account or {})},
        **{f"agents.{name}.adapter": "echo" for name in agents},
        **(settings or {}),
    }
    named = {AgentId(name): one for name, one in agents.items()}
    loaded = load_settings(overrides=overrides, environ={})
    return build_app(loaded.settings, agents=named, clock=clock, store=store)


def token_of(peer: str) -> str:
    """The token that `peers` gives a peer."""
    return f"token-of-{peer}-0123456789"


def peers(*names: str) -> dict[str, Json]:
    """Settings that make these the known callers."""
    return {
        f"channels.a2a.security.peers.{name}": {
            "tokens": ["sha256:" + hashlib.sha256(token_of(name).encode()).hexdigest()]
        }
        for name in names
    }


class Serve(Protocol):
    """A gateway for the length of a block, over the data of earlier ones of the same test."""

    def __call__(
        self,
        agent: Agent | Mapping[str, Agent],
        *,
        account: Mapping[str, Json] | None = None,
        settings: Mapping[str, Json] | None = None,
    ) -> AbstractAsyncContextManager[Gateway]: ...


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    monkeypatch.chdir(tmp_path)

    def serve_one(
        agent: Agent | Mapping[str, Agent],
        *,
        account: Mapping[str, Json] | None = None,
        settings: Mapping[str, Json] | None = None,
    ) -> AbstractAsyncContextManager[Gateway]:
        return make_gateway(agent, data=tmp_path, account=account, settings=settings)

    return serve_one


@pytest.fixture
async def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    monkeypatch.chdir(tmp_path)
    async with AsyncExitStack() as running:

        async def start_one(
            agent: Agent | Mapping[str, Agent],
            *,
            account: Mapping[str, Json] | None = None,
            settings: Mapping[str, Json] | None = None,
            clock: Clock | None = None,
        ) -> AsgiClient:
            gateway = make_gateway(
                agent, data=tmp_path, account=account, settings=settings, clock=clock
            )
            await running.enter_async_context(gateway)
            return AsgiClient(gateway.asgi)

        yield start_one
