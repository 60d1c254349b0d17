"""Peers that do not stream: their task is named at once, and then asked for."""

import itertools

import pytest
from tests.remote.scripted_peer import (
    Answer,
    PeerRequest,
    PeerWriter,
    card_of,
    hang_up,
    in_turn,
    message,
    respond,
    result,
    rpc_error,
    scripted,
    stay_silent,
    task,
)
from tests.remote.tool_harness import one_target, open_tool

from openclaw_a2a.model.ids import Json, JsonObject

SILENT = {"streaming": False}


def answers(version: str, binding: str, *tasks: JsonObject) -> Answer:
    """Answer with these tasks, one after the other, in the format of a peer."""

    def one(index: int, value: JsonObject) -> Answer:
        body: Json = value
        if version == "0.3" and binding == "JSONRPC":
            state = value["status"]["state"].removeprefix("TASK_STATE_").lower()
            texts = [
                {**part, "parts": [{"kind": "text", **each} for each in part["parts"]]}
                for part in value.get("artifacts", ())
            ]
            body = {**value, "kind": "task", "status": {"state": state}, "artifacts": texts}
        elif index == 0:
            body = {"task": value}
        return respond(body) if binding == "HTTP+JSON" else result(body)

    return in_turn(*[one(index, value["task"]) for index, value in enumerate(tasks)])


@pytest.mark.requirement("remote.go-on.no-stream")
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_a_task_is_followed_by_asking_for_it(version: str, binding: str) -> None:
    tasks = [
        task("WORKING"),
        task("WORKING"),
        task("WORKING", text="one "),
        task("COMPLETED", text="one two"),
    ]
    async with scripted(answers(version, binding, *tasks)) as peer:
        peer.card = card_of(peer.url, version=version, binding=binding, capabilities=SILENT)
        async with open_tool(one_target(peer.url)) as harness:
            outcome = await harness.send("hi", follow_updates=True)
            handles = harness.tool.handles.all
    assert outcome["ok"], outcome
    assert outcome["summary"]["message_text"] == "one two"
    states = [one["raw"]["status"]["state"] for one in harness.updates]
    assert states == ["working", "working", "completed"], "a task that did not change is no event"
    assert [one["raw"] for one in harness.updates] == outcome["raw"]["events"]
    assert len(handles) == 1
    sent = peer.calls[0].json
    configuration = sent.get("params", sent)["configuration"]
    assert configuration == (
        {"returnImmediately": True} if version == "1.0" else {"blocking": False}
    )
    assert len(peer.calls) == 4


async def test_a_deadline_while_polling_names_the_task() -> None:
    answer = in_turn(result(task("WORKING")), stay_silent)
    async with scripted(answer) as peer:
        peer.card = card_of(peer.url, capabilities=SILENT)
        async with open_tool(one_target(peer.url)) as harness:
            error = await harness.fail_send(follow_updates=True, timeout_ms=5000)
    assert error["message"] == "request timed out"
    assert error["details"]["task_id"] == "t-1"
    assert error["details"]["partial_event_count"] == 1


@pytest.mark.parametrize("failure", [hang_up, rpc_error(-32603, "no")], ids=["network", "peer"])
async def test_a_failure_while_polling_names_the_task(failure: Answer) -> None:
    async with scripted(in_turn(result(task("WORKING")), failure)) as peer:
        peer.card = card_of(peer.url, capabilities=SILENT)
        async with open_tool(one_target(peer.url)) as harness:
            error = await harness.fail_send(follow_updates=True)
    assert error["details"]["task_id"] == "t-1"
    assert error["details"]["suggested_action"] == "status"


async def test_a_message_is_the_answer_of_a_peer_that_makes_no_task() -> None:
    async with scripted(result(message("at once"))) as peer:
        peer.card = card_of(peer.url, capabilities=SILENT)
        async with open_tool(one_target(peer.url)) as harness:
            outcome = await harness.send("hi", follow_updates=True)
    assert outcome["summary"]["message_text"] == "at once"
    assert len(peer.calls) == 1


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_a_peer_of_1_1_is_asked_to_answer_when_there_is_news(binding: str) -> None:
    generations = ["1", 2, "5"]
    states = ["WORKING", "WORKING", "COMPLETED"]
    tasks = [
        task(state, text=f"text {generation}", generation=generation)
        for state, generation in zip(states, generations, strict=True)
    ]
    async with scripted(answers("1.0", binding, *tasks)) as peer:
        peer.card = card_of(peer.url, version="1.1", binding=binding, capabilities=SILENT)
        async with open_tool(one_target(peer.url)) as harness:
            outcome = await harness.send("hi", follow_updates=True)
    assert outcome["summary"]["message_text"] == "text 5"
    assert {one.headers["a2a-version"] for one in peer.calls} == {"1.1"}
    if binding == "JSONRPC":
        asked = [one.json["params"].get("currentGeneration") for one in peer.calls[1:]]
        assert asked == [1, 2]
    else:
        assert [one.path for one in peer.calls[1:]] == [
            "/rpc/tasks/t-1?currentGeneration=1",
            "/rpc/tasks/t-1?currentGeneration=2",
        ]


async def test_a_peer_of_1_0_is_never_asked_for_a_generation() -> None:
    async def answer(received: PeerRequest, writer: PeerWriter) -> None:
        state = "WORKING" if received.json["method"] == "SendMessage" else "COMPLETED"
        body = task(state, generation=3)
        is_send = received.json["method"] == "SendMessage"
        await result(body if is_send else body["task"])(received, writer)

    async with scripted(answer) as peer:
        peer.card = card_of(peer.url, capabilities=SILENT)
        async with open_tool(one_target(peer.url)) as harness:
            assert (await harness.send("hi", follow_updates=True))["ok"]
    assert peer.calls[1].json["params"] == {"id": "t-1"}


async def test_a_peer_of_1_1_with_news_each_time_is_not_asked_without_pause() -> None:
    generation = itertools.count(1)

    async def answer(received: PeerRequest, writer: PeerWriter) -> None:
        body = task("WORKING", generation=next(generation))
        is_send = received.json["method"] == "SendMessage"
        await result(body if is_send else body["task"])(received, writer)

    async with scripted(answer) as peer:
        peer.card = card_of(peer.url, version="1.1", capabilities=SILENT)
        async with open_tool(one_target(peer.url)) as harness:
            await harness.fail_send(follow_updates=True, timeout_ms=1000)
    assert len(peer.calls) <= 7, "one send, and at most five requests in a second"
