"""What a debate is about and who takes part: the input of `debate_call`, read and checked."""

import math
from typing import TypeGuard, TypeVar, cast

import msgspec

from openclaw_a2a.calls.names import BadCall, BadName, agent_of, read_agent, read_skill
from openclaw_a2a.model.ids import AgentId, Json, JsonObject, SessionKey
from openclaw_a2a.model.message import Record

MOST_CRITICS = 10
MOST_ROUNDS = 5
AT_ONCE = 3
"""So many critics work at the same time."""

MOST_INPUT = 1_048_576
CRITIQUE = "critique"
_SLACK_MS = 2_000
"""A call that takes too long is told to have done so within this time."""

_SESSION = "agent:"
_Value = TypeVar("_Value")


class Participant(Record, frozen=True):
    """Somebody who takes part, and what it is asked to do."""

    agent: AgentId
    skill: str


class Critic(Record, frozen=True):
    """Somebody who looks for flaws, perhaps from one point of view."""

    agent: AgentId
    skill: str = CRITIQUE
    perspective: str | None = None
    weight: float | None = None


class DebateRequest(Record, frozen=True):
    """A debate to be held. As JSON it is what the debate's own task is asked.

    `timeout_ms` is how long each participant has for one answer.
    """

    topic: str
    proposer: Participant
    critics: tuple[Critic, ...]
    resolver: Participant
    input: JsonObject
    rounds: int = 2
    min_confidence: float = 0.85
    timeout_ms: int = 60_000
    wait: bool = True

    @property
    def participants(self) -> tuple[Participant, ...]:
        """Everybody who may be asked, each with the skill that its caller named."""
        critics = [Participant(one.agent, one.skill) for one in self.critics]
        return (self.proposer, *critics, self.resolver)


