"""Streams: format, one order for all clients, sequence numbers, reconnecting."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest
from tests.conformance.asgi_client import AsgiClient, Request
from tests.conformance.conftest import Serve, Start
from tests.conformance.protocol_clients import (
    Frame,
    FrameReader,
    V03Client,
    V1Client,
    check_v1,
    encode_call,
    v03_message,
    v1_message,
)
from tests.conformance.scripted_agent import ScriptedAgent, ScriptedRun
from tests.conformance.stream_outline import describe, events, outline, published_text, text_of

from openclaw_a2a.model.agent_event import (
    AgentEvent,
    InputRequired,
    Reply,
    TextDelta,
    ToolPhase,
    ToolProgress,
)
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.settings import ServerSettings

TASKS = {"agentStyle": "task-generating"}
FIRST = "assistant-output-0001"


def _numbers(frames: list[Frame]) -> list[int]:
    return [int(frame.id or "-1") for frame in frames]


async def _tell_one_by_one(run: ScriptedRun, reader: FrameReader, count: int) -> list[Frame]:
    """Let the agent say `count` pieces, each shown before the next."""
    frames: list[Frame] = []
    for number in range(count):
        await run.emit(TextDelta(f"{number} "))
        frames += await reader.take(1)
    return frames


@pytest.mark.requirement("inbound.stream.direct", "wire.stream.message-only")
async def test_stream_of_a_direct_answer_is_one_message(start: Start) -> None:
    v03 = V03Client(await start(ScriptedAgent(Reply.of_text("hi"))))
    frames = await v03.events("message/stream", v03_message())
    assert outline(frames) == ["message"]
    assert text_of(events(frames)[0]) == "hi"


@pytest.mark.requirement("inbound.stream.task", "wire.stream.task-first", "promise.resume.ids")
async def test_stream_of_a_task_is_the_task_and_its_numbered_events(start: Start) -> None:
    v1 = V1Client(await start(ScriptedAgent(Reply.of_text("hi")), account=TASKS))
    frames = await v1.events("SendStreamingMessage", v1_message())
    assert outline(frames) == [
        "task submitted",
        "status submitted",
        "status working",
        f"artifact {FIRST}.",
        "status completed",
    ]
    assert _numbers(frames) == [0, 1, 2, 3, 4]


@pytest.mark.requirement("inbound.stream.stored-first")
async def test_every_streamed_event_can_be_read_again(start: Start) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent, account=TASKS))
    async with v1.stream("SendStreamingMessage", v1_message()) as frames:
        run = await agent.next_run()
        seen = await frames.take(3)
        for number in range(5):
            await run.emit(TextDelta(f"{number} "))
            seen += await frames.take(1)
            task = await v1.get(run.turn.task_id)
            assert text_of(task["artifacts"][0]) == published_text(seen, FIRST)
        await run.finish()


@pytest.mark.requirement("promise.order.one-order", "wire.stream.same-order")
async def test_all_readers_see_the_same_events_with_the_same_numbers(start: Start) -> None:
    agent = ScriptedAgent()
    http = await start(agent, account=TASKS)
    v1, v03 = V1Client(http), V03Client(http)
    async with v1.stream("SendStreamingMessage", v1_message()) as sent:
        run = await agent.next_run()
        head = await sent.take(3)
        follow = {"id": run.turn.task_id}
        async with (
            v1.stream("SubscribeToTask", follow) as tail,
            v03.stream("tasks/resubscribe", follow) as old_tail,
        ):
            snapshots = [*await tail.take(1), *await old_tail.take(1)]
            await run.emit(*[TextDelta(f"{number} ") for number in range(20)])
            await run.emit(ToolProgress(ToolPhase.START, "lookup", "c1"))
            await run.finish(Reply.of_text("done"))
            rest, tailed, old_tailed = await sent.rest(), await tail.rest(), await old_tail.rest()
    assert outline(rest) == outline(tailed) == outline(old_tailed)
    assert _numbers(rest) == _numbers(tailed) == _numbers(old_tailed)
    assert [frame.json for frame in rest] == [frame.json for frame in tailed]
    assert {int(frame.id or "-1") for frame in snapshots} == {_numbers(head)[-1]}


@pytest.mark.requirement("promise.order.one-order", "promise.order.one-terminal")
async def test_numbers_rise_without_gaps_to_exactly_one_end(start: Start) -> None:
    steps = [TextDelta("a"), ToolProgress(ToolPhase.RESULT, "t", "c"), Reply.of_text("b")]
    v1 = V1Client(await start(ScriptedAgent(*steps), account=TASKS))
    frames = await v1.events("SendStreamingMessage", v1_message())
    assert _numbers(frames) == list(range(len(frames)))
    ends = [line for line in outline(frames) if line in ("status completed", "status failed")]
    assert ends == [outline(frames)[-1]]


@pytest.mark.requirement("wire.stream.independent")
async def test_a_client_that_disconnects_does_not_affect_the_others(start: Start) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent, account=TASKS))
    async with v1.stream("SendStreamingMessage", v1_message()) as stays:
        run = await agent.next_run()
        async with v1.stream("SubscribeToTask", {"id": run.turn.task_id}) as leaves:
            await leaves.take(1)
        await run.finish(Reply.of_text("done"))
        assert outline(await stays.rest())[-1] == "status completed"


@pytest.mark.requirement("wire.stream.independent", "door.disconnect")
async def test_disconnecting_from_the_stream_of_a_send_does_not_stop_the_task(start: Start) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent, account=TASKS))
    async with v1.stream("SendStreamingMessage", v1_message()) as frames:
        run = await agent.next_run()
        await frames.take(1)
    assert not run.has_stopped
    async with v1.stream("SubscribeToTask", {"id": run.turn.task_id}) as tail:
        await run.finish(Reply.of_text("done"))
        assert outline(await tail.rest())[-1] == "status completed"


@pytest.mark.requirement("inbound.resubscribe.snapshot-first", "wire.stream.subscribe-first")
async def test_subscriber_gets_the_task_as_it_is_and_then_what_follows(start: Start) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent, account=TASKS))
    async with v1.stream("SendStreamingMessage", v1_message()) as frames:
        run = await agent.next_run()
        await frames.take(3)
        await _tell_one_by_one(run, frames, 2)
        async with v1.stream("SubscribeToTask", {"id": run.turn.task_id}) as tail:
            (snapshot,) = await tail.take(1)
            assert outline([snapshot]) == ["task working"]
            assert text_of(events([snapshot])[0]["artifacts"][0]) == "0 1 "
            await run.finish()
            assert outline(await tail.rest()) == [f"artifact +{FIRST}.", "status completed"]


@pytest.mark.requirement("inbound.resubscribe.live-tail")
async def test_tail_of_0_3_ends_after_the_final_event(start: Start) -> None:
    agent = ScriptedAgent()
    v03 = V03Client(await start(agent, account=TASKS))
    task = await v03.start()
    run = await agent.next_run()
    async with v03.stream("tasks/resubscribe", {"id": task["id"]}) as tail:
        assert (await tail.take(1))[0].json["result"]["kind"] == "task"
        await run.finish(Reply.of_text("done"))
        rest = await tail.rest()
    assert events(rest)[-1]["final"] is True


@pytest.mark.requirement("inbound.resubscribe.ended")
async def test_ended_task_of_0_3_gives_its_snapshot_and_closes(start: Start) -> None:
    v03 = V03Client(await start(ScriptedAgent(Reply.of_text("hi")), account=TASKS))
    task = await v03.send()
    frames = await v03.events("tasks/resubscribe", {"id": task["id"]})
    assert [frame.json["result"] for frame in frames] == [task]


@pytest.mark.requirement("inbound.resubscribe.paused")
async def test_paused_task_of_0_3_gives_its_snapshot_and_closes(start: Start) -> None:
    v03 = V03Client(await start(ScriptedAgent(InputRequired("Which one?"))))
    task = await v03.send()
    frames = await v03.events("tasks/resubscribe", {"id": task["id"]})
    assert [describe(frame.json["result"]) for frame in frames] == ["task input-required"]


def ask_then_answer(turn: Turn) -> list[AgentEvent]:
    """A question to the first message of a task, an answer to the second."""
    return [Reply.of_text("blue")] if turn.raw_body == "blue" else [InputRequired("Which one?")]


@asynccontextmanager
async def follow_rest(http: AsgiClient, task_id: str, method: str) -> AsyncGenerator[FrameReader]:
    """Subscribe over HTTP+JSON."""
    request = Request(method, f"/a2a/rest/tasks/{task_id}:subscribe", {"a2a-version": "1.0"})
    async with http.open(request) as active:
        await active.wait_started()
        yield FrameReader(active, lambda _body: None)


@pytest.mark.requirement("wire.stream.subscribe-paused")
@pytest.mark.parametrize("binding", ["JSONRPC", "GET", "POST"])
async def test_a_1_0_subscription_stays_open_through_a_pause_to_the_end(
    start: Start, binding: str
) -> None:
    http = await start(ScriptedAgent(script=ask_then_answer), account=TASKS)
    v1 = V1Client(http)
    task = (await v1.send())["task"]
    params = {"id": task["id"]}
    follow = (
        v1.stream("SubscribeToTask", params)
        if binding == "JSONRPC"
        else follow_rest(http, task["id"], binding)
    )
    async with follow as tail:
        frames = await tail.take(1)
        await v1.send("red", taskId=task["id"])  # asks again: the second pause is seen too
        frames += await tail.take(3)
        await v1.send("blue", taskId=task["id"])
        frames += await tail.rest()
    # HTTP+JSON sends the bare results of JSON-RPC.
    assert [describe(frame.json.get("result", frame.json)) for frame in frames] == [
        "task input-required",
        "status submitted",
        "status working",
        "status input-required",
        "status submitted",
        "status working",
        f"artifact {FIRST}.",
        "status completed",
    ]


@pytest.mark.requirement("wire.stream.subscribe-paused")
async def test_a_1_0_subscription_that_sees_the_pause_itself_stays_open(start: Start) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent, account=TASKS))
    task = await v1.start()
    run = await agent.next_run()
    async with v1.stream("SubscribeToTask", {"id": task["id"]}) as tail:
        await tail.take(1)
        await run.finish(InputRequired("Which one?"))
        while outline(await tail.take(1)) != ["status input-required"]:
            pass
        # A cancellation ends a paused task without a run.
        await v1.cancel(task["id"])
        assert outline(await tail.rest()) == ["status canceled"]


@pytest.mark.requirement("wire.stream.subscribe-paused", "promise.resume.missing-only")
async def test_a_1_0_subscription_with_a_cursor_stays_open_through_pauses(start: Start) -> None:
    v1 = V1Client(await start(ScriptedAgent(script=ask_then_answer), account=TASKS))
    frames = await v1.events("SendStreamingMessage", v1_message())
    assert outline(frames)[-1] == "status input-required"  # the stream of a send ends here
    task_id = events(frames)[0]["id"]
    last = frames[-1].id
    async with v1.stream("SubscribeToTask", {"id": task_id}, last_event_id=last) as tail:
        answered = await v1.events("SendStreamingMessage", v1_message("blue", taskId=task_id))
        resumed = await tail.rest()
    assert [(one.id, one.json) for one in resumed] == [(one.id, one.json) for one in answered[1:]]


@pytest.mark.requirement("wire.stream.subscribe-paused")
async def test_a_subscription_to_a_paused_task_ends_with_the_gateway(serve: Serve) -> None:
    agent = ScriptedAgent(InputRequired("Which one?"))
    async with AsyncExitStack() as client, AsyncExitStack() as running:
        gateway = await running.enter_async_context(serve(agent, account=TASKS))
        v1 = V1Client(AsgiClient(gateway.asgi))
        task = (await v1.send())["task"]
        follow = v1.stream("SubscribeToTask", {"id": task["id"]})
        tail = await client.enter_async_context(follow)
        await tail.take(1)
        await running.aclose()
        assert await tail.rest() == []


@pytest.mark.requirement("promise.resume.missing-only")
@pytest.mark.parametrize("seen", [1, 3, 5, 8])
async def test_a_client_that_reconnects_gets_exactly_the_missed_events(
    start: Start, seen: int
) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent, account=TASKS))
    async with v1.stream("SendStreamingMessage", v1_message()) as whole:
        run = await agent.next_run()
        frames = await whole.take(3)
        frames += await _tell_one_by_one(run, whole, 5)
        last = frames[seen - 1].id
        params = {"id": run.turn.task_id}
        async with v1.stream("SubscribeToTask", params, last_event_id=last) as back:
            await run.finish(Reply.of_text("done"))
            frames += await whole.rest()
            resumed = await back.rest()
    assert [(one.id, one.json) for one in resumed] == [(one.id, one.json) for one in frames[seen:]]


@pytest.mark.requirement("promise.resume.missing-only")
async def test_a_0_3_client_can_reconnect_too(start: Start) -> None:
    agent = ScriptedAgent()
    v03 = V03Client(await start(agent, account=TASKS))
    async with v03.stream("message/stream", v03_message()) as whole:
        run = await agent.next_run()
        await whole.take(2)
        params = {"id": run.turn.task_id}
        async with v03.stream("tasks/resubscribe", params, last_event_id="1") as back:
            await run.finish(Reply.of_text("done"))
            rest, resumed = await whole.rest(), await back.rest()
    assert [(one.id, one.json) for one in resumed] == [(one.id, one.json) for one in rest]


@pytest.mark.requirement("promise.resume.missing-only", "promise.idempotent.task")
async def test_a_repeated_streaming_send_with_a_cursor_continues_there(start: Start) -> None:
    """Some clients reconnect by posting the same request again, with Last-Event-ID."""
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent, account=TASKS))
    params = v1_message()
    async with v1.stream("SendStreamingMessage", params) as whole:
        run = await agent.next_run()
        seen = await whole.take(2)
        last = seen[-1].id
        async with v1.stream("SendStreamingMessage", params, last_event_id=last) as back:
            await run.finish(Reply.of_text("done"))
            rest, resumed = await whole.rest(), await back.rest()
    assert [(one.id, one.json) for one in resumed] == [(one.id, one.json) for one in rest]
    assert len(agent.turns) == 1


@pytest.mark.requirement("promise.resume.ended")
async def test_unread_events_of_an_ended_task_are_streamed(start: Start) -> None:
    http = await start(ScriptedAgent(Reply.of_text("hi")), account=TASKS)
    v1, v03 = V1Client(http), V03Client(http)
    frames = await v1.events("SendStreamingMessage", v1_message())
    params = {"id": events(frames)[0]["id"]}
    resumed = await v1.events("SubscribeToTask", params, last_event_id="2")
    assert [(one.id, one.json) for one in resumed] == [(one.id, one.json) for one in frames[3:]]
    old = await v03.events("tasks/resubscribe", params, last_event_id="2")
    assert _numbers(old) == [3, 4]
    assert await v1.events("SubscribeToTask", params, last_event_id="4") == []


@pytest.mark.requirement("promise.resume.bad-cursor")
@pytest.mark.parametrize("cursor", ["banana", "-1", "99", "1.5", "9" * 30])
async def test_cursor_the_task_never_had_is_refused_by_name(start: Start, cursor: str) -> None:
    v1 = V1Client(await start(ScriptedAgent(Reply.of_text("hi")), account=TASKS))
    task = (await v1.send())["task"]
    http = v1.http.with_headers(last_event_id=cursor)
    failed = await V1Client(http).error("SubscribeToTask", {"id": task["id"]})
    assert (failed.code, "Last-Event-ID" in failed.message) == (-32602, True)


@pytest.mark.requirement("inbound.stream.heartbeat")
async def test_silent_stream_gets_comment_lines(start: Start) -> None:
    agent = ScriptedAgent()
    settings = {"server.heartbeatSeconds": 0.01}
    v1 = V1Client(await start(agent, account=TASKS, settings=settings))
    async with v1.stream("SendStreamingMessage", v1_message()) as frames:
        run = await agent.next_run()
        await frames.take(3)
        while len(frames.comments) < 2:
            assert await frames.read_chunk()
        await run.finish(Reply.of_text("done"))
        assert outline(await frames.rest())[-1] == "status completed"


@pytest.mark.requirement("inbound.stream.heartbeat", "inbound.stream.direct")
async def test_stream_that_waits_for_its_first_event_gets_comment_lines_too(start: Start) -> None:
    agent = ScriptedAgent()
    http = await start(agent, settings={"server.heartbeatSeconds": 0.01})
    body = encode_call("SendStreamingMessage", v1_message())
    request = Request("POST", "/a2a/jsonrpc", {"content-type": "application/json"}, (body,))
    async with http.open(request) as active:
        run = await agent.next_run()
        frames = FrameReader(active, lambda body: check_v1("SendStreamingMessage", body))
        while len(frames.comments) < 2:
            assert await frames.read_chunk()
        await run.finish(Reply.of_text("slow but direct"))
        assert outline(await frames.rest()) == ["message"]


@pytest.mark.requirement("inbound.stream.heartbeat")
async def test_default_heartbeat_is_at_least_every_15_seconds() -> None:
    assert 0 < ServerSettings().heartbeat_seconds <= 15


@pytest.mark.requirement("promise.bounds.slow-reader")
async def test_a_client_that_does_not_read_delays_no_other(start: Start) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent, account=TASKS))
    async with v1.stream("SendStreamingMessage", v1_message()) as quick:
        run = await agent.next_run()
        params = {"id": run.turn.task_id}
        async with v1.stream("SubscribeToTask", params, is_slow=True) as slow:
            frames = await quick.take(3)
            frames += await _tell_one_by_one(run, quick, 600)
            await run.finish(Reply.of_text("done"))
            frames += await quick.rest()
            assert outline(frames)[-1] == "status completed"
            read_late = await slow.rest()
    assert outline(read_late)[-1] == "status completed"
    first = int(read_late[0].id or "-1")
    assert _numbers(read_late) == list(range(first, int(frames[-1].id or "-1") + 1))


@pytest.mark.requirement("promise.resume.missing-only", "promise.order.one-order")
async def test_clients_that_connect_and_disconnect_at_random_see_all_events(start: Start) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent, account=TASKS))
    stories: list[list[Frame]] = []

    async def read_in_pieces(task_id: str, piece: int) -> None:
        story: list[Frame] = []
        while not story or outline(story[-1:]) != ["status completed"]:
            last = story[-1].id if story else "0"
            async with v1.stream("SubscribeToTask", {"id": task_id}, last_event_id=last) as frames:
                for _ in range(piece):
                    frame = await frames.next()
                    if frame is None:
                        break
                    story.append(frame)
        stories.append(story)

    async with v1.stream("SendStreamingMessage", v1_message()) as whole:
        run = await agent.next_run()
        frames = await whole.take(1)
        async with anyio.create_task_group() as readers:
            for piece in (1, 2, 3, 7):
                readers.start_soon(read_in_pieces, run.turn.task_id, piece)
            frames += await whole.take(2)
            frames += await _tell_one_by_one(run, whole, 30)
            await run.finish(Reply.of_text("done"))
            frames += await whole.rest()
    for story in stories:
        assert [(one.id, one.json) for one in story] == [(one.id, one.json) for one in frames[1:]]
