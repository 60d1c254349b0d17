"""A real OpenClaw 2026.9.6 with a deterministic model, and our gateway in front of it.

Fixtures, one of each on each of the two workers that run this folder (tests/conftest.py):

    model             the model behind every OpenClaw here (`openclaw_process.FakeModel`; what it
                      answers to which words is written in fake_llm.py): `model.stats()`,
                      `model.requests(marker)`, `await`-free `model.wait_for(marker, outcome=...)`,
                      `model.release(name)` for `hold:NAME` and `halt:NAME`
    openclaw          the shared gateway, warm (`openclaw_process.OpenClaw`): `.ws_url`, `.url`,
                      `.token`, `.port`, `.pid`, `.config`, `.env` (for the program), `.program`
                      (the command `openclaw`), `.workspace(agent)`, `.chat(agent, text)`. Agents
                      `main` and `helper`, images in, exec asks for approval, HTTP endpoints on.
                      Nobody may stop it. Use a session of your own: `marker` helps
    killable_openclaw a second gateway, which tests may `kill()` and `start()` again; ready when
                      a test gets it, and started again for the next test when one left it dead

Per test:

    marker            a short text that nothing else in this run contains, for messages and names
    bare              `async with bare() as client`: a connection to `openclaw` with every right,
                      apart from our code (`bare_client.BareClient`); `bare(killable_openclaw)`
    our_gateway       `openclaw-a2a up` as a process over `openclaw`, task-generating, with both
                      agents as accounts `default` (main) and `helper`; `.url`, `.kill()`,
                      `.start()`, `.stop()`, `.home`, `.output()` as in tests/conftest.py
    start_our_gateway starts more of those: `start_our_gateway(openclaw, agent={...})`
    in_process        `async with in_process(openclaw, agent={...}, settings={...}) as gateway`: the
                      same gateway inside the test, for looking into it; `gateway.asgi`
    open_client       `await open_client(our_gateway)`: a client of it (`a2a_client.A2AClient`)
    receiver          a webhook on loopback that keeps its requests (`WebhookReceiver`)

Tests here are marked `slow` and have five minutes; a turn takes under a second when warm.
"""

import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

import httpx2
import pytest
from tests.openclaw.a2a_client import A2AClient
from tests.openclaw.bare_client import BareClient, connect
from tests.openclaw.openclaw_process import FakeModel, OpenClaw, is_alive, merged
from tests.openclaw.webhook_receiver import WebhookReceiver, run_webhook_receiver

from openclaw_a2a.app import Gateway, build_app
from openclaw_a2a.settings import load_settings

Json = Any
HERE = Path(__file__).parent
TOKEN_NAME = "TOKEN_OF_THE_REAL_OPENCLAW"


@pytest.hookimpl(tryfirst=True)  # before marks decide what is run
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(1200))


@pytest.fixture(scope="session")
def model() -> Iterator[FakeModel]:
    running = FakeModel()
    yield running
    running.close()


@pytest.fixture(scope="session")
def openclaw(model: FakeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenClaw]:
    yield from _running(OpenClaw(tmp_path_factory.mktemp("openclaw"), model))


@pytest.fixture(scope="session")
def second_openclaw(
    model: FakeModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OpenClaw]:
    yield from _running(OpenClaw(tmp_path_factory.mktemp("openclaw-to-kill"), model))


def _running(gateway: OpenClaw) -> Iterator[OpenClaw]:
    try:
        gateway.start()
        gateway.warm_up()
        pid = gateway.pid
        yield gateway
    finally:
        gateway.stop()
    assert not is_alive(pid)


@pytest.fixture
def killable_openclaw(second_openclaw: OpenClaw) -> Iterator[OpenClaw]:
    if not second_openclaw.is_running:
        second_openclaw.start()
    yield second_openclaw


@pytest.fixture
def marker() -> str:
    return f"mark{uuid.uuid4().hex[:12]}"


class Bare(Protocol):
    """Connects to an OpenClaw; to the shared one when none is named."""

    def __call__(
        self, gateway: OpenClaw | None = None, **more: Json
    ) -> AbstractAsyncContextManager[BareClient]: ...


@pytest.fixture
def bare(openclaw: OpenClaw) -> Bare:
    def open_one(
        gateway: OpenClaw | None = None, **more: Json
    ) -> AbstractAsyncContextManager[BareClient]:
        chosen = gateway or openclaw
        return connect(chosen.ws_url, **{"token": chosen.token, **more})

    return open_one


def settings_for(
    gateway: OpenClaw, *, agent: Json | None = None, settings: Json | None = None
) -> Json:
    """Our settings that offer both agents of an OpenClaw, each at its own account.

    `agent` has more options for both agents, `settings` more settings.
    """
    link = {"adapter": "openclaw-gateway", "url": gateway.ws_url, "token": f"env:{TOKEN_NAME}"}
    accounts = {
        "default": {"defaultAgentId": "main", "agentStyle": "task-generating"},
        "helper": {"defaultAgentId": "helper", "agentStyle": "task-generating"},
    }
    agents = {name: {**link, "agentId": name, **(agent or {})} for name in ("main", "helper")}
    wanted: Json = {"agents": agents, "channels": {"a2a": {"accounts": accounts}}}
    return merged(wanted, settings or {})


class StartGateway(Protocol):
    """Starts `openclaw-a2a up` over an OpenClaw."""

    def __call__(
        self, gateway: OpenClaw, *, agent: Json | None = None, settings: Json | None = None
    ) -> Json: ...


@pytest.fixture
def start_our_gateway(start_gateway: Callable[..., Json]) -> StartGateway:
    def start(
        gateway: OpenClaw, *, agent: Json | None = None, settings: Json | None = None
    ) -> Json:
        config = settings_for(gateway, agent=agent, settings=settings)
        return start_gateway(config, env={TOKEN_NAME: gateway.token})

    return start


@pytest.fixture
def our_gateway(start_our_gateway: StartGateway, openclaw: OpenClaw) -> Json:
    return start_our_gateway(openclaw)


class InProcess(Protocol):
    """A gateway of ours inside the test, for the length of a block."""

    def __call__(
        self, gateway: OpenClaw, *, agent: Json | None = None, settings: Json | None = None
    ) -> AbstractAsyncContextManager[Gateway]: ...


@pytest.fixture
def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InProcess:
    monkeypatch.chdir(tmp_path)

    def build(
        gateway: OpenClaw, *, agent: Json | None = None, settings: Json | None = None
    ) -> AbstractAsyncContextManager[Gateway]:
        wanted = settings_for(gateway, agent=agent, settings=settings)
        extra = {"data": str(tmp_path), "log": {"level": "error"}}
        monkeypatch.setenv(TOKEN_NAME, gateway.token)
        loaded = load_settings(overrides={**extra, **wanted}, environ=dict(os.environ))
        return build_app(loaded.settings)

    return build


OpenClient = Callable[..., Awaitable[A2AClient]]


@pytest.fixture
async def open_client() -> AsyncIterator[OpenClient]:
    async with AsyncExitStack() as stack:

        async def open_one(gateway: Json, *, account: str = "", token: str = "") -> A2AClient:
            client = httpx2.AsyncClient(base_url=gateway.url, timeout=120)
            await stack.enter_async_context(client)
            return A2AClient(client, account=account, token=token)

        yield open_one


@pytest.fixture
async def receiver() -> AsyncIterator[WebhookReceiver]:
    async with run_webhook_receiver() as listening:
        yield listening
