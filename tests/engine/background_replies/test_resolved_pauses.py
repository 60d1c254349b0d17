"""Pauses that wait somewhere else: somebody there ends them, or the caller cancels the task."""

import asyncio
import hashlib

import pytest
from tests.conformance.conftest import token_of
from tests.conformance.protocol_clients import Json, V1Client
from tests.conformance.stream_outline import outline
from tests.engine.background_replies.background_agent import BackgroundAgent
from tests.engine.background_replies.conftest import GatewayHarness

from openclaw_a2a.model.agent_event import InputRequired, Reply
from openclaw_a2a.model.errors import AgentUnavailable, TaskNotCancelable

TOKEN = {"approval": "a-1"}


async def paused(agent: BackgroundAgent, v1: V1Client, resume: Json = TOKEN) -> str:
    """A task that waits with this token."""
    task = await v1.start("do it")
    run = await agent.next_run()
    await run.finish(InputRequired("The operator must allow it.", resume=resume))
    async with v1.stream("SubscribeToTask", {"id": task["id"]}, last_event_id="0") as frames:
        await frames.to_pause()
    return task["id"]


async def state(v1: V1Client, task_id: str) -> str:
    return (await v1.get(task_id))["status"]["state"].removeprefix("TASK_STATE_").lower()


@pytest.mark.requirement("pause.elsewhere.goes-on")
async def test_a_resolved_pause_continues_its_task_with_its_token(gateways: GatewayHarness) -> None:
    agent = BackgroundAgent()
    v1 = await gateways.client(agent)
    task_id = await paused(agent, v1)
    await agent.end_wait(task_id, resume=TOKEN, reason="The operator allowed the command.")
    run = await agent.next_run()
    assert (run.turn.resume, run.turn.task_id) == (TOKEN, task_id)
    assert run.turn.body == "The operator allowed the command."
    assert not run.turn.may_approve
    await run.finish(Reply.of_text("done"))
    async with v1.stream("SubscribeToTask", {"id": task_id}, last_event_id="0") as frames:
        assert outline(await frames.rest())[-1] == "status completed"
    said = (await v1.get(task_id))["history"]
    [message] = [one for one in said if one.get("metadata") == {"source": "operator"}]
    assert message["role"] == "ROLE_USER"


@pytest.mark.requirement("pause.elsewhere.once")
async def test_a_pause_that_is_resolved_twice_makes_one_run(gateways: GatewayHarness) -> None:
    agent = BackgroundAgent()
    v1 = await gateways.client(agent)
    task_id = await paused(agent, v1)
    for _ in range(3):
        await agent.end_wait(task_id, resume=TOKEN)
    await (await agent.next_run()).finish(Reply.of_text("done"))
    async with v1.stream("SubscribeToTask", {"id": task_id}, last_event_id="0") as frames:
        await frames.rest()
    await agent.end_wait(task_id, resume=TOKEN)
    assert await state(v1, task_id) == "completed"
    assert not agent.has_waiting_run
    assert len(agent.turns) == 2


@pytest.mark.requirement("pause.elsewhere.once")
async def test_a_pause_with_another_token_is_left_alone(gateways: GatewayHarness) -> None:
    agent = BackgroundAgent()
    v1 = await gateways.client(agent)
    task_id = await paused(agent, v1)
    await agent.end_wait(task_id, resume={"approval": "of-yesterday"})
    await agent.end_wait("no-such-task", resume=TOKEN)
    await agent.end_wait(task_id, resume=None)
    assert await state(v1, task_id) == "input_required"
    assert not agent.has_waiting_run


@pytest.mark.requirement("pause.elsewhere.goes-on")
async def test_a_pause_that_is_resolved_before_it_is_stored_is_not_missed(
    gateways: GatewayHarness,
) -> None:
    agent = BackgroundAgent()
    v1 = await gateways.client(agent, account={"agentStyle": "hybrid"})
    sending = asyncio.create_task(v1.send("do it"))
    run = await agent.next_run()
    await agent.end_wait(run.turn.task_id, resume=TOKEN)
    await run.finish(InputRequired("wait", resume=TOKEN))
    again = await agent.next_run()
    assert again.turn.resume == TOKEN
    await again.finish(Reply.of_text("done"))
    task = (await sending)["task"]
    async with v1.stream("SubscribeToTask", {"id": task["id"]}, last_event_id="0") as frames:
        assert outline(await frames.rest())[-1] == "status completed"


@pytest.mark.parametrize("kind", ["json-file", "sqlite"])
@pytest.mark.requirement("pause.elsewhere.goes-on")
async def test_pauses_from_before_a_restart_are_passed_to_their_agent(
    gateways: GatewayHarness,
) -> None:
    agent = BackgroundAgent()
    task_id = await paused(agent, await gateways.client(agent))
    await gateways.close()
    again = BackgroundAgent()
    v1 = await gateways.client(again)
    await again.wait_heard()
    [recent] = again.listened[0]
    assert (recent.task_id, recent.is_paused, recent.resume) == (task_id, True, TOKEN)
    await again.end_wait(task_id, resume=recent.resume)
    await (await again.next_run()).finish(Reply.of_text("done"))
    async with v1.stream("SubscribeToTask", {"id": task_id}, last_event_id="0") as frames:
        assert outline(await frames.rest())[-1] == "status completed"


