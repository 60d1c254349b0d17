"""The planning methods over JSON-RPC."""

from typing import Any

import pytest
from tests.conformance.protocol_clients import encode_call
from tests.server.objectives.conftest import ObjectivesServer
from tests.server.objectives.scripted_planning import METHODS

from openclaw_a2a.model.errors import (
    DependencyNotValid,
    GatewayError,
    InvalidParams,
    PlanItemNotFound,
    PlanLimitExceeded,
    Problem,
    StatusChangeNotAllowed,
)

Json = Any
REFUSALS: list[tuple[GatewayError, int, int | None]] = [
    (InvalidParams("objectives/get: id is missing", problems=(Problem("id", "x"),)), -32602, None),
    (PlanItemNotFound("there is no objective obj-1"), -32050, -32000),
    (StatusChangeNotAllowed("completed cannot become working"), -32051, -32001),
    (PlanLimitExceeded("10 plans are the most"), -32052, None),
    (DependencyNotValid("plan-1 depends on itself"), -32053, None),
]


@pytest.mark.parametrize("version", ["", "1.0", "0.3"])
@pytest.mark.parametrize("method", sorted(METHODS))
async def test_every_method_reaches_planning_with_its_params_and_its_caller(
    server: ObjectivesServer, method: str, version: str
) -> None:
    params = {"id": "obj-1", "tasks": [{"name": "a", "dependencies": ["task-0"]}]}
    answer = await server.rpc(method, params, a2a_version=version)
    assert answer == {"jsonrpc": "2.0", "id": 1, "result": server.planning.result}
    [asked] = server.planning.asked
    assert (asked.method, asked.params) == (method, params)
    assert (asked.scope.principal, asked.scope.account) == ("local", "default")


@pytest.mark.requirement("opt.error.id-echo")
@pytest.mark.parametrize("call_id", [7, "seven", "", -1, None])
async def test_ids_of_requests_are_echoed(server: ObjectivesServer, call_id: Json) -> None:
    body = encode_call("objectives/list", {}, call_id=call_id)
    answer = await server.activated.post("/a2a/jsonrpc", body)
    assert answer.json == {"jsonrpc": "2.0", "id": call_id, "result": server.planning.result}


@pytest.mark.requirement("opt.error.legacy")
@pytest.mark.parametrize(("error", "code", "legacy"), REFUSALS)
async def test_errors_have_the_shape_of_the_version_in_the_header(
    server: ObjectivesServer, error: GatewayError, code: int, legacy: int | None
) -> None:
    server.planning.error = error
    for version in ("", "0.3"):
        told = (await server.rpc("objectives/get", {"id": "obj-1"}, a2a_version=version))["error"]
        assert (told["code"], told["message"]) == (code, error.message)
        assert told.get("data", {}).get("legacyCode") == legacy
    told = (await server.rpc("objectives/get", {"id": "obj-1"}, a2a_version="1.0"))["error"]
    assert (told["code"], told["message"]) == (code, error.message)
    metadata = told["data"][0]["metadata"]
    assert metadata.get("legacyCode") == (None if legacy is None else str(legacy))


async def test_unsupported_version_is_rejected(server: ObjectivesServer) -> None:
    told = await server.rpc("objectives/get", {"id": "obj-1"}, a2a_version="2.0")
    assert told["error"]["code"] == -32009
    assert server.planning.asked == []


@pytest.mark.parametrize("params", [None, [], ["obj-1"], "obj-1", 7, True])
async def test_params_that_are_not_an_object_are_rejected_with_the_method_name(
    server: ObjectivesServer, params: Json
) -> None:
    for method in ("objectives/get", "objectives/subscribe"):
        told = (await server.rpc(method, params))["error"]
        assert told["code"] == -32602
        assert method in told["message"]
    assert server.planning.asked == []


async def test_absent_params_are_an_empty_object(server: ObjectivesServer) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"objectives/list"}'
    answer = await server.activated.post("/a2a/jsonrpc", body)
    assert answer.json["result"] == server.planning.result
    assert server.planning.asked[0].params == {}


@pytest.mark.requirement("opt.error.internal")
async def test_an_unexpected_error_in_planning_is_an_internal_error(
    server: ObjectivesServer,
) -> None:
    server.planning.error = RuntimeError("a secret")
    answer = await server.rpc("objectives/get", {"id": "obj-1"})
    assert answer["error"]["code"] == -32603
    assert "secret" not in str(answer)
