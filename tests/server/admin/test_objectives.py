"""The operator sees the objectives of everybody, acts on them, and moves them."""

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


class Desk:
    """The outside of the pages: keeps objectives, the newest first, and what was asked of it."""

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


class Pages:
    """The pages behind the operator's door."""

    def __init__(self, desk: "Desk | None") -> None:
        door = AdminEndpoint(
            AdminAuthenticator(TOKEN, own_hosts=["127.0.0.1"]), body_deadline=body_deadline(5)
        )
        ObjectivesAdmin(lambda: desk).add_to(door)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await door.serve(HttpRequest(scope, receive, send))

        self._door = AsgiClient(app)

    async def get(self, path: str) -> Response:
        return await self._door.get(path, authorization=f"Bearer {TOKEN}")

    async def post(self, path: str, *chunks: bytes, size: int | None = None) -> Response:
        length = sum(map(len, chunks)) if size is None else size
        headers = {"authorization": f"Bearer {TOKEN}", "content-length": str(length)}
        return await self._door.request(Request("POST", path, headers, chunks or (b"",)))

    async def post_json(self, path: str, body: JsonObject) -> Response:
        content = encode(body)
        length = str(len(content))
        headers = {"authorization": f"Bearer {TOKEN}", "content_length": length}
        return await self._door.post(path, content, **headers)


async def test_objectives_of_everybody_are_listed_without_their_plans() -> None:
    answer = await Pages(Desk(*map(objective, range(25)))).get("/operator/objectives?limit=1")
    assert answer.status == 200
    whole = objective(0)
    assert answer.json == {
        "objectives": [{key: value for key, value in whole.items() if key != "plans"}],
        "totalSize": 25,
    }


async def test_objectives_are_chosen_by_status() -> None:
    pages = Pages(Desk(objective(1), objective(2, "blocked"), objective(3)))
    answer = await pages.get("/operator/objectives?status=working")
    assert [one["id"] for one in answer.json["objectives"]] == ["obj-1", "obj-3"]
    assert answer.json["totalSize"] == 2


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=-1", "limit=x", "limit=", "limit=٣", "status=happy"]
)
async def test_a_question_that_makes_no_sense_is_refused_with_what_would(query: str) -> None:
    answer = await Pages(Desk()).get(f"/operator/objectives?{query}")
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid-params")
    assert "must be" in answer.json["error"]["message"]


async def test_one_objective_is_shown_whole() -> None:
    answer = await Pages(Desk(objective(1))).get("/operator/objectives/obj-1")
    assert (answer.status, answer.json) == (200, objective(1))


@pytest.mark.parametrize("action", ["run", "pause", "resume", "cancel"])
async def test_an_objective_is_acted_on(action: str) -> None:
    desk = Desk(objective(1))
    answer = await Pages(desk).post(f"/operator/objectives/obj-1/{action}")
    assert (answer.status, answer.json) == (200, objective(1))
    assert desk.done == [("obj-1", action)]


@pytest.mark.parametrize("step", [None, "task-1"])
async def test_a_step_that_waits_is_answered(step: str | None) -> None:
    desk = Desk(objective(1))
    answer = await Pages(desk).post_json(ANSWER, {"text": "A", "step": step})
    assert (answer.status, answer.json) == (200, objective(1))
    assert desk.done == [("obj-1", f"{step}: A")]


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
async def test_an_answer_that_is_none_is_refused(body: JsonObject, named: str) -> None:
    desk = Desk(objective(1))
    answer = await Pages(desk).post_json(ANSWER, body)
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid-params")
    assert named in answer.json["error"]["message"]
    assert desk.done == []


async def test_what_cannot_be_done_is_told_with_the_reason() -> None:
    pages = Pages(Desk(objective(1, "completed")))
    answer = await pages.post("/operator/objectives/obj-1/run")
    assert (answer.status, answer.json["error"]["code"]) == (409, "status-change-not-allowed")
    assert (await pages.post("/operator/objectives/obj-1/delete")).status == 404
    assert (await pages.get("/operator/objectives/obj-1/run")).status == 404


@pytest.mark.parametrize("wanted", ["obj-2", "obj", "%00", "x" * 5000])
async def test_an_objective_that_does_not_exist_is_told_everywhere(wanted: str) -> None:
    pages = Pages(Desk(objective(1)))
    answers = [
        await pages.get(f"/operator/objectives/{wanted}"),
        await pages.get(f"/operator/objectives/{wanted}/export"),
        await pages.post(f"/operator/objectives/{wanted}/cancel"),
    ]
    for answer in answers:
        assert (answer.status, answer.json["error"]["code"]) == (404, "plan-item-not-found")
        assert len(answer.body) < 500


async def test_an_objective_leaves_as_the_lines_of_its_log() -> None:
    answer = await Pages(Desk(objective(1))).get("/operator/objectives/obj-1/export")
    assert (answer.status, answer.media_type, answer.body) == (200, "application/jsonl", LOG)


async def test_an_objective_comes_in_by_the_lines_of_its_log() -> None:
    desk = Desk()
    large = LOG * 5000
    answer = await Pages(desk).post("/operator/objectives/import", large[:100], large[100:])
    assert (answer.status, answer.json["id"]) == (200, "obj-9")
    assert desk.taken == [large]


async def test_lines_that_are_none_are_refused() -> None:
    pages = Pages(Desk())
    for content in (b"", b" \n\n", b"\xff\xfe"):
        answer = await pages.post("/operator/objectives/import", content)
        assert (answer.status, answer.json["error"]["code"]) == (400, "invalid-params")
    answer = await pages.post("/operator/objectives/import", b"{", size=MAX_IMPORT_BYTES + 1)
    assert (answer.status, answer.json["error"]["code"]) == (413, "body-too-large")


async def test_nobody_without_the_token_gets_or_gives_anything() -> None:
    desk = Desk(objective(1))
    door = AdminEndpoint(
        AdminAuthenticator(TOKEN, own_hosts=["127.0.0.1"]), body_deadline=body_deadline(5)
    )
    ObjectivesAdmin(lambda: desk).add_to(door)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await door.serve(HttpRequest(scope, receive, send))

    for method, path in (("GET", "obj-1/export"), ("POST", "import"), ("POST", "obj-1/cancel")):
        asked = Request(method, f"/operator/objectives/{path}", {}, (LOG,))
        assert (await AsgiClient(app).request(asked)).status == 401
    assert (desk.done, desk.taken) == ([], [])


@pytest.mark.parametrize("path", ["", "/obj-1", "/obj-1/export"])
async def test_while_planning_is_off_the_setting_is_named(path: str) -> None:
    answer = await Pages(None).get(f"/operator/objectives{path}")
    assert answer.json["error"]["code"] == "unsupported-operation"
    assert "opt.enabled" in answer.json["error"]["message"]
