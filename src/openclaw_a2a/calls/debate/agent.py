"""A debate between agents: one proposes, others look for flaws, the first refines, one resolves."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Literal, TypeGuard, cast

import msgspec

from openclaw_a2a.calls.debate.request import AT_ONCE, CRITIQUE, Critic, DebateRequest, Participant
from openclaw_a2a.model.agent_event import AgentEvent, Note, Reply
from openclaw_a2a.model.call import CallId
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import AgentId, Json, JsonObject
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery

SURE = 0.95
"""A proposal that is so sure of itself is not criticised."""

REFINE = "refine"
EXECUTE = "execute"
_SHOWN_FLAWS = 3


class Step(msgspec.Struct, frozen=True):
    """One question of a debate. Its name is the same whenever the debate is held again."""

    name: str
    agent: AgentId
    skill: str
    mode: str
    input: JsonObject
    timeout_ms: int


class StepResult(msgspec.Struct, frozen=True):
    """What came of a step; `error` says why there is no output when it is not completed."""

    status: Literal["completed", "error", "timeout"]
    output: Json = None
    confidence: float = 0.5
    assumptions: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    error: str = ""

    @property
    def is_completed(self) -> bool:
        """True when there is an output."""
        return self.status == "completed"

    @property
    def unavailable_reason(self) -> str:
        """Why there is no output, in a few words."""
        return self.error or ("it took too long" if self.status == "timeout" else "no reason given")


Ask = Callable[[Step], Awaitable[StepResult]]
Tell = Callable[[JsonObject], None]


async def hold_debate(request: DebateRequest, ask: Ask, tell: Tell) -> JsonObject:
    """Hold the debate; its result, which also says what went wrong.

    With the same answers it asks the same steps in the same order. `tell` hears how far it is.
    Whatever `ask` raises ends the debate.
    """
    debate = _Debate(request, ask, tell)
    try:
        return await debate.hold()
    except _Failed as failure:
        return debate.result("error", error=str(failure))


class _Failed(Exception):
    """Somebody without whom the debate cannot go on has failed."""


class _Debate:
    """One debate, and what was gathered so far."""

    def __init__(self, request: DebateRequest, ask: Ask, tell: Tell) -> None:
        self._request = request
        self._ask = ask
        self._tell = tell
        self._history: list[float] = []
        self._rounds: list[JsonObject] = []
        self._assumptions: dict[str, None] = {}

    async def hold(self) -> JsonObject:
        """The result. Raises: _Failed."""
        request = self._request
        proposal = await self._propose("propose", request.proposer, request.input)
        if proposal.confidence >= SURE:
            given: JsonObject = {"finalProposal": proposal.output, "rounds": []}
            # Nobody doubted it: it is resolved, however sure the resolver is.
            return self._concluded("resolved", await self._resolve(given))
        for number in range(1, request.rounds + 1):
            refined = await self._hold_round(number, proposal)
            proposal = refined or proposal
            if refined is None or refined.confidence >= request.min_confidence:
                break
        answer = await self._resolve(
            {
                "finalProposal": proposal.output,
                "debateHistory": self._weighed_rounds(),
                "assumptions": list(self._assumptions),
            }
        )
        self._history.append(answer.confidence)
        is_resolved = answer.confidence >= request.min_confidence
        return self._concluded("resolved" if is_resolved else "unresolved", answer)

    def result(self, status: str, *, error: str | None = None) -> JsonObject:
        """The result with what was gathered, and no conclusion."""
        shown: JsonObject = {
            "status": status,
            "conclusion": None,
            "confidence": 0.0,
            "confidenceHistory": list(self._history),
            "rounds": list(self._rounds),
            "assumptions": list(self._assumptions),
        }
        return shown if error is None else {**shown, "error": error}

    def _concluded(self, status: str, answer: StepResult) -> JsonObject:
        self._assume(answer)
        result = {**self.result(status), "conclusion": answer.output}
        result["confidence"] = answer.confidence
        dissent: Json = answer.output.get("dissent") if _is_object(answer.output) else None
        return {**result, "dissent": dissent} if isinstance(dissent, str) else result

    # ---------------------------------------------------------------- the steps

    async def _propose(self, name: str, proposer: Participant, given: JsonObject) -> StepResult:
        """A proposal or its refinement. Raises: _Failed."""
        answer = await self._ask_one(name, proposer, given)
        if not answer.is_completed:
            raise _Failed(
                f"the proposer {proposer.agent} failed ({name}): {answer.unavailable_reason}"
            )
        self._history.append(answer.confidence)
        self._assume(answer)
        self._tell({"phase": name, "confidence": answer.confidence})
        return answer

    async def _hold_round(self, number: int, proposal: StepResult) -> StepResult | None:
        """The refined proposal; None when it needs no refinement. Raises: _Failed."""
        answers = await self._criticise(number, proposal)
        critics = self._request.critics
        critiques = [_critique(*one) for one in zip(critics, answers, strict=True)]
        confidences = [one["confidence"] for one in critiques]
        self._tell({"phase": "critiqued", "round": number, "confidences": confidences})
        held: JsonObject = {"proposal": _shown(proposal), "critiques": critiques}
        self._rounds.append(held)
        if not any(answer.is_completed for answer in answers):
            raise _Failed(f"all critics failed in round {number}: {answers[0].unavailable_reason}")
        if proposal.confidence >= self._request.min_confidence:
            return None
        flaws = [flaw for one in critiques for flaw in one["flaws"]]
        refined = await self._refine(number, proposal, critiques, flaws)
        held["refinement"] = {
            "output": refined.output,
            "confidence": refined.confidence,
            "addressedCritiques": flaws[:_SHOWN_FLAWS],
        }
        return refined

    async def _criticise(self, number: int, proposal: StepResult) -> Sequence[StepResult]:
        topic = self._request.topic
        given: JsonObject = {"topic": topic, "proposal": proposal.output, "round": number}
        steps: list[Step] = []
        for place, critic in enumerate(self._request.critics, 1):
            view = {} if critic.perspective is None else {"perspective": critic.perspective}
            asked = Participant(critic.agent, critic.skill)
            name = f"round-{number}/critic-{place}"
            steps.append(self._step(name, asked, {**given, **view}, mode=CRITIQUE))
        return await _ask_all(self._ask, steps)

    async def _refine(
        self, number: int, proposal: StepResult, critiques: list[JsonObject], flaws: list[Json]
    ) -> StepResult:
        shown = [{key: one[key] for key in ("agent", "flaws", "alternatives")} for one in critiques]
        return await self._propose(
            f"round-{number}/refine",
            Participant(self._request.proposer.agent, REFINE),
            {
                "originalProposal": proposal.output,
                "critiques": shown,
                "addressedConcerns": flaws,
            },
        )

    async def _resolve(self, given: JsonObject) -> StepResult:
        resolver, topic = self._request.resolver, self._request.topic
        answer = await self._ask_one("resolve", resolver, {"topic": topic, **given})
        if not answer.is_completed:
            raise _Failed(f"the resolver {resolver.agent} failed: {answer.unavailable_reason}")
        self._tell({"phase": "resolve", "confidence": answer.confidence})
        return answer

    async def _ask_one(self, name: str, asked: Participant, given: JsonObject) -> StepResult:
        return await self._ask(self._step(name, asked, given, mode=EXECUTE))

    def _step(self, name: str, asked: Participant, given: JsonObject, *, mode: str) -> Step:
        return Step(name, asked.agent, asked.skill, mode, given, self._request.timeout_ms)

    # ---------------------------------------------------------------- what was gathered

    def _assume(self, answer: StepResult) -> None:
        self._assumptions.update(dict.fromkeys(answer.assumptions))

    def _weighed_rounds(self) -> list[JsonObject]:
        """The rounds for the resolver, who alone sees the critics' weights.

        A weight changes nothing in how the debate is held: no rule speaks of it.
        """
        return [{**one, "critiques": self._weighed(one["critiques"])} for one in self._rounds]

    def _weighed(self, critiques: list[JsonObject]) -> list[JsonObject]:
        weights = [critic.weight for critic in self._request.critics]
        return [
            one if weight is None else {**one, "weight": weight}
            for one, weight in zip(critiques, weights, strict=True)
        ]


async def _ask_all(ask: Ask, steps: Sequence[Step]) -> Sequence[StepResult]:
    """The answers in the order of the steps, of which few are asked at once."""
    few = asyncio.Semaphore(AT_ONCE)

    async def ask_in_turn(step: Step) -> StepResult:
        async with few:
            return await ask(step)

    try:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ask_in_turn(step)) for step in steps]
    except ExceptionGroup as errors:
        # Whoever runs the debate knows errors by their kind, not in bundles.
        raise errors.exceptions[0] from None
    return [task.result() for task in asked]


def _critique(critic: Critic, answer: StepResult) -> JsonObject:
    if not answer.is_completed:
        flaw = f"the critic {critic.agent} failed: {answer.unavailable_reason}"
        facts: JsonObject = {"output": None, "flaws": [flaw], "alternatives": [], "confidence": 0.0}
        return {"agent": critic.agent, **facts}
    output: JsonObject = answer.output if _is_object(answer.output) else {}
    return {
        "agent": critic.agent,
        "output": answer.output,
        "flaws": _listed(output.get("flaws")),
        "alternatives": _listed(output.get("alternatives")),
        "confidence": answer.confidence,
    }


def _shown(proposal: StepResult) -> JsonObject:
    return {
        "output": proposal.output,
        "confidence": proposal.confidence,
        "assumptions": list(proposal.assumptions),
    }


def _listed(value: Json) -> list[Json]:
    """The list; one word is a list of one, and what else is said is none."""
    if isinstance(value, str):
        return [value]
    return list(cast("list[Json]", value)) if isinstance(value, list) else []


def _is_object(value: Json) -> TypeGuard[JsonObject]:
    return isinstance(value, dict)


AskFor = Callable[[CallId, Step], Awaitable[StepResult]]
"""Asks a step of the debate with this call id; the same step again is not asked anew."""


class DebateAgent:
    """Holds the debate that a turn's text describes (a `DebateRequest` as JSON).

    It keeps nothing: after a restart the debate is held again, and steps that were asked before
    have their answers or are still under way, as `ask_for` knows.
    """

    recovery: Recovery = Recovery.REPEAT

    def __init__(self, ask_for: AskFor) -> None:
        self._ask_for = ask_for

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        """Hold it: a note for each step forward, then the result. Raises: AgentFailed."""
        request, call_id = _read(turn), _call_id(turn)
        # A debate tells a bounded number of things, so the queue needs no bound of its own.
        told: asyncio.Queue[JsonObject | None] = asyncio.Queue()

        async def hold() -> JsonObject:
            try:
                return await hold_debate(
                    request, lambda step: self._ask_for(call_id, step), told.put_nowait
                )
            finally:
                told.put_nowait(None)

        debate = asyncio.ensure_future(hold())
        try:
            while (progress := await told.get()) is not None:
                yield Note(_sentence(progress))
            result = await debate
        finally:
            debate.cancel()
            await asyncio.wait({debate})
            if not debate.cancelled():
                debate.exception()  # told already, unless nobody listens any more
        yield Reply.of_text(_answer(result))

    async def close(self) -> None:
        """Nothing is held."""


def _read(turn: Turn) -> DebateRequest:
    try:
        return msgspec.json.decode(turn.message.text, type=DebateRequest)
    except msgspec.MsgspecError as error:
        raise AgentFailed(
            f"The message describes no debate: {error}. Use the tool debate_call."
        ) from None


def _call_id(turn: Turn) -> CallId:
    if turn.provenance is None or not turn.provenance.correlation_id:
        raise AgentFailed("A debate is held for a call only. Use the tool debate_call.")
    return CallId(turn.provenance.correlation_id)


def _sentence(progress: JsonObject) -> str:
    """How far the debate is, for people who watch."""
    if "confidences" in progress:
        sure = ", ".join(f"{one:g}" for one in progress["confidences"])
        return f"Round {progress['round']}: the critics have spoken (confidence {sure})."
    words = {"propose": "The proposal is there", "resolve": "The conclusion is there"}
    what = words.get(progress["phase"], f"Refined ({progress['phase'].partition('/')[0]})")
    return f"{what}: confidence {progress['confidence']:g}."


def _answer(result: JsonObject) -> str:
    shown = {
        "output": result,
        "confidence": result["confidence"],
        "assumptions": result["assumptions"],
    }
    # Not with msgspec: what agents say may hold half characters, which only escapes can carry.
    return json.dumps(shown)
