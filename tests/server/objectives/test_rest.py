"""The planning methods over HTTP+JSON."""

from typing import Any

import msgspec
import pytest
from tests.server.objectives.conftest import ObjectivesServer, ask

from openclaw_a2a.model.errors import (
    ChangedMeanwhile,
    DependencyNotValid,
    GatewayError,
    InvalidParams,
    PlanItemNotFound,
    PlanLimitExceeded,
    StatusChangeNotAllowed,
)

Json = Any
BODY = {"name": "Garden party"}
ROUTES: list[tuple[str, Json, str, Json]] = [
    ("POST /objectives", BODY, "objectives/create", BODY),
    ("GET /objectives", None, "objectives/list", {}),
    ("GET /objectives/", None, "objectives/list", {}),
    (
        "GET /objectives?status=working&pageSize=5&pageToken=p",
        None,
        "objectives/list",
        {"status": "working", "pageSize": 5, "pageToken": "p"},
    ),
    ("GET /objectives?status=&pageToken=&A2A-Version=1.0", None, "objectives/list", {}),
    ("GET /objectives?pageSize=many", None, "objectives/list", {"pageSize": "many"}),
    ("GET /objectives?pageSize=1.5", None, "objectives/list", {"pageSize": "1.5"}),
    ("GET /objectives?pagesize=5", None, "objectives/list", {"pagesize": "5"}),
    ("GET /objectives/obj-1", None, "objectives/get", {"id": "obj-1"}),
    (
        "GET /objectives/obj-1?includePlans=false&includeTasks=true&id=obj-1",
        None,
        "objectives/get",
        {"id": "obj-1", "includePlans": False, "includeTasks": True},
    ),
    (
        "GET /objectives/obj-1?includePlans=no",
        None,
        "objectives/get",
        {"id": "obj-1", "includePlans": "no"},
    ),
    ("GET /objectives/obj:1", None, "objectives/get", {"id": "obj:1"}),
    ("PATCH /objectives/obj-1", BODY, "objectives/update", {**BODY, "id": "obj-1"}),
    ("PATCH /objectives/obj-1", {"id": "obj-1"}, "objectives/update", {"id": "obj-1"}),
    ("DELETE /objectives/obj-1", None, "objectives/delete", {"id": "obj-1"}),
    (
        "DELETE /objectives/obj-1?cancel=true",
        None,
        "objectives/delete",
        {"id": "obj-1", "cancel": True},
    ),
    ("POST /objectives/obj-1:replan", None, "objectives/replan", {"id": "obj-1"}),
    ("POST /objectives/obj-1:run", {}, "objectives/run", {"id": "obj-1"}),
    ("POST /objectives/obj-1:pause", None, "objectives/pause", {"id": "obj-1"}),
    ("POST /objectives/obj-1:resume", BODY, "objectives/resume", {**BODY, "id": "obj-1"}),
    ("POST /objectives/obj-1/plans", BODY, "plans/create", {**BODY, "objectiveId": "obj-1"}),
    (
        "GET /plans/plan-1?includeTasks=false",
        None,
        "plans/get",
        {"id": "plan-1", "includeTasks": False},
    ),
    ("PATCH /plans/plan-1", BODY, "plans/update", {**BODY, "id": "plan-1"}),
    (
        "POST /plans/plan-1:addTasks",
        {"tasks": []},
        "plans/addTasks",
        {"tasks": [], "id": "plan-1"},
    ),
    ("POST /plans/plan-1:run", None, "plans/run", {"id": "plan-1"}),
    ("POST /plans/plan-1:pause", None, "plans/pause", {"id": "plan-1"}),
    ("POST /plans/plan-1:resume", None, "plans/resume", {"id": "plan-1"}),
]
REFUSALS: list[tuple[GatewayError, int, str]] = [
    (InvalidParams("objectives/get: id is missing"), 400, "INVALID_ARGUMENT"),
    (PlanItemNotFound("there is no objective obj-1"), 404, "NOT_FOUND"),
    (ChangedMeanwhile("the objective obj-1 was changed"), 409, "ABORTED"),
    (StatusChangeNotAllowed("completed cannot become working"), 409, "FAILED_PRECONDITION"),
    (PlanLimitExceeded("10 plans are the most"), 413, "FAILED_PRECONDITION"),
    (DependencyNotValid("plan-1 depends on itself"), 400, "INVALID_ARGUMENT"),
]


