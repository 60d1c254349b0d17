"""Debates: their steps, inputs and results."""

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from itertools import cycle

import msgspec
import pytest
from anyio import create_task_group, fail_after
from hypothesis import given
from hypothesis import strategies as st
from tests.calls.turns import turn_of

from openclaw_a2a.calls.debate import (
    DEBATE_SCHEMA,
    Debate,
    DebateAgent,
    DebateRequest,
    DebateStep,
    max_duration_ms,
    parse_debate,
)
from openclaw_a2a.calls.outcome import Outcome, parse_callee_answer
from openclaw_a2a.calls.request import InvalidCallRequest
from openclaw_a2a.model.agent_event import Note, Reply
from openclaw_a2a.model.call import CallId, CallStatus
from openclaw_a2a.model.errors import AgentFailed, StoreUnavailable
from openclaw_a2a.model.ids import AgentId, Json, JsonObject, SessionKey
from openclaw_a2a.model.turn import Provenance, Turn

INPUT: JsonObject = {
    "topic": "tides",
    "proposer": {"agent": "pro", "skill": "plan"},
    "critics": [{"agent": "one"}, {"agent": "two", "perspective": "cost", "weight": 0.5}],
    "resolver": {"agent": "judge", "skill": "decide"},
    "input": {"q": "when?"},
}
FAILED = Outcome(CallStatus.ERROR, error="no luck")
LATE = Outcome(CallStatus.TIMEOUT, error="no answer within 5 ms")
Script = dict[str, Outcome]


def read(**changes: Json) -> DebateRequest:
    return parse_debate({**INPUT, **changes}, default_ms=60_000)


def problems_of(given: Json) -> str:
    with pytest.raises(InvalidCallRequest) as caught:
        parse_debate(given, default_ms=60_000)
    return str(caught.value)


def said(output: Json, confidence: float, *assumptions: str) -> Outcome:
    return Outcome(CallStatus.COMPLETED, output, confidence, assumptions)


