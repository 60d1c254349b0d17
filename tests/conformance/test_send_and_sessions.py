"""From a message to the turn of an agent: sessions, and sending twice."""

import anyio
import pytest
from tests.conformance.asgi_client import Request
from tests.conformance.conftest import Start, peers, token_of
from tests.conformance.protocol_clients import (
    Json,
    V03Client,
    V1Client,
    encode_call,
    v03_message,
    v1_message,
)
from tests.conformance.scripted_agent import ScriptedAgent
from tests.conformance.stream_outline import outline, status_text, text_of

from openclaw_a2a.model.agent_event import Failed, InputRequired, Reply, ToolPhase, ToolProgress
from openclaw_a2a.model.message import Part

TASKS = {"agentStyle": "task-generating"}


def _agent() -> ScriptedAgent:
    return ScriptedAgent(Reply.of_text("hello"))


@pytest.mark.requirement("inbound.session.in-turn", "promise.lane.one-run")
async def test_messages_of_one_context_run_one_after_the_other(start: Start) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent))
    for number in range(3):
        await v1.start(f"message {number}", contextId="mine")
    for number in range(3):
        run = await agent.next_run()
        assert run.turn.body == f"message {number}"
        assert not agent.has_waiting_run
        await run.finish(Reply.of_text("done"))


@pytest.mark.requirement("inbound.session.failure-frees")
@pytest.mark.parametrize("failure", [Failed("no"), RuntimeError("broken")])
async def test_failed_run_lets_the_next_one_in(start: Start, failure: Failed | Exception) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent))
    await v1.start("first", contextId="mine")
    await v1.start("second", contextId="mine")
    await (await agent.next_run()).finish(failure)
    second = await agent.next_run()
    assert second.turn.body == "second"
    await second.finish(Reply.of_text("done"))


@pytest.mark.requirement("inbound.session.in-turn", "promise.order.one-terminal")
async def test_message_to_a_working_task_runs_next_and_the_task_ends_once(start: Start) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent, account=TASKS))
    async with v1.stream("SendStreamingMessage", v1_message("first")) as frames:
        first = await agent.next_run()
        await v1.start("second", taskId=first.turn.task_id)
        assert not agent.has_waiting_run
        await first.finish(Reply.of_text("one"))
        second = await agent.next_run()
        assert (second.turn.body, second.turn.task_id) == ("second", first.turn.task_id)
        await second.finish(Reply.of_text("two"))
        lines = outline(await frames.rest())
    assert lines.count("status completed") == 1
    assert lines[-1] == "status completed"
    task = await v1.get(first.turn.task_id)
    users = [text_of(one) for one in task["history"] if one["role"] == "ROLE_USER"]
    assert users == ["first", "second"]
    assert [text_of(one) for one in task["artifacts"]] == ["one", "two"]


@pytest.mark.requirement("promise.lane.parallel")
async def test_different_contexts_run_side_by_side(start: Start) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent))
    for context in ("one", "two", "three"):
        await v1.start(contextId=context)
    runs = [await agent.next_run() for _ in range(3)]
    assert {run.turn.context_id for run in runs} == {"one", "two", "three"}
    for run in runs:
        await run.finish(Reply.of_text("done"))


@pytest.mark.requirement("wire.ids.server-made", "wire.ids.context-alone", "wire.ids.context-kept")
async def test_context_of_the_client_is_kept_and_holds_several_tasks(start: Start) -> None:
    v1 = V1Client(await start(_agent(), account=TASKS))
    first = (await v1.send(contextId="mine"))["task"]
    second = (await v1.send(contextId="mine"))["task"]
    assert first["contextId"] == second["contextId"] == "mine"
    assert first["id"] != second["id"]
    without = (await v1.send())["task"]
    assert without["contextId"] not in ("", "mine")


@pytest.mark.requirement("inbound.history.appended", "promise.idempotent.task")
async def test_message_to_a_task_joins_its_history_once(start: Start) -> None:
    agent = ScriptedAgent(InputRequired("Which one?"))
    v1 = V1Client(await start(agent))
    task = (await v1.send(messageId="m-first"))["task"]
    params = v1_message("the red one", taskId=task["id"], messageId="m-second")
    await v1.call("SendMessage", params)
    await v1.call("SendMessage", params)
    history = (await v1.get(task["id"]))["history"]
    from_user = [one["messageId"] for one in history if one["role"] == "ROLE_USER"]
    assert from_user == ["m-first", "m-second"]
    assert len(agent.turns) == 2


