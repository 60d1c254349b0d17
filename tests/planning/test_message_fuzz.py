"""Random objective metadata: a message is accepted or rejected, and a rejection changes nothing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.planning.gateway_harness import PlanningHarness, asks, planning_harness_in

Json = Any
Strategy = st.SearchStrategy[Any]
JSON: Strategy = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)
OBJECTIVE_IDS = st.sampled_from(["obj-1", "obj-2", "obj-there", "obj-A", "plan-1", ""])
PLAN_IDS = st.sampled_from(["plan-1", "plan-2", "plan-there", "plan-A", "obj-1", ""])
TASK_IDS = st.sampled_from(["task-0", "task-1", "task-x", "plan-1", "\x00", "x" * 5000])
TEXTS = st.sampled_from(["x", " ", "x" * 1001, "\ud800", "\x00", "ö\n"])
TASKS: Strategy = st.lists(
    st.fixed_dictionaries(
        {"name": TEXTS},
        optional={"dependencies": st.lists(TASK_IDS, max_size=2), "metadata": JSON, "status": JSON},
    ),
    max_size=3,
)
MEMBERS: Json = {"name": TEXTS | JSON, "description": TEXTS | JSON, "metadata": JSON}
OBJECTIVES: Strategy = st.fixed_dictionaries({}, optional={"id": OBJECTIVE_IDS | JSON, **MEMBERS})
PLANS: Strategy = st.fixed_dictionaries(
    {},
    optional={
        "id": PLAN_IDS | JSON,
        "objectiveId": OBJECTIVE_IDS | JSON,
        "dependencies": st.lists(PLAN_IDS, max_size=2) | JSON,
        "tasks": TASKS | JSON,
        **MEMBERS,
    },
)
METADATA: Strategy = st.fixed_dictionaries(
    {},
    optional={
        "opt/v1/objective": OBJECTIVES | JSON,
        "opt/v1/plan": PLANS | JSON,
        "opt/v1/preferObjective": st.booleans() | JSON,
        "opt/v1/suggestedName": TEXTS | JSON,
        "opt/v1/taskId": TASK_IDS | JSON,
    },
)
MESSAGES: Strategy = st.fixed_dictionaries(
    {"metadata": METADATA, "parts": TEXTS.map(lambda text: [{"text": text}])},
    optional={"contextId": OBJECTIVE_IDS, "messageId": st.sampled_from(["m1", "m2"])},
)
CODES = {*range(-32054, -32049), -32602, -32700, -32600, -32001, -32002, -32004}


async def everything(harness: PlanningHarness) -> Json:
    """All objectives as they are, without what the tasks under way do to them meanwhile."""
    listed = await harness.call("objectives/list", pageSize=100)
    shown = [await harness.get(one["id"]) for one in listed["objectives"]]
    return [
        (one["id"], one["name"], [(p["id"], [t["id"] for t in p["tasks"]]) for p in one["plans"]])
        for one in shown
    ]


async def wonder(_turn: Any) -> Any:
    """Never come to an end, so that everything stays open."""
    return asks("what?")


async def play(folder: Path, messages: list[Json]) -> None:
    """Send messages to a gateway that has an objective."""
    async with planning_harness_in(folder, "memory") as harness:
        harness.workers["main"].work = wonder
        await harness.open({"opt.maxPlansPerObjective": 2, "opt.maxTasksPerPlan": 3})
        there = {"opt/v1/objective": {"id": "obj-there"}, "opt/v1/plan": {"id": "plan-there"}}
        first = {"role": "ROLE_USER", "parts": [{"text": "x"}], "metadata": there}
        await harness.call("SendMessage", message=first)
        for message in messages:
            before = await everything(harness)
            answer = await harness.ask("SendMessage", {"message": {"role": "ROLE_USER", **message}})
            if "error" in answer:
                assert answer["error"]["code"] in CODES, answer
                assert await everything(harness) == before


@pytest.mark.requirement("opt.bad.hostile", "opt.message.refused-whole")
@settings(max_examples=40)
@given(messages=st.lists(MESSAGES, min_size=1, max_size=8))
def test_any_message_is_accepted_or_rejected_as_a_whole(
    messages: list[Json], tmp_path_factory: pytest.TempPathFactory
) -> None:
    asyncio.run(play(tmp_path_factory.mktemp("hostile"), messages))
