"""Answers to a task that waits: the first is accepted, the others are refused with the reason."""

import asyncio
from typing import Any

import anyio
import pytest
from tests.conformance.asgi_client import TIMEOUT_S, AsgiClient
from tests.conformance.conftest import Serve, Start
from tests.conformance.protocol_clients import (
    Json,
    RpcFailed,
    V03Client,
    V1Client,
    v1_message,
)
from tests.conformance.scripted_agent import ScriptedAgent

from openclaw_a2a.model.agent_event import InputRequired, Reply
from openclaw_a2a.ports import Recovery

TASKS = {"agentStyle": "task-generating"}
SENDERS = 6


def _settings(kind: str) -> Json:
    return {"store.kind": kind, "limits.cancelSeconds": 1}


def _user_texts(task: Json) -> list[str]:
    user = [one for one in task["history"] if one["role"] in ("ROLE_USER", "user")]
    return [one["parts"][0]["text"] for one in user]


@pytest.mark.requirement("promise.idempotent.one-answer")
@pytest.mark.parametrize("kind", ["memory", "sqlite", "json-file"])
@pytest.mark.parametrize("client_type", [V1Client, V03Client])
async def test_of_answers_at_once_one_is_accepted_and_the_others_are_refused(
    start: Start, kind: str, client_type: type[V1Client] | type[V03Client]
) -> None:
    agent = ScriptedAgent()
    http = await start(agent, account=TASKS, settings=_settings(kind))
    v1 = V1Client(http)
    task = await v1.start("book it")
    await (await agent.next_run()).finish(InputRequired("Which one?"))
    await _wait_state(v1, task["id"], "TASK_STATE_INPUT_REQUIRED")

    async def answer(number: int) -> RpcFailed | None:
        client = client_type(AsgiClient(http.app))
        try:
            await client.send(f"answer {number}", taskId=task["id"], messageId=f"answer-{number}")
        except RpcFailed as failed:
            return failed
        return None

    sending = [asyncio.ensure_future(answer(number)) for number in range(SENDERS)]
    run = await agent.next_run()
    # The others are refused while the first answer is worked on.
    refused: list[RpcFailed | None] = []
    for done in asyncio.as_completed(sending, timeout=TIMEOUT_S):
        refused.append(await done)
        if len(refused) == SENDERS - 1:
            await run.finish(Reply.of_text("booked"))
    accepted = refused.pop()
    assert accepted is None
    assert [one.code for one in refused if one is not None] == [-32004] * (SENDERS - 1)
    ended = await v1.get(task["id"])
    assert ended["status"]["state"] == "TASK_STATE_COMPLETED"
    assert _user_texts(ended) == ["book it", run.turn.body]
    assert len(agent.turns) == 2


@pytest.mark.requirement("promise.idempotent.one-answer")
@pytest.mark.parametrize("kind", ["memory", "sqlite", "json-file"])
async def test_message_is_refused_while_an_answer_is_worked_on_and_taken_at_the_next_question(
    start: Start, kind: str
) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent, account=TASKS, settings=_settings(kind)))
    task = await v1.start("book it")
    await (await agent.next_run()).finish(InputRequired("Which one?"))
    await _wait_state(v1, task["id"], "TASK_STATE_INPUT_REQUIRED")
    await v1.start("the first", taskId=task["id"], messageId="first")
    run = await agent.next_run()
    late = await v1.error("SendMessage", v1_message("the second", taskId=task["id"]))
    assert late.code == -32004
    assert "answered by another message" in late.message
    # The accepted answer again is the same message, not another one.
    again = await v1.start("the first", taskId=task["id"], messageId="first")
    assert again["id"] == task["id"]
    await run.finish(InputRequired("And when?"))
    await _wait_state(v1, task["id"], "TASK_STATE_INPUT_REQUIRED")
    await v1.start("today", taskId=task["id"])
    await (await agent.next_run()).finish(Reply.of_text("booked"))
    ended = await _wait_state(v1, task["id"], "TASK_STATE_COMPLETED")
    assert _user_texts(ended) == ["book it", "the first", "today"]


