"""Names, policy, chains, skills and the parsing of answers."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.calls.builtin_skills import describe_skills
from openclaw_a2a.calls.loop_guard import (
    chain_metadata,
    chain_violation,
    read_chain,
)
from openclaw_a2a.calls.outcome import clamp_confidence, parse_callee_answer
from openclaw_a2a.calls.policy import CallPolicy, check_policy, input_problems
from openclaw_a2a.calls.request import InvalidName, parse_agent_id, parse_skill_name
from openclaw_a2a.model.call import CallStatus
from openclaw_a2a.model.ids import AgentId, SessionKey
from openclaw_a2a.model.session_keys import session_agent
from openclaw_a2a.model.skill import Skill
from openclaw_a2a.model.turn import CHAIN_HOSTS_KEY, CHAIN_KEY

A, B, C = AgentId("a"), AgentId("b"), AgentId("c")


# ------------------------------------------------------------------ names


@pytest.mark.requirement("calls.names.agent-id")
def test_an_agent_id_is_trimmed_and_lowered() -> None:
    assert parse_agent_id("  Metis ") == "metis"
    assert parse_agent_id("target:ops") == "target:ops"


@pytest.mark.requirement("calls.names.agent-id")
@pytest.mark.parametrize(
    "name", ["", " ", "a b", "../x", "a/b", "a\\b", "a\0", "x" * 65, "é", 5, None]
)
def test_other_agent_ids_are_refused(name: object) -> None:
    with pytest.raises(InvalidName):
        parse_agent_id(name)


@pytest.mark.requirement("calls.names.skill")
def test_a_skill_keeps_its_case() -> None:
    assert parse_skill_name(" webSearch_2 ") == "webSearch_2"


@pytest.mark.requirement("calls.names.skill")
@pytest.mark.parametrize("name", ["", "a b", "a.b", "..", "x" * 129, 5, None])
def test_other_skill_names_are_refused(name: object) -> None:
    with pytest.raises(InvalidName):
        parse_skill_name(name)


@pytest.mark.requirement("calls.names.session-key")
@pytest.mark.parametrize(
    ("key", "agent"),
    [
        ("agent:main:main", "main"),
        ("agent:a:a2a:x:y", "a"),
        ("agent:main", None),
        ("x", None),
        ("", None),
    ],
)
def test_the_agent_of_a_session_is_in_its_key(key: str, agent: str | None) -> None:
    assert session_agent(SessionKey(key)) == agent


# ------------------------------------------------------------------ policy


@pytest.mark.requirement(
    "calls.policy.disabled",
    "calls.policy.nobody",
    "calls.policy.caller",
    "calls.policy.target",
    "calls.policy.reach",
)
@pytest.mark.parametrize(
    ("policy", "caller", "target", "status"),
    [
        (CallPolicy(enabled=True, allow=("*",)), A, A, "error"),
        (CallPolicy(), A, B, "forbidden"),
        (CallPolicy(enabled=True), A, B, "forbidden"),
        (CallPolicy(enabled=True, allow=("b",)), A, B, "forbidden"),
        (CallPolicy(enabled=True, allow=("a",)), A, B, "forbidden"),
        (CallPolicy(enabled=True, allow=("*",), allowed_targets={A: ()}), A, B, "forbidden"),
        (CallPolicy(enabled=True, allow=("*",), allowed_targets={A: ("c",)}), A, B, "forbidden"),
        (CallPolicy(enabled=True, allow=("A", "B")), A, B, None),
        (CallPolicy(enabled=True, allow=("*",), allowed_targets={A: ("b*",)}), A, B, None),
        (CallPolicy(enabled=True, allow=("*",), allowed_targets={B: ()}), A, B, None),
    ],
)
def test_the_policy_decides_which_agents_call_each_other(
    policy: CallPolicy, caller: AgentId, target: AgentId, status: str | None
) -> None:
    refusal = check_policy(policy, caller, target)
    assert (refusal.status if refusal else None) == status


@pytest.mark.requirement("calls.policy.patterns")
def test_only_the_star_is_special_in_patterns() -> None:
    policy = CallPolicy(enabled=True, allow=("a", "team-*-x", "[b]", "?"))
    assert check_policy(policy, A, AgentId("team-1-x")) is None
    assert check_policy(policy, A, AgentId("team-1-y")) is not None
    assert check_policy(policy, A, B) is not None


# ------------------------------------------------------------------ chain


@pytest.mark.requirement("calls.loop.loop", "calls.loop.depth")
def test_a_chain_may_not_return_nor_grow_for_ever() -> None:
    assert chain_violation([A], B, max_depth=5) is None
    assert "loop" in (chain_violation([A, B], A, max_depth=5) or "")
    long = [AgentId(f"x{number}") for number in range(6)]
    assert chain_violation(long[:5], C, max_depth=5) is None
    assert "depth" in (chain_violation(long, C, max_depth=5) or "")


JUNK = st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.lists(inner))


@given(JUNK, JUNK)
def test_any_metadata_is_read_as_a_chain(names: object, hosts: object) -> None:
    chain = read_chain({CHAIN_KEY: names, CHAIN_HOSTS_KEY: hosts}, "here")
    assert all(isinstance(name, str) and name for name in chain)
    assert len(chain) <= 64


def test_a_chain_goes_to_another_gateway_and_comes_back_as_it_was() -> None:
    there = read_chain(chain_metadata([A, B], "here"), "there")
    assert there == (f"{A}@here", f"{B}@here")
    assert chain_violation(there, A, max_depth=5) is None  # another agent with the same name
    back = read_chain(chain_metadata([*there, C], "there"), "here")
    assert back == (A, B, f"{C}@there")
    assert "loop" in (chain_violation(back, A, max_depth=5) or "")


def test_a_chain_that_tells_no_gateways_is_taken_at_its_word() -> None:
    chain = read_chain({CHAIN_KEY: [A, B]}, "here")
    assert "loop" in (chain_violation(chain, B, max_depth=5) or "")


# ------------------------------------------------------------------ answers


@pytest.mark.requirement(
    "calls.reading.first-object",
    "calls.reading.output",
    "calls.reading.confidence",
    "calls.reading.prose",
    "calls.reading.broken",
)
@pytest.mark.parametrize(
    ("text", "output", "confidence"),
    [
        ('{"output": {"answer": 42}, "confidence": 0.9}', {"answer": 42}, 0.9),
        ('{"result": 7}', 7, 0.5),
        ('{"answer": 1}', {"answer": 1}, 0.5),
        ('{"output": {"confidence": 0.7}}', {"confidence": 0.7}, 0.7),
        ('Sure!\n```json\n{"output": "x", "confidence": 2}\n```\nBye', "x", 1.0),
        ("just words", "just words", 0.5),
        ('{"output": ', '{"output": ', 0.3),
        ("set {x | x > 0}", "set {x | x > 0}", 0.3),
        ('noise {not json} then {"output": "y"}', "y", 0.5),
    ],
)
def test_an_answer_is_read_as_far_as_it_can_be(
    text: str, output: object, confidence: float
) -> None:
    reading = parse_callee_answer(text)
    assert reading.is_completed
    assert (reading.output, reading.confidence) == (output, confidence)


@pytest.mark.requirement("calls.reading.lists")
def test_assumptions_and_caveats_may_be_one_text_or_several() -> None:
    reading = parse_callee_answer('{"output": {"caveats": ["a", 1]}, "assumptions": "one"}')
    assert reading.is_completed
    assert (reading.assumptions, reading.caveats) == (("one",), ("a", "1"))


@pytest.mark.requirement("calls.reading.empty")
@pytest.mark.parametrize("text", ["", "  \n "])
def test_an_empty_text_is_no_answer(text: str) -> None:
    assert parse_callee_answer(text).status is CallStatus.ERROR


@pytest.mark.requirement("calls.confidence.clamped")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, 0.5),
        ("1", 0.5),
        (float("nan"), 0.5),
        (float("inf"), 0.5),
        (True, 0.5),
        (-1, 0),
        (3, 1),
    ],
)
def test_confidence_is_a_number_between_nothing_and_certainty(
    value: object, expected: float
) -> None:
    assert clamp_confidence(value) == expected


@given(st.text() | st.text(alphabet='{}[]":,a1 '))
def test_any_text_is_read_without_harm(text: str) -> None:
    reading = parse_callee_answer(text)
    assert reading.is_completed == bool(text.strip())


@pytest.mark.requirement("calls.reading.first-object")
@given(
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), min_size=1),
    st.text(alphabet="abc \n`", max_size=20),
)
def test_the_first_object_is_found_whatever_stands_around_it(
    output: dict[str, object], noise: str
) -> None:
    reading = parse_callee_answer(f"{noise}{json.dumps({'output': output})}{noise}")
    assert reading.is_completed
    assert reading.output == output


# ------------------------------------------------------------------ skills

RESEARCH = msgspec.convert(
    {
        "name": "research",
        "description": "Finds things out.",
        "input": {
            "q": {"type": "string", "required": True, "minLength": 2},
            "depth": {"type": "integer", "minimum": 1, "maximum": 3},
            "kind": {"type": "string", "enum": ["web", "papers"]},
            "where": {
                "type": "object",
                "properties": {"site": {"type": "string", "required": True}},
            },
        },
    },
    Skill,
)


@pytest.mark.requirement("calls.skills.unknown-parameters")
def test_an_input_that_fits_has_no_problems_and_unknown_parameters_are_fine() -> None:
    assert input_problems(RESEARCH, {"q": "tides", "depth": 2, "extra": []}) == []


@pytest.mark.requirement("calls.skills.problems")
def test_all_problems_of_an_input_come_together() -> None:
    problems = input_problems(RESEARCH, {"depth": 4, "kind": "tv", "where": {}})
    assert len(problems) == 4
    listed = "\n".join(problems)
    assert all(word in listed for word in ("q", "depth", "kind", "site"))


def test_every_agent_can_be_pinged_and_asked_for_its_skills() -> None:
    names = [skill["name"] for skill in describe_skills((RESEARCH,))["skills"]]
    assert names == ["research", "ping", "list_skills"]


@pytest.mark.parametrize(
    ("text", "output", "confidence"),
    [
        ('{"output": 1, "confidence": 1' + "0" * 400 + "}", 1, 1.0),
        ('{"output": NaN}', '{"output": NaN}', 0.3),
        ('{"output": "\\ud800x"}', "?x", 0.5),
        ('{"output": {"confidence": -1' + "0" * 400 + "}}", None, 0.0),
    ],
)
def test_numbers_and_characters_outside_json_do_no_harm(
    text: str, output: object, confidence: float
) -> None:
    answer = parse_callee_answer(text)
    assert answer.is_completed
    assert answer.confidence == confidence
    assert output is None or answer.output == output