@pytest.mark.requirement("inbound.history.appended")
async def test_message_is_in_the_history_while_its_run_is_under_way(start: Start) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent))
    task = await v1.start(messageId="m-first")
    await (await agent.next_run()).finish(InputRequired("Which one?"))
    await v1.start("the red one", taskId=task["id"], messageId="m-second")
    run = await agent.next_run()
    history = (await v1.get(task["id"]))["history"]
    assert "m-second" in [one["messageId"] for one in history]
    await run.finish(Reply.of_text("done"))


@pytest.mark.requirement("promise.idempotent.task")
async def test_same_message_twice_is_one_task_and_one_run(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent, account=TASKS))
    params = v1_message()
    first = await v1.call("SendMessage", params)
    second = await v1.call("SendMessage", params)
    assert first == second
    assert len(agent.turns) == 1


@pytest.mark.requirement("promise.idempotent.task")
async def test_same_message_as_a_stream_follows_the_same_task(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent, account=TASKS))
    params = v1_message()
    first = (await v1.call("SendMessage", params))["task"]
    frames = await v1.events("SendStreamingMessage", params)
    assert frames[0].json["result"]["task"]["id"] == first["id"]
    assert len(agent.turns) == 1


@pytest.mark.requirement("promise.idempotent.task")
async def test_same_continuation_after_the_task_ended_gives_that_task(start: Start) -> None:
    """A client whose connection broke repeats its message; by then the task has ended."""
    agent = ScriptedAgent(
        script=lambda turn: [Reply.of_text("done") if turn.resume else InputRequired("?", "x")]
    )
    v1 = V1Client(await start(agent))
    task = (await v1.send())["task"]
    params = v1_message("the red one", taskId=task["id"])
    ended = (await v1.call("SendMessage", params))["task"]
    assert ended["status"]["state"] == "TASK_STATE_COMPLETED"
    assert (await v1.call("SendMessage", params))["task"] == ended
    assert len(agent.turns) == 2


@pytest.mark.requirement("promise.idempotent.direct")
async def test_same_message_twice_is_one_direct_answer_and_one_run(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent))
    params = v1_message()
    first = await v1.call("SendMessage", params)
    assert await v1.call("SendMessage", params) == first
    assert outline(await v1.events("SendStreamingMessage", params)) == ["message"]
    assert len(agent.turns) == 1


@pytest.mark.requirement("promise.idempotent.at-once")
@pytest.mark.parametrize("account", [{}, TASKS])
async def test_same_message_at_once_is_one_run(start: Start, account: Json) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent, account=account))
    params, results = v1_message(), list[Json]()

    async def send() -> None:
        results.append(await v1.call("SendMessage", params))

    async with anyio.create_task_group() as both:
        both.start_soon(send)
        both.start_soon(send)
        await (await agent.next_run()).finish(Reply.of_text("once"))
    assert results[0] == results[1]
    assert len(agent.turns) == 1


@pytest.mark.requirement("promise.idempotent.conflict")
async def test_other_body_under_a_known_message_id_is_an_error(start: Start) -> None:
    agent = _agent()
    http = await start(agent, account=TASKS)
    params = v1_message("one")
    await V1Client(http).call("SendMessage", params)
    params["message"]["parts"] = [{"text": "two"}]
    failed = await V1Client(http).error("SendMessage", params)
    assert params["message"]["messageId"] in failed.message
    old = v03_message("three", messageId=params["message"]["messageId"])
    assert (await V03Client(http).error("message/send", old)).code == failed.code
    assert len(agent.turns) == 1


@pytest.mark.requirement("promise.idempotent.per-caller")
async def test_the_same_message_id_of_two_callers_is_two_messages(start: Start) -> None:
    agent = _agent()
    http = await start(agent, settings=peers("alice", "bob"))
    for name in ("alice", "bob"):
        v1 = V1Client(http.with_headers(authorization=f"Bearer {token_of(name)}"))
        await v1.send(f"from {name}", messageId="m-same")
    assert [turn.body for turn in agent.turns] == ["from alice", "from bob"]


