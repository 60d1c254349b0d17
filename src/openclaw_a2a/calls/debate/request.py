"""Parses the arguments of `debate_call`, and describes them to models."""

from openclaw_a2a.calls.identifiers import (
    InvalidName,
    parse_agent_id,
    parse_skill_name,
    session_agent,
)
from openclaw_a2a.calls.request import (
    Fields,
    count_field,
    field_schema,
    flag_field,
    number_field,
    object_schema,
    text_field,
)
from openclaw_a2a.model.ids import AgentId, Json, JsonObject, SessionKey
from openclaw_a2a.model.message import JsonStruct

MAX_CRITICS = 10
MAX_ROUNDS = 5
MAX_PARALLEL_CRITICS = 3

CRITIQUE = "critique"
_SLACK_MS = 2_000
"""A call that times out is settled within this time after its deadline."""

_SESSION = "agent:"


class Participant(JsonStruct, frozen=True):
    """An agent, and the skill that it is called for."""

    agent: AgentId
    skill: str


class Critic(JsonStruct, frozen=True):
    """An agent that looks for flaws, perhaps from one point of view."""

    agent: AgentId
    skill: str = CRITIQUE
    perspective: str | None = None
    weight: float | None = None


class DebateRequest(JsonStruct, frozen=True):
    """The arguments of `debate_call`. As JSON it is the text of the debate's own task.

    `timeout_ms` is the timeout of each answer.
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
        """All agents that may be called, each with the skill that the request names."""
        critics = [Participant(one.agent, one.skill) for one in self.critics]
        return (self.proposer, *critics, self.resolver)


def max_duration_ms(request: DebateRequest) -> int:
    """How long the debate takes when every answer comes at its deadline."""
    waves = -(-len(request.critics) // MAX_PARALLEL_CRITICS)
    answers = 1 + request.rounds * (waves + 1) + 1
    return answers * (request.timeout_ms + _SLACK_MS)


def parse_debate(given: Json, *, default_ms: int) -> DebateRequest:
    """Parse the arguments. Raises: InvalidCallRequest."""
    fields = Fields(given)
    timeout_ms = fields.timeout_ms()
    if timeout_ms == 0:
        reason = "timeoutSeconds (or timeout) must be above 0: a debate waits for answers"
        fields.reject("", reason, None)
    request = DebateRequest(
        topic=fields.text("topic"),
        proposer=_participant(fields.inner("proposer")),
        critics=tuple(_critic(one) for one in fields.items("critics", 1, MAX_CRITICS)),
        resolver=_participant(fields.inner("resolver")),
        input=fields.object("input"),
        rounds=fields.count("rounds", 1, MAX_ROUNDS, default=2),
        min_confidence=fields.number("minConfidence", 0, 1, default=0.85),
        timeout_ms=default_ms if timeout_ms is None else timeout_ms,
        wait=fields.flag("wait", default=True),
    )
    fields.check()
    return request


def _participant(fields: Fields) -> Participant:
    return Participant(
        fields.name("agent", _agent_id, AgentId("")), fields.name("skill", parse_skill_name, "")
    )


def _critic(fields: Fields) -> Critic:
    is_weighed = "weight" in fields
    return Critic(
        agent=fields.name("agent", _agent_id, AgentId("")),
        skill=fields.name("skill", parse_skill_name, "") if "skill" in fields else CRITIQUE,
        perspective=fields.text("perspective") if "perspective" in fields else None,
        weight=fields.number("weight", 0, 1, default=0.0) if is_weighed else None,
    )


def _agent_id(value: Json) -> AgentId:
    """Parse an agent id, or the session key of an agent. Raises: InvalidName."""
    if not isinstance(value, str) or not value.strip().lower().startswith(_SESSION):
        return parse_agent_id(value)
    key = value.strip().lower()
    agent_id = session_agent(SessionKey(key))
    if agent_id is None:
        raise InvalidName(f"{key[:80]!r} is no session key: agent:<id>:<label>")
    return parse_agent_id(agent_id)


# -------------------------------------------------------------------- JSON Schema

_AGENT = text_field("Agent id, or the key of its session.")
_SKILL = text_field("What it is asked to do.")
_PARTICIPANT = {"properties": {"agent": _AGENT, "skill": _SKILL}, "required": ["agent", "skill"]}
_CRITIC = object_schema(
    ("agent",),
    agent=_AGENT,
    skill={**_SKILL, "default": CRITIQUE},
    perspective=text_field("The point of view to look from."),
    weight=number_field("How much the resolver should care.", minimum=0, maximum=1),
)

DEBATE_SCHEMA = object_schema(
    ("topic", "proposer", "critics", "resolver", "input"),
    topic=text_field("What is debated."),
    proposer={
        "type": "object",
        "description": "Makes the proposal and refines it.",
        **_PARTICIPANT,
    },
    critics={
        "type": "array",
        "minItems": 1,
        "maxItems": MAX_CRITICS,
        "description": "Look for flaws in the proposal.",
        "items": _CRITIC,
    },
    resolver={"type": "object", "description": "Draws the conclusion.", **_PARTICIPANT},
    input=field_schema("object", "What the proposer works on."),
    rounds=count_field(
        "Rounds of critique and refinement, at most.", minimum=1, maximum=MAX_ROUNDS, default=2
    ),
    minConfidence=number_field(
        "Stop when the proposal is this sure.", minimum=0, maximum=1, default=0.85
    ),
    timeoutSeconds=number_field("Time for each answer; 60 when left out.", exclusiveMinimum=0),
    timeout=number_field("The same in milliseconds; give one of the two.", exclusiveMinimum=0),
    wait=flag_field("false: answer at once; the result comes as a message later.", default=True),
)
"""The JSON Schema of the arguments of `debate_call`."""
