"""Debates: a proposer proposes, critics look for flaws, it refines, a resolver concludes.

`parse_debate` reads the arguments of `debate_call`, `Debate` asks one step after the other, and
`DebateAgent` runs that as the agent of a task.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from uuid import UUID, uuid5

import msgspec

from openclaw_a2a.calls.outcome import Outcome
from openclaw_a2a.calls.request import (
    Fields,
    InvalidName,
    count_field,
    field_schema,
    flag_field,
    number_field,
    object_schema,
    parse_agent_id,
    parse_skill_name,
    text_field,
)
from openclaw_a2a.model.agent_event import AgentEvent, Note, Reply
from openclaw_a2a.model.call import CallId
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import AgentId, Json, JsonObject, SessionKey
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.session_keys import session_agent
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.model.validation import as_list, as_object
from openclaw_a2a.ports import Recovery

MAX_CRITICS = 10
MAX_ROUNDS = 5
MAX_PARALLEL_CRITICS = 3

CRITIQUE = "critique"
REFINE = "refine"
EXECUTE = "execute"
SKIP_CRITIQUE_CONFIDENCE = 0.95
"""A proposal with this confidence goes to the resolver without critique."""

_MAX_SHOWN_FLAWS = 3
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
    def participants(self) -> tuple[Participant | Critic, ...]:
        """All agents that may be called, each with the skill that the request names."""
        return (self.proposer, *self.critics, self.resolver)


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


# -------------------------------------------------------------------- the debate


class DebateStep(msgspec.Struct, frozen=True):
    """One call of a debate. Its name is the same whenever the debate runs again."""

    name: str
    agent: AgentId
    skill: str
    mode: str
    input: JsonObject
    timeout_ms: int


AskStep = Callable[[DebateStep], Awaitable[Outcome]]


def step_call_id(debate_id: CallId, name: str) -> CallId:
    """The call of a step: the same whenever the debate runs again."""
    return CallId(str(uuid5(UUID(debate_id), name)))


def list_step_names(critics: int, rounds: int) -> list[str]:
    """The names of all steps that a debate may have, in the order in which it asks them."""
    names = ["propose"]
    for number in range(1, rounds + 1):
        names += [f"round-{number}/critic-{place}" for place in range(1, critics + 1)]
        names.append(f"round-{number}/refine")
    return [*names, "resolve"]


class _DebateFailed(Exception):
    """The proposer, the resolver or all critics of a round failed."""


class Debate:
    """One debate. With the same answers it asks the same steps in the same order."""

    def __init__(self, request: DebateRequest, ask: AskStep) -> None:
        self._request = request
        self._ask = ask
        self._history: list[float] = []
        self._rounds: list[JsonObject] = []
        self._assumptions: dict[str, None] = {}
        self.result: JsonObject = {}
        """The result, once `run` has ended; it holds the error of a debate that failed."""

    async def run(self) -> AsyncGenerator[str]:
        """Run the debate; yields its progress, for people. Whatever `ask` raises ends it."""
        try:
            async with aclosing(self._run()) as steps:
                async for progress in steps:
                    yield progress
        except _DebateFailed as failure:
            self.result = {**self._gathered("error"), "error": str(failure)}

    async def _run(self) -> AsyncGenerator[str]:
        request = self._request
        proposal = await self._propose("propose", request.proposer, request.input)
        yield f"Proposed: confidence {proposal.confidence:g}."
        if proposal.confidence >= SKIP_CRITIQUE_CONFIDENCE:
            answer = await self._resolve({"finalProposal": proposal.output, "rounds": []})
            # Resolved whatever the resolver's confidence is, because there was no critique.
            yield self._conclude("resolved", answer)
            return
        for number in range(1, request.rounds + 1):
            critiques, failures = await self._criticise(number, proposal)
            shown = ", ".join(f"{one['confidence']:g}" for one in critiques)
            yield f"Round {number}: the critics have answered (confidence {shown})."
            if len(failures) == len(request.critics):
                raise _DebateFailed(f"all critics failed in round {number}: {failures[0]}")
            if proposal.confidence >= request.min_confidence:
                break
            proposal = await self._refine(number, proposal, critiques)
            yield f"Refined (round-{number}): confidence {proposal.confidence:g}."
            if proposal.confidence >= request.min_confidence:
                break
        answer = await self._resolve(
            {
                "finalProposal": proposal.output,
                "debateHistory": self._weighted_rounds(),
                "assumptions": list(self._assumptions),
            }
        )
        self._history.append(answer.confidence)
        is_resolved = answer.confidence >= request.min_confidence
        yield self._conclude("resolved" if is_resolved else "unresolved", answer)

    # ---------------------------------------------------------------- steps

    async def _propose(self, name: str, proposer: Participant, given: JsonObject) -> Outcome:
        """A proposal or its refinement. Raises: _DebateFailed."""
        answer = await self._ask(self._step(name, proposer, given, mode=EXECUTE))
        if not answer.is_completed:
            raise _DebateFailed(f"the proposer {proposer.agent} failed ({name}): {answer.error}")
        self._history.append(answer.confidence)
        self._add_assumptions(answer)
        return answer

    async def _criticise(
        self, number: int, proposal: Outcome
    ) -> tuple[list[JsonObject], list[str]]:
        """The critiques of one round, which are recorded with the proposal, and the failures."""
        critics = self._request.critics
        topic = self._request.topic
        given: JsonObject = {"topic": topic, "proposal": proposal.output, "round": number}
        steps = [
            self._step(
                f"round-{number}/critic-{place}",
                critic,
                {**given, **({"perspective": critic.perspective} if critic.perspective else {})},
                mode=CRITIQUE,
            )
            for place, critic in enumerate(critics, 1)
        ]
        answers = await _ask_all(self._ask, steps)
        failures = [one.error for one in answers if not one.is_completed]
        critiques = [_critique(*one) for one in zip(critics, answers, strict=True)]
        proposed = {
            "output": proposal.output,
            "confidence": proposal.confidence,
            "assumptions": list(proposal.assumptions),
        }
        self._rounds.append({"proposal": proposed, "critiques": critiques})
        return critiques, failures

    async def _refine(self, number: int, proposal: Outcome, critiques: list[JsonObject]) -> Outcome:
        keys = ("agent", "flaws", "alternatives")
        flaws = [flaw for one in critiques for flaw in one["flaws"]]
        refined = await self._propose(
            f"round-{number}/refine",
            Participant(self._request.proposer.agent, REFINE),
            {
                "originalProposal": proposal.output,
                "critiques": [{key: one[key] for key in keys} for one in critiques],
                "addressedConcerns": flaws,
            },
        )
        self._rounds[-1]["refinement"] = {
            "output": refined.output,
            "confidence": refined.confidence,
            "addressedCritiques": flaws[:_MAX_SHOWN_FLAWS],
        }
        return refined

    async def _resolve(self, given: JsonObject) -> Outcome:
        """The conclusion. Raises: _DebateFailed."""
        resolver = self._request.resolver
        given = {"topic": self._request.topic, **given}
        answer = await self._ask(self._step("resolve", resolver, given, mode=EXECUTE))
        if not answer.is_completed:
            raise _DebateFailed(f"the resolver {resolver.agent} failed: {answer.error}")
        return answer

    def _step(
        self, name: str, asked: Participant | Critic, given: JsonObject, *, mode: str
    ) -> DebateStep:
        return DebateStep(name, asked.agent, asked.skill, mode, given, self._request.timeout_ms)

    # ---------------------------------------------------------------- results

    def _conclude(self, status: str, answer: Outcome) -> str:
        """Set the result; the progress to report."""
        self._add_assumptions(answer)
        concluded = {"conclusion": answer.output, "confidence": answer.confidence}
        self.result = {**self._gathered(status), **concluded}
        dissent: Json = as_object(answer.output).get("dissent")
        if isinstance(dissent, str):
            self.result["dissent"] = dissent
        return f"Concluded: confidence {answer.confidence:g}."

    def _gathered(self, status: str) -> JsonObject:
        """A result without a conclusion."""
        return {
            "status": status,
            "conclusion": None,
            "confidence": 0.0,
            "confidenceHistory": list(self._history),
            "rounds": list(self._rounds),
            "assumptions": list(self._assumptions),
        }

    def _add_assumptions(self, answer: Outcome) -> None:
        self._assumptions.update(dict.fromkeys(answer.assumptions))

    def _weighted_rounds(self) -> list[JsonObject]:
        """The rounds with the critics' weights, which only the resolver sees and judges by."""
        weights = [critic.weight for critic in self._request.critics]
        return [
            {
                **one,
                "critiques": [
                    critique if weight is None else {**critique, "weight": weight}
                    for critique, weight in zip(one["critiques"], weights, strict=True)
                ],
            }
            for one in self._rounds
        ]


