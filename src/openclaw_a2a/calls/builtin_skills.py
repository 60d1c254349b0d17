"""Whether an input fits a skill that was declared, and what skills an agent has."""

from collections.abc import AsyncGenerator, Callable, Iterator

import jsonschema_rs
import msgspec

from openclaw_a2a.calls.identifiers import BadName, read_agent
from openclaw_a2a.model.agent_event import AgentEvent, Reply
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import AgentId, JsonObject
from openclaw_a2a.model.skill import BUILT_IN, LIST_SKILLS, PING, Skill
from openclaw_a2a.model.time_format import format_timestamp
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Clock, Recovery

PING_S = 5.0


def input_problems(skill: Skill, given: JsonObject) -> list[str]:
    """Everything that keeps an input from fitting, in one list."""
    errors = jsonschema_rs.Draft202012Validator(skill.input_schema()).iter_errors(given)
    return list(_told(errors))


def _told(errors: Iterator[jsonschema_rs.ValidationError]) -> Iterator[str]:
    for error in errors:
        place = ".".join(map(str, error.instance_path))
        yield f"{place}: {error.message}" if place else error.message


def find_skill(skills: tuple[Skill, ...], name: str) -> Skill | None:
    """The declared skill with this name."""
    return next((skill for skill in skills if skill.name == name), None)


def describe_skills(skills: tuple[Skill, ...]) -> JsonObject:
    """The answer of `list_skills`."""
    declared = [{"name": one.name, "description": one.description} for one in skills]
    built_in = [
        {"name": PING, "description": "Answers at once: is somebody there?"},
        {"name": LIST_SKILLS, "description": "Names and descriptions of the skills."},
    ]
    return {"skills": [*declared, *built_in]}


class _Invocation(msgspec.Struct, frozen=True):
    skill: str
    agent: str | None = None


class BuiltInAgent:
    """Answers for the agent that the invocation names as `agent`, without asking it.

    An invocation that names nobody is for the agent of the turn.
    """

    recovery: Recovery = Recovery.REPEAT

    def __init__(self, skills_of: Callable[[AgentId], tuple[Skill, ...]], clock: Clock) -> None:
        self._skills_of = skills_of
        self._clock = clock

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        """Answer in one piece. Raises: AgentFailed (it is no built-in skill)."""
        invocation = _read(turn)
        output = (
            self._pong()
            if invocation.skill == PING
            else self._skills(invocation.agent or turn.agent_id)
        )
        answer = {"output": output, "confidence": 1.0}
        yield Reply.of_text(msgspec.json.encode(answer).decode())

    async def close(self) -> None:
        """Nothing is held."""

    def _pong(self) -> JsonObject:
        return {"status": "pong", "timestamp": format_timestamp(self._clock.now())}

    def _skills(self, agent: str) -> JsonObject:
        try:
            agent_id = read_agent(agent)
        except BadName as error:
            raise AgentFailed(f"The invocation names nobody: {error}.") from None
        return describe_skills(self._skills_of(agent_id))


def _read(turn: Turn) -> _Invocation:
    try:
        invocation = msgspec.json.decode(turn.message.text, type=_Invocation)
    except msgspec.MsgspecError as error:
        raise AgentFailed(f"The message is no invocation of a built-in skill: {error}.") from None
    if invocation.skill not in BUILT_IN:
        known = ", ".join(BUILT_IN)
        raise AgentFailed(f"{invocation.skill[:80]} is no built-in skill; there are {known}.")
    return invocation
