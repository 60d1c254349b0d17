"""Questions of a real OpenClaw's agent, answered by the peer."""

import json

from tests.openclaw.conftest import Bare
from tests.openclaw.gateway_agents import find_pause, gateway_agent, make_turn, run_turn, texts
from tests.openclaw.openclaw_process import OpenClaw

from openclaw_a2a.model.agent_event import Note

COLOR = {
    "id": "color",
    "header": "Color",
    "question": "Which color?",
    "options": [{"label": "Red"}, {"label": "Blue", "description": "like the sky"}],
}
SIZE = {
    "id": "size",
    "header": "Size",
    "question": "Which size?",
    "options": [{"label": "S"}, {"label": "L"}],
}


def ask(*questions: object) -> str:
    return f"say:[I must ask.] tool:ask_user {json.dumps({'questions': questions})}"


async def test_a_question_is_asked_and_the_next_turn_answers_it(
    openclaw: OpenClaw, marker: str
) -> None:
    async with gateway_agent(openclaw) as agent:
        pause = find_pause(await run_turn(agent, make_turn(ask(COLOR), marker, run="1")))
        assert pause.prompt == "Which color?\n- Red\n- Blue: like the sky"
        answer = await run_turn(agent, make_turn("blue", marker, run="2", resume=pause.resume))
    (said,) = texts(answer)
    assert "Color: Blue" in said


async def test_several_questions_are_answered_together(openclaw: OpenClaw, marker: str) -> None:
    async with gateway_agent(openclaw) as agent:
        pause = find_pause(await run_turn(agent, make_turn(ask(COLOR, SIZE), marker, run="1")))
        answer = await run_turn(
            agent, make_turn("red\nsomething", marker, run="2", resume=pause.resume)
        )
    assert "Color: Red\nSize: something" in texts(answer)[0]


async def test_another_process_of_ours_answers_the_question(
    openclaw: OpenClaw, marker: str
) -> None:
    async with gateway_agent(openclaw) as agent:
        pause = find_pause(await run_turn(agent, make_turn(ask(COLOR), marker, run="1")))
    async with gateway_agent(openclaw) as agent:
        answer = await run_turn(agent, make_turn("Red", marker, run="2", resume=pause.resume))
    assert "Color: Red" in texts(answer)[0]


async def test_an_answer_after_a_foreign_one_starts_a_new_run(
    openclaw: OpenClaw, bare: Bare, marker: str
) -> None:
    async with gateway_agent(openclaw) as agent:
        pause = find_pause(await run_turn(agent, make_turn(ask(COLOR), marker, run="1")))
        async with bare() as client:
            answers = {"answers": {"color": ["Red"]}}
            await client.call("question.resolve", {"id": pause.resume["id"], "answers": answers})
            await client.call("agent.wait", {"runId": pause.resume["runId"], "timeoutMs": 240_000})
        events = await run_turn(agent, make_turn("blue", marker, run="2", resume=pause.resume))
    assert any("was over before" in event.text for event in events if isinstance(event, Note))
    first, second = texts(events)
    assert "Color: Red" in first
    assert second == "echo: blue"


async def test_ending_a_pause_ends_the_question_and_its_run(
    openclaw: OpenClaw, bare: Bare, marker: str
) -> None:
    turn = make_turn(ask(COLOR), marker, run="1")
    async with gateway_agent(openclaw) as agent:
        pause = find_pause(await run_turn(agent, turn))
        await agent.cancel_pause(turn.binding, pause.resume)
    async with bare() as client:
        waited = await client.call("agent.wait", {"runId": pause.resume["runId"], "timeoutMs": 1})
        listed = await client.call("question.list", {})
    assert waited["status"] == "error"
    assert pause.resume["id"] not in [one["id"] for one in listed["questions"]]
