"""What an agent says after its run is appended to the newest task of its session, once."""

import asyncio
from pathlib import Path

import pytest
from tests.captured_logs import capture_logs
from tests.conformance.asgi_client import AsgiClient, Request
from tests.conformance.protocol_clients import Json, V03Client, V1Client, v1_message
from tests.conformance.stream_outline import outline
from tests.engine.background_replies.background_agent import BackgroundAgent
from tests.engine.background_replies.conftest import FastClock, GatewayHarness

from openclaw_a2a.model.agent_event import BackgroundReply, InputRequired, Reply, TextDelta
from openclaw_a2a.model.ids import SessionKey
from openclaw_a2a.model.message import Part


def queued_of(task: Json) -> list[Json]:
    return [one for one in task.get("artifacts", ()) if one["artifactId"].startswith("queued-")]


def texts_of(task: Json) -> list[str]:
    return [one["parts"][0]["text"] for one in queued_of(task)]


@pytest.mark.requirement("inbound.queued.artifact", "promise.order.one-terminal")
async def test_a_late_reply_is_an_artifact_of_the_ended_task(gateways: GatewayHarness) -> None:
    agent = BackgroundAgent(Reply.of_text("hi"))
    v1 = await gateways.client(agent)
    before = (await v1.send())["task"]
    told = await agent.reply("and by the way")
    task = await v1.get(before["id"])
    [late] = queued_of(task)
    assert late["name"] == "Queued follow-up reply"
    assert late["parts"] == [{"text": "and by the way"}]
    assert late["metadata"] == {
        "source": "queued-reply",
        "channel": "a2a",
        "sessionKey": told.session_key,
        "to": "a2a:default",
    }
    assert task["status"] == before["status"]
    assert task["history"] == before["history"]
    [listed] = (await v1.list(includeArtifacts=True))["tasks"]
    assert listed == task


@pytest.mark.requirement("promise.resume.missing-only", "promise.resume.ended")
async def test_a_reader_that_reconnects_gets_the_late_reply_after_the_end(
    gateways: GatewayHarness,
) -> None:
    agent = BackgroundAgent(Reply.of_text("hi"))
    v1 = await gateways.client(agent)
    seen = await v1.events("SendStreamingMessage", v1_message())
    task_id = seen[0].json["result"]["task"]["id"]
    await agent.reply("later", reply_id="a")
    await agent.reply("still later", reply_id="b")
    missed = await v1.events("SubscribeToTask", {"id": task_id}, last_event_id=seen[-1].id)
    assert [line.split("-")[0] for line in outline(missed)] == ["artifact queued"] * 2
    assert [int(one.id or "") for one in missed] == [5, 6]
    again = await v1.events("SubscribeToTask", {"id": task_id}, last_event_id="0")
    assert [one.json for one in again] == [one.json for one in (*seen[1:], *missed)]
    assert sum("completed" in line for line in outline(again)) == 1
    v03 = V03Client(v1.http)
    [snapshot] = await v03.events("tasks/resubscribe", {"id": task_id})
    assert len(snapshot.json["result"]["artifacts"]) == 3


@pytest.mark.requirement("inbound.queued.once")
async def test_a_repeated_reply_is_one_artifact_also_after_a_restart(
    gateways: GatewayHarness,
) -> None:
    agent = BackgroundAgent(Reply.of_text("hi"))
    v1 = await gateways.client(agent)
    task = (await v1.send())["task"]
    told = await agent.reply("once")
    await agent.tell(told)
    assert texts_of(await v1.get(task["id"])) == ["once"]
    if gateways.kind == "memory":
        return
    await gateways.close()
    again = BackgroundAgent(Reply.of_text("hi"))
    v1 = await gateways.client(again)
    await again.tell(told)
    assert texts_of(await v1.get(task["id"])) == ["once"]
    [recent] = again.listened[0]
    assert (recent.task_id, recent.session_key) == (task["id"], told.session_key)


