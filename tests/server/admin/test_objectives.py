"""The admin routes for objectives."""

from typing import Any

import pytest
from msgspec.json import encode
from tests.conformance.asgi_client import AsgiClient, Request, Response

from openclaw_a2a.auth.admin_token import AdminAuthenticator
from openclaw_a2a.http.asgi import HttpRequest
from openclaw_a2a.http.deadline import body_deadline
from openclaw_a2a.model.errors import InvalidParams, PlanItemNotFound, StatusChangeNotAllowed
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.server.admin.endpoint import AdminEndpoint
from openclaw_a2a.server.admin.objectives import MAX_IMPORT_BYTES, ObjectivesAdmin

TOKEN = "the-operator's-own-token-of-forty-letters"
ANSWER = "/operator/objectives/obj-1/answer"
LOG = b'{"v":1,"seq":1,"op":"objective.create"}\n{"v":1,"seq":2,"op":"plan.create"}\n'


def objective(number: int, status: str = "working") -> JsonObject:
    return {
        "id": f"obj-{number}",
        "name": "Party",
        "status": status,
        "principal": "local",
        "account": "default",
        "progress": {"done": 1, "total": 2, "percent": 50, "current": []},
        "plans": [{"id": "plan-1", "tasks": [{"id": "task-1"}]}],
    }


class ScriptedAdmin:
    """A scripted admin service: objectives, newest first, and the calls it got."""

    def __init__(self, *objectives: JsonObject) -> None:
        self._objectives = {one["id"]: one for one in objectives}
        self.done: list[tuple[str, str]] = []
        self.taken: list[bytes] = []

    async def list(self, limit: int, status: str | None = None) -> tuple[list[JsonObject], int]:
        found = [one for one in self._objectives.values() if status in (None, one["status"])]
        listed = [{key: one[key] for key in one if key != "plans"} for one in found[:limit]]
        return listed, len(found)

    async def find(self, objective_id: str) -> JsonObject:
        return self._find(objective_id)

    async def act(self, objective_id: str, action: str) -> JsonObject:
        found = self._find(objective_id)
        if found["status"] == "completed":
            raise StatusChangeNotAllowed("it is completed and cannot become working")
        self.done.append((objective_id, action))
        return found

    async def answer(self, objective_id: str, text: str, step: str | None = None) -> JsonObject:
        found = self._find(objective_id)
        self.done.append((objective_id, f"{step}: {text}"))
        return found

    async def export(self, objective_id: str) -> bytes:
        self._find(objective_id)
        return LOG

    async def import_log(self, jsonl: bytes) -> JsonObject:
        self.taken.append(jsonl)
        if not jsonl.startswith(b"{"):
            raise InvalidParams("line 1 is no operation")
        return objective(9)

    def _find(self, objective_id: str) -> JsonObject:
        if objective_id not in self._objectives:
            raise PlanItemNotFound(f"there is no objective {objective_id[:80]}")
        return self._objectives[objective_id]


class AdminClient:
    """A client of the admin endpoint."""

    def __init__(self, admin: "ScriptedAdmin | None") -> None:
        endpoint = AdminEndpoint(
            AdminAuthenticator(TOKEN, own_hosts=["127.0.0.1"]), body_deadline=body_deadline(5)
        )
        ObjectivesAdmin(lambda: admin).add_to(endpoint)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await endpoint.serve(HttpRequest(scope, receive, send))

        self._client = AsgiClient(app)

    async def get(self, path: str) -> Response:
        return await self._client.get(path, authorization=f"Bearer {TOKEN}")

    async def post(self, path: str, *chunks: bytes, size: int | None = None) -> Response:
        length = sum(map(len, chunks)) if size is None else size
        headers = {"authorization": f"Bearer {TOKEN}", "content-length": str(length)}
        return await self._client.request(Request("POST", path, headers, chunks or (b"",)))

    async def post_json(self, path: str, body: JsonObject) -> Response:
        content = encode(body)
        length = str(len(content))
        headers = {"authorization": f"Bearer {TOKEN}", "content_length": length}
        return await self._client.post(path, content, **headers)


async def test_objectives_of_all_callers_are_listed_without_their_plans() -> None:
    answer = await AdminClient(ScriptedAdmin(*map(objective, range(25)))).get(
        "/operator/objectives?limit=1"
    )
    assert answer.status == 200
    whole = objective(0)
    assert answer.json == {
        "objectives": [{key: value for key, value in whole.items() if key != "plans"}],
        "totalSize": 25,
    }


async def test_objectives_are_filtered_by_status() -> None:
    client = AdminClient(ScriptedAdmin(objective(1), objective(2, "blocked"), objective(3)))
    answer = await client.get("/operator/objectives?status=working")
    assert [one["id"] for one in answer.json["objectives"]] == ["obj-1", "obj-3"]
    assert answer.json["totalSize"] == 2


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=-1", "limit=x", "limit=", "limit=٣", "status=happy"]
)
async def test_an_invalid_query_is_rejected_with_the_valid_values(query: str) -> None:
    answer = await AdminClient(ScriptedAdmin()).get(f"/operator/objectives?{query}")
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid-params")
    assert "must be" in answer.json["error"]["message"]


