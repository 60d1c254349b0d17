"""A turn with a gateway that has good and bad days; the real ones are in tests/openclaw."""

import asyncio

import anyio
import pytest
from tests.agents.openclaw_gateway.conftest import Json, MakeAgent, make_turn_for, run_turn
from tests.agents.openclaw_gateway.scripted_gateway import (
    Asked,
    Refusal,
    ScriptedGateway,
    assistant_entry,
    run_event,
    text_block,
    user_entry,
)

from openclaw_a2a.agents.openclaw_gateway import OpenClawGatewayAgent
from openclaw_a2a.agents.openclaw_gateway.run_follower import CONNECTION_LOST, NOT_RECOVERED
from openclaw_a2a.agents.openclaw_gateway.run_request import Timeouts
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


def said(text: str, delta: str, item: str = "u:1") -> Json:
    return {"text": text, "delta": delta, "itemId": item}


def live(*messages: Json) -> Json:
    """A history that shows the run under way."""
    state = {"hasActiveRun": True, "activeRunIds": [RUN]}
    return {"messages": [user_entry(RUN), *messages], "sessionInfo": state}


async def test_a_turn_is_sent_once_and_told_as_it_comes(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        await asked.answer(ACCEPTED)
        await asked.agent("assistant", said("Hel", "Hel"))
        await asked.agent("thinking", {"text": "hm"})
        await asked.agent("assistant", said("Hello", "lo"))
        await asked.end("Hello")

    events = await run_turn(agent, make_turn_for("hi"))
    assert events[:3] == [TextDelta("Hel"), TextDelta("lo"), MessageEnd()]
    facts = events[3]
    assert isinstance(facts, Report)
    assert facts.metadata["openclaw"] == {"runId": RUN, "model": "m", "usage": {"total": 3}}
    (asked,) = gateway.methods("agent")
    assert asked.params == {
        "agentId": "main",
        "sessionKey": KEY,
        "message": "hi",
        "idempotencyKey": RUN,
    }


async def test_options_go_with_every_turn(gateway: ScriptedGateway, make_agent: MakeAgent) -> None:
    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        await asked.end("ok")

    agent = make_agent(thinking="low", timeout_seconds=7, extra_system_prompt="Be kind.")
    await run_turn(agent, make_turn_for())
    params = gateway.methods("agent")[0].params
    assert (params["thinking"], params["timeout"]) == ("low", 7)
    assert params["extraSystemPrompt"] == "Be kind."


async def test_messages_and_tools_of_one_turn_are_told_apart(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        call = {"name": "look", "toolCallId": "c1"}
        await asked.agent("assistant", said("First", "First"))
        await asked.agent("item", {"kind": "tool", "phase": "start", **call})
        await asked.agent("tool", {"phase": "start", "args": {"x": 1}, **call})
        await asked.agent("tool", {"phase": "result", "result": {"y": 2}, **call})
        await asked.agent("assistant", said("Second", "Second", "u:2"))
        await asked.end("Second")

    events = await run_turn(agent, make_turn_for())
    assert events[:-1] == [
        TextDelta("First"),
        ToolProgress(ToolPhase.START, "look", "c1", payload={"x": 1}),
        ToolProgress(ToolPhase.RESULT, "look", "c1", payload={"y": 2}),
        MessageEnd(),
        TextDelta("Second"),
        MessageEnd(),
    ]


async def test_a_short_message_before_a_tool_is_told_too(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    """OpenClaw tells one that came in one piece only as the preamble of the tool call."""

    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        preamble = {"kind": "preamble", "progressText": "First.", "itemId": "commentary-0"}
        await asked.agent("item", {**preamble, "phase": "update"})
        await asked.agent("item", {**preamble, "phase": "end"})
        await asked.agent("assistant", said("First.", "First."))  # late, or not at all
        await asked.agent("assistant", said("Second", "Second", "u:2"))
        await asked.agent("item", {**preamble, "phase": "end", "progressText": "Second and more"})
        await asked.agent("assistant", said("Third, a long one", "Third, a long one", "u:3"))
        await asked.agent("item", {**preamble, "phase": "end", "progressText": "Third, a"})
        await asked.end("Last")

    events = await run_turn(agent, make_turn_for())
    assert events[:-1] == [
        Reply.of_text("First."),
        TextDelta("Second"),
        Reply.of_text("Second and more"),
        TextDelta("Third, a long one"),
        MessageEnd(),
        Reply.of_text("Last"),
    ]


async def test_events_of_other_runs_in_the_session_are_not_told(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        await asked.event("agent", run_event("cron-7", KEY, "assistant", said("Psst", "Psst")))
        await asked.event("agent", run_event("a2a-other", KEY, "assistant", said("No", "No")))
        await asked.end("mine")

    events = await run_turn(agent, make_turn_for())
    assert events[0] == Reply.of_text("mine")


async def test_attempts_at_a_failing_provider_are_told(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        await asked.agent("run_status", {"phase": "starting_model"})
        await asked.agent("run_status", {"phase": "retrying", "message": "Retrying in 2s (1/8)."})
        await asked.refuse({"code": "UNAVAILABLE", "message": "The provider failed."})

    heard: list[AgentEvent] = []
    with pytest.raises(AgentFailed, match="The provider failed"):
        async for event in agent.run(make_turn_for()):
            heard.append(event)
    assert heard == [Note("Retrying in 2s (1/8).")]


async def test_an_unknown_agent_is_told_with_the_fix(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def refuse(asked: Asked) -> None:
        raise Refusal("INVALID_REQUEST", 'invalid agent params: unknown agent id "main"')

    with pytest.raises(AgentUnavailable, match="openclaw agents list"):
        await run_turn(agent, make_turn_for())


async def test_an_agent_that_openclaw_does_not_have_is_in_trouble(
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
    async def answer(asked: Asked) -> None:
        await asked.end("ok")

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
    async def answer(asked: Asked) -> None:
        await asked.answer(outcome)

    events = await run_turn(agent, make_turn_for())
    assert isinstance(events[-1], Failed)
    assert reason in events[-1].reason


async def test_an_answer_that_is_only_an_error_fails(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        payloads = [{"text": "It broke.", "isError": True}]
        await asked.answer({"status": "ok", "result": {"payloads": payloads}})

    assert (await run_turn(agent, make_turn_for()))[-1] == Failed("It broke.")


async def test_200_turns_of_one_session_are_each_answered_with_their_own_words(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    all_are_there = asyncio.Event()

    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        await asked.answer(ACCEPTED)
        if len(gateway.methods("agent")) == 200:
            all_are_there.set()
        await all_are_there.wait()
        text = f"to {asked.params['message']}"
        await asked.agent("assistant", said(text, text))
        await asked.end(text)

    texts: dict[int, str] = {}

    async def one(number: int) -> None:
        texts[number] = text_of(await run_turn(agent, make_turn_for(str(number), run=f"n{number}")))

    async with anyio.create_task_group() as group:
        for number in range(200):
            group.start_soon(one, number)
    assert texts == {number: f"to {number}" for number in range(200)}
    assert gateway.entries == 1


# -------------------------------------------------------------------- broken connections


async def test_a_turn_goes_on_when_the_connection_broke_and_is_sent_once(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    may_end = asyncio.Event()

    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        await asked.answer(ACCEPTED)
        await asked.agent("assistant", said("one", "one"))
        gateway.drop()

    @gateway.on("agent.wait")
    async def wait(asked: Asked) -> None:
        if not may_end.is_set() and asked.params["timeoutMs"] > 1:
            await asked.event("agent", run_event(RUN, KEY, "assistant", said("one two", " two")))
            await may_end.wait()
        if not may_end.is_set():
            await asked.answer({"status": "timeout"})
            return
        await asked.answer({"status": "ok", "terminalReply": {"text": "one two three"}})

    gateway.answers["chat.history"] = live()
    heard: list[AgentEvent] = []
    with anyio.fail_after(20):
        async for event in agent.run(make_turn_for()):
            heard.append(event)
            if text_of(heard) == "one two":
                done = [text_block("one two three")]
                gateway.answers["chat.history"] = live(assistant_entry(RUN, *done))
                may_end.set()
    assert heard[:-1] == [
        TextDelta("one"),
        Note(CONNECTION_LOST),
        TextDelta(" two"),
        Reply.of_text("one two three"),
    ]
    assert len(gateway.methods("agent")) == 1


async def test_what_ended_while_nobody_listened_is_told_in_order(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        await asked.agent("assistant", said("Fir", "Fir"))
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


async def test_a_message_that_was_never_taken_is_sent_again_under_its_name(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        if len(gateway.methods("agent")) == 1:
            gateway.drop()
        else:
            await asked.end("done")

    events = await run_turn(agent, make_turn_for())
    assert Reply.of_text("done") in events
    first, second = gateway.methods("agent")
    assert first.params == second.params


async def test_a_run_that_is_under_way_already_is_followed_and_not_begun(
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
    async def answer(asked: Asked) -> None:
        await asked.end("done")

    assert (await run_turn(agent, make_turn_for(attempt=2)))[0] == Reply.of_text("done")


async def test_a_run_that_the_gateway_still_has_in_its_queue_is_waited_for(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        await asked.answer({"status": "in_flight", "runId": RUN})
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


async def test_a_restarted_gateway_is_followed_into_the_run_under_which_it_goes_on(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    other = "recovery-1"

    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        await asked.answer(ACCEPTED)
        await asked.agent("assistant", said("half", "half"))
        gateway.answers["chat.history"] = {"messages": [user_entry(RUN)]}
        gateway.restart()

    @gateway.on("agent.wait")
    async def wait(asked: Asked) -> None:
        if asked.params["runId"] == other:
            await asked.answer({"status": "ok", "terminalReply": {"text": "whole"}})
            return
        await asked.answer({"status": "timeout"})
        if asked.params["timeoutMs"] > 1:
            await asked.event("agent", run_event(other, KEY, "lifecycle", {"phase": "start"}))

    events = await run_turn(agent, make_turn_for())
    assert text_of(events) == "half"
    assert Reply.of_text("whole") in events
    assert any("restarted" in note for note in notes_of(events))
    assert len(gateway.methods("agent")) == 1


async def test_another_run_of_the_same_gateway_is_never_taken_for_ours(
    gateway: ScriptedGateway, make_agent: MakeAgent, impatient: Timeouts
) -> None:
    """Between two of its steps a run may not show; only a restart moves it to another name."""
    agent = make_agent(timeouts=impatient)
    glances: list[int] = []

    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        state = {"hasActiveRun": True, "activeRunIds": ["cron-7"]}
        gateway.answers["chat.history"] = {"messages": [user_entry(RUN)], "sessionInfo": state}
        gateway.drop()

    @gateway.on("agent.wait")
    async def wait(asked: Asked) -> None:
        assert asked.params["runId"] == RUN
        glances.append(1)
        await asked.event("agent", run_event("cron-7", KEY, "assistant", said("Psst", "Psst")))
        if len(glances) < 4:
            await asked.answer({"status": "timeout"})
        else:
            await asked.answer({"status": "ok", "terminalReply": {"text": "mine"}})

    events = await run_turn(agent, make_turn_for())
    assert events[:-1] == [Note(CONNECTION_LOST), Reply.of_text("mine")]


async def test_a_restarted_gateway_that_never_goes_on_fails_the_turn(
    gateway: ScriptedGateway, make_agent: MakeAgent, impatient: Timeouts
) -> None:
    agent = make_agent(timeouts=impatient)

    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        gateway.answers["chat.history"] = {"messages": [user_entry(RUN)]}
        gateway.restart()

    events = await run_turn(agent, make_turn_for())
    assert events[-1] == Failed(NOT_RECOVERED)
    assert len(gateway.methods("agent")) == 1


async def test_a_gateway_that_does_not_come_back_fails_the_turn(
    gateway: ScriptedGateway, make_agent: MakeAgent, impatient: Timeouts
) -> None:
    agent = make_agent(timeouts=impatient)

    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        gateway.greets = False
        gateway.drop()

    with pytest.raises(AgentUnavailable):
        await run_turn(agent, make_turn_for())


async def test_a_message_that_nobody_answers_is_looked_for(
    gateway: ScriptedGateway, make_agent: MakeAgent, impatient: Timeouts
) -> None:
    agent = make_agent(timeouts=impatient)

    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        if len(gateway.methods("agent")) == 2:
            await asked.end("at last")

    assert Reply.of_text("at last") in await run_turn(agent, make_turn_for())


async def test_a_turn_that_misses_events_catches_up(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    told_all = asyncio.Event()

    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        await asked.agent("assistant", said("begun", "begun"))
        for number in range(5000):
            await asked.agent("assistant", said(f"lost {number}", "lost", f"u:{number + 2}"))
        done = [assistant_entry(RUN, text_block(one)) for one in ("begun", "middle", "end")]
        gateway.answers["chat.history"] = {"messages": [user_entry(RUN), *done]}
        gateway.answers["agent.wait"] = {"status": "ok", "terminalReply": {"text": "end"}}
        told_all.set()

    heard: list[AgentEvent] = []
    with anyio.fail_after(30):
        async for event in agent.run(make_turn_for()):
            heard.append(event)
            await told_all.wait()
            await agent.approvals()  # answered after all of those events
    texts = [event.parts[0].text for event in heard if isinstance(event, Reply)]
    assert heard[0] == TextDelta("begun")
    assert texts[-2:] == ["middle", "end"]


# -------------------------------------------------------------------- stopping


async def test_closing_the_turn_ends_the_run_before_it_returns(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    steps: list[str] = []

    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        await asked.answer(ACCEPTED)
        await asked.agent("assistant", said("one", "one"))

    @gateway.on("chat.abort")
    async def abort(asked: Asked) -> None:
        assert asked.params == {"sessionKey": KEY, "runId": RUN}
        await asked.answer({"aborted": True})
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
    async def silent(asked: Asked) -> None:
        pass

    @gateway.on("chat.abort")
    async def abort(asked: Asked) -> None:
        await asked.answer({"aborted": True})
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
    async def answer(asked: Asked) -> None:
        await asked.answer(ACCEPTED)

    @gateway.on("chat.abort")
    async def abort(asked: Asked) -> None:
        if len(gateway.methods("chat.abort")) == 1:
            gateway.drop()
            return
        await asked.answer({"aborted": True})
        settled = {"phase": "error", "aborted": True, "executionSettled": True}
        await asked.event("agent", run_event(RUN, KEY, "lifecycle", settled))

    async with anyio.create_task_group() as group:
        group.start_soon(run_turn, agent, make_turn_for())
        await gateway.wait_for("agent")
        group.cancel_scope.cancel()
    assert len(gateway.methods("chat.abort")) == 2


async def test_a_run_that_does_not_stop_is_no_stopped_one(
    gateway: ScriptedGateway, make_agent: MakeAgent, impatient: Timeouts
) -> None:
    agent = make_agent(timeouts=impatient)
    gateway.answers["chat.history"] = live()

    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        await asked.answer(ACCEPTED)
        await asked.agent("assistant", said("one", "one"))

    events = agent.run(make_turn_for())
    await anext(events)
    with pytest.raises(AgentFailed, match="did not confirm"):
        await events.aclose()  # pyright: ignore[reportAttributeAccessIssue] - it is a generator


async def test_a_stopping_gateway_leaves_its_runs_alone(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        await asked.agent("assistant", said("one", "one"))

    events = agent.run(make_turn_for())
    await anext(events)
    agent.detach()
    await events.aclose()  # pyright: ignore[reportAttributeAccessIssue] - it is a generator
    assert gateway.methods("chat.abort") == []


async def test_files_of_an_answer_come_with_it(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def answer(asked: Asked) -> None:
        payloads = [{"text": "Look.", "mediaUrls": ["https://example.org/a.png"]}]
        await asked.answer({"status": "ok", "result": {"payloads": payloads}})

    events = await run_turn(agent, make_turn_for())
    linked = Part.of_url("https://example.org/a.png", media_type="image/png")
    assert events[0] == Reply((Part.of_text("Look."), linked))