class Hall:
    """Where debates are held: answers by a script, and remembers who was asked what."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script or {}
        self.steps: list[DebateStep] = []
        self.progress: list[str] = []
        self.at_once = self.most_at_once = 0

    async def ask(self, step: DebateStep) -> Outcome:
        self.steps.append(step)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        for _ in range(len(step.name)):
            await asyncio.sleep(0)
        self.at_once -= 1
        standard = said({"flaws": [f"flaw of {step.name}"]}, 0.6)
        return self.script.get(step.name, standard)

    async def hold(self, request: DebateRequest) -> JsonObject:
        debate = Debate(request, self.ask)
        async for progress in debate.run():
            self.progress.append(progress)
        return debate.result

    def step(self, name: str) -> DebateStep:
        return next(step for step in self.steps if step.name == name)

    @property
    def names(self) -> list[str]:
        return [step.name for step in self.steps]


# ------------------------------------------------------------------ the input


@pytest.mark.requirement("calls.debate.defaults")
def test_a_debate_has_two_rounds_a_high_aim_and_is_waited_for_when_nothing_else_is_said() -> None:
    request = read()
    assert (request.rounds, request.min_confidence, request.wait) == (2, 0.85, True)
    assert request.timeout_ms == 60_000
    assert request.critics[0].skill == "critique"
    assert [one.agent for one in request.participants] == ["pro", "one", "two", "judge"]


def test_a_request_is_the_same_after_it_was_written_down() -> None:
    request = read(rounds=5, minConfidence=0.1, wait=False, timeout=5)
    body = msgspec.json.encode(request)
    assert msgspec.json.decode(body, type=DebateRequest) == request


@pytest.mark.requirement("calls.debate.session")
def test_an_agent_may_be_named_by_one_of_its_sessions() -> None:
    request = read(resolver={"agent": "agent:Judge:main", "skill": "decide"})
    assert request.resolver.agent == "judge"
    assert "session key" in problems_of({**INPUT, "critics": [{"agent": "agent:x"}]})


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        ({"timeoutSeconds": 1.5}, 1500),
        ({"timeout": 250}, 250),
        ({"timeoutSeconds": 301}, 301_000),
        ({"timeout": 10**400}, 10**12),
        ({"timeoutSeconds": None}, 60_000),
        ({}, 60_000),
    ],
)
def test_the_time_for_an_answer_is_in_seconds_or_milliseconds(
    given: JsonObject, milliseconds: int
) -> None:
    assert read(**given).timeout_ms == milliseconds


@pytest.mark.requirement("calls.debate.input")
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"topic": " "}, "topic"),
        ({"proposer": None}, "proposer"),
        ({"resolver": {"agent": "judge", "skill": "a b"}}, "resolver.skill"),
        ({"critics": []}, "critics"),
        ({"critics": [{"agent": "x"}] * 11}, "critics"),
        ({"critics": [{"agent": "x", "weight": 2}]}, "critics[0].weight"),
        ({"critics": [{"agent": "x", "perspective": 5}]}, "critics[0].perspective"),
        ({"critics": ["x"]}, "critics[0] must be an object"),
        ({"input": "text"}, "input"),
        ({"input": {"x": "y" * 1_048_576}}, "bytes"),
        ({"input": {"x": "\ud800"}}, "written"),
        ({"topic": "\ud800"}, "written"),
        ({"rounds": 0}, "rounds"),
        ({"rounds": 6}, "rounds"),
        ({"rounds": 1.5}, "rounds"),
        ({"rounds": True}, "rounds"),
        ({"rounds": 10**400}, "rounds"),
        ({"minConfidence": 1.1}, "minConfidence"),
        ({"minConfidence": float("nan")}, "minConfidence"),
        ({"timeoutSeconds": -1}, "timeoutSeconds"),
        ({"timeoutSeconds": 0}, "timeoutSeconds"),
        ({"timeout": 1, "timeoutSeconds": 1}, "not both"),
        ({"wait": "yes"}, "wait"),
    ],
)
def test_an_invalid_debate_request_is_refused_with_the_reason(
    change: JsonObject, named: str
) -> None:
    assert named in problems_of({**INPUT, **change})


@pytest.mark.requirement("calls.debate.input")
def test_all_problems_of_a_debate_are_reported_at_once() -> None:
    problems = problems_of({"rounds": 9})
    for name in ("topic", "proposer", "critics", "resolver", "input", "rounds"):
        assert name in problems


def test_exactly_the_limit_of_an_input_passes() -> None:
    room = 1_048_576 - len(b'{"x":""}')
    assert read(input={"x": "y" * room}).input["x"]


@given(st.recursive(st.none() | st.text() | st.floats(), lambda one: st.lists(one)))
def test_arbitrary_json_is_refused_as_a_debate_with_sentences(value: Json) -> None:
    assert problems_of(value)
    assert problems_of({**INPUT, "critics": value})


def test_every_member_of_the_input_is_in_the_schema_for_models() -> None:
    known = DEBATE_SCHEMA["properties"]
    fields = {field.encode_name for field in msgspec.structs.fields(DebateRequest)}
    assert fields - {"timeoutMs"} <= set(known)
    assert set(DEBATE_SCHEMA["required"]) <= set(known)


# ------------------------------------------------------------------ the rules, one by one


@pytest.mark.requirement("calls.debate.proposal")
async def test_the_proposer_works_on_the_input() -> None:
    hall = Hall()
    await hall.hold(read(timeout=77))
    assert hall.steps[0] == DebateStep(
        "propose", AgentId("pro"), "plan", "execute", {"q": "when?"}, 77
    )


@pytest.mark.requirement("calls.debate.sure")
async def test_a_very_sure_proposal_goes_straight_to_the_resolver() -> None:
    hall = Hall({"propose": said("noon", 0.95), "resolve": said("noon it is", 0.4)})
    result = await hall.hold(read())
    assert hall.names == ["propose", "resolve"]
    assert hall.step("resolve").input == {"topic": "tides", "finalProposal": "noon", "rounds": []}
    assert result == {
        "status": "resolved",
        "conclusion": "noon it is",
        "confidence": 0.4,
        "confidenceHistory": [0.95],
        "rounds": [],
        "assumptions": [],
    }


@pytest.mark.requirement("calls.debate.critics")
async def test_critics_see_topic_proposal_round_and_their_perspective() -> None:
    hall = Hall({"propose": said("noon", 0.5)})
    await hall.hold(read())
    seen: JsonObject = {"topic": "tides", "proposal": "noon", "round": 1}
    assert hall.step("round-1/critic-1").input == seen
    assert hall.step("round-1/critic-2").input == {**seen, "perspective": "cost"}
    assert {hall.step(f"round-1/critic-{n}").mode for n in (1, 2)} == {"critique"}


@pytest.mark.requirement("calls.debate.three")
async def test_at_most_three_critics_work_at_once() -> None:
    hall = Hall()
    await hall.hold(read(critics=[{"agent": f"c{n}"} for n in range(10)]))
    assert hall.most_at_once == 3
    assert hall.names[1:11] == [f"round-1/critic-{n}" for n in range(1, 11)]


@pytest.mark.requirement("calls.debate.flaws")
@pytest.mark.parametrize(
    ("output", "flaws", "alternatives"),
    [
        ({"flaws": ["a", "b"], "alternatives": ["c"]}, ["a", "b"], ["c"]),
        ({"flaws": "a"}, ["a"], []),
        ({"flaws": 5, "alternatives": None}, [], []),
        ("all is well", [], []),
        (None, [], []),
    ],
)
async def test_flaws_and_alternatives_come_from_the_critics_output(
    output: Json, flaws: list[Json], alternatives: list[Json]
) -> None:
    hall = Hall({"round-1/critic-1": said(output, 0.7)})
    result = await hall.hold(read(rounds=1))
    assert result["rounds"][0]["critiques"][0] == {
        "agent": "one",
        "output": output,
        "flaws": flaws,
        "alternatives": alternatives,
        "confidence": 0.7,
    }


@pytest.mark.requirement("calls.debate.failed-critic")
@pytest.mark.parametrize("failure", [FAILED, LATE])
async def test_a_failed_critic_has_no_confidence_and_one_flaw(failure: Outcome) -> None:
    hall = Hall({"round-1/critic-1": failure})
    result = await hall.hold(read(rounds=1))
    critique = result["rounds"][0]["critiques"][0]
    assert (critique["confidence"], critique["output"]) == (0, None)
    assert len(critique["flaws"]) == 1
    assert "one failed" in critique["flaws"][0]
    assert result["status"] == "unresolved"


@pytest.mark.requirement("calls.debate.all-failed")
async def test_a_debate_whose_critics_all_failed_is_an_error_with_what_was_gathered() -> None:
    script = {"round-2/critic-1": FAILED, "round-2/critic-2": LATE}
    hall = Hall({"propose": said("noon", 0.3, "moon"), **script})
    result = await hall.hold(read(rounds=3))
    assert (result["status"], result["conclusion"], result["confidence"]) == ("error", None, 0)
    assert "all critics failed in round 2" in result["error"]
    assert len(result["rounds"]) == 2
    assert result["assumptions"] == ["moon"]
    assert "resolve" not in hall.names


@pytest.mark.requirement("calls.debate.enough")
async def test_a_proposal_that_is_sure_enough_is_criticised_once_and_not_refined() -> None:
    hall = Hall({"propose": said("noon", 0.85), "resolve": said("noon", 0.9)})
    result = await hall.hold(read(rounds=5))
    assert hall.names == ["propose", "round-1/critic-1", "round-1/critic-2", "resolve"]
    assert len(result["rounds"]) == 1
    assert "refinement" not in result["rounds"][0]
    assert result["confidenceHistory"] == [0.85, 0.9]


@pytest.mark.requirement("calls.debate.refine")
async def test_the_proposer_refines_with_all_that_the_critics_said() -> None:
    flaws = {"flaws": ["a", "b"], "alternatives": ["x"]}
    script = {"round-1/critic-1": said(flaws, 0.7), "round-1/critic-2": FAILED}
    hall = Hall({"propose": said("noon", 0.5), **script})
    await hall.hold(read(rounds=1))
    refine = hall.step("round-1/refine")
    lost = "the critic two failed: no luck"
    assert (refine.agent, refine.skill, refine.mode) == ("pro", "refine", "execute")
    assert refine.input == {
        "originalProposal": "noon",
        "critiques": [
            {"agent": "one", "flaws": ["a", "b"], "alternatives": ["x"]},
            {"agent": "two", "flaws": [lost], "alternatives": []},
        ],
        "addressedConcerns": ["a", "b", lost],
    }


@pytest.mark.requirement("calls.debate.stop", "calls.debate.rounds", "calls.debate.history")
async def test_a_refinement_is_the_next_proposal_and_ends_the_rounds_when_it_is_sure() -> None:
    script = {"round-1/refine": said("one", 0.6, "b"), "round-2/refine": said("two", 0.85)}
    hall = Hall({"propose": said("noon", 0.5, "a"), **script})
    result = await hall.hold(read(rounds=5))
    assert hall.step("round-2/critic-1").input["proposal"] == "one"
    assert hall.step("resolve").input["finalProposal"] == "two"
    proposals = [one["proposal"] for one in result["rounds"]]
    assert proposals == [
        {"output": "noon", "confidence": 0.5, "assumptions": ["a"]},
        {"output": "one", "confidence": 0.6, "assumptions": ["b"]},
    ]
    assert result["confidenceHistory"] == [0.5, 0.6, 0.85, 0.6]


@pytest.mark.requirement("calls.debate.rounds")
async def test_a_refinement_shows_the_first_three_flaws() -> None:
    script = {f"round-1/critic-{n}": said({"flaws": [f"{n}a", f"{n}b"]}, 0.7) for n in (1, 2)}
    result = await Hall({**script, "round-1/refine": said("better", 0.7)}).hold(read(rounds=1))
    assert result["rounds"][0]["refinement"] == {
        "output": "better",
        "confidence": 0.7,
        "addressedCritiques": ["1a", "1b", "2a"],
    }


@pytest.mark.requirement("calls.debate.resolver")
async def test_the_resolver_sees_the_whole_debate_and_the_critics_weights() -> None:
    hall = Hall({"propose": said("noon", 0.5, "a"), "round-1/refine": said("late", 0.9, "b", "a")})
    result = await hall.hold(read())
    seen = hall.step("resolve").input
    assert (seen["topic"], seen["finalProposal"]) == ("tides", "late")
    assert seen["assumptions"] == ["a", "b"]
    weights = [one.get("weight") for one in seen["debateHistory"][0]["critiques"]]
    assert weights == [None, 0.5]
    assert "weight" not in result["rounds"][0]["critiques"][1]


@pytest.mark.requirement("calls.debate.resolved")
@pytest.mark.parametrize(("confidence", "status"), [(0.85, "resolved"), (0.84, "unresolved")])
async def test_a_debate_is_resolved_when_the_resolver_is_sure_enough(
    confidence: float, status: str
) -> None:
    result = await Hall({"resolve": said("noon", confidence)}).hold(read())
    assert (result["status"], result["confidence"]) == (status, confidence)
    assert result["confidenceHistory"][-1] == confidence


@pytest.mark.requirement("calls.debate.dissent")
async def test_dissent_is_reported_when_it_is_a_text() -> None:
    result = await Hall({"resolve": said({"dissent": "two is against"}, 0.9)}).hold(read())
    assert result["dissent"] == "two is against"
    untold = await Hall({"resolve": said({"dissent": ["x"]}, 0.9)}).hold(read())
    assert "dissent" not in untold


@pytest.mark.requirement("calls.debate.assumptions")
async def test_assumptions_are_unique_and_in_order() -> None:
    script = {"propose": said("x", 0.5, "b", "a", "b"), "resolve": said("x", 0.9, "c", "a")}
    result = await Hall(script).hold(read(rounds=1))
    assert result["assumptions"] == ["b", "a", "c"]


@pytest.mark.requirement("calls.debate.failing")
@pytest.mark.parametrize(
    ("failing", "history", "rounds"),
    [("propose", 0, 0), ("round-1/refine", 1, 1), ("round-2/refine", 2, 2), ("resolve", 3, 2)],
)
async def test_a_failing_proposer_or_resolver_leaves_what_was_gathered(
    failing: str, history: int, rounds: int
) -> None:
    hall = Hall({failing: FAILED})
    result = await hall.hold(read())
    assert result["status"] == "error"
    assert "no luck" in result["error"]
    assert (len(result["confidenceHistory"]), len(result["rounds"])) == (history, rounds)
    assert hall.names[-1] == failing


async def test_each_step_of_a_debate_is_reported_as_progress() -> None:
    hall = Hall()
    await hall.hold(read(rounds=1))
    assert hall.progress == [
        "Proposed: confidence 0.6.",
        "Round 1: the critics have answered (confidence 0.6, 0.6).",
        "Refined (round-1): confidence 0.6.",
        "Concluded: confidence 0.6.",
    ]


async def test_an_error_of_ours_is_the_debates_own_and_ends_the_others() -> None:
    hall = Hall()

    async def ask(step: DebateStep) -> Outcome:
        if step.name == "round-1/critic-2":
            raise StoreUnavailable("the disk is full")
        return await hall.ask(step)

    with pytest.raises(StoreUnavailable):
        async for _ in Debate(read(), ask).run():
            pass


# ------------------------------------------------------------------ the rules, all together

ANSWERS = st.builds(
    Outcome,
    st.sampled_from([*[CallStatus.COMPLETED] * 3, CallStatus.ERROR, CallStatus.TIMEOUT]),
    st.sampled_from(["x", {"flaws": ["a", "b"], "dissent": "no"}, None, {"flaws": "one"}]),
    st.sampled_from([0.0, 0.3, 0.5, 0.84, 0.85, 0.9, 0.95, 1.0]),
    st.sampled_from([(), ("a",), ("b", "a")]),
)


@given(
    st.lists(ANSWERS, min_size=1, max_size=13),
    st.integers(1, 5),
    st.integers(1, 10),
    st.sampled_from([0.0, 0.5, 0.85, 0.99, 1.0]),
)
async def test_any_debate_ends_as_the_rules_say_and_is_the_same_when_held_again(
    answers: list[Outcome], rounds: int, critics: int, aim: float
) -> None:
    request = read(
        rounds=rounds, minConfidence=aim, critics=[{"agent": f"c{n}"} for n in range(critics)]
    )
    names = ["propose", "resolve"]
    for number in range(1, rounds + 1):
        names.append(f"round-{number}/refine")
        names += [f"round-{number}/critic-{place}" for place in range(1, critics + 1)]
    script = dict(zip(names, cycle(answers), strict=False))
    hall, again = Hall(script), Hall(script)
    with fail_after(240):
        result = await hall.hold(request)
        assert await again.hold(request) == result
    assert again.steps == hall.steps
    assert len(set(hall.names)) == len(hall.names)
    assert hall.most_at_once <= 3
    refined = [one for one in result["rounds"] if "refinement" in one]
    is_sure = script["propose"].is_completed and script["propose"].confidence >= 0.95
    if result["status"] == "error":
        assert result["error"]
        assert result["conclusion"] is None
    else:
        own = [] if is_sure else [script["resolve"].confidence]
        assert len(result["confidenceHistory"]) == 1 + len(refined) + len(own)
        is_resolved = is_sure or script["resolve"].confidence >= aim
        assert result["status"] == ("resolved" if is_resolved else "unresolved")
    assert len(result["rounds"]) <= rounds
    assert len(set(result["assumptions"])) == len(result["assumptions"])
    json.dumps(result)


def test_a_debate_has_time_for_every_answer_at_its_last_moment() -> None:
    seven = read(critics=[{"agent": "x"}] * 7, rounds=2, timeout=1000)
    assert max_duration_ms(seven) >= (1 + 2 * (3 + 1) + 1) * 1000


# ------------------------------------------------------------------ debates as tasks


def debate_turn(text: str, call_id: str = "d-1") -> Turn:
    session = SessionKey("agent:debate:call:1")
    provenance = Provenance("debate_call", session, correlation_id=call_id)
    return turn_of(text, agent="debate", provenance=provenance)


def asking(hall: Hall, asked: list[CallId]) -> DebateAgent:
    async def ask_for(call_id: CallId, step: DebateStep) -> Outcome:
        asked.append(call_id)
        return await hall.ask(step)

    return DebateAgent(ask_for)


async def test_a_debate_is_a_task_that_tells_how_far_it_is_and_answers_with_the_result() -> None:
    hall, asked = Hall({"resolve": said({"answer": "\ud800"}, 0.9, "moon")}), list[CallId]()
    text = msgspec.json.encode(read()).decode()
    events = [event async for event in asking(hall, asked).run(debate_turn(text))]
    *notes, last = events
    assert len(notes) == len(hall.progress) + 6
    assert all(isinstance(message, Note) and message.text.endswith(".") for message in notes)
    assert set(asked) == {"d-1"}
    assert isinstance(last, Reply)
    answer = parse_callee_answer(last.parts[0].text or "")
    assert answer is not None
    assert (answer.confidence, answer.assumptions) == (0.9, ("moon",))
    assert answer.output["status"] == "resolved"
    again = await Hall(hall.script).hold(read())
    assert answer.output == {**again, "conclusion": {"answer": "?"}}


async def test_a_cancelled_debate_cancels_its_steps() -> None:
    begun, ended = asyncio.Event(), list[str]()

    async def ask_for(_: CallId, step: DebateStep) -> Outcome:
        if step.name == "propose":
            return said("noon", 0.5)
        try:
            begun.set()
            return await asyncio.get_running_loop().create_future()
        finally:
            ended.append(step.name)

    text = msgspec.json.encode(read()).decode()
    with fail_after(240):
        async with aclosing(DebateAgent(ask_for).run(debate_turn(text))) as events:
            await anext(events)
            async with create_task_group() as group:
                group.start_soon(anext, events)
                await begun.wait()
                group.cancel_scope.cancel()
    assert sorted(ended) == ["round-1/critic-1", "round-1/critic-2"]


async def test_a_debate_fails_with_the_error_of_ours() -> None:
    async def ask_for(_: CallId, _step: DebateStep) -> Outcome:
        raise StoreUnavailable("the disk is full")

    text = msgspec.json.encode(read()).decode()
    with pytest.raises(StoreUnavailable):
        async for _ in DebateAgent(ask_for).run(debate_turn(text)):
            pass


Wrong = Callable[[], Turn]


@pytest.mark.parametrize("turn", [lambda: debate_turn("hello"), lambda: debate_turn("{}", "")])
async def test_a_message_that_is_no_debate_of_a_call_fails(turn: Wrong) -> None:
    agent = asking(Hall(), [])
    with pytest.raises(AgentFailed, match="debate_call"):
        async for _ in agent.run(turn()):
            pass
    await agent.close()
