"""The output modes that a caller accepts."""

import pytest
from tests.conformance.conftest import Start
from tests.conformance.protocol_clients import Json, V03Client, V1Client, v03_message
from tests.conformance.scripted_agent import ScriptedAgent
from tests.conformance.stream_outline import text_of

from openclaw_a2a.model.agent_event import (
    Reply,
)
from openclaw_a2a.model.message import Part

TASKS = {"agentStyle": "task-generating"}


@pytest.mark.requirement("runtime.output.accepted-set", "runtime.output.text")
@pytest.mark.parametrize("modes", [["text/plain"], [" TEXT/Plain "], ["image/png", "text/*"], []])
async def test_text_is_sent_when_it_is_accepted(start: Start, modes: list[str]) -> None:
    v1 = V1Client(await start(ScriptedAgent(Reply.of_text("hi"))))
    configuration = {"acceptedOutputModes": modes}
    assert text_of((await v1.send(configuration=configuration))["message"]) == "hi"


@pytest.mark.requirement("runtime.output.text", "runtime.output.accepted-set")
async def test_parts_that_are_not_accepted_are_left_out(start: Start) -> None:
    agent = ScriptedAgent(Reply((Part.of_text("hi"), Part.of_data({"a": 1}))))
    v1 = V1Client(await start(agent))
    data = (await v1.send(configuration={"acceptedOutputModes": ["application/json"]}))["message"]
    assert data["parts"] == [{"data": {"a": 1}}]
    both = (await v1.send())["message"]
    assert both["parts"] == [{"text": "hi"}, {"data": {"a": 1}}]


@pytest.mark.requirement("runtime.output.accepted-set", "inbound.account.output-modes")
async def test_account_modes_count_when_the_request_has_none(start: Start) -> None:
    agent = ScriptedAgent(Reply((Part.of_text("hi"), Part.of_data({"a": 1}))))
    v1 = V1Client(await start(agent, account={"defaultOutputModes": ["text/plain"]}))
    assert (await v1.send())["message"]["parts"] == [{"text": "hi"}]


@pytest.mark.requirement("runtime.output.media")
@pytest.mark.parametrize("mode", ["image/png", "image/*", "*/*", " IMAGE/PNG"])
async def test_media_are_file_parts_when_their_type_is_accepted(start: Start, mode: str) -> None:
    picture = Part.of_url("https://files.example/a.png", media_type="image/png")
    v03 = V03Client(await start(ScriptedAgent(Reply((Part.of_text("see"), picture)))))
    configuration = {"acceptedOutputModes": ["text/plain", mode]}
    parts = (await v03.send(configuration=configuration))["parts"]
    assert parts[1] == {
        "kind": "file",
        "file": {"uri": "https://files.example/a.png", "mimeType": "image/png"},
    }
    without = await v03.send()
    assert [part["kind"] for part in without["parts"]] == ["text"]


@pytest.mark.requirement("runtime.output.direct-refused", "inbound.rpc.output-modes")
async def test_direct_answer_that_cannot_be_sent_is_an_error(start: Start) -> None:
    http = await start(ScriptedAgent(Reply.of_text("hi")))
    params = v03_message(configuration={"acceptedOutputModes": ["image/png"]})
    failed = await V03Client(http).error("message/send", params)
    assert failed.code == -32005
    assert failed.error["data"]["acceptedOutputModes"] == ["image/png"]
    assert "text/plain" in failed.error["data"]["availableOutputModes"]
    assert (await V1Client(http).list())["totalSize"] == 0


@pytest.mark.requirement("runtime.output.available")
@pytest.mark.parametrize("account", [{}, TASKS])
async def test_available_output_modes_are_those_of_the_content(start: Start, account: Json) -> None:
    picture = Part.of_url("https://files.example/a.png", media_type="image/png")
    table = Part.of_data({"rows": 1})
    for parts, modes in (
        ((Part.of_text("hi"),), ["text/plain"]),
        ((picture,), ["image/png"]),
        ((table, Part.of_text("  "), picture, picture), ["application/json", "image/png"]),
        ((Part.of_bytes(b"x", media_type=""),), ["application/octet-stream"]),
        ((Part.of_bytes(b"x", media_type="a/\ud800"),), ["a/\ufffd"]),
    ):
        http = await start(ScriptedAgent(Reply(parts)), account=account)
        params = v03_message(configuration={"acceptedOutputModes": ["audio/wav"]})
        failed = await V03Client(http).error("message/send", params)
        assert (failed.code, failed.error["data"]["availableOutputModes"]) == (-32005, modes)


@pytest.mark.requirement("runtime.output.task-refused", "inbound.rpc.output-modes")
async def test_a_task_whose_answer_cannot_be_sent_fails_with_the_reason(start: Start) -> None:
    http = await start(ScriptedAgent(Reply.of_text("hi")), account=TASKS)
    params = v03_message(configuration={"acceptedOutputModes": ["image/png"]})
    assert (await V03Client(http).error("message/send", params)).code == -32005
    (task,) = (await V1Client(http).list())["tasks"]
    assert task["status"]["state"] == "TASK_STATE_FAILED"
