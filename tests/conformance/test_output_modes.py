"""The output modes that a caller accepts."""

import pytest
from tests.captured_logs import capture_logs
from tests.conformance.conftest import Start
from tests.conformance.protocol_clients import Json, V03Client, V1Client, v03_message
from tests.conformance.scripted_agent import ScriptedAgent
from tests.conformance.stream_outline import text_of

from openclaw_a2a.engine.transcript.single_artifact import SingleArtifactTranscript
from openclaw_a2a.library.openclaw_adapter import OpenClawTranscript
from openclaw_a2a.model.agent_event import AgentEvent, PartDelta, Reply, ToolReply
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


TEXT = Part.of_text("see")
PICTURE = Part.of_url("https://files.example/a.png", media_type="image/png", filename="a.png")
LEFT_OUT = "a.png (image/png) was left out"


def notes_of(task: Json) -> list[str]:
    return [text_of(message) for message in task["history"] if LEFT_OUT in text_of(message)]


class ShownAs(ScriptedAgent):
    """An agent that is shown by another transcript than the usual one."""

    def __init__(self, transcript_type: type, *steps: AgentEvent) -> None:
        super().__init__(*steps)
        self.transcript_type = transcript_type


@pytest.mark.requirement("runtime.output.omitted-files")
@pytest.mark.parametrize(
    "agent",
    [
        ScriptedAgent(Reply((TEXT, PICTURE))),
        ScriptedAgent(ToolReply((TEXT, PICTURE)), Reply.of_text("done")),
        ScriptedAgent(ToolReply((PICTURE,)), Reply.of_text("done")),
        ScriptedAgent(PartDelta(PICTURE), Reply.of_text("done")),
        ShownAs(SingleArtifactTranscript, Reply((TEXT, PICTURE))),
        ShownAs(SingleArtifactTranscript, PartDelta(PICTURE), Reply.of_text("done")),
        ShownAs(SingleArtifactTranscript, ToolReply((PICTURE,)), Reply.of_text("done")),
        ShownAs(OpenClawTranscript, Reply((TEXT, PICTURE))),
    ],
)
async def test_a_task_and_the_log_name_files_that_are_left_out(
    start: Start, agent: ScriptedAgent
) -> None:
    v1 = V1Client(await start(agent, account=TASKS))
    with capture_logs() as logged:
        task = (await v1.send())["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert len(notes_of(await v1.get(task["id"]))) == 1
    [line] = [one for one in logged if one["event"] == "task.files_omitted"]
    assert (line["task_id"], line["caller"], line["agent"]) == (task["id"], "local", "main")
    assert LEFT_OUT in line["reason"]


@pytest.mark.requirement("runtime.output.omitted-files")
async def test_a_direct_answer_and_the_log_name_files_that_are_left_out(start: Start) -> None:
    http = await start(ScriptedAgent(Reply((TEXT, PICTURE))))
    with capture_logs() as logged:
        message = (await V1Client(http).send())["message"]
    assert message["parts"] == [{"text": "see"}]
    assert LEFT_OUT in message["metadata"]["omittedFiles"]
    assert LEFT_OUT in (await V03Client(http).send())["metadata"]["omittedFiles"]
    [line] = [one for one in logged if one["event"] == "task.files_omitted"]
    assert (line["caller"], line["account"], line["agent"]) == ("local", "default", "main")


@pytest.mark.requirement("runtime.output.omitted-files")
async def test_files_that_are_left_out_before_a_run_becomes_a_task_are_named_in_it(
    start: Start,
) -> None:
    agent = ScriptedAgent(Reply((TEXT, PICTURE)), Reply.of_text("and more"))
    task = (await V1Client(await start(agent)).send())["task"]
    assert len(notes_of(task)) == 1
