"""The skills `ping` and `list_skills`, which the gateway runs in place of every agent."""

from collections.abc import AsyncGenerator, Callable

import msgspec

from openclaw_a2a.calls.request import InvalidName, parse_agent_id
from openclaw_a2a.model.agent_event import AgentEvent, Reply
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import AgentId, JsonObject
from openclaw_a2a.model.message import format_timestamp
from openclaw_a2a.model.skill import BUILT_IN_SKILLS, LIST_SKILLS, PING, Skill
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Clock, Recovery


class _Invocation(msgspec.Struct, frozen=True):
    skill: str
    agent: str | None = None


class BuiltInAgent:
    """Answers in place of the agent that the invocation names, else of the agent of the turn."""

    recovery: Recovery = Recovery.REPEAT

    def __init__(self, skills_of: Callable[[AgentId], tuple[Skill, ...]], clock: Clock) -> None:
        self._skills_of = skills_of
        self._clock = clock

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        """Answer in one piece. Raises: AgentFailed (it is not a built-in skill)."""
        invocation = _read(turn)
        if invocation.skill == PING:
            output = {"status": "pong", "timestamp": format_timestamp(self._clock.now())}
        else:
            output = self._skills(invocation.agent or turn.agent_id)
        answer = {"output": output, "confidence": 1.0}
        yield Reply.of_text(msgspec.json.encode(answer).decode())

    async def close(self) -> None:
        """Nothing to release."""

    def _skills(self, agent: str) -> JsonObject:
        try:
            agent_id = parse_agent_id(agent)
        except InvalidName as error:
            raise AgentFailed(f"The invocation's agent {error}.") from None
        return describe_skills(self._skills_of(agent_id))


def _read(turn: Turn) -> _Invocation:
    try:
        invocation = msgspec.json.decode(turn.message.text, type=_Invocation)
    except (ValueError, RecursionError) as error:
        raise AgentFailed(f"The message is no invocation of a built-in skill: {error}.") from None
    if invocation.skill not in BUILT_IN_SKILLS:
        known = ", ".join(BUILT_IN_SKILLS)
        raise AgentFailed(f"{invocation.skill[:80]} is no built-in skill; there are {known}.")
    return invocation


def describe_skills(skills: tuple[Skill, ...]) -> JsonObject:
    """The answer of `list_skills`."""
    declared = [{"name": one.name, "description": one.description} for one in skills]
    built_in = [
        {"name": PING, "description": "Answers at once: is somebody there?"},
        {"name": LIST_SKILLS, "description": "Names and descriptions of the skills."},
    ]
    return {"skills": [*declared, *built_in]}