@pytest.mark.requirement("pause.elsewhere.canceled", "promise.cancel.stopped")
async def test_the_agent_has_ended_the_pause_when_its_task_is_canceled(
    gateways: GatewayHarness,
) -> None:
    agent = BackgroundAgent()
    v1 = await gateways.client(agent)
    task_id = await paused(agent, v1)
    agent.may_end.clear()
    canceling = asyncio.create_task(v1.cancel(task_id))
    await asyncio.sleep(0)
    assert await state(v1, task_id) == "input_required"
    agent.may_end.set()
    assert (await canceling)["status"]["state"] == "TASK_STATE_CANCELED"
    [(binding, resume)] = agent.ended
    assert (binding.session_key, resume) == (agent.session(), TOKEN)


@pytest.mark.requirement("pause.elsewhere.canceled", "promise.cancel.refuses")
@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (TaskNotCancelable("it waits for ever"), -32002),
        (AgentUnavailable("the gateway of the agent is gone; start it"), -32603),
        (RuntimeError("broken"), -32002),
    ],
)
async def test_a_task_whose_agent_cannot_end_the_pause_is_not_canceled(
    gateways: GatewayHarness, refusal: Exception, code: int
) -> None:
    agent = BackgroundAgent()
    v1 = await gateways.client(agent)
    task_id = await paused(agent, v1)
    agent.refusal = refusal
    failed = await v1.error("CancelTask", {"id": task_id})
    assert failed.code == code
    assert await state(v1, task_id) == "input_required"
    agent.refusal = None
    assert (await v1.cancel(task_id))["status"]["state"] == "TASK_STATE_CANCELED"


@pytest.mark.requirement("pause.elsewhere.canceled", "promise.cancel.refuses")
async def test_a_pause_that_the_agent_does_not_end_in_time_is_not_canceled(
    gateways: GatewayHarness,
) -> None:
    agent = BackgroundAgent()
    v1 = await gateways.client(agent, settings={"limits.cancelSeconds": 0.05})
    task_id = await paused(agent, v1)
    agent.may_end.clear()
    failed = await v1.error("CancelTask", {"id": task_id})
    assert (failed.code, "0.05 s" in failed.message) == (-32002, True)
    assert await state(v1, task_id) == "input_required"


@pytest.mark.requirement("pause.elsewhere.canceled")
async def test_a_message_that_comes_while_a_pause_is_ended_finds_the_task_canceled(
    gateways: GatewayHarness,
) -> None:
    agent = BackgroundAgent()
    v1 = await gateways.client(agent)
    task_id = await paused(agent, v1)
    agent.may_end.clear()
    canceling = asyncio.create_task(v1.cancel(task_id))
    await asyncio.sleep(0)
    sending = asyncio.create_task(v1.error("SendMessage", _answer(task_id)))
    await asyncio.sleep(0)
    agent.may_end.set()
    await canceling
    assert (await sending).code == -32004
    assert len(agent.turns) == 1


@pytest.mark.requirement("pause.elsewhere.canceled", "promise.cancel.stopped")
async def test_the_agent_ends_the_pause_although_its_answer_is_queued(
    gateways: GatewayHarness,
) -> None:
    agent = BackgroundAgent()
    v1 = await gateways.client(agent)
    task_id = await paused(agent, v1)
    context_id = (await v1.get(task_id))["contextId"]
    await v1.start("something else", contextId=context_id)
    other = await agent.next_run()
    await v1.start("yes", taskId=task_id)
    assert (await v1.cancel(task_id))["status"]["state"] == "TASK_STATE_CANCELED"
    assert [resume for _, resume in agent.ended] == [TOKEN]
    await other.finish(Reply.of_text("done"))
    assert len(agent.turns) == 2


def _answer(task_id: str) -> Json:
    message = {"messageId": "late", "role": "ROLE_USER", "parts": [{"text": "yes"}]}
    return {"message": {**message, "taskId": task_id}}


@pytest.mark.requirement("pause.elsewhere.rights")
async def test_only_a_peer_with_the_right_may_approve(gateways: GatewayHarness) -> None:
    peers = {"alice": {"mayApprove": True}, "bob": {}}
    settings = {
        f"channels.a2a.security.peers.{name}": {"tokens": [_digest(name)], **more}
        for name, more in peers.items()
    }
    agent = BackgroundAgent(Reply.of_text("hi"))
    v1 = await gateways.client(agent, settings=settings)
    for name in peers:
        await V1Client(v1.http.with_headers(authorization=f"Bearer {token_of(name)}")).send()
    assert [(one.principal, one.may_approve) for one in agent.turns] == [
        ("alice", True),
        ("bob", False),
    ]


def _digest(name: str) -> str:
    return "sha256:" + hashlib.sha256(token_of(name).encode()).hexdigest()