@pytest.mark.requirement("opt.rest.routes")
@pytest.mark.parametrize(("line", "body", "method", "params"), ROUTES)
async def test_every_address_stands_for_a_method(
    server: ObjectivesServer, line: str, body: Json, method: str, params: Json
) -> None:
    sent = None if body is None else msgspec.json.encode(body)
    answer = await ask(server.activated, line, sent)
    assert (answer.status, answer.media_type) == (200, "application/a2a+json")
    assert answer.json == server.planning.result
    [asked] = server.planning.asked
    assert (asked.method, asked.params) == (method, params)


@pytest.mark.parametrize(
    ("line", "body", "name"),
    [
        ("PATCH /objectives/obj-1", {"id": "obj-2"}, "id"),
        ("PATCH /plans/obj-1", {"id": None, "name": "x"}, "id"),
        ("POST /objectives/obj-1:run", {"id": 7}, "id"),
        ("POST /objectives/obj-1/plans", {"objectiveId": "obj-2", "name": "x"}, "objectiveId"),
        ("GET /objectives/obj-1?id=obj-2", None, "id"),
    ],
)
async def test_params_that_contradict_the_address_are_rejected(
    server: ObjectivesServer, line: str, body: Json, name: str
) -> None:
    sent = None if body is None else msgspec.json.encode(body)
    answer = await ask(server.activated, line, sent)
    assert answer.status == 400
    assert f"{name} must be obj-1, as in the address" in answer.json["error"]["message"]
    assert server.planning.asked == []


@pytest.mark.requirement("opt.rest.errors")
@pytest.mark.parametrize(("error", "status", "name"), REFUSALS)
async def test_errors_have_http_statuses(
    server: ObjectivesServer, error: GatewayError, status: int, name: str
) -> None:
    server.planning.error = error
    answer = await ask(server.activated, "GET /objectives/obj-1")
    told = answer.json["error"]
    assert (answer.status, told["code"], told["status"]) == (status, status, name)
    assert told["message"] == error.message
    assert told["details"][0]["metadata"]["code"] == error.code


@pytest.mark.parametrize(
    "line",
    [
        "POST /objectives/obj-1:fly",
        "POST /objectives/:run",
        "POST /plans",
        "GET /plans",
        "GET /plans/plan-1:subscribe/x",
        "POST /objectives//plans",
        "POST /objectives/obj-1/plans/plan-1",
    ],
)
async def test_other_addresses_are_not_found(server: ObjectivesServer, line: str) -> None:
    body = b"{}" if line.startswith(("POST", "PUT")) else None
    answer = await ask(server.activated, line, body)
    assert (answer.status, server.planning.asked) == (404, [])


@pytest.mark.requirement("wire.rest.unknown-method")
@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("PUT /objectives", "GET, POST"),
        ("POST /objectives/obj-1", "DELETE, GET, PATCH"),
        ("DELETE /plans/plan-1", "GET, PATCH"),
        ("GET /objectives/obj-1/plans", "POST"),
        ("GET /objectives/obj-1:run", "POST"),
        ("PATCH /objectives/obj-1:replan", "POST"),
        ("DELETE /objectives/obj-1:pause", "POST"),
        ("PUT /objectives/obj-1:resume", "POST"),
        ("POST /objectives/obj-1:subscribe", "GET"),
        ("GET /plans/plan-1:addTasks", "POST"),
        ("PATCH /plans/plan-1:run", "POST"),
        ("PUT /plans/plan-1:pause", "POST"),
        ("GET /plans/plan-1:resume", "POST"),
    ],
)
async def test_other_methods_of_an_address_are_405_with_those_it_has(
    server: ObjectivesServer, line: str, allowed: str
) -> None:
    answer = await ask(server.activated, line)
    assert (answer.status, answer.headers.get("allow")) == (405, allowed)
    assert (await ask(server.client, line)).status == 404
    assert server.planning.asked == []


@pytest.mark.parametrize("body", [b" ", b"{", b"[]", b"null", b"7", b'{"a":1,"a":2}', b"\xff"])
async def test_bodies_that_are_not_json_objects_are_rejected(
    server: ObjectivesServer, body: bytes
) -> None:
    for line in ("POST /objectives", "PATCH /objectives/obj-1", "POST /objectives/obj-1:run"):
        assert (await ask(server.activated, line, body)).status == 400, line
    assert (await ask(server.activated, "POST /objectives", b"")).status == 400
    assert server.planning.asked == []


async def test_change_that_says_nothing_is_left_to_planning(server: ObjectivesServer) -> None:
    await ask(server.activated, "PATCH /plans/plan-1")
    assert server.planning.asked[0].params == {"id": "plan-1"}


async def test_older_generation_is_not_spoken_over_http_json(server: ObjectivesServer) -> None:
    answer = await server.activated.get("/a2a/rest/objectives", a2a_version="0.3")
    assert (answer.status, server.planning.asked) == (400, [])