@pytest.mark.requirement("door.disconnect")
async def test_a_client_that_disconnects_does_not_stop_its_task(start: Start) -> None:
    agent = ScriptedAgent()
    http = await start(agent, account=TASKS)
    v1 = V1Client(http)
    body = encode_call("SendMessage", v1_message())
    headers = {"content-type": "application/json"}
    async with http.open(Request("POST", "/a2a/jsonrpc", headers, (body,))) as active:
        run = await agent.next_run()
        active.disconnect()
        await anyio.wait_all_tasks_blocked()
        assert not run.has_stopped
        await run.finish(Reply.of_text("still here"))
    async with v1.stream("SubscribeToTask", {"id": run.turn.task_id}, last_event_id="0") as frames:
        assert outline(await frames.rest())[-1] == "status completed"


@pytest.mark.requirement("wire.blocking.default", "inbound.send.task-generating")
async def test_blocking_send_returns_the_ended_task_with_everything(start: Start) -> None:
    agent = ScriptedAgent(
        ToolProgress(ToolPhase.RESULT, "lookup", "c1", {"ok": True}),
        Reply((Part.of_text("answer"),)),
    )
    v1 = V1Client(await start(agent, account=TASKS))
    task = (await v1.send())["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert status_text(task) == "answer"
    assert [one["artifactId"] for one in task["artifacts"]] == [
        "tool-progress-c1",
        "assistant-output-0001",
    ]
    assert task["history"][0]["role"] == "ROLE_USER"


@pytest.mark.requirement("inbound.get.history-length", "wire.history.length")
async def test_history_length_is_honoured_by_send_and_get(start: Start) -> None:
    v1 = V1Client(await start(_agent(), account=TASKS))
    task = (await v1.send())["task"]
    assert len(task["history"]) == 2
    none = (await v1.send(configuration={"historyLength": 0}))["task"]
    assert "history" not in none
    last = (await v1.send(configuration={"historyLength": 1}))["task"]
    assert [one["role"] for one in last["history"]] == ["ROLE_AGENT"]
    assert (await v1.get(task["id"]))["history"] == task["history"]
    assert "history" not in await v1.get(task["id"], historyLength=0)
    assert (await v1.get(task["id"], historyLength=1))["history"] == task["history"][-1:]
    assert (await v1.get(task["id"], historyLength=9))["history"] == task["history"]


@pytest.mark.requirement("inbound.get.history-length")
async def test_history_length_of_0_3_gives_all_none_or_the_last(start: Start) -> None:
    v03 = V03Client(await start(_agent(), account=TASKS))
    task = await v03.send()
    assert len((await v03.get(task["id"]))["history"]) == 2
    assert not (await v03.get(task["id"], historyLength=0)).get("history")
    assert len((await v03.get(task["id"], historyLength=1))["history"]) == 1


@pytest.mark.requirement("inbound.get.latest")
async def test_get_gives_the_task_as_of_its_last_event(start: Start) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent, account=TASKS))
    async with v1.stream("SendStreamingMessage", v1_message()) as frames:
        task_id = (await frames.take(1))[0].json["result"]["task"]["id"]
        run = await agent.next_run()
        await run.emit(ToolProgress(ToolPhase.START, "lookup", "c1"))
        while outline([(await frames.take(1))[0]]) != ["artifact tool-progress-c1"]:
            pass
        got = await v1.get(task_id)
        assert got["status"]["state"] == "TASK_STATE_WORKING"
        assert [one["artifactId"] for one in got["artifacts"]] == ["tool-progress-c1"]
        await run.finish(Reply.of_text("done"))
        await frames.rest()
    assert (await v1.get(task_id))["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.requirement("promise.idempotent.off")
@pytest.mark.parametrize("kind", ["memory", "sqlite", "json-file"])
@pytest.mark.parametrize("style", ["task-generating", "hybrid"])
async def test_without_known_message_ids_every_message_is_new(
    start: Start, kind: str, style: str
) -> None:
    agent = ScriptedAgent(Reply.of_text("hi"))
    settings = {"retention.messageSeconds": 0, "store.kind": kind}
    http = await start(agent, account={"agentStyle": style}, settings=settings)
    v1, params = V1Client(http), v1_message()
    first, second = [await v1.call("SendMessage", params) for _ in range(2)]
    other = v1_message("another body", messageId=params["message"]["messageId"])
    third = await v1.call("SendMessage", other)
    assert len(agent.turns) == 3
    for one, two in ((first, second), (second, third)):
        assert one.get("task", {}).get("id", 1) != two.get("task", {}).get("id", 2)
