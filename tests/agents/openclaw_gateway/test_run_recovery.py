"""Runs rejoined after an interruption: complete, once, with little help of the gateway."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import cast

import anyio
import msgspec
import pytest
from tests.agents.openclaw_gateway.conftest import Json, MakeAgent, make_turn_for, run_turn
from tests.agents.openclaw_gateway.scripted_gateway import (
    GatewayRequest,
    Refusal,
    ScriptedGateway,
    assistant_entry,
    run_event,
    text_block,
    user_entry,
)

from openclaw_a2a.agents.openclaw_gateway import OpenClawGatewayAgent
from openclaw_a2a.agents.openclaw_gateway.protocol import STOPPED
from openclaw_a2a.agents.openclaw_gateway.run_follower import NOT_RECOVERED
from openclaw_a2a.agents.openclaw_gateway.runs import Timeouts
from openclaw_a2a.model.agent_event import (
    BackgroundEvent,
    BackgroundReply,
    Failed,
    InputRequired,
    Note,
    PauseResolved,
    RecentTask,
    Reply,
    TextDelta,
)
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable
from openclaw_a2a.model.ids import SessionKey, TaskId
from openclaw_a2a.model.message import Part

KEY = "agent:main:a2a:local:c-1"
RUN = "a2a-r1"
LONG = "word " * 3000 + "end"


def live(*messages: Json) -> Json:
    """A history that shows the run under way."""
    state = {"hasActiveRun": True, "activeRunIds": [RUN]}
    return {"messages": [user_entry(RUN), *messages], "sessionInfo": state}


def cut(entry: Json, message_id: str = "m1") -> Json:
    """A long entry as a history shows it."""
    marks = {**entry["__openclaw"], "id": message_id, "truncated": True}
    content = [text_block(LONG[:8000] + "\n...(truncated)...")]
    return {**entry, "content": content, "__openclaw": marks}


def gives_out(gateway: ScriptedGateway, entry: Json) -> None:
    @gateway.on("chat.message.get")
    async def give(request: GatewayRequest) -> None:
        assert request.params == {"sessionKey": KEY, "messageId": "m1"}
        await request.answer({"ok": True, "message": entry})


# -------------------------------------------------------------------- lost messages


def pending(**states: str) -> Json:
    """A history in which the messages of these runs were accepted and never began."""
    items = [
        {"runId": RUN + key.removeprefix("first").replace("_", "-"), "state": state}
        for key, state in states.items()
    ]
    return {"messages": [], "pendingInputs": {"items": items}}


@pytest.mark.parametrize(
    ("history", "run_id"),
    [
        (pending(first="interrupted"), f"{RUN}-2"),
        (pending(first="interrupted", _2="interrupted"), f"{RUN}-3"),
        ({"messages": []}, RUN),
    ],
)
async def test_a_message_that_openclaw_lost_is_sent_under_the_next_id(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent, history: Json, run_id: str
) -> None:
    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.answer({"status": "accepted", "runId": request.params["idempotencyKey"]})
        await request.end("here")

    gateway.answers["chat.history"] = history
    gateway.answers["agent.wait"] = {"status": "timeout"}
    events = await run_turn(agent, make_turn_for(attempt=2))
    [sent] = gateway.methods("agent")
    assert sent.params["idempotencyKey"] == run_id
    assert Reply.of_text("here") in events


async def test_a_message_that_was_sent_again_before_our_restart_is_not_sent_once_more(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    again = f"{RUN}-2"
    said = [user_entry(again), assistant_entry(again, text_block("here"))]
    gateway.answers["chat.history"] = {**pending(first="interrupted"), "messages": said}
    gateway.answers["agent.wait"] = {"status": "timeout"}
    events = await run_turn(agent, make_turn_for(attempt=2))
    assert gateway.methods("agent") == []
    assert Reply.of_text("here") in events


async def test_a_queued_message_that_was_aborted_in_openclaw_is_not_sent_again(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    gateway.answers["chat.history"] = pending(first="cancelled")
    gateway.answers["agent.wait"] = {"status": "timeout"}
    events = await run_turn(agent, make_turn_for(attempt=2))
    assert gateway.methods("agent") == []
    assert events == [Failed(STOPPED)]


# -------------------------------------------------------------------- answers


async def test_a_truncated_answer_is_loaded_in_full_and_emitted_once(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    entry = assistant_entry(RUN, text_block(LONG))
    gives_out(gateway, entry)
    gateway.answers["chat.history"] = {"messages": [user_entry(RUN), cut(entry)]}
    short = {"text": LONG[:4095].rstrip() + "…"}
    gateway.answers["agent.wait"] = {"status": "ok", "terminalReply": short}
    assert (await run_turn(agent, make_turn_for(attempt=2)))[:-1] == [Reply.of_text(LONG)]


async def test_a_truncated_answer_that_cannot_be_loaded_is_emitted_as_shown(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    shown = cut(assistant_entry(RUN, text_block(LONG)))
    gateway.answers["chat.history"] = {"messages": [user_entry(RUN), shown]}
    gateway.answers["chat.message.get"] = {"ok": False, "unavailableReason": "oversized"}
    gateway.answers["agent.wait"] = {"status": "ok"}
    assert (await run_turn(agent, make_turn_for(attempt=2)))[:-1] == [
        Reply.of_text(shown["content"][0]["text"])
    ]


async def test_an_incomplete_message_is_not_the_answer(
    gateway: ScriptedGateway, make_agent: MakeAgent, short_timeouts: Timeouts
) -> None:
    broken = {**assistant_entry(RUN), "stopReason": "error"}
    gateway.answers["chat.history"] = {"messages": [user_entry(RUN), broken]}
    events = await run_turn(make_agent(timeouts=short_timeouts), make_turn_for(attempt=2))
    assert events[-1] == Failed(NOT_RECOVERED)


async def test_a_temporarily_refused_history_is_read_again(
    gateway: ScriptedGateway, make_agent: MakeAgent, short_timeouts: Timeouts
) -> None:
    @gateway.on("chat.history")
    async def show(request: GatewayRequest) -> None:
        if len(gateway.methods("chat.history")) == 1:
            error = {"code": "UNAVAILABLE", "message": "session changed", "retryable": True}
            await request.refuse(error)
            return
        await request.answer({"messages": [assistant_entry(RUN, text_block("here"))]})

    patient = Timeouts(reconnect_s=20)
    events = await run_turn(make_agent(timeouts=patient), make_turn_for(attempt=2))
    assert events[0] == Reply.of_text("here")
    assert gateway.methods("chat.abort") == []


async def test_a_run_is_followed_without_the_scope_to_list_approvals(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    gateway.answers["chat.history"] = live()

    @gateway.on("exec.approval.list")
    async def refuse(request: GatewayRequest) -> None:
        raise Refusal("FORBIDDEN", "missing scope", code="MISSING_SCOPE")

    @gateway.on("agent.wait")
    async def wait(request: GatewayRequest) -> None:
        if request.params["timeoutMs"] > 1:
            done = assistant_entry(RUN, text_block("done"))
            gateway.answers["chat.history"] = {"messages": [user_entry(RUN), done]}
        await request.answer({"status": "timeout"})

    assert (await run_turn(agent, make_turn_for(attempt=2)))[0] == Reply.of_text("done")
    assert gateway.methods("chat.abort") == []


# -------------------------------------------------------------------- once


async def test_a_long_run_whose_message_is_out_of_sight_is_not_sent_again(
    gateway: ScriptedGateway, make_agent: MakeAgent, short_timeouts: Timeouts
) -> None:
    call: Json = {"type": "toolCall", "id": "c1", "name": "look", "arguments": {}}
    gateway.answers["chat.history"] = {"messages": [assistant_entry(RUN, call)]}
    events = await run_turn(make_agent(timeouts=short_timeouts), make_turn_for(attempt=2))
    assert events[-1] == Failed(NOT_RECOVERED)
    assert gateway.methods("agent") == []


async def test_a_gateway_that_does_not_name_its_process_is_followed_into_its_recovery(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    gateway.hello = {**gateway.hello, "server": {"version": "2026.8.1"}}

    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        state = {"hasActiveRun": True, "activeRunIds": ["recovery-1"]}
        gateway.answers["chat.history"] = {"messages": [user_entry(RUN)], "sessionInfo": state}
        gateway.drop()

    @gateway.on("agent.wait")
    async def wait(request: GatewayRequest) -> None:
        if request.params["runId"] == "recovery-1":
            await request.answer({"status": "ok", "terminalReply": {"text": "whole"}})
        else:
            await request.answer({"status": "timeout"})

    assert Reply.of_text("whole") in await run_turn(agent, make_turn_for())


@pytest.mark.parametrize(
    "begun", [{"attempt": 2}, {"resume": {"kind": "question", "id": "q", "runId": RUN}}]
)
async def test_a_started_run_is_never_started_again_over_http(
    make_agent: MakeAgent, short_timeouts: Timeouts, begun: Json
) -> None:
    received: list[bytes] = []
    timeouts = msgspec.structs.replace(short_timeouts, reconnect_s=3)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readline())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        agent = make_agent(url=url, road="auto", connect_seconds=0.1, timeouts=timeouts)
        with pytest.raises(AgentUnavailable, match="no OpenClaw gateway"):
            await run_turn(agent, make_turn_for(**begun))
        await agent.close()
    assert not any(b"/v1/" in line for line in received)


# -------------------------------------------------------------------- answers of the peer


QUESTION: Json = {
    "id": "ask-1",
    "questions": [{"questionId": "color", "question": "Which?", "options": [{"label": "Blue"}]}],
    "runId": RUN,
    "sessionKey": KEY,
    "status": "pending",
}
RESUME: Json = {"kind": "question", "id": "ask-1", "runId": RUN, "openCalls": []}


@pytest.mark.parametrize("method", ["question.list", "question.resolve"])
@pytest.mark.parametrize("is_taken", [True, False])
async def test_an_answer_is_delivered_although_the_connection_breaks(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent, method: str, is_taken: bool
) -> None:
    listed = {"questions": [QUESTION]}
    gateway.answers |= {"question.list": listed, "question.resolve": {"status": "answered"}}

    @gateway.on(method)
    async def break_off(request: GatewayRequest) -> None:
        if len(gateway.methods(method)) > 1:
            await request.answer(gateway.answers[method])
            return
        if method == "question.resolve" and is_taken:
            gateway.answers["question.list"] = {"questions": []}
        gateway.drop()

    @gateway.on("agent.wait")
    async def end(request: GatewayRequest) -> None:
        await request.answer({"status": "ok", "terminalReply": {"text": "So be it."}})

    events = await run_turn(agent, make_turn_for("blue", run="r2", resume=RESUME))
    assert events[:-1] == [Reply.of_text("So be it.")]
    assert gateway.methods("agent") == []


async def test_a_run_that_is_forgotten_after_its_answer_has_failed(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    gateway.answers |= {"question.list": {"questions": [QUESTION]}, "question.resolve": {}}
    events = await run_turn(agent, make_turn_for("blue", run="r2", resume=RESUME))
    assert isinstance(events[-1], Failed)
    assert not any(isinstance(event, InputRequired | Note) for event in events)


# -------------------------------------------------------------------- stopping


async def test_a_message_in_transit_does_not_count_as_stopped(
    gateway: ScriptedGateway, make_agent: MakeAgent, short_timeouts: Timeouts
) -> None:
    """A cold OpenClaw shows nothing of a message that it has taken."""
    timeouts = msgspec.structs.replace(short_timeouts, stop_s=5)  # for more than one request

    @gateway.on("agent")
    async def accept(request: GatewayRequest) -> None:
        await request.answer({"status": "accepted", "runId": RUN})
        await request.agent("assistant", {"text": "x", "delta": "x", "itemId": "u:1"})

    events = cast("AsyncGenerator[object]", make_agent(timeouts=timeouts).run(make_turn_for()))
    assert await anext(events) == TextDelta("x")
    with pytest.raises(AgentFailed, match="did not confirm"):
        await events.aclose()
    assert len(gateway.methods("chat.abort")) > 1


async def test_stopping_our_run_does_not_stop_a_foreign_run(
    gateway: ScriptedGateway, make_agent: MakeAgent, short_timeouts: Timeouts
) -> None:
    @gateway.on("agent")
    async def accept(request: GatewayRequest) -> None:
        state = {"hasActiveRun": True, "activeRunIds": ["cron-7"]}
        gateway.answers["chat.history"] = {"messages": [user_entry(RUN)], "sessionInfo": state}
        await request.agent("assistant", {"text": "x", "delta": "x", "itemId": "u:1"})

    events = cast(
        "AsyncGenerator[object]", make_agent(timeouts=short_timeouts).run(make_turn_for())
    )
    await anext(events)
    with pytest.raises(AgentFailed, match="did not confirm"):
        await events.aclose()
    assert {one.params["runId"] for one in gateway.methods("chat.abort")} == {RUN}


@pytest.mark.parametrize(
    ("silent", "begun"),
    [
        ("connect", {"attempt": 2}),
        ("agents.list", {"attempt": 2}),
        ("question.list", {"run": "r2", "resume": RESUME}),
        ("agents.list", {"run": "r2", "resume": RESUME}),
    ],
)
async def test_a_turn_that_is_stopped_before_its_run_is_found_stops_that_run(
    gateway: ScriptedGateway, make_agent: MakeAgent, silent: str, begun: Json
) -> None:
    agent = make_agent(timeouts=Timeouts(abort_retry_s=0.1))

    @gateway.on(silent)
    async def say_nothing(request: GatewayRequest) -> None:
        gateway.script.pop(silent)
        if silent == "connect":
            error = {"code": "UNAVAILABLE", "message": "starting", "retryable": True}
            await request.refuse(error)

    async with anyio.create_task_group() as group:
        group.start_soon(run_turn, agent, make_turn_for(**begun))
        await gateway.wait_for(silent)
        group.cancel_scope.cancel()
    (stopped,) = gateway.methods("chat.abort")
    assert stopped.params == {"sessionKey": KEY, "runId": RUN}


# -------------------------------------------------------------------- late replies


async def test_a_truncated_background_reply_is_loaded_in_full(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    entry = assistant_entry("cron-7", text_block(LONG))
    gives_out(gateway, entry)
    ours = assistant_entry(RUN, text_block("ours"))
    gateway.answers["chat.history"] = {"messages": [user_entry(RUN), ours, cut(entry)]}
    recent = RecentTask(TaskId("t"), SessionKey(KEY), datetime(2026, 1, 1, tzinfo=UTC))
    events = cast("AsyncGenerator[BackgroundEvent]", agent.background_events([recent]))
    with anyio.fail_after(240):
        late = await anext(events)
    await events.aclose()
    assert late == BackgroundReply(SessionKey(KEY), "m1", (Part.of_text(LONG.strip()),))


# -------------------------------------------------------------------- addresses


async def test_an_invalid_url_is_reported(make_agent: MakeAgent) -> None:
    agent = make_agent(url="ws://a..b:1", road="websocket", connect_seconds=2)
    with pytest.raises(AgentUnavailable, match=r"ws://a\.\.b:1 cannot be reached"):
        await run_turn(agent, make_turn_for())


# -------------------------------------------------------------------- pauses over a restart


async def test_a_pause_ended_by_a_restart_of_openclaw_continues_in_the_resumed_run(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def ask(request: GatewayRequest) -> None:
        await request.event("question.requested", QUESTION)

    @gateway.on("agent.wait")
    async def wait(request: GatewayRequest) -> None:
        is_other = request.params["runId"] == "recovery-1"
        reply = {"status": "ok", "terminalReply": {"text": "I went on."}}
        await request.answer(reply if is_other else {"status": "timeout"})
        if request.params["timeoutMs"] > 1:
            begun = run_event("recovery-1", KEY, "lifecycle", {"phase": "start"})
            await request.event("agent", begun)

    @gateway.on("question.get")
    async def get(request: GatewayRequest) -> None:
        raise Refusal("INVALID_REQUEST", "no such question", reason="QUESTION_NOT_FOUND")

    (pause,) = await run_turn(agent, make_turn_for())
    assert isinstance(pause, InputRequired)
    gateway.answers["chat.history"] = {"messages": [user_entry(RUN)]}
    gateway.restart()
    events = cast("AsyncGenerator[BackgroundEvent]", agent.background_events([]))
    with anyio.fail_after(240):
        over = await anext(events)
    await events.aclose()
    assert isinstance(over, PauseResolved)
    assert over.resume == pause.resume
    word = make_turn_for(over.reason, run="r2", resume=over.resume, message_id="pause-over-1")
    assert Reply.of_text("I went on.") in await run_turn(agent, word)
    assert len(gateway.methods("agent")) == 1
