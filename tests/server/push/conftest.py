"""Webhooks on loopback, and gateways that may call them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.server.push.gateways import make_gateway
from tests.server.push.webhook_receiver import WebhookReceiver

from openclaw_a2a.app import Gateway
from openclaw_a2a.ports import Agent

Json = Any
QUICK = {
    "push.allowPrivate": True,
    "push.backoffSeconds": 0.02,
    "push.mostBackoffSeconds": 0.1,
    "push.timeoutSeconds": 60.0,
}
"""Private addresses may be called, and the next attempt is made soon."""

OpenReceiver = Callable[[], Awaitable[WebhookReceiver]]


class Serve(Protocol):
    """Starts a gateway; `kind` is its store's, whose data gateways of one test share."""

    async def __call__(
        self,
        agent: Agent,
        *,
        account: Mapping[str, Json] | None = None,
        settings: Mapping[str, Json] | None = None,
        kind: str = "memory",
    ) -> Gateway: ...


@pytest.fixture
async def open_receiver() -> AsyncIterator[OpenReceiver]:
    opened: list[WebhookReceiver] = []

    async def open_one() -> WebhookReceiver:
        receiver = WebhookReceiver()
        await receiver.open()
        opened.append(receiver)
        return receiver

    yield open_one
    for receiver in opened:
        await receiver.close()


@pytest.fixture
async def receiver(open_receiver: OpenReceiver) -> WebhookReceiver:
    return await open_receiver()


@pytest.fixture
async def serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receiver: WebhookReceiver
) -> AsyncIterator[Serve]:
    monkeypatch.chdir(tmp_path)
    async with AsyncExitStack() as running:

        async def serve_one(
            agent: Agent,
            *,
            account: Mapping[str, Json] | None = None,
            settings: Mapping[str, Json] | None = None,
            kind: str = "memory",
        ) -> Gateway:
            more = {**QUICK, "store.kind": kind, **(settings or {})}
            style = {"agentStyle": "task-generating", **(account or {})}
            gateway = make_gateway(agent, data=tmp_path, account=style, settings=more)
            return await running.enter_async_context(gateway)

        yield serve_one
