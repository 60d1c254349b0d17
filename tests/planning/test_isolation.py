"""Objects of other callers look like objects that do not exist; the operator sees all."""

import asyncio
import json
from typing import Any

import anyio
import pytest
from tests.conformance.asgi_client import TIMEOUT_S, AsgiClient, Request, Response
from tests.conformance.conftest import peers, token_of
from tests.planning.gateway_harness import PlanningHarness

Json = Any
NOWHERE = ("obj-0123456789abcdef", "plan-0123456789abcdef", "task-0123456789abcdef")

RPC: list[tuple[str, Json]] = [
    ("objectives/get", {"id": "OBJ"}),
    ("objectives/get", {"id": "OBJ", "includePlans": False}),
    ("objectives/update", {"id": "OBJ", "name": "mine now"}),
    ("objectives/update", {"id": "OBJ", "status": "canceled"}),
    ("objectives/replan", {"id": "OBJ"}),
    ("objectives/delete", {"id": "OBJ"}),
    ("objectives/delete", {"id": "OBJ", "cancel": True}),
    ("objectives/run", {"id": "OBJ"}),
    ("objectives/pause", {"id": "OBJ"}),
    ("objectives/resume", {"id": "OBJ"}),
    ("objectives/subscribe", {"id": "OBJ"}),
    ("plans/create", {"objectiveId": "OBJ", "name": "foot in the door"}),
    ("plans/get", {"id": "PLAN"}),
    ("plans/update", {"id": "PLAN", "name": "mine now"}),
    ("plans/update", {"id": "PLAN", "tasks": [{"id": "TASK", "status": "completed"}]}),
    ("plans/addTasks", {"id": "PLAN", "tasks": [{"name": "more"}]}),
    ("plans/run", {"id": "PLAN"}),
    ("plans/pause", {"id": "PLAN"}),
    ("plans/resume", {"id": "PLAN"}),
]
REST: list[tuple[str, Json]] = [
    ("GET objectives/OBJ", None),
    ("PATCH objectives/OBJ", {"name": "mine now"}),
    ("DELETE objectives/OBJ", None),
    ("DELETE objectives/OBJ?cancel=true", None),
    ("GET objectives/OBJ:subscribe", None),
    ("POST objectives/OBJ:replan", {}),
    ("POST objectives/OBJ:run", {}),
    ("POST objectives/OBJ:pause", {}),
    ("POST objectives/OBJ:resume", {}),
    ("POST objectives/OBJ/plans", {"name": "foot in the door"}),
    ("GET plans/PLAN", None),
    ("PATCH plans/PLAN", {"name": "mine now"}),
    ("POST plans/PLAN:addTasks", {"tasks": [{"name": "more"}]}),
    ("POST plans/PLAN:run", {}),
    ("POST plans/PLAN:pause", {}),
    ("POST plans/PLAN:resume", {}),
]


def client_of(harness: PlanningHarness, name: str) -> AsgiClient:
    return harness.client.with_headers(authorization=f"Bearer {token_of(name)}")


async def call(harness: PlanningHarness, name: str, method: str, params: Json) -> Json:
    """The response to a caller over JSON-RPC."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = await client_of(harness, name).post("/a2a/jsonrpc", json.dumps(body).encode())
    return answer.json


async def rest(harness: PlanningHarness, name: str, line: str, body: Json) -> Response:
    """The response to a caller over HTTP+JSON."""
    method, path = line.split()
    content = b"" if body is None else json.dumps(body).encode()
    headers = {"a2a-version": "1.0"}
    if body is not None:
        headers |= {"content-type": "application/json", "content-length": str(len(content))}
    asked = Request(method, f"/a2a/rest/{path}", headers, (content,))
    return await client_of(harness, name).request(asked)


def named(value: Json, ids: tuple[str, str, str]) -> Json:
    """The same with the ids of something in it."""
    text = json.dumps(value)
    for word, item_id in zip(("OBJ", "PLAN", "TASK"), ids, strict=True):
        text = text.replace(word, item_id)
    return json.loads(text)


def anonymous(text: str, ids: tuple[str, str, str]) -> str:
    """The same without them."""
    for word, item_id in zip(("OBJ", "PLAN", "TASK"), ids, strict=True):
        text = text.replace(item_id, word)
    return text


@pytest.fixture
async def hers(harness: PlanningHarness) -> tuple[str, str, str]:
    """The ids of Alice's objective, its plan and its task."""
    await harness.reopen(peers("alice", "bob"))
    made = await call(harness, "alice", "objectives/create", {"name": "hers"})
    objective_id = made["result"]["objective"]["id"]
    wanted = {"objectiveId": objective_id, "name": "plan", "tasks": [{"name": "step"}]}
    plan = (await call(harness, "alice", "plans/create", wanted))["result"]["plan"]
    return objective_id, plan["id"], plan["tasks"][0]["id"]


async def seen_by_alice(harness: PlanningHarness, ids: tuple[str, str, str]) -> Json:
    return (await call(harness, "alice", "objectives/get", {"id": ids[0]}))["result"]


