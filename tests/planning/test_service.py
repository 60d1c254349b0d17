"""The methods of the contract on a whole gateway."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.conformance.asgi_client import AsgiClient
from tests.planning.gateway_harness import PlanningHarness, asks, planning_harness_in

from openclaw_a2a.planning.steps import EXTENSION_URI

Json = Any
CARD = "/.well-known/agent-card.json"
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
STORES = [("memory", False), ("json-file", True), ("sqlite", True)]
SAMPLES = {"id": "x", "name": "x", "objectiveId": "x", "tasks": [{"name": "x"}]}
REQUIRED = [
    ("objectives/create", "name"),
    ("objectives/get", "id"),
    ("objectives/update", "id"),
    ("objectives/replan", "id"),
    ("objectives/delete", "id"),
    ("plans/create", "objectiveId"),
    ("plans/create", "name"),
    ("plans/get", "id"),
    ("plans/update", "id"),
    ("plans/addTasks", "id"),
    ("plans/addTasks", "tasks"),
]


# -------------------------------------------------------------------- activation and card


@pytest.mark.requirement("opt.card.entry", "opt.card.truth")
@pytest.mark.parametrize(("kind", "is_kept"), STORES)
async def test_the_card_declares_the_limits_and_persistence(
    kind: str, is_kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with planning_harness_in(tmp_path, kind) as harness:
        limits = {"opt.maxPlansPerObjective": 3, "opt.maxTasksPerPlan": 7}
        for settings, plans, tasks in (({}, 10, 50), (limits, 3, 7)):
            await harness.reopen(settings)
            card = (await harness.client.get(CARD)).json
            params = {
                "maxPlansPerObjective": plans,
                "maxTasksPerPlan": tasks,
                "persistenceEnabled": is_kept,
            }
            entry = {"uri": EXTENSION_URI, "required": False, "params": params}
            assert card["capabilities"]["extensions"] == [entry]


@pytest.mark.requirement("opt.activation.setting", "opt.activation.off-messages")
async def test_where_the_settings_say_so_the_methods_need_no_header(
    harness: PlanningHarness,
) -> None:
    await harness.reopen({"opt.requireActivation": False})
    assert harness.gateway is not None
    plain = AsgiClient(harness.gateway.asgi)
    body = {"jsonrpc": "2.0", "id": "a", "method": "objectives/create", "params": {"name": "x"}}
    answer = await plain.post("/a2a/jsonrpc", json.dumps(body).encode())
    assert answer.json["result"]["objective"]["name"] == "x"
    assert "a2a-extensions" not in answer.headers
    hints = {"opt/v1/preferObjective": True}
    message = {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "y"}]}
    sent = {**body, "method": "message/send", "params": {"message": {**message, "metadata": hints}}}
    assert "error" not in (await plain.post("/a2a/jsonrpc", json.dumps(sent).encode())).json
    assert (await harness.call("objectives/list"))["totalSize"] == 1


# -------------------------------------------------------------------- objects


@pytest.mark.requirement(
    "opt.object.objective", "opt.object.ids", "opt.object.moments", "opt.method.create"
)
async def test_a_new_objective_has_its_members_and_a_name_of_ours(
    harness: PlanningHarness,
) -> None:
    bare = (await harness.call("objectives/create", name="Party"))["objective"]
    described = (
        await harness.call("objectives/create", name="x", description="y", metadata={"a": 1})
    )["objective"]
    for one in (bare, described):
        assert re.fullmatch(r"obj-[a-z0-9]+", one["id"])
        assert (one["status"], one["plans"]) == ("submitted", [])
        assert MOMENT.fullmatch(one["createdAt"])
        assert one["createdAt"] == one["updatedAt"]
    assert (bare["name"], bare["metadata"], "description" in bare) == ("Party", {}, False)
    assert (described["description"], described["metadata"]) == ("y", {"a": 1})
    assert bare["id"] != described["id"]


@pytest.mark.requirement("opt.object.plan", "opt.object.task", "opt.object.order", "opt.object.ids")
async def test_plans_and_tasks_have_their_members_in_the_order_they_came(
    harness: PlanningHarness,
) -> None:
    objective_id = await harness.objective()
    for name in ("c", "a", "b"):
        await harness.plan(objective_id, [{"name": f"{name}2"}, {"name": f"{name}1"}], name=name)
    shown = await harness.get(objective_id)
    assert [plan["name"] for plan in shown["plans"]] == ["c", "a", "b"]
    for plan in shown["plans"]:
        assert re.fullmatch(r"plan-[a-z0-9]+", plan["id"])
        assert (plan["objectiveId"], plan["dependencies"]) == (objective_id, [])
        assert (plan["status"], plan["metadata"]) == ("pending", {})
        assert MOMENT.fullmatch(plan["createdAt"])
        for place, task in enumerate(plan["tasks"]):
            assert re.fullmatch(r"task-[a-z0-9]+", task.pop("id"))
            assert task == {
                "planId": plan["id"],
                "objectiveId": objective_id,
                "name": f"{plan['name']}{2 - place}",
                "taskIndex": place,
                "dependencies": [],
                "status": "pending",
                "metadata": {},
            }
    await harness.reopen()
    again = (await harness.get(objective_id))["plans"]
    assert [plan["name"] for plan in again] == ["c", "a", "b"]


# -------------------------------------------------------------------- lists


@pytest.mark.requirement("opt.method.list", "opt.method.list-pages")
async def test_lists_are_the_newest_first_ten_at_a_time(harness: PlanningHarness) -> None:
    for number in range(12):
        await harness.objective(f"goal {number}")
    first = await harness.call("objectives/list")
    assert [one["name"] for one in first["objectives"]] == [f"goal {n}" for n in range(11, 1, -1)]
    assert first["totalSize"] == 12
    last = await harness.call("objectives/list", pageToken=first["nextPageToken"])
    assert [one["name"] for one in last["objectives"]] == ["goal 1", "goal 0"]
    assert ("nextPageToken" in last, last["totalSize"]) == (False, 12)
    exact = await harness.call("objectives/list", pageSize=12)
    assert (len(exact["objectives"]), "nextPageToken" in exact) == (12, False)


class StandingClock:
    """A clock that stands."""

    def now(self) -> datetime:
        return datetime(2026, 1, 5, 10, tzinfo=UTC)

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


@pytest.mark.requirement("opt.method.list", "opt.method.list-pages")
async def test_objectives_created_at_the_same_time_are_listed_in_order_of_creation(
    harness: PlanningHarness,
) -> None:
    harness.clock = StandingClock()
    await harness.reopen()
    for number in range(12):
        hints = {"opt/v1/preferObjective": True, "opt/v1/suggestedName": f"goal {number}"}
        message = {"role": "ROLE_USER", "parts": [{"text": "x"}], "metadata": hints}
        if number % 2:
            await harness.call("SendMessage", message=message)
        else:
            await harness.objective(f"goal {number}")
    found = await harness.call("objectives/list", pageSize=5)
    names = [one["name"] for one in found["objectives"]]
    while token := found.get("nextPageToken"):
        found = await harness.call("objectives/list", pageSize=5, pageToken=token)
        names += [one["name"] for one in found["objectives"]]
    assert names == [f"goal {number}" for number in range(11, -1, -1)]


@pytest.mark.requirement("opt.method.list-pages", "opt.error.params")
@pytest.mark.parametrize("size", [0, 101, -1, 1.5, "10", True])
async def test_a_page_has_one_to_a_hundred(harness: PlanningHarness, size: Json) -> None:
    for allowed in (1, 100):
        await harness.call("objectives/list", pageSize=allowed)
    error = await harness.fail("objectives/list", pageSize=size)
    assert error["code"] == -32602
    assert "pageSize" in error["message"]
    assert "objectives/list" in error["message"]


@pytest.mark.requirement("opt.method.list-filter")
async def test_a_status_chooses_and_the_total_counts_what_it_chose(
    harness: PlanningHarness,
) -> None:
    ids = [await harness.objective(f"goal {number}") for number in range(5)]
    for one in (ids[1], ids[3]):
        await harness.call("objectives/update", id=one, status="working")
    await harness.call("objectives/update", id=ids[3], status="completed")
    for _ in range(2):  # and after a restart, when the completed one is not loaded
        for status, wanted in (("submitted", [4, 2, 0]), ("working", [1]), ("completed", [3])):
            found = await harness.call("objectives/list", status=status, pageSize=2)
            names = [one["name"] for one in found["objectives"]]
            assert names == [f"goal {number}" for number in wanted[:2]]
            assert found["totalSize"] == len(wanted)
            assert ("nextPageToken" in found) == (len(wanted) > 2)
        assert (await harness.call("objectives/list", status="failed"))["objectives"] == []
        await harness.reopen()


# -------------------------------------------------------------------- changes


@pytest.mark.requirement("opt.method.younger")
async def test_every_change_advances_updated_at_of_what_it_changes(
    harness: PlanningHarness,
) -> None:
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, [{"name": "a"}])
    seen = [plan["updatedAt"]]
    for method, params in (
        ("plans/update", {}),
        ("plans/update", {"name": "same"}),
        ("plans/update", {"name": "same"}),
        ("plans/update", {"tasks": [{"id": plan["tasks"][0]["id"], "name": "b"}]}),
        ("plans/addTasks", {"tasks": [{"name": "c"}]}),
        ("plans/update", {"status": "pending"}),
        ("plans/update", {"status": "working"}),
    ):
        before = (await harness.get(objective_id))["updatedAt"]
        changed = (await harness.call(method, id=plan["id"], **params))["plan"]
        seen.append(changed["updatedAt"])
        assert changed["createdAt"] == plan["createdAt"]
        assert (await harness.get(objective_id))["updatedAt"] > before
    assert seen == sorted(set(seen))
    for method, params in (("update", {}), ("update", {"status": "working"}), ("replan", {})):
        before = (await harness.get(objective_id))["updatedAt"]
        shown = (await harness.call(f"objectives/{method}", id=objective_id, **params))["objective"]
        assert shown["updatedAt"] > before


@pytest.mark.requirement("opt.method.fixed", "opt.error.params")
@pytest.mark.parametrize(
    ("method", "member"),
    [
        *[("objectives/update", name) for name in ("createdAt", "updatedAt", "plans", "owner")],
        *[("plans/update", name) for name in ("objectiveId", "createdAt", "dependencies", "x")],
        *[("plans/addTasks", name) for name in ("name", "status")],
        *[("objectives/create", name) for name in ("id", "status", "plans")],
        *[("plans/create", name) for name in ("id", "status", "createdAt")],
    ],
)
async def test_unknown_members_are_rejected_and_nothing_changes(
    harness: PlanningHarness, method: str, member: str
) -> None:
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, [])
    wanted: Json = {"name": "new", "objectiveId": objective_id, "tasks": [{"name": "a"}]}
    needed = {name: wanted[name] for one, name in REQUIRED if one == method and name in wanted}
    if not method.endswith("create"):
        needed["id"] = objective_id if method.startswith("objectives") else plan["id"]
    before = await harness.get(objective_id)
    error = await harness.fail(method, **{**needed, member: "x"})
    assert error["code"] == -32602
    assert f"{member} is not known" in error["message"]
    assert method in error["message"]
    assert await harness.get(objective_id) == before
    assert (await harness.call("objectives/list"))["totalSize"] == 1


@pytest.mark.requirement("opt.method.task-update-whole", "opt.bad.elsewhere")
async def test_tasks_of_a_plan_change_all_or_not_at_all(harness: PlanningHarness) -> None:
    objective_id, other = await harness.objective(), await harness.objective("other")
    plan = await harness.plan(objective_id, [{"name": "a"}, {"name": "b"}])
    far = (await harness.plan(other, [{"name": "far"}]))["tasks"][0]["id"]
    near = (await harness.plan(objective_id, [{"name": "near"}]))["tasks"][0]["id"]
    before = await harness.get(objective_id)
    good = {"id": plan["tasks"][0]["id"], "name": "a2", "status": "completed"}
    second = plan["tasks"][1]["id"]
    for bad, code in (
        ({"id": near, "name": "x"}, -32050),
        ({"id": second, "dependencies": [far]}, -32053),
        ({"id": second, "a2aTaskId": "nobody"}, -32050),
        ({"id": second, "status": "open"}, -32602),
        ({"id": second, "dependencies": [second]}, -32053),
    ):
        error = await harness.fail("plans/update", id=plan["id"], name="new", tasks=[good, bad])
        assert error["code"] == code
        assert await harness.get(objective_id) == before
    await harness.reopen()
    assert await harness.get(objective_id) == before


@pytest.mark.requirement("opt.method.delete", "opt.storage.delete")
async def test_a_deleted_objective_is_gone_with_its_plans_and_its_id_is_free(
    harness: PlanningHarness,
) -> None:
    message = {"role": "ROLE_USER", "parts": [{"text": "do"}]}
    hints = {"opt/v1/objective": {"id": "obj-1"}, "opt/v1/plan": {"id": "plan-1"}}
    for name in ("m1", "m2"):
        sent = {**message, "messageId": name, "metadata": hints}
        task = (await harness.call("SendMessage", message=sent))["task"]
        ended = await harness.ends("obj-1")
        assert [one["a2aTaskId"] for one in ended["plans"][0]["tasks"]] == [task["id"]]
        assert await harness.call("objectives/delete", id="obj-1") == {"deleted": True}
        for method, wanted in (("objectives/get", "obj-1"), ("plans/get", "plan-1")):
            assert (await harness.fail(method, id=wanted))["code"] == -32050
        assert (await harness.call("GetTask", id=task["id"]))["id"] == task["id"]


@pytest.mark.requirement("opt.method.delete-running")
async def test_an_objective_with_a_waiting_step_is_not_deleted(harness: PlanningHarness) -> None:
    async def work(_turn: Any) -> Any:
        return asks("well?")

    harness.workers["main"].work = work
    objective_id = await harness.objective()
    await harness.plan(objective_id, [{"name": "a"}])
    await harness.call("objectives/run", id=objective_id)
    waiting = await harness.ends(objective_id, "blocked")
    error = await harness.fail("objectives/delete", id=objective_id)
    assert (error["code"], error["data"]["legacyCode"]) == (-32051, -32001)
    assert await harness.get(objective_id) == waiting
    assert (await harness.call("objectives/delete", id=objective_id, cancel=True))["deleted"]


# -------------------------------------------------------------------- errors


@pytest.mark.requirement("opt.error.params")
@pytest.mark.parametrize(("method", "missing"), REQUIRED)
async def test_a_missing_parameter_is_named_with_its_method(
    harness: PlanningHarness, method: str, missing: str
) -> None:
    names = [name for one, name in REQUIRED if one == method and name != missing]
    error = await harness.fail(method, **{name: SAMPLES[name] for name in names})
    assert error["code"] == -32602
    assert f"{missing} is required" in error["message"]
    assert method in error["message"]


@pytest.mark.requirement("opt.error.method")
@pytest.mark.parametrize("method", ["objectives/explode", "plans/delete", "plans/list", "plans/"])
async def test_a_method_that_does_not_exist_is_named(harness: PlanningHarness, method: str) -> None:
    error = await harness.fail(method, id="x")
    assert (error["code"], method in error["message"]) == (-32601, True)


@pytest.mark.requirement("opt.error.id-echo", "opt.error.legacy", "opt.error.not-found")
@pytest.mark.parametrize("call_id", ["seven", 7, 0])
async def test_errors_echo_the_request_id_and_carry_the_legacy_code(
    harness: PlanningHarness, call_id: Json
) -> None:
    params = {"id": "obj-nobody"}
    body = {"jsonrpc": "2.0", "id": call_id, "method": "objectives/get", "params": params}
    answer = (await harness.client.post("/a2a/jsonrpc", json.dumps(body).encode())).json
    assert answer["id"] == call_id
    assert "objective obj-nobody" in answer["error"]["message"]
    assert answer["error"]["data"]["legacyCode"] == -32000
