"""Parsing params: valid ones become structs, an error lists all problems of others."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.model.errors import InvalidParams, MethodNotFound
from openclaw_a2a.planning.model import PlanStatus
from openclaw_a2a.planning.params import METHODS, ListObjectives, Params, parse_params

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
MEMBERS = sorted({field for kind in METHODS.values() for field in kind.__struct_encode_fields__})


def problems(method: str, params: object) -> dict[str, str]:
    with pytest.raises(InvalidParams) as caught:
        parse_params(method, params)
    assert method in caught.value.message
    return {problem.path: problem.message for problem in caught.value.problems}


@pytest.mark.requirement("opt.error.params")
@pytest.mark.parametrize(
    ("method", "missing"),
    [
        ("objectives/create", ["name"]),
        ("objectives/get", ["id"]),
        ("objectives/update", ["id"]),
        ("objectives/replan", ["id"]),
        ("objectives/delete", ["id"]),
        ("plans/create", ["name", "objectiveId"]),
        ("plans/get", ["id"]),
        ("plans/update", ["id"]),
        ("plans/addTasks", ["id", "tasks"]),
    ],
)
@pytest.mark.parametrize("params", [{}, None])
def test_missing_parameters_are_named_with_their_method(
    method: str, missing: list[str], params: object
) -> None:
    found = problems(method, params)
    assert found == dict.fromkeys(missing, "is required")
    with pytest.raises(InvalidParams, match=missing[0]):
        parse_params(method, params)


def test_list_needs_no_parameters() -> None:
    assert parse_params("objectives/list", None) == ListObjectives(page_size=10)


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(MethodNotFound, match="objectives/explode"):
        parse_params("objectives/explode", {})


@pytest.mark.requirement("opt.error.params", "opt.method.fixed")
@pytest.mark.parametrize(
    ("method", "params", "path"),
    [
        ("objectives/create", {"name": ""}, "name"),
        ("objectives/create", {"name": " \n"}, "name"),
        ("objectives/create", {"name": 5}, "name"),
        ("objectives/create", {"name": "x" * 1001}, "name"),
        ("objectives/create", {"name": "x", "description": 5}, "description"),
        ("objectives/create", {"name": "x", "metadata": []}, "metadata"),
        ("objectives/create", {"name": "x", "status": "working"}, "status"),
        ("objectives/create", {"name": "x", "id": "obj-1"}, "id"),
        ("objectives/get", {"id": "o", "includePlans": "yes"}, "includePlans"),
        ("objectives/list", {"pageSize": 0}, "pageSize"),
        ("objectives/list", {"pageSize": 101}, "pageSize"),
        ("objectives/list", {"pageSize": True}, "pageSize"),
        ("objectives/list", {"status": "open"}, "status"),
        ("objectives/update", {"id": "o", "createdAt": "x"}, "createdAt"),
        ("objectives/update", {"id": "o", "plans": []}, "plans"),
        ("objectives/update", {"id": ""}, "id"),
        ("objectives/delete", {"id": "o", "cancel": 1}, "cancel"),
        ("plans/create", {"objectiveId": "o", "name": "n", "tasks": {}}, "tasks"),
        ("plans/create", {"objectiveId": "o", "name": "n", "tasks": ["a"]}, "tasks[0]"),
        ("plans/create", {"objectiveId": "o", "name": "n", "tasks": [{}]}, "tasks[0].name"),
        ("plans/create", {"objectiveId": "o", "name": "n", "dependencies": "p"}, "dependencies"),
        ("plans/update", {"id": "p", "objectiveId": "o"}, "objectiveId"),
        ("plans/update", {"id": "p", "dependencies": []}, "dependencies"),
        ("plans/update", {"id": "p", "status": "canceled"}, "status"),
        ("plans/update", {"id": "p", "tasks": [{"name": "x"}]}, "tasks[0].id"),
        ("plans/update", {"id": "p", "tasks": [{"id": "t", "planId": "q"}]}, "tasks[0].planId"),
        ("plans/update", {"id": "p", "tasks": [{"id": "t"}, {"id": "t"}]}, "tasks[1].id"),
        (
            "plans/update",
            {"id": "p", "tasks": [{"id": "t", "status": "pending", "a2aTaskId": "a"}]},
            "tasks[0].status",
        ),
        ("plans/addTasks", {"id": "p", "tasks": []}, "tasks"),
        (
            "plans/addTasks",
            {"id": "p", "tasks": [{"name": "x", "dependencies": [1]}]},
            "tasks[0].dependencies[0]",
        ),
        ("plans/addTasks", {"id": "p", "tasks": [{"name": "x", "id": "t"}]}, "tasks[0].id"),
        ("plans/get", [], "params"),
        ("plans/get", "plan-1", "params"),
    ],
)
def test_a_wrong_parameter_is_named(method: str, params: object, path: str) -> None:
    assert list(problems(method, params)) == [path]


def test_every_problem_is_reported_at_once() -> None:
    found = problems(
        "plans/create",
        {"name": 1, "tasks": [{"name": "ok"}, {"name": 2, "colour": "red"}], "metadata": "x"},
    )
    assert sorted(found) == ["metadata", "name", "objectiveId", "tasks[1].colour", "tasks[1].name"]
    assert found["metadata"] == "must be an object, not a string"
    assert found["tasks[1].colour"].startswith("is not known; there are name")


def test_a_wrong_status_lists_the_right_ones() -> None:
    found = problems("plans/update", {"id": "p", "status": "open"})
    for status in PlanStatus:
        assert status.value in found["status"]


def test_null_reads_as_left_out() -> None:
    given_null = {"id": "p", "name": None, "tasks": [{"id": "t", "status": None}]}
    assert parse_params("plans/update", given_null) == parse_params(
        "plans/update", {"id": "p", "tasks": [{"id": "t"}]}
    )


def test_null_inside_metadata_is_kept() -> None:
    params = parse_params("objectives/create", {"name": "x", "metadata": {"a": None}})
    assert params.metadata == {"a": None}


@pytest.mark.parametrize("value", [{"name": "\ud800"}, {"name": "x", "metadata": {"a": {1, 2j}}}])
def test_values_that_are_not_json_are_rejected(value: object) -> None:
    assert list(problems("objectives/create", value)) == ["params"]


def test_numbers_that_json_does_not_have_are_null() -> None:
    params = parse_params("objectives/create", {"name": "x", "metadata": {"a": math.nan}})
    assert params.metadata == {"a": None}


def test_a_thousand_problems_are_not_all_listed() -> None:
    tasks = [{"name": number} for number in range(1000)]
    with pytest.raises(InvalidParams, match="and at least 46 more") as caught:
        parse_params("plans/addTasks", {"tasks": tasks})
    assert len(caught.value.problems) == 51
    assert "not listed" in caught.value.problems[-1].message


@pytest.mark.requirement("opt.bad.hostile")
@given(st.sampled_from(sorted(METHODS)), JSON | st.dictionaries(st.sampled_from(MEMBERS), JSON))
def test_any_json_is_parsed_or_rejected(method: str, value: object) -> None:
    try:
        params = parse_params(method, value)
    except InvalidParams as error:
        assert error.problems
    else:
        assert isinstance(params, Params)