@pytest.mark.requirement("opt.bad.walls")
async def test_every_method_answers_not_found_for_objects_of_others(
    harness: PlanningHarness, hers: tuple[str, str, str]
) -> None:
    before = await seen_by_alice(harness, hers)
    for method, params in RPC:
        found = await call(harness, "bob", method, named(params, hers))
        missing = await call(harness, "bob", method, named(params, NOWHERE))
        assert found["error"]["code"] == -32050, (method, found)
        answers = [
            anonymous(json.dumps(answer), ids)
            for answer, ids in ((found, hers), (missing, NOWHERE))
        ]
        assert answers[0] == answers[1], method
    assert await seen_by_alice(harness, hers) == before


@pytest.mark.requirement("opt.bad.walls", "opt.rest.errors")
async def test_every_path_answers_not_found_for_objects_of_others(
    harness: PlanningHarness, hers: tuple[str, str, str]
) -> None:
    before = await seen_by_alice(harness, hers)
    for line, body in REST:
        found = await rest(harness, "bob", named(line, hers), named(body, hers))
        missing = await rest(harness, "bob", named(line, NOWHERE), named(body, NOWHERE))
        assert (found.status, found.media_type) == (404, "application/json"), (line, found)
        answers = [
            anonymous(answer.body.decode(), ids)
            for answer, ids in ((found, hers), (missing, NOWHERE))
        ]
        assert answers[0] == answers[1], line
    assert await seen_by_alice(harness, hers) == before


async def test_lists_and_pages_contain_only_objectives_of_the_caller(
    harness: PlanningHarness, hers: tuple[str, str, str]
) -> None:
    for number in range(3):
        await call(harness, "bob", "objectives/create", {"name": f"his {number}"})
    first = (await call(harness, "bob", "objectives/list", {"pageSize": 2}))["result"]
    rest_of = {"pageSize": 2, "pageToken": first["nextPageToken"]}
    second = (await call(harness, "bob", "objectives/list", rest_of))["result"]
    names = [one["name"] for page in (first, second) for one in page["objectives"]]
    assert names == ["his 2", "his 1", "his 0"]
    assert (first["totalSize"], "nextPageToken" in second) == (3, False)
    answers = []
    for objective_id in (hers[0], NOWHERE[0]):
        wanted = {"pageToken": objective_id}
        answers.append((await call(harness, "bob", "objectives/list", wanted))["error"])
    assert answers[0] == answers[1]
    assert answers[0]["code"] == -32602


async def test_no_caller_can_depend_on_objects_of_another(
    harness: PlanningHarness, hers: tuple[str, str, str]
) -> None:
    made = await call(harness, "bob", "objectives/create", {"name": "his"})
    objective_id = made["result"]["objective"]["id"]
    answers: list[str] = []
    for ids in (hers, NOWHERE):
        wanted = {"objectiveId": objective_id, "name": "p", "dependencies": [ids[1]]}
        plans = await call(harness, "bob", "plans/create", wanted)
        tasks = [{"name": "a", "dependencies": [ids[2]]}]
        wanted = {"objectiveId": objective_id, "name": "p", "tasks": tasks}
        steps = await call(harness, "bob", "plans/create", wanted)
        assert [plans["error"]["code"], steps["error"]["code"]] == [-32053, -32053]
        answers.append(anonymous(json.dumps([plans, steps]), ids))
    assert answers[0] == answers[1]


async def test_steps_are_tasks_that_only_their_owner_can_read(
    harness: PlanningHarness, hers: tuple[str, str, str]
) -> None:
    await call(harness, "alice", "objectives/run", {"id": hers[0]})
    with anyio.fail_after(TIMEOUT_S):
        while True:
            shown = await seen_by_alice(harness, hers)
            if shown["objective"]["status"] == "completed":
                break
            await asyncio.sleep(0.005)  # it is asked again until then
    task_id = shown["objective"]["plans"][0]["tasks"][0]["a2aTaskId"]
    found = await call(harness, "alice", "GetTask", {"id": task_id})
    assert found["result"]["contextId"] == hers[0]
    for method in ("GetTask", "CancelTask", "SubscribeToTask"):
        answer = await call(harness, "bob", method, {"id": task_id})
        assert answer["error"]["code"] == -32001
    listed = await call(harness, "bob", "ListTasks", {"contextId": hers[0]})
    assert listed["result"]["tasks"] == []


async def test_no_caller_can_link_a_task_of_another(
    harness: PlanningHarness, hers: tuple[str, str, str]
) -> None:
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "secret"}]}
    wanted: Json = {"message": message, "configuration": {"returnImmediately": True}}
    sent = await call(harness, "alice", "SendMessage", wanted)
    made = await call(harness, "bob", "objectives/create", {"name": "his"})
    wanted = {
        "objectiveId": made["result"]["objective"]["id"],
        "name": "plan",
        "tasks": [{"name": "step"}],
    }
    plan = (await call(harness, "bob", "plans/create", wanted))["result"]["plan"]
    link = {"id": plan["tasks"][0]["id"], "a2aTaskId": sent["result"]["task"]["id"]}
    answer = await call(harness, "bob", "plans/update", {"id": plan["id"], "tasks": [link]})
    assert answer["error"]["code"] == -32050


