"""Agents plan with tools: what they make is theirs in all their sessions, and nobody else's."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.calls.call_gateway import CallGateway, call_gateway_in
from tests.conformance.asgi_client import TIMEOUT_S, AsgiClient

Json = Any
ON = {"opt.enabled": True, "opt.tools": True}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[CallGateway]:
    async with call_gateway_in(tmp_path, "memory") as gateway:
        yield gateway


async def offered(client: AsgiClient) -> set[str]:
    return {one["name"] for one in (await client.get("/tools")).json["tools"]}


async def test_the_tools_are_offered_only_where_the_settings_say_so(gateway: CallGateway) -> None:
    await gateway.open({"opt.enabled": True})
    assert not {"objective_create", "plan_create"} & await offered(gateway.client("a"))
    await gateway.reopen(ON)
    assert {
        *("objective_create", "objective_update", "plan_create", "plan_update"),
        "objective_status",
    } < await offered(gateway.client("a"))


async def test_an_agent_sees_its_objectives_in_every_session_and_others_do_not(
    gateway: CallGateway,
) -> None:
    await gateway.open(ON)
    made = await gateway.call_tool(gateway.client("a"), "objective_create", {"name": "Party"})
    asked = {"id": made["objective"]["id"]}
    elsewhere = gateway.client("a", "agent:a:another")
    assert (await gateway.call_tool(elsewhere, "objective_status", asked))["objective"][
        "id"
    ] == asked["id"]
    for other in (
        gateway.client("b"),
        gateway.program_client("script"),
        gateway.program_client("a"),
    ):
        found = await gateway.call_tool(other, "objective_status", asked)
        assert (found["status"], found["code"]) == ("error", "plan-item-not-found")
        assert (await gateway.call_tool(other, "objective_status", {}))["objectives"] == []


@pytest.mark.requirement("opt.tool.five")
async def test_an_agent_plans_has_it_carried_out_and_sees_the_end(gateway: CallGateway) -> None:
    echoes = {f"agents.{name}.adapter": "echo" for name in ("x", "y")}
    await gateway.open({**ON, **echoes})
    client = gateway.client("a")
    made = await gateway.call_tool(client, "objective_create", {"name": "Party"})
    objective_id = made["objective"]["id"]
    steps = [
        {"name": "List venues", "metadata": {"agent": "x"}},
        {"name": "Book one", "dependencies": ["task-0"], "metadata": {"agent": "y"}},
    ]
    plan = await gateway.call_tool(
        client, "plan_create", {"objectiveId": objective_id, "name": "Venue", "tasks": steps}
    )
    more = {"id": plan["plan"]["id"], "addTasks": [{"name": "Pay", "metadata": {"agent": "x"}}]}
    assert len((await gateway.call_tool(client, "plan_update", more))["plan"]["tasks"]) == 3
    begun = await gateway.call_tool(
        client, "objective_update", {"id": objective_id, "action": "run"}
    )
    assert begun["status"] == "ok"
    assert begun["objective"]["id"] == objective_id
    with anyio.fail_after(TIMEOUT_S):
        while True:
            shown = await gateway.call_tool(client, "objective_status", {"id": objective_id})
            if shown["objective"]["status"] == "completed":
                break
    assert shown["objective"]["progress"]["percent"] == 100


async def test_invalid_arguments_are_explained_so_that_a_model_can_correct_them(
    gateway: CallGateway,
) -> None:
    await gateway.open(ON)
    client = gateway.client("a")
    made = await gateway.call_tool(client, "objective_create", {"name": "Party"})
    circle = [
        {"name": "a", "dependencies": ["task-1"]},
        {"name": "b", "dependencies": ["task-0"]},
    ]
    wrong = [
        ("objective_create", {}, "invalid-params", "name"),
        ("objective_create", {"name": "x", "nam": 1}, "invalid-params", "nam"),
        ("step_read", {"step": 5}, "invalid-params", "The parameters of step_read "),
        (
            "plan_create",
            {"objectiveId": made["objective"]["id"], "name": "x", "tasks": circle},
            "dependency-not-valid",
            "circle",
        ),
        ("plan_update", {"id": "plan-none", "status": "working"}, "plan-item-not-found", "plan"),
        (
            "objective_update",
            {"id": made["objective"]["id"], "status": "completed"},
            "status-change-not-allowed",
            "submitted",
        ),
    ]
    for tool, arguments, code, word in wrong:
        answer = await gateway.call_tool(client, tool, arguments)
        assert (answer["status"], answer["code"]) == ("error", code)
        assert word in answer["error"]