async def _ask_all(ask: AskStep, steps: Sequence[DebateStep]) -> Sequence[Outcome]:
    """Ask steps in parallel; the results are in the order of the steps."""
    slots = asyncio.Semaphore(MAX_PARALLEL_CRITICS)

    async def ask_in_slot(step: DebateStep) -> Outcome:
        async with slots:
            return await ask(step)

    try:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ask_in_slot(step)) for step in steps]
    except ExceptionGroup as errors:
        # The engine knows errors by their type, not in groups.
        raise errors.exceptions[0] from None
    return [task.result() for task in asked]


def _critique(critic: Critic, answer: Outcome) -> JsonObject:
    if not answer.is_completed:
        flaw = f"the critic {critic.agent} failed: {answer.error}"
        facts: JsonObject = {"output": None, "flaws": [flaw], "alternatives": [], "confidence": 0.0}
        return {"agent": critic.agent, **facts}
    output = as_object(answer.output)
    return {
        "agent": critic.agent,
        "output": answer.output,
        "flaws": _as_list(output.get("flaws")),
        "alternatives": _as_list(output.get("alternatives")),
        "confidence": answer.confidence,
    }


def _as_list(value: Json) -> list[Json]:
    """A list as it is, a text as a list of one, anything else as an empty list."""
    return [value] if isinstance(value, str) else list(as_list(value))


