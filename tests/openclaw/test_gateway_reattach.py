"""Runs of a real OpenClaw are rejoined after restarts of either side and lost connections."""

from contextlib import aclosing

import anyio
from tests.openclaw.gateway_agents import TIMEOUT_S, gateway_agent, make_turn, run_turn, texts
from tests.openclaw.openclaw_process import FakeModel, OpenClaw

from openclaw_a2a.model.agent_event import AgentEvent, Note, TextDelta
from openclaw_a2a.model.turn import Turn

WHOLE = "w1 w2 w3 w4 w5 w6"


async def _until_half(openclaw: OpenClaw, turn: Turn) -> None:
    """Read half of an answer and go away, as a killed gateway of ours would."""
    async with gateway_agent(openclaw) as agent:
        events = agent.run(turn)
        with anyio.fail_after(240):
            async with aclosing(events):  # pyright: ignore[reportArgumentType] - a generator
                async for event in events:
                    if isinstance(event, TextDelta) and "w3" in event.text:
                        agent.detach()
                        break


async def test_another_process_of_ours_continues_in_the_middle_of_an_answer(
    openclaw: OpenClaw, model: FakeModel, marker: str
) -> None:
    turn = make_turn(f"long:6@1 halt:{marker}", marker)
    await _until_half(openclaw, turn)
    heard: list[AgentEvent] = []
    async with gateway_agent(openclaw) as agent:
        with anyio.fail_after(TIMEOUT_S):
            async with anyio.create_task_group() as group:

                async def listen() -> None:
                    repeated = make_turn(f"long:6@1 halt:{marker}", marker, attempt=2)
                    heard.extend(await run_turn(agent, repeated))

                group.start_soon(listen)
                model.release(marker)
    assert texts(heard) == [WHOLE]
    assert len(model.requests(f"halt:{marker}")) == 1


async def test_an_answer_that_ended_meanwhile_is_emitted_with_its_tool_calls(
    openclaw: OpenClaw, model: FakeModel, marker: str
) -> None:
    text = f"say:[First.] tool:agents_list {{}} {marker}"
    async with gateway_agent(openclaw) as agent:
        straight = await run_turn(agent, make_turn(text, marker))
        repeated = await run_turn(agent, make_turn(text, marker, attempt=2))
    assert texts(repeated) == texts(straight)
    assert [type(one).__name__ for one in repeated].count("ToolProgress") == 2
    assert len(model.requests(marker)) == 2


async def test_long_answers_and_long_messages_are_found_whole(
    openclaw: OpenClaw, model: FakeModel, marker: str
) -> None:
    text = f"long:2000@0 {marker} {'x' * 200_000}"
    async with gateway_agent(openclaw) as agent:
        straight = await run_turn(agent, make_turn(text, marker))
        repeated = await run_turn(agent, make_turn(text, marker, attempt=2))
    assert texts(straight) == [" ".join(f"w{number + 1}" for number in range(2000))]
    assert texts(repeated) == texts(straight)
    assert len(model.requests(marker)) == 1


async def test_a_turn_is_done_once_when_openclaw_is_killed_in_the_middle(
    killable_openclaw: OpenClaw, model: FakeModel, marker: str
) -> None:
    heard: list[AgentEvent] = []
    async with gateway_agent(killable_openclaw) as agent:

        async def listen() -> None:
            async for event in agent.run(make_turn(f"hold:{marker}", marker)):
                heard.append(event)

        with anyio.fail_after(TIMEOUT_S):
            async with anyio.create_task_group() as group:
                group.start_soon(listen)
                await anyio.to_thread.run_sync(
                    lambda: model.wait_for(f"hold:{marker}", outcome="active")
                )
                await anyio.to_thread.run_sync(killable_openclaw.kill)
                await anyio.to_thread.run_sync(killable_openclaw.start)
                model.release(marker)
    notes = [event.text for event in heard if isinstance(event, Note)]
    assert any("lost" in note for note in notes)
    assert any("restarted" in note for note in notes)
    assert len(texts(heard)) == 1
    done = [one for one in model.requests(marker) if one["outcome"] == "done"]
    assert len(done) == 1, [one["last_user"] for one in done]
