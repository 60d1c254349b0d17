"""What a debate is about and who takes part: the input of `debate_call`, read and checked."""

from openclaw_a2a.calls.identifiers import BadName, agent_of, read_agent, read_skill
from openclaw_a2a.calls.request import Fields
from openclaw_a2a.model.ids import AgentId, Json, JsonObject, SessionKey
from openclaw_a2a.model.message import JsonStruct

MOST_CRITICS = 10
MOST_ROUNDS = 5
AT_ONCE = 3
"""So many critics work at the same time."""

CRITIQUE = "critique"
_SLACK_MS = 2_000
"""A call that takes too long is told to have done so within this time."""

_SESSION = "agent:"


class Participant(JsonStruct, frozen=True):
    """Somebody who takes part, and what it is asked to do."""

    agent: AgentId
    skill: str


class Critic(JsonStruct, frozen=True):
    """Somebody who looks for flaws, perhaps from one point of view."""

    agent: AgentId
    skill: str = CRITIQUE
    perspective: str | None = None
    weight: float | None = None


class DebateRequest(JsonStruct, frozen=True):
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


def read_debate(given: Json, *, default_ms: int) -> DebateRequest:
    """The debate that an input of the tool asks for. Raises: BadCall with all problems."""
    fields = Fields(given)
    timeout_ms = fields.timeout_ms()
    if timeout_ms == 0:
        fields.problems.append(
            "timeoutSeconds (or timeout) must be above 0: a debate waits for answers"
        )
    critics = enumerate(fields.list("critics", 1, MOST_CRITICS))
    request = DebateRequest(
        topic=fields.text("topic"),
        proposer=_participant(fields.inner("proposer")),
        critics=tuple(
            _critic(Fields(one, f"critics[{place}]", fields.problems)) for place, one in critics
        ),
        resolver=_participant(fields.inner("resolver")),
        input=fields.object("input"),
        rounds=fields.count("rounds", 1, MOST_ROUNDS, default=2),
        min_confidence=fields.number("minConfidence", 0, 1, default=0.85),
        timeout_ms=default_ms if timeout_ms is None else timeout_ms,
        wait=fields.flag("wait", default=True),
    )
    fields.check()
    return request


def _participant(fields: Fields) -> Participant:
    return Participant(
        fields.name("agent", _agent_id, AgentId("")), fields.name("skill", read_skill, "")
    )


def _critic(fields: Fields) -> Critic:
    is_weighed = "weight" in fields
    return Critic(
        agent=fields.name("agent", _agent_id, AgentId("")),
        skill=fields.name("skill", read_skill, "") if "skill" in fields else CRITIQUE,
        perspective=fields.text("perspective") if "perspective" in fields else None,
        weight=fields.number("weight", 0, 1, default=0.0) if is_weighed else None,
    )


def _agent_id(value: Json) -> AgentId:
    """The agent by its id or by one of its sessions. Raises: BadName."""
    if not isinstance(value, str) or not value.strip().lower().startswith(_SESSION):
        return read_agent(value)
    key = value.strip().lower()
    agent_id = agent_of(SessionKey(key))
    if agent_id is None:
        raise BadName(f"agent {key[:80]!r} is no session key: agent:<id>:<label>")
    return read_agent(agent_id)


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
