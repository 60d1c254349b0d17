"""Callers that wait for an outcome while the store refuses to write it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint
from tests.calls.call_gateway import (
    CallGateway,
    HeldAnswer,
    Json,
    LaterClock,
    main_session,
)
from tests.calls.unreliable_store import DELIVERY_WRITES, WRITES, UnreliableStore
from tests.conformance.asgi_client import TIMEOUT_S, AsgiClient

from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.ports import Recovery
from openclaw_a2a.store import create_store

A = main_session("a")
TIMEOUT_MS = 240_000
TOOLS = ("agent_call", "agent_call_batch", "debate_call")
CALL: Json = {"agent": "b", "skill": "work", "input": {}, "timeout": TIMEOUT_MS}
ARGUMENTS: dict[str, Json] = {
    "agent_call": {**CALL, "wait": True},
    "agent_call_batch": {"calls": [CALL]},
    "debate_call": {
        "topic": "tides",
        "proposer": {"agent": "b", "skill": "propose"},
        "critics": [{"agent": "c"}],
        "resolver": {"agent": "d", "skill": "resolve"},
        "input": {},
        "rounds": 1,
        "timeout": TIMEOUT_MS,
    },
}


class FullGateway(CallGateway):
    """A gateway whose store is full when the test says so, and whose deadlines pass at once."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.clock = LaterClock()
        self.store = UnreliableStore(create_store("sqlite", path=str(folder / "calls.db")))
        self.held = HeldAnswer('{"output": "at last", "confidence": 0.99}')
        self.agents["b"].answer = self.held
        self.agents["b"].recovery = Recovery.REATTACH  # not asked before the call is accepted

    async def wait_refused(self, write: str) -> None:
        """Wait until the store has refused a write."""
        with anyio.fail_after(TIMEOUT_S):
            while write not in self.store.refused:
                await checkpoint()

    def pass_deadlines(self) -> None:
        """Every deadline is over."""
        self.clock.ahead += timedelta(milliseconds=100 * TIMEOUT_MS)
        assert self.running is not None
        for outbox in self.running.push.outboxes.values():
            outbox.check_task(TaskId("nobody's"))  # it waits by another clock

    async def wait_result(self, waiting: "asyncio.Task[Json]") -> Json:
        """The result of the one call that a waiting caller made."""
        with anyio.fail_after(TIMEOUT_S):
            result = await waiting
        [only] = result.get("results", [result])
        return only

    def start(
        self, client: AsgiClient, tool: str = "agent_call", **changes: Json
    ) -> "asyncio.Task[Json]":
        """A caller that waits for its result."""
        arguments = {**ARGUMENTS[tool], **changes}
        return asyncio.create_task(self.call_tool(client, tool, arguments))

    async def wait_delivered_once(self, result: Json) -> Json:
        """The message to the caller, which is the only one."""
        [outcome] = await self.host.wait_messages(A)
        assert outcome["correlationId"] == result["correlationId"]
        await self.poll("a", result, lambda polled: "seen" in polled["times"])
        assert len(self.host.attempts) == 1
        return outcome


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[FullGateway]:
    """A gateway with a store that works."""
    gateway = FullGateway(tmp_path)
    try:
        await gateway.open(clock=gateway.clock, store=gateway.store)
        yield gateway
    finally:
        gateway.store.failing = ()
        await gateway.close()


@pytest.mark.requirement("calls.result.waited-long", "calls.routing.once")
@pytest.mark.parametrize("is_answered", [True, False], ids=["answered", "silent"])
@pytest.mark.parametrize("failing", [WRITES, DELIVERY_WRITES], ids=["all-writes", "records"])
@pytest.mark.parametrize("tool", TOOLS)
async def test_a_caller_that_waits_over_a_full_store_is_answered_at_the_deadline_and_served_later(
    gateway: FullGateway, tool: str, failing: tuple[str, ...], is_answered: bool
) -> None:
    waiting = gateway.start(gateway.client("a"), tool)
    await gateway.held.asked.wait()
    gateway.store.failing = failing
    is_lost = is_answered and failing is WRITES
    if is_lost:
        gateway.held.go.set()
        await gateway.wait_refused("commit")
    gateway.pass_deadlines()
    if is_answered and not is_lost:  # too late, and stored
        gateway.held.go.set()
    result = await gateway.wait_result(waiting)
    assert result["status"] == "pending"
    assert "the disk is full" in result["message"]
    assert "as a message" in result["message"]
    assert gateway.host.attempts == []
    gateway.store.failing = ()
    outcome = await gateway.wait_delivered_once(result)
    assert outcome["status"] == "timeout"


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_waiting_program_over_a_full_store_is_told_to_poll_and_finds_the_outcome_later(
    gateway: FullGateway, tool: str
) -> None:
    client = gateway.program_client("script")
    waiting = gateway.start(client, tool)
    await gateway.held.asked.wait()
    gateway.store.failing = WRITES
    gateway.pass_deadlines()
    result = await gateway.wait_result(waiting)
    assert result["status"] == "pending"
    assert "the disk is full" in result["message"]
    assert "agent_poll" in result["message"]
    query = {"correlationId": result["correlationId"]}
    polled = await gateway.call_tool(client, "agent_poll", query)
    assert polled["status"] == "working", "nothing is final before it is stored"
    gateway.store.failing = ()
    with anyio.fail_after(TIMEOUT_S):
        while polled["status"] == "working":
            polled = await gateway.call_tool(client, "agent_poll", query)
    # A debate goes on without the answer, and may have ended since.
    assert polled["status"] == "timeout" or polled["late"]
    assert "timedOut" in polled["times"]
    assert gateway.host.attempts == []


async def test_an_answer_in_time_whose_record_cannot_be_written_is_the_result_and_no_message(
    gateway: FullGateway,
) -> None:
    waiting = gateway.start(gateway.client("a"))
    await gateway.held.asked.wait()
    gateway.store.failing = DELIVERY_WRITES
    gateway.held.go.set()
    result = await gateway.wait_result(waiting)
    assert (result["status"], result["output"]) == ("completed", "at last")
    await gateway.wait_refused("update_record")
    gateway.store.failing = ()
    await gateway.poll("a", result, lambda polled: "seen" in polled["times"])
    assert gateway.host.attempts == []


async def test_a_timeout_whose_commit_is_made_and_reported_as_failed_is_delivered_once(
    gateway: FullGateway,
) -> None:
    waiting = gateway.start(gateway.client("a"), "agent_call_batch")
    await gateway.held.asked.wait()
    gateway.store.makes_refused = True
    gateway.store.failing = ("update_record",)
    gateway.pass_deadlines()
    await gateway.wait_refused("update_record")
    gateway.store.failing = ()
    result = await gateway.wait_result(waiting)
    assert result["status"] == "pending"
    assert (await gateway.wait_delivered_once(result))["status"] == "timeout"


async def test_a_caller_is_answered_although_the_store_never_answers(gateway: FullGateway) -> None:
    gateway.store.held = ("update_record",)
    calls = [{**CALL, "timeout": 50}]
    waiting = gateway.start(gateway.client("a"), "agent_call_batch", calls=calls)
    result = await gateway.wait_result(waiting)
    assert result["status"] == "pending"
    assert "in time" in result["message"]
    gateway.store.go.set()
    # The commit that was under way names the waiting caller as the receiver.
    assert (await gateway.wait_delivered_once(result))["status"] == "timeout"
