"""A caller's host is away for longer than ended tasks are kept: the answer arrives all the same."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from tests.calls.call_gateway import CallGateway, answers, call_gateway_in, main_session
from tests.conformance.asgi_client import TIMEOUT_S, AsgiClient
from tests.conformance.manual_clock import ManualClock
from tests.conformance.protocol_clients import V1Client

from openclaw_a2a.model.delivery import DeliveryId
from openclaw_a2a.ports import Store

A = main_session("a")
SETTINGS = {
    "channels.a2a.accounts.default": {"defaultAgentId": "a", "agentStyle": "task-generating"},
    "retention.endedSeconds": 1,
    "retention.sweepSeconds": 1,
}
ANSWER = {"output": {"words": ["whole"] * 10_000}, "confidence": 0.75, "caveats": ["late"]}


@pytest.fixture(params=["sqlite", "json-file", "memory"])
async def town(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[CallGateway]:
    """A village that is not open yet, over each kind of store."""
    monkeypatch.chdir(tmp_path)
    async with call_gateway_in(tmp_path, request.param) as one:
        yield one


def store_of(village: CallGateway) -> Store:
    assert village.gateway is not None
    [engine] = village.gateway.engines.values()
    return engine.store


async def sweep(village: CallGateway, clock: ManualClock) -> None:
    """Old tasks are forgotten: a task that nobody follows is younger than those, and is gone."""
    assert village.gateway is not None
    client = V1Client(AsgiClient(village.gateway.asgi, {}))
    await client.send("{}")
    clock.advance(timedelta(days=1))
    with anyio.fail_after(TIMEOUT_S):
        while (await client.list())["totalSize"]:
            await anyio.wait_all_tasks_blocked()


async def test_an_answer_outlives_retention_until_its_callers_host_is_back(
    town: CallGateway,
) -> None:
    clock = ManualClock()
    await town.open(SETTINGS, clock)
    town.host.is_unavailable = True
    town.agents["b"].answer = answers(json.dumps(ANSWER))
    call = await town.call("a", "b", timeoutSeconds=30)
    await town.host.wait_until(lambda: bool(town.host.attempts))
    unfinished = await store_of(town).deliveries.list_unfinished_deliveries(
        after=DeliveryId(""), limit=9
    )
    [delivery] = unfinished.deliveries
    for _ in range(3):
        await sweep(town, clock)
    if town.kind != "memory":
        await town.close()
        await town.open(SETTINGS, clock)
        await sweep(town, clock)
    town.host.is_unavailable = False
    [told] = await town.host.wait_messages(A)
    assert (told["kind"], told["correlationId"]) == ("skill_response", call["correlationId"])
    assert {name: told[name] for name in ANSWER} == ANSWER
    with anyio.fail_after(TIMEOUT_S):
        while await store_of(town).tasks.read_task(None, delivery.task_id) is not None:
            await sweep(town, clock)  # once it is brought nothing keeps the task
    assert await store_of(town).deliveries.read_delivery(delivery.id) is None
    assert len(town.host.messages(A)) == 1
