"""The tools with which agents plan: what they ask of planning, for whom, and what they answer."""

import asyncio
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.auth.tool_tokens import ToolCaller
from openclaw_a2a.model.call import Caller
from openclaw_a2a.model.errors import PlanItemNotFound, StoreUnavailable
from openclaw_a2a.model.ids import AccountId, AgentId, PeerName, SessionKey
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.tools.planning_tools import caller_scope, planning_tools
from openclaw_a2a.tools.registry import ToolRegistry, ignore_update

Json = Any
HOME = AccountId("home")
NAMES = (
    *("objective_create", "objective_update", "plan_create", "plan_update", "objective_status"),
    *("step_read", "step_answer"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


class Planning:
    """The outside of the tools: keeps what it was asked, and answers as it is told to."""

    def __init__(self, answer: Json = None) -> None:
        self.asked: list[tuple[str, Json, Scope]] = []
        self._answer = answer or {"objective": {"id": "obj-1", "status": "submitted"}}

    async def call(self, method: str, params: Json, scope: Scope, *, address: str = "") -> Json:
        self.asked.append((method, params, scope))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


async def as_itself(caller: ToolCaller) -> Caller:
    return Caller(caller.agent_id or AgentId("x"), caller.name, caller.session_key)


def table(planning: Planning) -> ToolRegistry:
    return ToolRegistry(planning_tools(planning, as_itself, account=HOME))


async def use(planning: Planning, name: str, arguments: Json) -> Json:
    tool = table(planning).find(name)
    assert tool is not None
    return await tool.run(arguments, ToolCaller("script"), ignore_update)


def test_the_tools_have_their_names_and_a_schema_that_is_one() -> None:
    tools = table(Planning())
    assert tools.names == NAMES
    for tool in tools:
        jsonschema_rs.meta.validate(tool.schema)
        assert 20 < len(tool.description) < 150
        assert tool.label == tool.name.replace("_", " ").title()


@pytest.mark.requirement("opt.tool.five")
@pytest.mark.parametrize(
    ("name", "arguments", "method", "params"),
    [
        ("objective_create", {"name": "Party"}, "objectives/create", {"name": "Party"}),
        ("objective_update", {"id": "obj-1", "name": "x"}, "objectives/update", None),
        ("objective_update", {"id": "obj-1", "status": "canceled"}, "objectives/update", None),
        ("objective_update", {"id": "obj-1", "action": "run"}, "objectives/run", {"id": "obj-1"}),
        (
            "objective_update",
            {"id": "obj-1", "action": "pause"},
            "objectives/pause",
            {"id": "obj-1"},
        ),
        ("objective_update", {"id": "o", "action": "resume"}, "objectives/resume", {"id": "o"}),
        ("objective_update", {"id": "o", "action": "replan"}, "objectives/replan", {"id": "o"}),
        ("plan_create", {"objectiveId": "o", "name": "x", "tasks": []}, "plans/create", None),
        ("plan_update", {"id": "p", "tasks": [{"id": "task-x"}]}, "plans/update", None),
        (
            "plan_update",
            {"id": "p", "addTasks": [{"name": "y"}]},
            "plans/addTasks",
            {"id": "p", "tasks": [{"name": "y"}]},
        ),
        ("plan_update", {"id": "p", "action": "run"}, "plans/run", {"id": "p"}),
        ("objective_status", {"id": "o", "includeTasks": False}, "objectives/get", None),
        ("objective_status", {}, "objectives/list", None),
        ("objective_status", {"status": "working"}, "objectives/list", None),
        ("step_read", {"objectiveId": "o", "step": "List venues"}, "steps/get", None),
        ("step_answer", {"objectiveId": "o", "text": "aisle"}, "steps/answer", None),
        ("step_answer", {"objectiveId": "o", "text": "x", "step": "s"}, "steps/answer", None),
    ],
)
async def test_each_tool_asks_planning_by_the_right_method(
    name: str, arguments: Json, method: str, params: Json
) -> None:
    planning = Planning()
    tool = table(planning).find(name)
    assert tool is not None
    assert jsonschema_rs.is_valid(tool.schema, arguments)
    answer = await use(planning, name, arguments)
    assert planning.asked == [(method, params or arguments, Scope(PeerName("script"), HOME))]
    assert answer == {"status": "ok", "objective": {"id": "obj-1", "status": "submitted"}}


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("objective_update", {"id": "o", "action": "delete"}, "run, pause, resume, replan"),
        ("objective_update", {"id": "o", "action": None}, "action: must be one of"),
        ("objective_update", {"id": "o", "action": ["run"]}, "action: must be one of"),
        ("objective_update", {"id": "o", "action": "run", "name": "x"}, "leave out name"),
        ("plan_update", {"id": "p", "action": "replan"}, "run, pause, resume"),
        ("plan_update", {"id": "p", "addTasks": [], "status": "working"}, "leave out status"),
        ("plan_update", {"id": "p", "addTasks": [], "action": "run"}, "leave out addTasks"),
    ],
)
async def test_an_action_that_makes_no_sense_is_refused_before_anything_is_done(
    name: str, arguments: Json, words: str
) -> None:
    planning = Planning()
    answer = await use(planning, name, arguments)
    assert (answer["status"], answer["code"]) == ("error", "invalid-params")
    assert words in answer["error"]
    assert planning.asked == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PlanItemNotFound("there is no objective obj-9"), "plan-item-not-found"),
        (StoreUnavailable("the disk is full"), "store-unavailable"),
    ],
)
async def test_a_refusal_of_planning_has_its_error_code(error: Exception, code: str) -> None:
    for name in NAMES:
        answer = await use(Planning(error), name, {"id": "obj-9"})
        assert answer == {"status": "error", "code": code, "error": str(error)}


@given(JSON, st.sampled_from(NAMES))
def test_no_arguments_make_a_tool_fail_in_another_way(arguments: Json, name: str) -> None:
    answer = asyncio.run(use(Planning(), name, arguments))
    assert answer["status"] in {"ok", "error"}


def test_an_agent_has_its_objectives_in_all_its_sessions_and_programs_have_their_own() -> None:
    def whose(session_key: str | None, name: str = "host") -> str:
        key = None if session_key is None else SessionKey(session_key)
        return caller_scope(Caller(AgentId("main"), name, key), HOME).principal

    assert whose("agent:main:main") == whose("agent:main:other") == "agent:main"
    assert whose(None) == "host"
    assert whose(None, "script") == "script"