@pytest.mark.requirement("opt.bad.walls")
async def test_messages_cannot_join_objectives_of_others(
    harness: PlanningHarness, hers: tuple[str, str, str]
) -> None:
    before = await seen_by_alice(harness, hers)
    ways: list[Json] = [
        {"metadata": {"opt/v1/objective": {"id": hers[0]}}},
        {"metadata": {"opt/v1/objective": {"id": hers[0]}, "opt/v1/plan": {"id": hers[1]}}},
        {"contextId": hers[0]},
        {"contextId": hers[0], "metadata": {"opt/v1/taskId": hers[2]}},
        {"contextId": hers[0], "metadata": {"opt/v1/plan": {"id": hers[1]}}},
    ]
    for number, way in enumerate(ways):
        message = {"messageId": f"m-{number}", "role": "ROLE_USER", "parts": [{"text": "in"}]}
        answer = await call(harness, "bob", "SendMessage", {"message": {**message, **way}})
        keys = answer.get("result", {}).get("task", {}).get("metadata") or {}
        assert hers[0] not in keys.values(), way
    assert await seen_by_alice(harness, hers) == before


@pytest.mark.requirement("opt.bad.walls")
async def test_an_objective_whose_log_names_no_owner_belongs_to_local(
    harness: PlanningHarness, hers: tuple[str, str, str]
) -> None:
    token = (harness.folder / "operator.token").read_text(encoding="ascii").strip()
    client = AsgiClient(harness.client.app, {"authorization": f"Bearer {token}"})
    lines = (await client.get(f"/operator/objectives/{hers[0]}/export")).body.splitlines()
    first = json.loads(lines[0])
    first["data"].pop("owner")
    await call(harness, "alice", "objectives/delete", {"id": hers[0]})
    content = b"\n".join([json.dumps(first).encode(), *lines[1:]])
    headers = {"content-length": str(len(content))}
    request = Request("POST", "/operator/objectives/import", headers, (content,))
    imported = await client.request(request)
    assert (imported.status, imported.json["principal"]) == (200, "local")
    for name in ("alice", "bob"):
        shown = await call(harness, name, "objectives/get", {"id": hers[0]})
        assert shown["error"]["code"] == -32050
        listed = await call(harness, name, "objectives/list", {})
        assert listed["result"]["totalSize"] == 0
        changed = await call(harness, name, "plans/update", {"id": hers[1], "name": "mine"})
        assert changed["error"]["code"] == -32050


async def test_the_operator_sees_all_objectives_with_their_owners(
    harness: PlanningHarness, hers: tuple[str, str, str]
) -> None:
    await call(harness, "bob", "objectives/create", {"name": "his"})
    token = (harness.folder / "operator.token").read_text(encoding="ascii").strip()
    client = AsgiClient(harness.client.app, {"authorization": f"Bearer {token}"})
    listed = (await client.get("/operator/objectives")).json
    owners = {one["name"]: one["principal"] for one in listed["objectives"]}
    assert (owners, listed["totalSize"]) == ({"hers": "alice", "his": "bob"}, 2)
    shown = await client.get(f"/operator/objectives/{hers[0]}")
    assert (shown.status, shown.json["plans"][0]["tasks"][0]["id"]) == (200, hers[2])
    for name in ("alice", "bob"):
        stranger = AsgiClient(harness.client.app, {"authorization": f"Bearer {token_of(name)}"})
        assert (await stranger.get("/operator/objectives")).status in (401, 403, 404)


async def test_named_ids_do_not_tell_whether_another_caller_has_them(
    harness: PlanningHarness,
) -> None:
    await harness.reopen(peers("alice", "bob"))

    async def say(name: str, message_id: str, objective: str, plan: str) -> Json:
        """The answer to a message that names these."""
        metadata = {
            "opt/v1/objective": {"id": objective, "name": "party"},
            "opt/v1/plan": {"id": plan, "name": "venue"},
        }
        said = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": "go"}]}
        sent = {"message": {**said, "metadata": metadata}}
        return await call(harness, name, "SendMessage", sent)

    async def create(name: str, objective: str, plan: str) -> tuple[str, str]:
        """The ids under which they are stored; the caller finds them by name again."""
        answer = await say(name, f"{objective}-1", objective, plan)
        stored = answer["result"]["task"]["contextId"]
        shown = await call(harness, name, "objectives/get", {"id": stored})
        [found] = shown["result"]["objective"]["plans"]
        again = await say(name, f"{objective}-2", objective, plan)
        assert found["id"] in again["error"]["message"]  # it is completed by now
        return stored, found["id"]

    taken = await create("alice", "obj-taken", "plan-taken")
    for objective, plan in (("obj-taken", "plan-taken"), ("obj-free", "plan-free")):
        stored = await create("bob", objective, plan)
        assert not set(stored) & {objective, plan, *taken}
