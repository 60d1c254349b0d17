"""Cancelling: what is stopped, what is returned, and what canceled means."""

import anyio
import pytest
from tests.conformance.conftest import Start
from tests.conformance.protocol_clients import Json, V03Client, V1Client, v03_message, v1_message
from tests.conformance.scripted_agent import ScriptedAgent
from tests.conformance.stream_outline import events, outline, state_of, status_text

from openclaw_a2a.model.agent_event import InputRequired, Reply, TextDelta

TASKS = {"agentStyle": "task-generating"}


@pytest.mark.requirement("inbound.cancel.live", "promise.cancel.stopped")
async def test_cancel_stops_the_run_and_returns_the_canceled_task(start: Start) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent, account=TASKS))
    async with v1.stream("SendStreamingMessage", v1_message()) as frames:
        run = await agent.next_run()
        await run.emit(TextDelta("half of"))
        await frames.take(4)
        task = await v1.cancel(run.turn.task_id)
        assert run.has_stopped
        rest = await frames.rest()
    assert state_of(task) == "canceled"
    assert status_text(task)
    assert outline(rest) == ["artifact +assistant-output-0001.", "status canceled"]
    assert await v1.get(run.turn.task_id) == task


@pytest.mark.requirement("inbound.cancel.live", "runtime.transcript.last-state")
async def test_blocking_caller_gets_the_canceled_task(start: Start) -> None:
    agent = ScriptedAgent()
    v03 = V03Client(await start(agent, account=TASKS))
    results: list[Json] = []

    async def send() -> None:
        results.append(await v03.send())

    async with anyio.create_task_group() as sending:
        sending.start_soon(send)
        run = await agent.next_run()
        results.append(await v03.cancel(run.turn.task_id))
    assert results[0] == results[1]
    assert state_of(results[0]) == "canceled"


@pytest.mark.requirement("inbound.cancel.cleanup-first", "promise.cancel.stopped")
async def test_canceled_is_committed_only_after_the_agent_has_cleaned_up(start: Start) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent, account=TASKS))
    task = await v1.start()
    run = await agent.next_run()
    run.hold_cleanup()
    results: list[Json] = []

    async def cancel() -> None:
        results.append(await v1.cancel(task["id"]))

    async with anyio.create_task_group() as canceling:
        canceling.start_soon(cancel)
        await run.wait_stopping()
        assert state_of(await v1.get(task["id"])) == "working"
        assert results == []
        run.release_cleanup()
    assert state_of(results[0]) == "canceled"
    assert run.has_stopped


@pytest.mark.requirement("promise.cancel.refuses")
async def test_run_that_refuses_to_stop_is_not_cancelable(start: Start) -> None:
    agent = ScriptedAgent()
    settings = {"limits.cancelSeconds": 0.05}
    v1 = V1Client(await start(agent, account=TASKS, settings=settings))
    task = await v1.start()
    run = await agent.next_run()
    run.hold_cleanup()
    failed = await v1.error("CancelTask", {"id": task["id"]})
    assert failed.code == -32002
    assert state_of(await v1.get(task["id"])) == "working"
    async with v1.stream("SubscribeToTask", {"id": task["id"]}) as frames:
        await frames.take(1)
        run.release_cleanup()
        assert outline(await frames.rest())[-1] == "status canceled"


@pytest.mark.requirement("inbound.cancel.paused")
async def test_paused_task_is_canceled_at_once(start: Start) -> None:
    http = await start(ScriptedAgent(InputRequired("Which one?")))
    v1, v03 = V1Client(http), V03Client(http)
    first, second = (await v1.send())["task"], await v03.send()
    assert state_of(await v1.cancel(first["id"])) == "canceled"
    assert state_of(await v03.cancel(second["id"])) == "canceled"
    assert state_of(await v1.get(first["id"])) == "canceled"


@pytest.mark.requirement("inbound.cancel.terminal")
async def test_cancel_of_an_ended_task_in_0_3_returns_it_unchanged(start: Start) -> None:
    v03 = V03Client(await start(ScriptedAgent(Reply.of_text("hi")), account=TASKS))
    task = await v03.send()
    assert await v03.cancel(task["id"]) == task
    assert await v03.get(task["id"]) == task


@pytest.mark.requirement("inbound.cancel.completed-first")
async def test_run_that_completes_first_is_returned_as_completed(start: Start) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent, account=TASKS))
    task = await v1.start()
    run = await agent.next_run()
    run.complete_when_stopped(Reply.of_text("done anyway"))
    ended = await v1.cancel(task["id"])
    assert state_of(ended) == "completed"
    assert status_text(ended) == "done anyway"
    assert await v1.get(task["id"]) == ended


@pytest.mark.requirement("inbound.cancel.live", "promise.order.one-terminal")
async def test_waiting_task_can_be_canceled_before_it_begins(start: Start) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent))
    await v1.start("first", contextId="mine")
    second = await v1.start("second", contextId="mine")
    run = await agent.next_run()
    assert state_of(await v1.cancel(second["id"])) == "canceled"
    await run.finish(Reply.of_text("done"))
    third = await v1.start("third", contextId="mine")
    assert (await agent.next_run()).turn.task_id == third["id"]
    assert [turn.body for turn in agent.turns] == ["first", "third"]


@pytest.mark.requirement("inbound.cancel.live", "promise.order.one-terminal")
async def test_cancel_twice_at_once_makes_one_end(start: Start) -> None:
    agent = ScriptedAgent()
    v03 = V03Client(await start(agent, account=TASKS))
    async with v03.stream("message/stream", v03_message()) as frames:
        run = await agent.next_run()
        async with anyio.create_task_group() as both:
            both.start_soon(v03.cancel, run.turn.task_id)
            both.start_soon(v03.cancel, run.turn.task_id)
        lines = await frames.rest()
    assert outline(lines).count("status canceled") == 1
    assert [one.get("final") for one in events(lines)].count(True) == 1