@pytest.mark.requirement("promise.idempotent.one-answer")
@pytest.mark.parametrize("kind", ["sqlite", "json-file"])
async def test_second_answer_is_refused_after_a_restart_in_the_middle_of_the_first(
    serve: Serve, kind: str
) -> None:
    agent = ScriptedAgent()
    agent.recovery = Recovery.REPEAT
    async with serve(agent, account=TASKS, settings=_settings(kind)) as gateway:
        v1 = V1Client(AsgiClient(gateway.asgi))
        task = await v1.start("book it")
        await (await agent.next_run()).finish(InputRequired("Which one?"))
        await _wait_state(v1, task["id"], "TASK_STATE_INPUT_REQUIRED")
        await v1.start("the first", taskId=task["id"])
        await agent.next_run()
    async with serve(agent, account=TASKS, settings=_settings(kind)) as gateway:
        v1 = V1Client(AsgiClient(gateway.asgi))
        run = await agent.next_run()
        late = await v1.error("SendMessage", v1_message("the second", taskId=task["id"]))
        assert late.code == -32004
        await run.finish(Reply.of_text("booked"))
        ended = await _wait_state(v1, task["id"], "TASK_STATE_COMPLETED")
        assert _user_texts(ended) == ["book it", "the first"]


@pytest.mark.requirement("promise.idempotent.one-answer")
@pytest.mark.parametrize("kind", ["sqlite", "json-file"])
async def test_a_queued_message_that_became_the_answer_is_one_after_a_restart(
    serve: Serve, kind: str
) -> None:
    agent = ScriptedAgent()
    agent.recovery = Recovery.REPEAT
    async with serve(agent, account=TASKS, settings=_settings(kind)) as gateway:
        v1 = V1Client(AsgiClient(gateway.asgi))
        task = await v1.start("book it")
        first = await agent.next_run()
        await v1.start("the window, if you ask", taskId=task["id"])
        await first.finish(InputRequired("Which one?", resume={"step": 2}))
        assert (await agent.next_run()).turn.resume == {"step": 2}
        late = await v1.error("SendMessage", v1_message("the aisle", taskId=task["id"]))
        assert late.code == -32004
    async with serve(agent, account=TASKS, settings=_settings(kind)) as gateway:
        v1 = V1Client(AsgiClient(gateway.asgi))
        run = await agent.next_run()
        assert run.turn.resume == {"step": 2}
        late = await v1.error("SendMessage", v1_message("the aisle", taskId=task["id"]))
        assert late.code == -32004
        await run.finish(Reply.of_text("booked"))
        ended = await _wait_state(v1, task["id"], "TASK_STATE_COMPLETED")
        assert _user_texts(ended) == ["book it", "the window, if you ask"]


@pytest.mark.requirement("promise.idempotent.one-answer")
@pytest.mark.parametrize("kind", ["sqlite", "json-file"])
async def test_a_message_on_a_task_that_never_paused_is_no_answer_after_a_restart(
    serve: Serve, kind: str
) -> None:
    agent = ScriptedAgent()
    agent.recovery = Recovery.REPEAT
    async with serve(agent, account=TASKS, settings=_settings(kind)) as gateway:
        v1 = V1Client(AsgiClient(gateway.asgi))
        task = await v1.start("book it")
        first = await agent.next_run()
        await v1.start("and a hotel", taskId=task["id"])
        await first.finish(Reply.of_text("booked"))
        await agent.next_run()
    async with serve(agent, account=TASKS, settings=_settings(kind)) as gateway:
        v1 = V1Client(AsgiClient(gateway.asgi))
        run = await agent.next_run()
        await v1.start("and a car", taskId=task["id"])
        await run.finish(Reply.of_text("the hotel too"))
        await (await agent.next_run()).finish(Reply.of_text("and the car"))
        ended = await _wait_state(v1, task["id"], "TASK_STATE_COMPLETED")
        assert _user_texts(ended) == ["book it", "and a hotel", "and a car"]


async def _wait_state(v1: V1Client, task_id: str, state: str) -> Any:
    with anyio.fail_after(TIMEOUT_S):
        while True:
            task = await v1.get(task_id)
            if task["status"]["state"] == state:
                return task
            await asyncio.sleep(0.005)  # it is asked again until then