@pytest.mark.requirement("inbound.queued.newest", "inbound.queued.once")
async def test_a_late_reply_is_appended_to_the_newest_task_of_its_session(
    gateways: GatewayHarness,
) -> None:
    agent = BackgroundAgent(Reply.of_text("hi"))
    v1 = await gateways.client(agent)
    old = (await v1.send(contextId="c"))["task"]
    other = (await v1.send(contextId="d"))["task"]
    told = await agent.reply("for the old one", reply_id="1", turn=0)
    new = (await v1.send(contextId="c"))["task"]
    await agent.tell(told)
    await agent.reply("for the new one", reply_id="2")
    tasks = [await v1.get(one["id"]) for one in (old, other, new)]
    assert [texts_of(one) for one in tasks] == [["for the old one"], [], ["for the new one"]]


@pytest.mark.requirement("inbound.queued.newest")
async def test_a_late_reply_of_an_unknown_session_is_dropped(gateways: GatewayHarness) -> None:
    agent = BackgroundAgent(Reply.of_text("hi"))
    v1 = await gateways.client(agent)
    task = (await v1.send())["task"]
    await agent.tell(
        BackgroundReply(SessionKey("agent:main:a2a:anon:x"), "1", (Part.of_text("?"),))
    )
    assert queued_of(await v1.get(task["id"])) == []


@pytest.mark.requirement("inbound.queued.live", "promise.order.one-order")
async def test_a_late_reply_reaches_subscribers_of_the_active_task(
    gateways: GatewayHarness,
) -> None:
    agent = BackgroundAgent()
    v1 = await gateways.client(agent)
    async with v1.stream("SendStreamingMessage", v1_message()) as frames:
        run = await agent.next_run()
        await frames.take(3)
        await run.emit(TextDelta("one "))
        await frames.take(1)
        await agent.reply("in between")
        [late] = await frames.take(1)
        assert outline([late])[0].startswith("artifact queued-reply-")
        await run.finish(TextDelta("two"))
        lines = outline(await frames.rest())
    assert lines[-1] == "status completed"
    task = await v1.get(run.turn.task_id)
    assert texts_of(task) == ["in between"]
    assert task["status"]["message"]["parts"][0]["text"] == "one two"