AskStepOf = Callable[[CallId, DebateStep], Awaitable[Outcome]]
"""Asks a step of the debate with this call id; a step that was asked before is not asked again."""


class DebateAgent:
    """Runs the debate that a turn's text describes (a `DebateRequest` as JSON).

    It stores nothing: after a restart the debate runs again from its beginning, and `ask_step`
    finds the calls of the steps that were asked before.
    """

    recovery: Recovery = Recovery.REPEAT
    is_coordinator = True

    def __init__(self, ask_step: AskStepOf) -> None:
        self._ask_step = ask_step

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        """Run it: a note for each step, then the result. Raises: AgentFailed."""
        try:
            request = msgspec.json.decode(turn.message.text, type=DebateRequest)
        except (ValueError, RecursionError) as error:
            raise AgentFailed(
                f"The message describes no debate: {error}. Use the tool debate_call."
            ) from None
        if turn.provenance is None or not turn.provenance.correlation_id:
            raise AgentFailed("A debate runs only for a call. Use the tool debate_call.")
        call_id = CallId(turn.provenance.correlation_id)
        debate = Debate(request, lambda step: self._ask_step(call_id, step))
        async with aclosing(debate.run()) as steps:
            async for progress in steps:
                yield Note(progress)
        answer = {"output": debate.result}
        answer |= {key: debate.result[key] for key in ("confidence", "assumptions")}
        # Not msgspec: answers may hold lone surrogates, which only JSON escapes can carry.
        yield Reply.of_text(json.dumps(answer))

    async def close(self) -> None:
        """Nothing to release."""
