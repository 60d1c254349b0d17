"""The skills that every agent has."""

import json
from datetime import UTC, datetime

import pytest
from tests.calls.turns import turn_of

from openclaw_a2a.calls.builtin_skills import BuiltInAgent
from openclaw_a2a.calls.outcome import Outcome, parse_callee_answer
from openclaw_a2a.model.agent_event import Reply
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.model.skill import Skill

NOW = datetime(2026, 11, 15, 12, 30, 1, 500_000, tzinfo=UTC)
SKILLS = {AgentId("metis"): (Skill(name="research", description="Finds out."),)}


class Noon:
    def now(self) -> datetime:
        return NOW

    async def sleep(self, seconds: float) -> None:
        """No time passes."""


async def answer_to(text: str) -> Outcome:
    agent = BuiltInAgent(lambda agent_id: SKILLS.get(agent_id, ()), Noon())
    events = [event async for event in agent.run(turn_of(text, agent="metis"))]
    await agent.close()
    assert len(events) == 1
    assert isinstance(events[0], Reply)
    return parse_callee_answer(events[0].parts[0].text or "")


@pytest.mark.requirement("calls.skills.ping")
async def test_a_ping_is_answered_with_a_pong_and_the_time() -> None:
    answer = await answer_to('{"kind": "skill_invocation", "skill": "ping", "agent": "metis"}')
    assert answer.is_completed
    assert answer.output == {"status": "pong", "timestamp": "2026-11-15T12:30:01.500Z"}


@pytest.mark.requirement("calls.skills.list")
@pytest.mark.parametrize(
    ("named", "names"),
    [
        ({"agent": "metis"}, ["research", "ping", "list_skills"]),
        ({"agent": "other"}, ["ping", "list_skills"]),
        ({}, ["research", "ping", "list_skills"]),
    ],
)
async def test_the_skills_of_the_named_agent_are_listed(
    named: dict[str, str], names: list[str]
) -> None:
    answer = await answer_to(json.dumps({"skill": "list_skills", **named}))
    assert answer.is_completed
    assert [one["name"] for one in answer.output["skills"]] == names
    assert all(one["description"] for one in answer.output["skills"])


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "[]",
        '{"skill": 5}',
        '{"skill": "research", "agent": "metis"}',
        '{"skill": "list_skills", "agent": "a/b"}',
    ],
)
async def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(AgentFailed):
        await answer_to(text)