@pytest.mark.requirement("inbound.queued.live")
async def test_a_late_reply_leaves_a_paused_task_paused_and_able_to_continue(
    gateways: GatewayHarness,
) -> None:
    agent = BackgroundAgent()
    v1 = await gateways.client(agent)
    task = await v1.start()
    await (await agent.next_run()).finish(InputRequired("which?", resume={"ask": 1}))
    await agent.reply("a hint")
    paused = await v1.get(task["id"])
    assert paused["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert texts_of(paused) == ["a hint"]
    await v1.start("this one", taskId=task["id"])
    run = await agent.next_run()
    assert run.turn.resume == {"ask": 1}
    await agent.reply("another hint", reply_id="r-2")
    await run.finish(Reply.of_text("done"))
    async with v1.stream("SubscribeToTask", {"id": task["id"]}, last_event_id="0") as frames:
        lines = outline(await frames.rest())
    assert lines.count("status completed") == 1
    assert texts_of(await v1.get(task["id"])) == ["a hint", "another hint"]


@pytest.mark.requirement("inbound.queued.artifact")
async def test_a_late_reply_between_two_runs_of_a_task_disturbs_neither(
    gateways: GatewayHarness,
) -> None:
    agent = BackgroundAgent()
    v1 = await gateways.client(agent)
    task = await v1.start("first")
    first = await agent.next_run()
    await v1.start("second", taskId=task["id"])
    await first.emit(Reply.of_text("one"))
    ending = asyncio.create_task(first.finish())
    await agent.reply("in between")
    await ending
    second = await agent.next_run()
    await agent.reply("and now", reply_id="r-2")
    await second.finish(Reply.of_text("two"))
    async with v1.stream("SubscribeToTask", {"id": task["id"]}, last_event_id="0") as frames:
        lines = outline(await frames.rest())
    assert lines[-1] == "status completed"
    assert lines.count("status completed") == 1
    assert texts_of(await v1.get(task["id"])) == ["in between", "and now"]


@pytest.mark.requirement("inbound.queued.artifact")
async def test_a_deleted_task_gets_no_late_reply(gateways: GatewayHarness) -> None:
    agent = BackgroundAgent(Reply.of_text("hi"))
    v1 = await gateways.client(agent)
    task = (await v1.send())["task"]
    answer = await v1.http.request(Request("DELETE", f"/a2a/rest/tasks/{task['id']}"))
    assert answer.status == 200
    await agent.reply("too late")
    assert (await v1.error("GetTask", {"id": task["id"]})).code == -32001


@pytest.mark.requirement("inbound.queued.modes")
async def test_only_what_the_account_gives_out_is_appended(gateways: GatewayHarness) -> None:
    agent = BackgroundAgent(Reply.of_text("hi"))
    v1 = await gateways.client(agent)
    task = (await v1.send())["task"]
    picture = Part.of_url("https://files.example/cat.png", media_type="image/png")
    with capture_logs() as logged:
        await agent.tell(BackgroundReply(agent.session(), "1", (picture,)))
        await agent.tell(BackgroundReply(agent.session(), "2", (Part.of_text("see"), picture)))
    [late] = queued_of(await v1.get(task["id"]))
    assert late["parts"] == [{"text": "see"}]
    assert late["metadata"]["omittedFiles"].startswith("a file (image/png) was left out")
    lines = [one for one in logged if one["event"] == "task.files_omitted"]
    assert len(lines) == 2
    for line in lines:
        assert (line["task_id"], line["caller"], line["agent"]) == (task["id"], "local", "main")


@pytest.mark.requirement("inbound.queued.bounded")
async def test_a_task_has_a_limit_of_late_replies(gateways: GatewayHarness) -> None:
    agent = BackgroundAgent(Reply.of_text("hi"))
    limits = {"limits.eventBytes": 2000, "limits.queuedReplies": 2}
    v1 = await gateways.client(agent, settings=limits)
    task = (await v1.send())["task"]
    for number, text in enumerate(["one", "x" * 3000, "two", "three"]):
        await agent.reply(text, reply_id=str(number))
    assert texts_of(await v1.get(task["id"])) == ["one", "two"]


@pytest.mark.requirement("inbound.queued.heard")
async def test_a_broken_stream_of_background_events_is_opened_again(
    tmp_path: Path,
) -> None:
    gateways, agent = GatewayHarness("memory", tmp_path), BackgroundAgent(Reply.of_text("hi"))
    try:
        v1 = await gateways.client(agent, clock=FastClock())
        await agent.wait_heard()
        assert agent.listened == [[]]
        task = (await v1.send())["task"]
        await agent.tell(ConnectionError("the host is gone"))
        await agent.reply("back again")
        [recent] = agent.listened[-1]
        assert (recent.task_id, recent.is_paused) == (task["id"], False)
        assert texts_of(await v1.get(task["id"])) == ["back again"]
    finally:
        await gateways.close()
    assert not agent.is_heard.is_set()


@pytest.mark.requirement("inbound.queued.newest", "promise.walls.accounts")
async def test_of_several_stores_the_one_that_knows_the_session_gets_the_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gateways, agent = GatewayHarness("memory", tmp_path), BackgroundAgent(Reply.of_text("hi"))
    other = {
        "defaultAgentId": "main",
        "agentStyle": "task-generating",
        "taskStore": {"kind": "json-file", "path": str(tmp_path / "other")},
    }
    try:
        gateway = await gateways.open(agent, settings={"channels.a2a.accounts.other": other})
        http = AsgiClient(gateway.asgi)
        here, there = V1Client(http), V1Client(http, path="/agents/other/a2a/jsonrpc")
        first, second = (await here.send())["task"], (await there.send())["task"]
        await agent.reply("for the second", reply_id="2")
        await agent.reply("for the first", reply_id="1", turn=0)
        assert texts_of(await here.get(first["id"])) == ["for the first"]
        assert texts_of(await there.get(second["id"])) == ["for the second"]
        assert len(agent.listened) == 1
    finally:
        await gateways.close()