async def test_one_objective_is_shown_with_its_plans() -> None:
    answer = await AdminClient(ScriptedAdmin(objective(1))).get("/operator/objectives/obj-1")
    assert (answer.status, answer.json) == (200, objective(1))


@pytest.mark.parametrize("action", ["run", "pause", "resume", "cancel"])
async def test_actions_change_the_objective(action: str) -> None:
    admin = ScriptedAdmin(objective(1))
    answer = await AdminClient(admin).post(f"/operator/objectives/obj-1/{action}")
    assert (answer.status, answer.json) == (200, objective(1))
    assert admin.done == [("obj-1", action)]


@pytest.mark.parametrize("step", [None, "task-1"])
async def test_a_waiting_step_is_answered(step: str | None) -> None:
    admin = ScriptedAdmin(objective(1))
    answer = await AdminClient(admin).post_json(ANSWER, {"text": "A", "step": step})
    assert (answer.status, answer.json) == (200, objective(1))
    assert admin.done == [("obj-1", f"{step}: A")]


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
async def test_an_invalid_answer_is_rejected(body: JsonObject, named: str) -> None:
    admin = ScriptedAdmin(objective(1))
    answer = await AdminClient(admin).post_json(ANSWER, body)
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid-params")
    assert named in answer.json["error"]["message"]
    assert admin.done == []


async def test_an_impossible_action_is_rejected_with_the_reason() -> None:
    client = AdminClient(ScriptedAdmin(objective(1, "completed")))
    answer = await client.post("/operator/objectives/obj-1/run")
    assert (answer.status, answer.json["error"]["code"]) == (409, "status-change-not-allowed")
    assert (await client.post("/operator/objectives/obj-1/delete")).status == 404
    assert (await client.get("/operator/objectives/obj-1/run")).status == 404


@pytest.mark.parametrize("wanted", ["obj-2", "obj", "%00", "x" * 5000])
async def test_an_unknown_objective_is_not_found_on_every_route(wanted: str) -> None:
    client = AdminClient(ScriptedAdmin(objective(1)))
    answers = [
        await client.get(f"/operator/objectives/{wanted}"),
        await client.get(f"/operator/objectives/{wanted}/export"),
        await client.post(f"/operator/objectives/{wanted}/cancel"),
    ]
    for answer in answers:
        assert (answer.status, answer.json["error"]["code"]) == (404, "plan-item-not-found")
        assert len(answer.body) < 500


async def test_an_objective_is_exported_as_its_log() -> None:
    answer = await AdminClient(ScriptedAdmin(objective(1))).get("/operator/objectives/obj-1/export")
    assert (answer.status, answer.media_type, answer.body) == (200, "application/jsonl", LOG)


async def test_an_objective_is_imported_from_its_log() -> None:
    admin = ScriptedAdmin()
    large = LOG * 5000
    answer = await AdminClient(admin).post("/operator/objectives/import", large[:100], large[100:])
    assert (answer.status, answer.json["id"]) == (200, "obj-9")
    assert admin.taken == [large]


async def test_an_import_without_operations_is_rejected() -> None:
    client = AdminClient(ScriptedAdmin())
    for content in (b"", b" \n\n", b"\xff\xfe"):
        answer = await client.post("/operator/objectives/import", content)
        assert (answer.status, answer.json["error"]["code"]) == (400, "invalid-params")
    answer = await client.post("/operator/objectives/import", b"{", size=MAX_IMPORT_BYTES + 1)
    assert (answer.status, answer.json["error"]["code"]) == (413, "body-too-large")


async def test_every_route_needs_the_admin_token() -> None:
    admin = ScriptedAdmin(objective(1))
    endpoint = AdminEndpoint(
        AdminAuthenticator(TOKEN, own_hosts=["127.0.0.1"]), body_deadline=body_deadline(5)
    )
    ObjectivesAdmin(lambda: admin).add_to(endpoint)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await endpoint.serve(HttpRequest(scope, receive, send))

    for method, path in (("GET", "obj-1/export"), ("POST", "import"), ("POST", "obj-1/cancel")):
        asked = Request(method, f"/operator/objectives/{path}", {}, (LOG,))
        assert (await AsgiClient(app).request(asked)).status == 401
    assert (admin.done, admin.taken) == ([], [])


@pytest.mark.parametrize("path", ["", "/obj-1", "/obj-1/export"])
async def test_while_planning_is_disabled_the_error_names_the_setting(path: str) -> None:
    answer = await AdminClient(None).get(f"/operator/objectives{path}")
    assert answer.json["error"]["code"] == "unsupported-operation"
    assert "opt.enabled" in answer.json["error"]["message"]