def longest_ms(request: DebateRequest) -> int:
    """How long the debate takes at most, when every answer comes at the last moment."""
    waves = -(-len(request.critics) // AT_ONCE)
    answers = 1 + request.rounds * (waves + 1) + 1
    return answers * (request.timeout_ms + _SLACK_MS)


def read_debate(given: Json, *, default_ms: int, max_ms: int) -> DebateRequest:
    """The debate that an input of the tool asks for.

    A timeout above the maximum is the maximum. Raises: BadCall with all problems.
    """
    return _Reader(given, default_ms=default_ms, max_ms=max_ms).read()


class _Reader:
    """One input, and what is wrong with it."""

    def __init__(self, given: Json, *, default_ms: int, max_ms: int) -> None:
        self._is_object = _is_object(given)
        self._given = _members(given)
        self._default_ms = default_ms
        self._max_ms = max_ms
        self._problems: list[str] = []

    def read(self) -> DebateRequest:
        if not self._is_object:
            raise BadCall(["the input must be an object"])
        request = DebateRequest(
            topic=self._topic(),
            proposer=self._participant("proposer"),
            critics=self._critics(),
            resolver=self._participant("resolver"),
            input=self._input(),
            rounds=self._rounds(),
            min_confidence=self._share(self._given, "minConfidence", 0.85),
            timeout_ms=self._timeout_ms(),
            wait=self._wait(),
        )
        if not self._problems and _written_size(request) is None:
            self._problems.append("the texts cannot be written as JSON")
        if self._problems:
            raise BadCall(self._problems)
        return request

    def _no(self, problem: str, instead: _Value) -> _Value:
        """Note a problem and go on, so that the next ones are found too."""
        self._problems.append(problem)
        return instead

    def _topic(self) -> str:
        topic: Json = self._given.get("topic")
        if not isinstance(topic, str) or not topic.strip():
            return self._no("topic must be a text that is not empty", "")
        return topic.strip()

    # ---------------------------------------------------------------- who takes part

    def _participant(self, role: str) -> Participant:
        named = _members(self._given.get(role))
        return Participant(self._agent(named, role), self._skill(named, role))

    def _critics(self) -> tuple[Critic, ...]:
        given: Json = self._given.get("critics")
        critics = cast("list[Json]", given) if isinstance(given, list) else []
        if not 1 <= len(critics) <= MOST_CRITICS:
            return self._no(f"critics must be a list of 1 to {MOST_CRITICS}", ())
        return tuple(self._critic(one, f"critics[{n}]") for n, one in enumerate(critics))

    def _critic(self, given: Json, place: str) -> Critic:
        named = _members(given)
        perspective: Json = named.get("perspective")
        if perspective is not None and not isinstance(perspective, str):
            perspective = self._no(f"{place}.perspective must be a text", None)
        is_weighed = named.get("weight") is not None
        return Critic(
            agent=self._agent(named, place),
            skill=self._skill({"skill": CRITIQUE, **named}, place),
            perspective=perspective,
            weight=self._share(named, "weight", 0.0, place) if is_weighed else None,
        )

    def _agent(self, named: JsonObject, place: str) -> AgentId:
        try:
            return _agent_id(named.get("agent"))
        except BadName as error:
            return self._no(f"{place}: {error}", AgentId(""))

    def _skill(self, named: JsonObject, place: str) -> str:
        try:
            return read_skill(named.get("skill"))
        except BadName as error:
            return self._no(f"{place}: {error}", "")

    # ---------------------------------------------------------------- what it is about

    def _input(self) -> JsonObject:
        given: Json = self._given.get("input")
        if not _is_object(given):
            return self._no("input must be an object", {})
        size = _written_size(given)
        if size is None:
            return self._no("input cannot be written as JSON", {})
        if size > MOST_INPUT:
            return self._no(f"input has {size} bytes of JSON; at most {MOST_INPUT} pass", {})
        return given

    def _rounds(self) -> int:
        rounds: Json = self._given.get("rounds", 2)
        is_within = _is_number(rounds) and 1 <= rounds <= MOST_ROUNDS
        if not is_within or rounds != int(rounds):
            return self._no(f"rounds must be a whole number from 1 to {MOST_ROUNDS}", 1)
        return int(rounds)

    def _share(self, holder: JsonObject, key: str, default: float, place: str = "") -> float:
        value: Json = holder.get(key, default)
        if not _is_number(value) or not 0 <= value <= 1:
            where = f"{place}.{key}" if place else key
            return self._no(f"{where} must be a number from 0 to 1", default)
        return float(value)

    def _wait(self) -> bool:
        wait: Json = self._given.get("wait", True)
        return wait if isinstance(wait, bool) else self._no("wait must be true or false", True)

    def _timeout_ms(self) -> int:
        keys = [key for key in ("timeoutSeconds", "timeout") if self._given.get(key) is not None]
        if not keys:
            return min(self._default_ms, self._max_ms)
        if len(keys) > 1:
            return self._no("give timeoutSeconds or timeout (in ms), not both", 1)
        value: Json = self._given[keys[0]]
        if not _is_number(value) or value <= 0:
            return self._no(f"{keys[0]} must be a number above 0: a debate waits for answers", 1)
        milliseconds = value * 1000 if keys[0] == "timeoutSeconds" else value
        return max(1, round(min(milliseconds, self._max_ms)))


def _agent_id(value: Json) -> AgentId:
    """The agent by its id or by one of its sessions. Raises: BadName."""
    if not isinstance(value, str) or not value.strip().lower().startswith(_SESSION):
        return read_agent(value)
    key = value.strip().lower()
    agent_id = agent_of(SessionKey(key))
    if agent_id is None:
        raise BadName(f"agent {key[:80]!r} is no session key: agent:<id>:<label>")
    return read_agent(agent_id)


def _written_size(value: Json) -> int | None:
    """How many bytes it has as JSON; None when it has no such form."""
    try:
        return len(msgspec.json.encode(value))
    except (ValueError, TypeError, RecursionError):
        return None


def _members(value: Json) -> JsonObject:
    """The object; an empty one tells by what it lacks what is wrong."""
    return value if _is_object(value) else {}


def _is_object(value: Json) -> TypeGuard[JsonObject]:
    return isinstance(value, dict)


def _is_number(value: Json) -> TypeGuard[float]:
    """True for a number that is one: JSON's true and what is not finite are not."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and (isinstance(value, int) or math.isfinite(value))


# -------------------------------------------------------------------- the schema for models

_AGENT: JsonObject = {"type": "string", "description": "Agent id, or the key of its session."}
_SKILL: JsonObject = {"type": "string", "description": "What it is asked to do."}
_SHARE: JsonObject = {"type": "number", "minimum": 0, "maximum": 1}


def _participant_schema(description: str) -> JsonObject:
    return {
        "type": "object",
        "description": description,
        "properties": {"agent": _AGENT, "skill": _SKILL},
        "required": ["agent", "skill"],
    }


INPUT_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "topic": {"type": "string", "description": "What is debated."},
        "proposer": _participant_schema("Makes the proposal and refines it."),
        "critics": {
            "type": "array",
            "minItems": 1,
            "maxItems": MOST_CRITICS,
            "description": "Look for flaws in the proposal.",
            "items": {
                "type": "object",
                "properties": {
                    "agent": _AGENT,
                    "skill": {**_SKILL, "default": CRITIQUE},
                    "perspective": {
                        "type": "string",
                        "description": "The point of view to look from.",
                    },
                    "weight": {
                        **_SHARE,
                        "description": "How much the resolver should care.",
                    },
                },
                "required": ["agent"],
            },
        },
        "resolver": _participant_schema("Draws the conclusion."),
        "input": {"type": "object", "description": "What the proposer works on."},
        "rounds": {
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_ROUNDS,
            "default": 2,
            "description": "Rounds of critique and refinement, at most.",
        },
        "minConfidence": {
            **_SHARE,
            "default": 0.85,
            "description": "Stop when the proposal is this sure.",
        },
        "timeoutSeconds": {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": "Time for each answer; 60 when left out.",
        },
        "timeout": {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": "The same in milliseconds; give one of the two.",
        },
        "wait": {
            "type": "boolean",
            "default": True,
            "description": "false: answer at once; the result comes as a message later.",
        },
    },
    "required": ["topic", "proposer", "critics", "resolver", "input"],
}
"""What `debate_call` takes, for whoever calls it."""
