"""The admin routes for objectives, on a whole gateway."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.asgi_client import AsgiClient, Request, Response
from tests.planning.gateway_harness import PlanningHarness, asks, planning_harness_in

from openclaw_a2a.server.admin.objectives import MAX_IMPORT_BYTES

Json = Any
ROOT = "/operator/objectives"


class Admin:
    """A gateway with objectives, and a client that has the admin token."""

    def __init__(self, harness: PlanningHarness) -> None:
        self.harness = harness

    @property
    def client(self) -> AsgiClient:
        token = (self.harness.folder / "operator.token").read_text(encoding="ascii").strip()
        return self.harness.client.with_headers(authorization=f"Bearer {token}")

    async def get(self, path: str = "") -> Response:
        return await self.client.get(ROOT + path)

    async def post(self, path: str, *chunks: bytes, size: int | None = None) -> Response:
        length = sum(map(len, chunks)) if size is None else size
        headers = {"content-length": str(length)}
        return await self.client.request(Request("POST", ROOT + path, headers, chunks or (b"",)))

    async def post_json(self, path: str, body: Json) -> Response:
        content = json.dumps(body).encode()
        return await self.client.post(ROOT + path, content, content_length=str(len(content)))


@pytest.fixture
async def admin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Admin]:
    monkeypatch.chdir(tmp_path)
    async with planning_harness_in(tmp_path) as harness:
        await harness.open()
        yield Admin(harness)


async def waiting(admin: Admin, *, steps: int = 1) -> Json:
    """An objective whose steps all wait for an answer."""

    async def ask(turn: Any) -> Any:
        return asks("Which one?") if "This is a step of" in turn.body else "thanks"

    admin.harness.workers["main"].work = ask
    objective_id = await admin.harness.objective()
    await admin.harness.plan(objective_id, [{"name": f"step {one}"} for one in range(steps)])
    await admin.harness.call("objectives/run", id=objective_id)
    return await admin.harness.until(
        objective_id,
        lambda one: all(task["status"] == "input-required" for task in one["plans"][0]["tasks"]),
    )


async def test_objectives_of_all_callers_are_listed_without_their_plans(admin: Admin) -> None:
    ids = [await admin.harness.objective(f"number {one}") for one in range(3)]
    answer = await admin.get("?limit=1")
    assert answer.status == 200
    [shown] = answer.json["objectives"]
    assert answer.json["totalSize"] == 3
    assert (shown["id"], shown["principal"], shown["account"]) == (ids[-1], "local", "default")
    assert "plans" not in shown
    assert shown["progress"]["total"] == 0


async def test_objectives_are_filtered_by_status(admin: Admin) -> None:
    ids = [await admin.harness.objective() for _ in range(3)]
    await admin.harness.call("objectives/update", id=ids[1], status="planning")
    answer = await admin.get("?status=submitted")
    assert [one["id"] for one in answer.json["objectives"]] == [ids[2], ids[0]]
    assert answer.json["totalSize"] == 2


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=-1", "limit=x", "limit=", "limit=٣", "status=happy"]
)
async def test_an_invalid_query_is_rejected_with_the_valid_values(admin: Admin, query: str) -> None:
    answer = await admin.get(f"?{query}")
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid-params")
    assert "must be" in answer.json["error"]["message"]


async def test_one_objective_is_shown_with_its_plans_and_the_questions_of_steps(
    admin: Admin,
) -> None:
    objective = await waiting(admin)
    answer = await admin.get(f"/{objective['id']}")
    assert answer.status == 200
    shown = answer.json
    [task] = shown["plans"][0]["tasks"]
    assert task.pop("said") == "Which one?"
    assert shown == {**objective, "principal": "local", "account": "default"}


async def test_actions_change_the_objective(admin: Admin) -> None:
    objective = await waiting(admin)
    seen: list[tuple[str, str]] = []
    for action in ("pause", "run", "pause", "resume", "cancel"):
        answer = await admin.post(f"/{objective['id']}/{action}")
        assert answer.status == 200
        seen.append((answer.json["status"], answer.json["execution"]))
    assert seen == [
        ("blocked", "paused"),
        ("blocked", "running"),
        ("blocked", "paused"),
        ("blocked", "running"),
        ("canceled", "running"),
    ]


@pytest.mark.parametrize("steps", [1, 2])
async def test_a_waiting_step_is_answered(admin: Admin, steps: int) -> None:
    objective = await waiting(admin, steps=steps)
    step = objective["plans"][0]["tasks"][0]["id"]

    async def done(_turn: Any) -> str:
        return "done"

    admin.harness.workers["main"].work = done
    body = {"text": "A"} if steps == 1 else {"text": "A", "step": step}
    answer = await admin.post_json(f"/{objective['id']}/answer", body)
    assert answer.status == 200
    [answered] = [one for one in answer.json["plans"][0]["tasks"] if one["id"] == step]
    assert answered["status"] in ("working", "completed")


async def test_of_two_answers_at_once_one_is_taken_and_the_other_is_refused(admin: Admin) -> None:
    objective = await waiting(admin)
    go = asyncio.Event()

    async def done(turn: Any) -> str:
        await go.wait()
        return f"took {turn.body}"

    worker = admin.harness.workers["main"]
    worker.work = done
    path = f"/{objective['id']}/answer"
    answers = await asyncio.gather(*(admin.post_json(path, {"text": one}) for one in "AB"))
    assert sorted(one.status for one in answers) == [200, 400]
    [refused] = [one for one in answers if one.status == 400]
    assert refused.json["error"]["code"] == "task-not-waiting"
    go.set()
    await admin.harness.ends(objective["id"])
    assert len(worker.turns) == 2


async def test_an_answer_must_name_a_step_when_several_wait(admin: Admin) -> None:
    objective = await waiting(admin, steps=2)
    answer = await admin.post_json(f"/{objective['id']}/answer", {"text": "A"})
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid-params")
    assert "step 0" in answer.json["error"]["message"]


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "text"),
        ({"text": " "}, "text"),
        ({"text": ["A"]}, "text"),
        ({"text": None}, "text"),
        ({"text": "A", "step": 5}, "step"),
    ],
)
async def test_an_invalid_answer_is_rejected(admin: Admin, body: Json, named: str) -> None:
    objective = await waiting(admin)
    answer = await admin.post_json(f"/{objective['id']}/answer", body)
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid-params")
    assert named in answer.json["error"]["message"]
    assert await admin.harness.get(objective["id"]) == objective


async def test_an_impossible_action_is_rejected_with_the_reason(admin: Admin) -> None:
    objective_id = await admin.harness.objective()
    await admin.harness.call("objectives/update", id=objective_id, status="working")
    await admin.harness.call("objectives/update", id=objective_id, status="completed")
    answer = await admin.post(f"/{objective_id}/run")
    assert (answer.status, answer.json["error"]["code"]) == (409, "status-change-not-allowed")
    assert (await admin.post(f"/{objective_id}/explode")).status == 404
    wrong = await admin.get(f"/{objective_id}/run")
    assert (wrong.status, wrong.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("wanted", ["obj-2", "obj", "%00", "x" * 5000])
async def test_an_unknown_objective_is_not_found_on_every_route(admin: Admin, wanted: str) -> None:
    answers = [
        await admin.get(f"/{wanted}"),
        await admin.get(f"/{wanted}/export"),
        await admin.post(f"/{wanted}/cancel"),
    ]
    for answer in answers:
        assert (answer.status, answer.json["error"]["code"]) == (404, "plan-item-not-found")
        assert len(answer.body) < 500


async def test_an_objective_is_exported_and_imported_as_its_log(admin: Admin) -> None:
    objective_id = await admin.harness.objective()
    for number in range(2000):
        await admin.harness.call("objectives/update", id=objective_id, name=f"{number}" * 20)
    before = await admin.harness.get(objective_id)
    exported = await admin.get(f"/{objective_id}/export")
    assert (exported.status, exported.media_type) == (200, "application/jsonl")
    assert [json.loads(line)["seq"] for line in exported.body.splitlines()] == list(range(1, 2002))
    await admin.harness.call("objectives/delete", id=objective_id)
    answer = await admin.post("/import", exported.body[:100], exported.body[100:])
    assert (answer.status, answer.json["id"]) == (200, objective_id)
    assert await admin.harness.get(objective_id) == before


async def test_a_step_that_waited_when_it_was_exported_can_be_answered_after_an_import(
    admin: Admin,
) -> None:
    objective_id = (await waiting(admin))["id"]
    exported = await admin.get(f"/{objective_id}/export")
    assert (await admin.post(f"/{objective_id}/cancel")).status == 200
    await admin.harness.call("objectives/delete", id=objective_id)
    assert (await admin.post("/import", exported.body)).status == 200
    await admin.harness.until(objective_id, lambda one: "oldestWaiting" in one["progress"])
    answer = await admin.post_json(f"/{objective_id}/answer", {"text": "A"})
    assert answer.status == 200, answer.body
    await admin.harness.ends(objective_id)


async def test_a_step_that_completed_since_the_export_is_completed_after_an_import(
    admin: Admin,
) -> None:
    objective_id = (await waiting(admin))["id"]
    exported = await admin.get(f"/{objective_id}/export")
    await admin.post_json(f"/{objective_id}/answer", {"text": "A"})
    await admin.harness.ends(objective_id)
    await admin.harness.call("objectives/delete", id=objective_id)
    assert (await admin.post("/import", exported.body)).json["status"] == "completed"


async def test_an_import_without_operations_is_rejected(admin: Admin) -> None:
    for content in (b"", b" \n\n", b"\xff\xfe"):
        answer = await admin.post("/import", content)
        assert (answer.status, answer.json["error"]["code"]) == (400, "invalid-params")
    answer = await admin.post("/import", b"{", size=MAX_IMPORT_BYTES + 1)
    assert (answer.status, answer.json["error"]["code"]) == (413, "body-too-large")


async def test_every_route_needs_the_admin_token(admin: Admin) -> None:
    objective_id = await admin.harness.objective()
    for method, path in (
        ("GET", f"{objective_id}/export"),
        ("POST", "import"),
        ("POST", f"{objective_id}/cancel"),
    ):
        request = Request(method, f"{ROOT}/{path}", {}, (b"{}",))
        assert (await admin.harness.client.request(request)).status == 401
    assert (await admin.harness.get(objective_id))["status"] == "submitted"


@pytest.mark.parametrize("path", ["", "/obj-1", "/obj-1/export"])
async def test_while_planning_is_disabled_the_error_names_the_setting(
    admin: Admin, path: str
) -> None:
    await admin.harness.reopen({"opt.enabled": False})
    answer = await admin.get(path)
    assert answer.json["error"]["code"] == "unsupported-operation"
    assert "opt.enabled" in answer.json["error"]["message"]
