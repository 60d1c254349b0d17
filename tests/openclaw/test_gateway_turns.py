"""Turns with a real OpenClaw, as events for the engine."""

from contextlib import aclosing

import anyio
import pytest
from tests.openclaw.gateway_agents import gateway_agent, make_turn, run_turn, texts
from tests.openclaw.openclaw_process import FakeModel, OpenClaw

from openclaw_a2a.model.agent_event import Note, Report, TextDelta, ToolPhase, ToolProgress
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable
from openclaw_a2a.model.message import Part


async def test_a_conversation_continues_and_its_text_arrives_in_order(
    openclaw: OpenClaw, marker: str
) -> None:
    async with gateway_agent(openclaw) as agent:
        events = await run_turn(agent, make_turn("long:20@10", marker, run="1"))
        repeated = await run_turn(agent, make_turn("history", marker, run="2"))
    deltas = [event.text for event in events if isinstance(event, TextDelta)]
    assert len(deltas) > 1
    assert "".join(deltas) == " ".join(f"w{number}" for number in range(1, 21))
    assert "long:20@10" in texts(repeated)[0]


async def test_a_turn_reports_its_model_and_usage(openclaw: OpenClaw, marker: str) -> None:
    async with gateway_agent(openclaw) as agent:
        events = await run_turn(agent, make_turn("hello", marker))
    (report,) = [event for event in events if isinstance(event, Report)]
    facts = report.metadata["openclaw"]
    assert facts["model"] == "fake-1"
    assert facts["usage"]["total"] > 0
    assert facts["runId"] == f"a2a-run-{marker}"


async def test_two_messages_and_the_tool_call_between_them_are_emitted_in_order(
    openclaw: OpenClaw, marker: str
) -> None:
    async with gateway_agent(openclaw) as agent:
        events = await run_turn(agent, make_turn("say:[Let me look.] tool:agents_list {}", marker))
    first, second = texts(events)
    assert first == "Let me look."
    assert second.startswith("The tool said:")
    tools = [event for event in events if isinstance(event, ToolProgress)]
    assert [one.phase for one in tools] == [ToolPhase.START, ToolPhase.RESULT]
    assert {one.tool_name for one in tools} == {"agents_list"}
    places = [number for number, event in enumerate(events) if isinstance(event, ToolProgress)]
    before = "".join(one.text for one in events[: places[0]] if isinstance(one, TextDelta))
    assert before == "Let me look."


async def test_closing_a_turn_stops_the_model(
    openclaw: OpenClaw, model: FakeModel, marker: str
) -> None:
    async with gateway_agent(openclaw) as agent:
        events = agent.run(make_turn(f"long:6@1 halt:{marker}", marker, run="1"))
        with anyio.fail_after(240):
            async with aclosing(events):  # pyright: ignore[reportArgumentType] - a generator
                async for event in events:
                    if isinstance(event, TextDelta) and "w3" in event.text:
                        break
        (asked,) = model.requests(f"halt:{marker}")
        assert asked["outcome"] == "client-gone"
        assert texts(await run_turn(agent, make_turn("hello again", marker, run="2")))[-1]


async def test_a_turn_is_stopped_before_openclaw_has_accepted_it(
    openclaw: OpenClaw, model: FakeModel, marker: str
) -> None:
    async with gateway_agent(openclaw) as agent:
        await run_turn(agent, make_turn("warm", marker, run="0"))
        with anyio.move_on_after(0.01):
            await run_turn(agent, make_turn(f"hang {marker}", marker, run="1"))
        answer = await run_turn(agent, make_turn("and now", marker, run="2"))
    assert texts(answer)[-1].endswith("and now")
    assert model.requests(f"hang {marker}", outcome="active") == []


async def test_contexts_run_at_the_same_time(
    openclaw: OpenClaw, model: FakeModel, marker: str
) -> None:
    found: list[str] = []

    async with gateway_agent(openclaw) as agent:

        async def one(number: int) -> None:
            turn = make_turn(f"hold:{marker} n{number}", f"{marker}-{number}")
            found.extend(texts(await run_turn(agent, turn)))

        async with anyio.create_task_group() as group:
            for number in range(2):
                group.start_soon(one, number)
            await anyio.to_thread.run_sync(
                lambda: model.wait_for(f"hold:{marker}", outcome="active", count=2)
            )
            model.release(marker)
    assert sorted(text.rpartition(" ")[2] for text in found) == ["n0", "n1"]


@pytest.mark.parametrize("text", ["/new", "/reset hello", "/status", " /new x"])
async def test_text_that_looks_like_a_command_reaches_the_model_as_text(
    openclaw: OpenClaw, model: FakeModel, marker: str, text: str
) -> None:
    async with gateway_agent(openclaw) as agent:
        await run_turn(agent, make_turn(f"remember {marker}", marker, run="1"))
        await run_turn(agent, make_turn(text, marker, run="2"))
        history = texts(await run_turn(agent, make_turn("history", marker, run="3")))[0]
    assert f"remember {marker}" in history
    assert text.strip() in history


async def test_structured_notes_reach_the_model_after_the_text(
    openclaw: OpenClaw, model: FakeModel, marker: str
) -> None:
    turn = make_turn(f"hello {marker}", marker, untrusted=('Untrusted data:\n{"a": 1}',))
    async with gateway_agent(openclaw) as agent:
        await run_turn(agent, turn)
    (asked,) = model.requests(f"hello {marker}")
    assert '{"a": 1}' in asked["last_user"]
    assert asked["last_user"].startswith(f"hello {marker}")


async def test_a_provider_that_fails_temporarily_is_reported_and_one_that_refuses_fails(
    openclaw: OpenClaw, marker: str
) -> None:
    async with gateway_agent(openclaw) as agent:
        events = await run_turn(agent, make_turn(f"fail:503*1 {marker}", marker, run="1"))
        assert any("etry" in event.text for event in events if isinstance(event, Note))
        with pytest.raises(AgentFailed, match="provider rejected"):
            await run_turn(agent, make_turn("fail:400", f"{marker}-b", run="2"))


async def test_an_unknown_agent_and_a_wrong_token_are_reported_with_the_fix(
    openclaw: OpenClaw, marker: str
) -> None:
    async with gateway_agent(openclaw, agent_id="nosuch") as agent:
        with pytest.raises(AgentUnavailable, match=r"nosuch.*openclaw agents list"):
            await run_turn(agent, make_turn("hello", marker))
    async with gateway_agent(openclaw, token="env:NOT_THERE") as agent:
        with pytest.raises(AgentUnavailable, match="NOT_THERE"):
            await run_turn(agent, make_turn("hello", marker))
        assert agent.unavailable_reason() is not None


async def test_a_file_of_the_first_message_comes_with_that_message(
    openclaw: OpenClaw, marker: str
) -> None:
    (openclaw.workspace("main") / f"{marker}.txt").write_text("inside", encoding="utf-8")
    async with gateway_agent(openclaw) as agent:
        events = await run_turn(agent, make_turn(f"parrot:Here.\nMEDIA:./{marker}.txt", marker))
    (reply,) = [event for event in events if hasattr(event, "parts")]
    parts: tuple[Part, ...] = getattr(reply, "parts", ())
    assert parts[0].text == "Here."
    assert parts[1].content == b"inside"
