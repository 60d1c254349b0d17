"""An outcome waits for its host longer than finished tasks are retained."""

import json
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from tests.calls.call_gateway import CallGateway, answers, call_gateway_in, main_session
from tests.captured_logs import capture_logs
from tests.conformance.asgi_client import TIMEOUT_S, AsgiClient
from tests.conformance.manual_clock import ManualClock
from tests.conformance.protocol_clients import V1Client

from openclaw_a2a.model.delivery import DeliveryId
from openclaw_a2a.ports import Store

Json = Any
A = main_session("a")
SETTINGS = {
    "channels.a2a.accounts.default": {"defaultAgentId": "a", "agentStyle": "task-generating"},
    "retention.endedSeconds": 1,
    "retention.sweepSeconds": 1,
}
ANSWER = {"output": {"words": ["whole"] * 10_000}, "confidence": 0.75, "caveats": ["late"]}


@pytest.fixture(params=["sqlite", "json-file", "memory"])
async def closed_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[CallGateway]:
    """A gateway that is not open yet, over each kind of store."""
    monkeypatch.chdir(tmp_path)
    async with call_gateway_in(tmp_path, request.param) as one:
        yield one


def store_of(gateway: CallGateway) -> Store:
    assert gateway.running is not None
    [engine] = gateway.running.engines.values()
    return engine.store


async def wait_for(is_so: Callable[[], bool]) -> None:
    with anyio.fail_after(TIMEOUT_S):
        while not is_so():
            await anyio.wait_all_tasks_blocked()


async def wait_seen(gateway: CallGateway, call: Json) -> None:
    """Wait until the caller has read the outcome: it is kept for a minute from then on."""
    with anyio.fail_after(TIMEOUT_S):
        while "seen" not in (await gateway.describe(call))["times"]:
            await anyio.wait_all_tasks_blocked()


async def sweep(gateway: CallGateway, clock: ManualClock) -> None:
    """Old tasks are forgotten: a task that nobody follows is younger than those, and is gone."""
    assert gateway.running is not None
    client = V1Client(AsgiClient(gateway.running.asgi, {}))
    await client.send("{}")
    clock.advance(timedelta(minutes=30))  # further, it would be a jump that is held
    with anyio.fail_after(TIMEOUT_S):
        while (await client.list())["totalSize"]:
            await anyio.wait_all_tasks_blocked()


async def test_an_answer_outlives_retention_until_its_callers_host_is_back(
    closed_gateway: CallGateway,
) -> None:
    clock = ManualClock()
    await closed_gateway.open(SETTINGS, clock)
    closed_gateway.host.is_unavailable = True
    closed_gateway.agents["b"].answer = answers(json.dumps(ANSWER))
    call = await closed_gateway.call("a", "b", timeoutSeconds=30)
    await closed_gateway.host.wait_until(lambda: bool(closed_gateway.host.attempts))
    unfinished = await store_of(closed_gateway).deliveries.list_unfinished_deliveries(
        after=DeliveryId(""), limit=9
    )
    [delivery] = unfinished.deliveries
    for _ in range(3):
        await sweep(closed_gateway, clock)
    if closed_gateway.kind != "memory":
        await closed_gateway.close()
        await closed_gateway.open(SETTINGS, clock)
        await sweep(closed_gateway, clock)
    closed_gateway.host.is_unavailable = False
    [outcome] = await closed_gateway.host.wait_messages(A)
    assert (outcome["kind"], outcome["correlationId"]) == ("skill_response", call["correlationId"])
    assert {name: outcome[name] for name in ANSWER} == ANSWER
    with anyio.fail_after(TIMEOUT_S):
        while await store_of(closed_gateway).tasks.read_task(None, delivery.task_id) is not None:
            await sweep(closed_gateway, clock)  # once it is delivered nothing keeps the task
    assert await store_of(closed_gateway).deliveries.read_delivery(None, delivery.id) is None
    assert len(closed_gateway.host.messages(A)) == 1


async def test_a_poll_can_be_repeated_although_its_call_ended_long_ago(
    closed_gateway: CallGateway,
) -> None:
    """A gateway may die after it has recorded a poll, before it has answered."""
    clock = ManualClock()
    await closed_gateway.open(clock=clock)
    closed_gateway.host.is_unavailable = True
    call = await closed_gateway.call("a", "b", timeoutSeconds=30)
    await closed_gateway.host.wait_until(lambda: bool(closed_gateway.host.attempts))
    clock.advance(timedelta(minutes=50))  # further, it would be a jump that is held
    assert (await closed_gateway.poll("a", call))["status"] == "completed"
    clock.advance(timedelta(seconds=45))
    for _ in range(3):  # calls that are over are purged meanwhile
        await anyio.wait_all_tasks_blocked()
    again = await closed_gateway.poll("a", call)
    assert (again["status"], again["output"]) == ("completed", "done")
    with capture_logs() as logs:
        clock.advance(timedelta(minutes=2))
        await wait_for(lambda: "calls.purged" in {one["event"] for one in logs})
    assert (await closed_gateway.poll("a", call))["status"] == "error"


async def test_a_jump_of_the_clock_deletes_no_outcome_and_sweeps_say_how_many_they_deleted(
    closed_gateway: CallGateway,
) -> None:
    clock = ManualClock()
    with capture_logs() as logs:
        await closed_gateway.open(clock=clock)
        first = await closed_gateway.call("a", "b", timeoutSeconds=30)
        await wait_seen(closed_gateway, first)
        clock.advance(timedelta(minutes=2))
        await wait_for(lambda: "calls.purged" in {one["event"] for one in logs})
        assert (await closed_gateway.poll("a", first))["status"] == "error"
        assert [one["calls"] for one in logs if one["event"] == "calls.purged"] == [1]
        second = await closed_gateway.call("a", "b", timeoutSeconds=30)
        await wait_seen(closed_gateway, second)
        clock.advance(timedelta(days=40))
        # One for the tasks, one for the calls.
        held = "maintenance.clock_jump_held"
        await wait_for(lambda: [one["event"] for one in logs].count(held) >= 2)
        for _ in range(20):  # the sweep goes on after the line, with work in threads
            await anyio.wait_all_tasks_blocked()
            await anyio.to_thread.run_sync(lambda: None)
        assert (await closed_gateway.poll("a", second))["status"] == "completed"
