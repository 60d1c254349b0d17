"""Callers that wait, and that disconnect, poll or lose the gateway at the wrong moment."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import anyio
import pytest
from anyio.lowlevel import checkpoint
from tests.calls.call_gateway import (
    CallGateway,
    HeldAnswer,
    Json,
    answers,
    main_session,
    tool_request,
)

from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.ports import Accepted, Duplicate, Recovery, Store, Submission

A = main_session("a")


def store_of(gateway: CallGateway) -> Store:
    assert gateway.running is not None
    [engine] = gateway.running.engines.values()
    return engine.store


async def settled_in(store: Store) -> int:
    """How many calls have an outcome."""
    records = await store.records.list_records("call")
    return sum(json.loads(record.body)["status"] != "pending" for record in records)


class Turnstile:
    """Holds what is asked of a store until the test lets it go."""

    def __init__(self, store: object, name: str) -> None:
        self.has_come = asyncio.Event()
        self.go = asyncio.Event()
        self._inner: Callable[..., Awaitable[object]] = getattr(store, name)
        setattr(store, name, self._held)

    async def _held(self, *given: object) -> object:
        self.has_come.set()
        await self.go.wait()
        return await self._inner(*given)


async def test_a_caller_that_disconnects_while_a_timeout_is_recorded_gets_a_message(
    gateway: CallGateway,
) -> None:
    gateway.agents["b"].answer = HeldAnswer()
    turnstile = Turnstile(store_of(gateway).records, "update_record")
    calls: list[Json] = [{"agent": "b", "skill": "work", "input": {}, "timeout": 50}]
    async with gateway.client("a").open(tool_request("agent_call_batch", {"calls": calls})):
        await turnstile.has_come.wait()
    turnstile.go.set()
    [outcome] = await gateway.host.wait_messages(A)
    assert outcome["status"] == "timeout"


async def test_an_answer_is_recorded_once_its_result_is_written(gateway: CallGateway) -> None:
    turnstile = Turnstile(store_of(gateway).records, "update_record")
    answer = await gateway.call("a", "b", wait=True)
    assert answer["status"] == "completed"
    await turnstile.has_come.wait()
    assert await settled_in(store_of(gateway)) == 0
    turnstile.go.set()
    await gateway.poll("a", answer, lambda polled: "seen" in polled["times"])
    assert gateway.host.accepted == []


@pytest.mark.requirement("calls.state.hung-up")
async def test_a_caller_that_disconnects_around_the_answer_gets_the_result_or_a_message(
    gateway: CallGateway,
) -> None:
    gateway.agents["b"].recovery = Recovery.REATTACH  # not asked before the call is accepted
    results = messages = 0
    # Turn by turn of the event loop, from before the answer is stored to after the result is sent.
    for turns in (0, 1, 2, 5, 10, 20, 50, 100, 200):
        held = HeldAnswer()
        gateway.agents["b"].answer = held
        async with gateway.waiting_call("a", "b", wait=True) as exchange:
            await held.asked.wait()
            call = gateway.agents["b"].invocations[-1]
            held.go.set()
            for _ in range(turns):
                await checkpoint()
            exchange.disconnect()
            await exchange.wait_ended()
            has_result = await exchange.next_chunk() is not None
        if not has_result:
            messages += 1
            await gateway.host.wait_messages(A, messages)
        results += has_result
        await gateway.poll("a", call, lambda polled: "seen" in polled["times"])
        assert len(gateway.host.messages(A)) == messages
    assert messages


async def test_a_batch_that_is_broken_off_is_reported_in_the_session_as_far_as_it_was_answered(
    gateway: CallGateway,
) -> None:
    slow = HeldAnswer()
    gateway.agents["c"].answer = slow
    calls: list[Json] = [{"agent": one, "skill": "work", "input": {}} for one in ("b", "c", "d")]
    asked = tool_request("agent_call_batch", {"calls": calls})
    async with gateway.client("a").open(asked):
        await slow.asked.wait()
        with anyio.fail_after(240):
            while await settled_in(store_of(gateway)) < 2:
                await checkpoint()
    await gateway.host.wait_messages(A, 2)
    slow.go.set()
    outcome = await gateway.host.wait_messages(A, 3)
    assert len({one["correlationId"] for one in outcome}) == 3


async def test_a_timeout_that_a_batch_tells_is_not_reported_again(gateway: CallGateway) -> None:
    gateway.agents["b"].answer = HeldAnswer()
    calls: list[Json] = [{"agent": "b", "skill": "work", "input": {}, "timeout": 50}]
    result = await gateway.call_tool(gateway.client("a"), "agent_call_batch", {"calls": calls})
    assert result["results"][0]["status"] == "timeout"
    gateway.agents["b"].answer = answers("later")
    other = await gateway.call("a", "b")
    [outcome] = await gateway.host.wait_messages(A)
    assert outcome["correlationId"] == other["correlationId"]


async def test_a_caller_that_polls_while_it_waits_gets_both_results_and_no_message(
    gateway: CallGateway,
) -> None:
    held = HeldAnswer()
    gateway.agents["b"].answer = held
    answers: list[object] = []
    async with anyio.create_task_group() as both:

        async def wait() -> None:
            answers.append(await gateway.call("a", "b", wait=True, timeout=300))

        both.start_soon(wait)
        await held.asked.wait()
        call = gateway.agents["b"].invocations[0]
        polled = await gateway.poll("a", call, lambda polled: polled["status"] != "working")
        assert polled["status"] == "timeout"
    assert len(answers) == 1


async def test_a_caller_that_waits_and_one_that_polls_for_the_same_call_never_hang(
    gateway: CallGateway,
) -> None:
    gateway.agents["b"].recovery = Recovery.REATTACH  # not asked before the call is accepted
    with anyio.fail_after(240):
        for _ in range(20):
            held = HeldAnswer()
            gateway.agents["b"].answer = held
            async with anyio.create_task_group() as both:

                async def wait() -> None:
                    answer = await gateway.call("a", "b", wait=True)
                    assert answer["status"] == "completed"

                both.start_soon(wait)
                await held.asked.wait()
                call = gateway.agents["b"].invocations[-1]
                held.go.set()
                await gateway.poll("a", call, lambda polled: polled["status"] != "working")
    assert gateway.host.accepted == []


async def test_a_call_that_a_stopping_gateway_leaves_unanswered_is_pending(
    gateway: CallGateway,
) -> None:
    held = HeldAnswer()
    gateway.agents["b"].answer = held
    gateway.agents["b"].recovery = Recovery.REATTACH  # not asked before the call is accepted
    async with gateway.waiting_call("a", "b", wait=True) as exchange:
        await held.asked.wait()
        await gateway.close()
        chunk = await exchange.next_chunk()
    assert chunk is not None
    assert json.loads(chunk)["status"] == "pending"
    held.go.set()
    await gateway.open()
    [outcome] = await gateway.host.wait_messages(A)
    assert outcome["output"] == "at last"


async def test_a_call_that_is_not_stored_is_not_counted_although_its_caller_disconnected(
    gateway: CallGateway,
) -> None:
    await gateway.reopen({"limits.perAgentCalls": 1})
    tasks = store_of(gateway).tasks
    store_submission = tasks.submit
    stored: asyncio.Future[Accepted | Duplicate] = asyncio.get_running_loop().create_future()
    has_come = asyncio.Event()

    def hold(_submission: Submission) -> "asyncio.Future[Accepted | Duplicate]":
        has_come.set()
        return stored

    tasks.submit = hold  # pyright: ignore[reportAttributeAccessIssue] - a fault
    async with gateway.waiting_call("a", "b"):
        await has_come.wait()
    tasks.submit = store_submission  # pyright: ignore[reportAttributeAccessIssue] - as it was
    refused = await gateway.call("a", "c")
    assert "limits.perAgentCalls" in refused["error"]
    stored.set_exception(StoreUnavailable("the disk is full"))
    with anyio.fail_after(240):
        while (await gateway.call("a", "c"))["status"] != "pending":
            await checkpoint()
