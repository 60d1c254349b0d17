"""Turns with a scripted gateway; turns with a real OpenClaw are in tests/openclaw."""

import asyncio

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
from openclaw_a2a.agents.openclaw_gateway.run_follower import CONNECTION_LOST, NOT_RECOVERED
from openclaw_a2a.agents.openclaw_gateway.runs import Timeouts
from openclaw_a2a.model.agent_event import (
    AgentEvent,
    Failed,
    MessageEnd,
    Note,
    Reply,
    Report,
    TextDelta,
    ToolPhase,
    ToolProgress,
)
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable
from openclaw_a2a.model.message import Part

KEY = "agent:main:a2a:local:c-1"
RUN = "a2a-r1"
ACCEPTED = {"status": "accepted", "runId": RUN}


def text_of(events: list[AgentEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def notes_of(events: list[AgentEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, Note)]


def text_data(text: str, delta: str, item: str = "u:1") -> Json:
    return {"text": text, "delta": delta, "itemId": item}


def live(*messages: Json) -> Json:
    """A history that shows the run under way."""
    state = {"hasActiveRun": True, "activeRunIds": [RUN]}
    return {"messages": [user_entry(RUN), *messages], "sessionInfo": state}


async def test_a_turn_is_sent_once_and_its_answer_is_streamed(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.answer(ACCEPTED)
        await request.agent("assistant", text_data("Hel", "Hel"))
        await request.agent("thinking", {"text": "hm"})
        await request.agent("assistant", text_data("Hello", "lo"))
        await request.end("Hello")

    events = await run_turn(agent, make_turn_for("hi"))
    assert events[:3] == [TextDelta("Hel"), TextDelta("lo"), MessageEnd()]
    facts = events[3]
    assert isinstance(facts, Report)
    assert facts.metadata["openclaw"] == {"runId": RUN, "model": "m", "usage": {"total": 3}}
    (request,) = gateway.methods("agent")
    assert request.params == {
        "agentId": "main",
        "sessionKey": KEY,
        "message": "hi",
        "idempotencyKey": RUN,
    }


async def test_options_go_with_every_turn(gateway: ScriptedGateway, make_agent: MakeAgent) -> None:
    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.end("ok")

    agent = make_agent(thinking="low", timeout_seconds=7, extra_system_prompt="Be kind.")
    await run_turn(agent, make_turn_for())
    params = gateway.methods("agent")[0].params
    assert (params["thinking"], params["timeout"]) == ("low", 7)
    assert params["extraSystemPrompt"] == "Be kind."


async def test_messages_and_tool_calls_of_one_turn_are_separate_events(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        call = {"name": "look", "toolCallId": "c1"}
        await request.agent("assistant", text_data("First", "First"))
        await request.agent("item", {"kind": "tool", "phase": "start", **call})
        await request.agent("tool", {"phase": "start", "args": {"x": 1}, **call})
        await request.agent("tool", {"phase": "result", "result": {"y": 2}, **call})
        await request.agent("assistant", text_data("Second", "Second", "u:2"))
        await request.end("Second")

    events = await run_turn(agent, make_turn_for())
    assert events[:-1] == [
        TextDelta("First"),
        ToolProgress(ToolPhase.START, "look", "c1", payload={"x": 1}),
        ToolProgress(ToolPhase.RESULT, "look", "c1", payload={"y": 2}),
        MessageEnd(),
        TextDelta("Second"),
        MessageEnd(),
    ]


async def test_a_short_message_before_a_tool_call_is_emitted(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    """One that arrives as a whole is only in the preamble of the tool call."""

    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        preamble = {"kind": "preamble", "progressText": "First.", "itemId": "commentary-0"}
        await request.agent("item", {**preamble, "phase": "update"})
        await request.agent("item", {**preamble, "phase": "end"})
        await request.agent("assistant", text_data("First.", "First."))  # late, or not at all
        await request.agent("assistant", text_data("Second", "Second", "u:2"))
        await request.agent("item", {**preamble, "phase": "end", "progressText": "Second and more"})
        await request.agent("assistant", text_data("Third, a long one", "Third, a long one", "u:3"))
        await request.agent("item", {**preamble, "phase": "end", "progressText": "Third, a"})
        await request.end("Last")

    events = await run_turn(agent, make_turn_for())
    assert events[:-1] == [
        Reply.of_text("First."),
        TextDelta("Second"),
        Reply.of_text("Second and more"),
        TextDelta("Third, a long one"),
        MessageEnd(),
        Reply.of_text("Last"),
    ]


async def test_events_of_other_runs_in_the_session_are_ignored(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.event(
            "agent", run_event("cron-7", KEY, "assistant", text_data("Psst", "Psst"))
        )
        await request.event(
            "agent", run_event("a2a-other", KEY, "assistant", text_data("No", "No"))
        )
        await request.end("mine")

    events = await run_turn(agent, make_turn_for())
    assert events[0] == Reply.of_text("mine")


async def test_retries_of_a_failing_provider_become_notes(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.agent("run_status", {"phase": "starting_model"})
        await request.agent("run_status", {"phase": "retrying", "message": "Retrying in 2s (1/8)."})
        await request.refuse({"code": "UNAVAILABLE", "message": "The provider failed."})

    events: list[AgentEvent] = []
    with pytest.raises(AgentFailed, match="The provider failed"):
        async for event in agent.run(make_turn_for()):
            events.append(event)
    assert events == [Note("Retrying in 2s (1/8).")]


async def test_an_unknown_agent_is_reported_with_the_fix(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def refuse(request: GatewayRequest) -> None:
        raise Refusal("INVALID_REQUEST", 'invalid agent params: unknown agent id "main"')

    with pytest.raises(AgentUnavailable, match="openclaw agents list"):
        await run_turn(agent, make_turn_for())


async def test_an_agent_that_openclaw_does_not_have_is_unavailable(
    gateway: ScriptedGateway, make_agent: MakeAgent
) -> None:
    agent = make_agent(agent_id="ghost")
    assert agent.unavailable_reason() is None
    await agent.approvals()
    assert "no agent ghost, only main" in (agent.unavailable_reason() or "")
    assert agent.profile() is None


async def test_the_only_agent_needs_no_name(
    gateway: ScriptedGateway, make_agent: MakeAgent
) -> None:
    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.end("ok")

    await run_turn(make_agent(agent_id=""), make_turn_for())
    assert gateway.methods("agent")[0].params["agentId"] == "main"
    gateway.answers["agents.list"] = {"agents": [{"id": "main"}, {"id": "helper"}]}
    with pytest.raises(AgentUnavailable, match=r"main, helper.*agentId"):
        await run_turn(make_agent(agent_id=""), make_turn_for())


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ({"status": "timeout", "summary": "aborted", "stopReason": "rpc"}, "stopped inside"),
        ({"status": "timeout", "timeoutPhase": "provider"}, "took too long"),
        ({"status": "something-new", "summary": "odd"}, "odd"),
    ],
)
async def test_a_run_that_did_not_end_well_fails_with_its_reason(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent, outcome: Json, reason: str
) -> None:
    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.answer(outcome)

    events = await run_turn(agent, make_turn_for())
    assert isinstance(events[-1], Failed)
    assert reason in events[-1].reason


async def test_an_answer_that_is_only_an_error_fails(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        payloads = [{"text": "It broke.", "isError": True}]
        await request.answer({"status": "ok", "result": {"payloads": payloads}})

    assert (await run_turn(agent, make_turn_for()))[-1] == Failed("It broke.")


async def test_200_concurrent_turns_of_one_session_each_get_their_own_answer(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    all_are_there = asyncio.Event()

    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.answer(ACCEPTED)
        if len(gateway.methods("agent")) == 200:
            all_are_there.set()
        await all_are_there.wait()
        text = f"to {request.params['message']}"
        await request.agent("assistant", text_data(text, text))
        await request.end(text)

    texts: dict[int, str] = {}

    async def one(number: int) -> None:
        texts[number] = text_of(await run_turn(agent, make_turn_for(str(number), run=f"n{number}")))

    async with anyio.create_task_group() as group:
        for number in range(200):
            group.start_soon(one, number)
    assert texts == {number: f"to {number}" for number in range(200)}
    assert gateway.entries == 1


# -------------------------------------------------------------------- broken connections


async def test_a_turn_continues_after_a_lost_connection_and_is_sent_once(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    may_end = asyncio.Event()

    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.answer(ACCEPTED)
        await request.agent("assistant", text_data("one", "one"))
        gateway.drop()

    @gateway.on("agent.wait")
    async def wait(request: GatewayRequest) -> None:
        if not may_end.is_set() and request.params["timeoutMs"] > 1:
            await request.event(
                "agent", run_event(RUN, KEY, "assistant", text_data("one two", " two"))
            )
            await may_end.wait()
        if not may_end.is_set():
            await request.answer({"status": "timeout"})
            return
        await request.answer({"status": "ok", "terminalReply": {"text": "one two three"}})

    gateway.answers["chat.history"] = live()
    events: list[AgentEvent] = []
    with anyio.fail_after(240):
        async for event in agent.run(make_turn_for()):
            events.append(event)
            if text_of(events) == "one two":
                done = [text_block("one two three")]
                gateway.answers["chat.history"] = live(assistant_entry(RUN, *done))
                may_end.set()
    assert events[:-1] == [
        TextDelta("one"),
        Note(CONNECTION_LOST),
        TextDelta(" two"),
        Reply.of_text("one two three"),
    ]
    assert len(gateway.methods("agent")) == 1


async def test_messages_that_ended_while_disconnected_are_emitted_in_order(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.agent("assistant", text_data("Fir", "Fir"))
        gateway.drop()

    call = {"type": "toolCall", "id": "c1", "name": "look", "arguments": {"x": 1}}
    result: Json = {
        "role": "toolResult",
        "toolCallId": "c1",
        "toolName": "look",
        "content": [text_block("seen")],
        "__openclaw": {"runId": RUN},
    }
    gateway.answers["agent.wait"] = {"status": "ok", "terminalReply": {"text": "Third"}}
    gateway.answers["chat.history"] = {
        "messages": [
            user_entry(RUN),
            assistant_entry(RUN, text_block("First"), call),
            result,
            assistant_entry(RUN, text_block("Second")),
            assistant_entry("other", text_block("not ours")),
            assistant_entry(RUN, text_block("Third")),
        ]
    }
    events = await run_turn(agent, make_turn_for())
    assert events[:-1] == [
        TextDelta("Fir"),
        Note(CONNECTION_LOST),
        Reply.of_text("First"),
        ToolProgress(ToolPhase.START, "look", "c1", payload={"x": 1}),
        ToolProgress(ToolPhase.RESULT, "look", "c1", payload={"content": [text_block("seen")]}),
        Reply.of_text("Second"),
        Reply.of_text("Third"),
    ]


async def test_a_message_that_was_never_accepted_is_sent_again_under_its_run_id(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        if len(gateway.methods("agent")) == 1:
            gateway.drop()
        else:
            await request.end("done")

    events = await run_turn(agent, make_turn_for())
    assert Reply.of_text("done") in events
    first, second = gateway.methods("agent")
    assert first.params == second.params


async def test_an_active_run_is_followed_and_not_started_again(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    """Our own restart: the engine asks for the same run once more."""
    gateway.answers["agent.wait"] = {"status": "ok", "terminalReply": {"text": "all of it"}}
    done = assistant_entry(RUN, text_block("all of it"))
    gateway.answers["chat.history"] = {"messages": [user_entry(RUN), done]}
    events = await run_turn(agent, make_turn_for(attempt=2))
    assert events[0] == Reply.of_text("all of it")
    assert gateway.methods("agent") == []


async def test_a_run_that_our_restart_cut_off_before_it_was_sent_is_sent(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.end("done")

    assert (await run_turn(agent, make_turn_for(attempt=2)))[0] == Reply.of_text("done")


async def test_a_run_that_the_gateway_still_has_in_its_queue_is_waited_for(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.answer({"status": "in_flight", "runId": RUN})
        gateway.answers["agent.wait"] = {"status": "ok", "terminalReply": {"text": "late"}}

    assert (await run_turn(agent, make_turn_for(attempt=2)))[0] == Reply.of_text("late")


async def test_a_failed_run_is_found_with_its_reason(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    failed = {
        **assistant_entry(RUN, text_block("no credit")),
        "idempotencyKey": f"{RUN}:terminal-error",
    }
    gateway.answers["chat.history"] = {"messages": [user_entry(RUN), failed]}
    events = await run_turn(agent, make_turn_for(attempt=2))
    assert isinstance(events[-1], Failed)
    assert "no credit" in events[-1].reason


async def test_the_run_resumed_by_a_restarted_gateway_is_followed(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    other = "recovery-1"

    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.answer(ACCEPTED)
        await request.agent("assistant", text_data("half", "half"))
        gateway.answers["chat.history"] = {"messages": [user_entry(RUN)]}
        gateway.restart()

    @gateway.on("agent.wait")
    async def wait(request: GatewayRequest) -> None:
        if request.params["runId"] == other:
            await request.answer({"status": "ok", "terminalReply": {"text": "whole"}})
            return
        await request.answer({"status": "timeout"})
        if request.params["timeoutMs"] > 1:
            await request.event("agent", run_event(other, KEY, "lifecycle", {"phase": "start"}))

    events = await run_turn(agent, make_turn_for())
    assert text_of(events) == "half"
    assert Reply.of_text("whole") in events
    assert any("restarted" in note for note in notes_of(events))
    assert len(gateway.methods("agent")) == 1


async def test_a_foreign_run_of_the_same_gateway_process_is_never_adopted(
    gateway: ScriptedGateway, make_agent: MakeAgent, short_timeouts: Timeouts
) -> None:
    """Between two of its steps a run may not show; only a restart moves it to another name."""
    agent = make_agent(timeouts=msgspec.structs.replace(short_timeouts, recovery_s=60))
    glances: list[int] = []

    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        state = {"hasActiveRun": True, "activeRunIds": ["cron-7"]}
        gateway.answers["chat.history"] = {"messages": [user_entry(RUN)], "sessionInfo": state}
        gateway.drop()

    @gateway.on("agent.wait")
    async def wait(request: GatewayRequest) -> None:
        assert request.params["runId"] == RUN
        glances.append(1)
        await request.event(
            "agent", run_event("cron-7", KEY, "assistant", text_data("Psst", "Psst"))
        )
        if len(glances) < 4:
            await request.answer({"status": "timeout"})
        else:
            await request.answer({"status": "ok", "terminalReply": {"text": "mine"}})

    events = await run_turn(agent, make_turn_for())
    assert events[:-1] == [Note(CONNECTION_LOST), Reply.of_text("mine")]


async def test_a_restarted_gateway_that_never_resumes_fails_the_turn(
    gateway: ScriptedGateway, make_agent: MakeAgent, short_timeouts: Timeouts
) -> None:
    agent = make_agent(timeouts=short_timeouts)

    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        gateway.answers["chat.history"] = {"messages": [user_entry(RUN)]}
        gateway.restart()

    events = await run_turn(agent, make_turn_for())
    assert events[-1] == Failed(NOT_RECOVERED)
    assert len(gateway.methods("agent")) == 1


async def test_a_gateway_that_does_not_come_back_fails_the_turn(
    gateway: ScriptedGateway, make_agent: MakeAgent, short_timeouts: Timeouts
) -> None:
    agent = make_agent(timeouts=msgspec.structs.replace(short_timeouts, reconnect_s=3))

    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        gateway.sends_challenge = False
        gateway.drop()

    with pytest.raises(AgentUnavailable):
        await run_turn(agent, make_turn_for())


async def test_a_run_without_events_is_looked_up(
    gateway: ScriptedGateway, make_agent: MakeAgent, short_timeouts: Timeouts
) -> None:
    agent = make_agent(timeouts=short_timeouts)

    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        if len(gateway.methods("agent")) == 2:
            await request.end("at last")

    assert Reply.of_text("at last") in await run_turn(agent, make_turn_for())


async def test_a_turn_that_misses_events_catches_up(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    all_sent = asyncio.Event()

    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.agent("assistant", text_data("begun", "begun"))
        for number in range(5000):
            await request.agent("assistant", text_data(f"lost {number}", "lost", f"u:{number + 2}"))
        done = [assistant_entry(RUN, text_block(one)) for one in ("begun", "middle", "end")]
        gateway.answers["chat.history"] = {"messages": [user_entry(RUN), *done]}
        gateway.answers["agent.wait"] = {"status": "ok", "terminalReply": {"text": "end"}}
        all_sent.set()

    events: list[AgentEvent] = []
    with anyio.fail_after(240):
        async for event in agent.run(make_turn_for()):
            events.append(event)
            await all_sent.wait()
            await agent.approvals()  # answered after all of those events
    texts = [event.parts[0].text for event in events if isinstance(event, Reply)]
    assert events[0] == TextDelta("begun")
    assert texts[-2:] == ["middle", "end"]


# -------------------------------------------------------------------- stopping


async def test_closing_the_turn_ends_the_run_before_it_returns(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    steps: list[str] = []

    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.answer(ACCEPTED)
        await request.agent("assistant", text_data("one", "one"))

    @gateway.on("chat.abort")
    async def abort(request: GatewayRequest) -> None:
        assert request.params == {"sessionKey": KEY, "runId": RUN}
        await request.answer({"aborted": True})
        steps.append("ended")
        run = gateway.methods("agent")[0]
        await run.answer({"status": "timeout", "summary": "aborted", "stopReason": "rpc"})

    events = agent.run(make_turn_for())
    assert await anext(events) == TextDelta("one")
    await events.aclose()  # pyright: ignore[reportAttributeAccessIssue] - it is a generator
    assert steps == ["ended"]


async def test_a_turn_is_stopped_before_it_was_accepted(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def silent(request: GatewayRequest) -> None:
        pass

    @gateway.on("chat.abort")
    async def abort(request: GatewayRequest) -> None:
        await request.answer({"aborted": True})
        await gateway.methods("agent")[0].answer({"status": "timeout", "stopReason": "rpc"})

    async with anyio.create_task_group() as group:
        group.start_soon(run_turn, agent, make_turn_for())
        await gateway.wait_for("agent")
        group.cancel_scope.cancel()
    assert len(gateway.methods("chat.abort")) == 1


async def test_a_turn_is_stopped_although_the_connection_is_lost_meanwhile(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    gateway.answers["chat.history"] = live()

    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.answer(ACCEPTED)

    @gateway.on("chat.abort")
    async def abort(request: GatewayRequest) -> None:
        if len(gateway.methods("chat.abort")) == 1:
            gateway.drop()
            return
        await request.answer({"aborted": True})
        settled = {"phase": "error", "aborted": True, "executionSettled": True}
        await request.event("agent", run_event(RUN, KEY, "lifecycle", settled))

    async with anyio.create_task_group() as group:
        group.start_soon(run_turn, agent, make_turn_for())
        await gateway.wait_for("agent")
        group.cancel_scope.cancel()
    assert len(gateway.methods("chat.abort")) == 2


async def test_a_run_that_does_not_end_is_not_reported_as_stopped(
    gateway: ScriptedGateway, make_agent: MakeAgent, short_timeouts: Timeouts
) -> None:
    agent = make_agent(timeouts=short_timeouts)
    gateway.answers["chat.history"] = live()

    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.answer(ACCEPTED)
        await request.agent("assistant", text_data("one", "one"))

    events = agent.run(make_turn_for())
    await anext(events)
    with pytest.raises(AgentFailed, match="did not confirm"):
        await events.aclose()  # pyright: ignore[reportAttributeAccessIssue] - it is a generator


async def test_a_stopping_gateway_leaves_its_runs_alone(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.agent("assistant", text_data("one", "one"))

    events = agent.run(make_turn_for())
    await anext(events)
    agent.detach()
    await events.aclose()  # pyright: ignore[reportAttributeAccessIssue] - it is a generator
    assert gateway.methods("chat.abort") == []


async def test_a_run_that_is_left_to_another_replica_goes_on_until_it_is_ended(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.agent("assistant", text_data("one", "one"))

    gateway.answers["chat.history"] = live()
    turn = make_turn_for()
    assert not agent.detach_run(turn.run_id)
    events = agent.run(turn)
    await anext(events)
    assert agent.detach_run(turn.run_id)
    await events.aclose()  # pyright: ignore[reportAttributeAccessIssue] - it is a generator
    assert gateway.methods("chat.abort") == []
    # Only this one: what is followed again is ended when its turn is.
    assert not agent.detach_run(turn.run_id)

    @gateway.on("chat.abort")
    async def abort(request: GatewayRequest) -> None:
        await request.answer({"aborted": True})
        settled = {"phase": "error", "aborted": True, "executionSettled": True}
        await request.event("agent", run_event(RUN, KEY, "lifecycle", settled))

    await agent.end_detached_run(msgspec.structs.replace(turn, attempt=2))
    assert len(gateway.methods("chat.abort")) == 1


async def test_files_of_an_answer_come_with_it(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        payloads = [{"text": "Look.", "mediaUrls": ["https://example.org/a.png"]}]
        await request.answer({"status": "ok", "result": {"payloads": payloads}})

    events = await run_turn(agent, make_turn_for())
    linked = Part.of_url("https://example.org/a.png", media_type="image/png")
    assert events[0] == Reply((Part.of_text("Look."), linked))
