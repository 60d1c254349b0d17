"""The protocol version of a request, and contradictions."""

import pytest
from tests.conformance.conftest import Start
from tests.conformance.protocol_clients import (
    V03Client,
    V1Client,
    encode_call,
    v03_message,
    v1_message,
)
from tests.conformance.scripted_agent import ScriptedAgent

from openclaw_a2a.model.agent_event import Reply

RPC = "/a2a/jsonrpc"


def _agent() -> ScriptedAgent:
    return ScriptedAgent(Reply.of_text("hello"))


@pytest.mark.requirement("wire.version.method-decides", "wire.version.absent")
async def test_both_generations_are_served_on_one_path_without_header(start: Start) -> None:
    http = await start(_agent())
    assert "message" in await V1Client(http).send()
    assert (await V03Client(http).send())["kind"] == "message"


@pytest.mark.requirement("wire.version.method-decides")
async def test_header_that_agrees_is_fine(start: Start) -> None:
    http = await start(_agent())
    assert "message" in await V1Client(http.with_headers(a2a_version="1.0")).send()
    assert (await V03Client(http.with_headers(a2a_version="0.3")).send())["kind"] == "message"


@pytest.mark.requirement("wire.version.patch")
@pytest.mark.parametrize("patch", ["0", "1", "12"])
async def test_patch_number_in_the_header_does_not_count(start: Start, patch: str) -> None:
    http = await start(_agent())
    new = http.with_headers(a2a_version=f"1.0.{patch}")
    old = http.with_headers(a2a_version=f"0.3.{patch}")
    assert "message" in await V1Client(new).send()
    assert (await new.get("/a2a/rest/tasks")).json["tasks"] == []
    assert (await V03Client(old).send())["kind"] == "message"
    assert (await V03Client(new).error("tasks/get", {"id": "t"})).code == -32601
    assert (await old.get("/a2a/rest/tasks")).status == 400
    card = "/.well-known/agent-card.json"
    assert (await new.get(card)).body == (await http.get(card, a2a_version="1.0")).body
    assert (await old.get(card)).body == (await http.get(card, a2a_version="0.3")).body


@pytest.mark.requirement("wire.version.method-decides")
async def test_task_of_one_generation_is_the_same_task_in_the_other(start: Start) -> None:
    http = await start(_agent(), account={"agentStyle": "task-generating"})
    old = await V03Client(http).send(contextId="mine")
    new = await V1Client(http).get(old["id"])
    rest = (await http.get(f"/a2a/rest/tasks/{old['id']}")).json
    assert new == rest
    assert (new["id"], new["contextId"]) == (old["id"], "mine")
    assert [one["messageId"] for one in new["history"]] == [
        one["messageId"] for one in old["history"]
    ]
    assert await V03Client(http).get(old["id"]) == old


@pytest.mark.requirement("wire.version.empty")
async def test_empty_header_counts_as_absent(start: Start) -> None:
    http = (await start(_agent())).with_headers(a2a_version="")
    assert "message" in await V1Client(http).send()
    assert (await V03Client(http).send())["kind"] == "message"


@pytest.mark.requirement("wire.version.agrees")
async def test_method_of_the_other_generation_is_not_found(start: Start) -> None:
    agent = _agent()
    http = await start(agent)
    old = await V1Client(http.with_headers(a2a_version="0.3")).error("SendMessage", v1_message())
    assert (old.code, "SendMessage" in old.message) == (-32601, True)
    new = await V03Client(http.with_headers(a2a_version="1.0")).error("message/send", v03_message())
    assert (new.code, "message/send" in new.message) == (-32601, True)
    assert agent.turns == []


@pytest.mark.requirement("wire.version.unknown", "wire.error.error-info")
@pytest.mark.parametrize("version", ["1.7", "2.0", "0.2", "0.4", "banana", "1"])
@pytest.mark.parametrize("method", ["SendMessage", "message/send"])
async def test_version_we_do_not_speak_is_refused_in_the_1_0_shape(
    start: Start, version: str, method: str
) -> None:
    agent = _agent()
    http = (await start(agent)).with_headers(a2a_version=version)
    params = v1_message() if method == "SendMessage" else v03_message()
    response = await http.post(RPC, encode_call(method, params))
    error = response.json["error"]
    assert error["code"] == -32009
    assert error["data"][0]["reason"] == "VERSION_NOT_SUPPORTED"
    assert version in error["message"]
    assert agent.turns == []


@pytest.mark.requirement("wire.version.query")
async def test_version_may_stand_in_the_query(start: Start) -> None:
    agent = _agent()
    http = await start(agent)
    call = encode_call("SendMessage", v1_message())
    assert "result" in (await http.post(f"{RPC}?A2A-Version=1.0", call)).json
    refused = await http.post(f"{RPC}?A2A-Version=2.0", encode_call("SendMessage", v1_message()))
    assert refused.json["error"]["code"] == -32009
    assert len(agent.turns) == 1


@pytest.mark.requirement("wire.version.rest")
async def test_rest_follows_the_same_rule(start: Start) -> None:
    http = await start(_agent())
    for accepted in ({}, {"a2a_version": "1.0"}, {"a2a_version": ""}):
        response = await http.get("/a2a/rest/tasks", **accepted)
        assert response.status == 200
    for refused in ("1.7", "2.0"):
        response = await http.get("/a2a/rest/tasks", a2a_version=refused)
        assert response.status == 400
        assert response.json["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"
    assert (await http.get("/a2a/rest/tasks?A2A-Version=2.0")).status == 400


@pytest.mark.requirement("wire.version.rest")
async def test_rest_path_of_1_0_does_not_exist_in_0_3(start: Start) -> None:
    http = await start(_agent())
    response = await http.get("/a2a/rest/tasks", a2a_version="0.3")
    assert 400 <= response.status < 500
