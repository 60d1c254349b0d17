"""Large tasks are answered as small ones are: the same content, in both versions and in streams."""

import contextlib
from collections.abc import Iterable
from typing import Any

import anyio
import pytest
from tests.conformance.asgi_client import Request
from tests.conformance.conftest import Start, peers, token_of
from tests.conformance.protocol_clients import V03Client, V1Client, encode_call
from tests.conformance.scripted_agent import ScriptedAgent, Step

from openclaw_a2a.engine.tasks import queries
from openclaw_a2a.model.agent_event import InputRequired, PartDelta, TextDelta
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.turn import Turn

JSON_TYPE = {"content-type": "application/json"}
TASKS = {"agentStyle": "task-generating"}
STORES = pytest.mark.parametrize("kind", ["memory", "sqlite", "json-file"])
PIECE = 'é\\ "\x01' * 60_000


def _answer(turn: Turn) -> Iterable[Step]:
    for _ in range(4):
        yield TextDelta(PIECE)
        yield PartDelta(Part(data={"turn": turn.body, "parts": [], "bytes": "x" * 40_000}))
    if turn.body == "pause":
        yield InputRequired("Which one?")


async def _small_view(v1: V1Client, task_id: str) -> Any:
    """The task as lists show it, which encode it as a whole."""
    (task,) = [
        one for one in (await v1.list(includeArtifacts=True))["tasks"] if one["id"] == task_id
    ]
    return task


@STORES
@pytest.mark.requirement("promise.bounds.large-reads")
async def test_a_large_task_is_read_whole_in_both_versions(start: Start, kind: str) -> None:
    http = await start(ScriptedAgent(script=_answer), account=TASKS, settings={"store.kind": kind})
    v1, v03 = V1Client(http), V03Client(http)
    task = (await v1.send("hello"))["task"]
    shown = await _small_view(v1, task["id"])
    assert len(str(shown)) > queries.LARGE_BYTES
    assert await v1.get(task["id"]) == shown == task
    rest = await http.get(f"/a2a/rest/tasks/{task['id']}")
    assert rest.json == shown
    assert (await v1.get(task["id"], historyLength=0)).keys() == shown.keys() - {"history"}
    assert (await v1.get(task["id"], historyLength=1))["history"] == shown["history"][-1:]
    old = await v03.get(task["id"])
    assert old["kind"] == "task"
    texts = [part.get("text") for one in shown["artifacts"] for part in one["parts"]]
    assert [part.get("text") for one in old["artifacts"] for part in one["parts"]] == texts
    assert len(old["history"]) == len(shown["history"])
    assert "history" not in await v03.get(task["id"], historyLength=0)


@STORES
@pytest.mark.requirement("promise.bounds.large-reads")
async def test_a_stream_begins_with_a_large_task_and_goes_on(start: Start, kind: str) -> None:
    http = await start(ScriptedAgent(script=_answer), account=TASKS, settings={"store.kind": kind})
    v1, v03 = V1Client(http), V03Client(http)
    task = (await v1.send("pause"))["task"]
    async with v1.stream("SubscribeToTask", {"id": task["id"]}) as frames:
        (first,) = await frames.take(1)
        assert first.json["result"]["task"] == await _small_view(v1, task["id"])
        await v1.send("more", taskId=task["id"])
        rest = await frames.rest()
    numbers = [int(frame.id or -1) for frame in (first, *rest)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert rest[-1].json["result"]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    async with v03.stream("tasks/resubscribe", {"id": task["id"]}) as frames:
        (first,) = await frames.take(1)
        assert first.json["result"]["kind"] == "task"
        assert first.json["result"]["status"]["state"] == "completed"


@STORES
@pytest.mark.requirement("promise.bounds.large-reads")
async def test_all_events_of_a_large_task_can_be_read_again(start: Start, kind: str) -> None:
    http = await start(ScriptedAgent(script=_answer), account=TASKS, settings={"store.kind": kind})
    v1 = V1Client(http)
    task = (await v1.send("hello"))["task"]
    body = encode_call("SubscribeToTask", {"id": task["id"]})
    response = await http.post("/a2a/jsonrpc", body, **{"last-event-id": "0"})
    ids = [int(line[4:]) for line in response.body.split(b"\n") if line.startswith(b"id: ")]
    assert ids == list(range(1, len(ids) + 1))
    assert response.body.count(b"TASK_STATE_COMPLETED") == 1


@pytest.mark.requirement("promise.bounds.large-reads")
async def test_nothing_is_sent_to_a_client_that_has_left(start: Start) -> None:
    http = await start(ScriptedAgent(script=_answer), account=TASKS)
    v1 = V1Client(http)
    task = (await v1.send("hello"))["task"]
    body = encode_call("GetTask", {"id": task["id"]})
    async with http.open(Request("POST", "/a2a/jsonrpc", JSON_TYPE, (body,))) as active:
        active.disconnect()
        with anyio.fail_after(240):
            await active.wait_ended()
        assert active.status == 0


@pytest.mark.requirement("promise.bounds.large-reads")
async def test_answers_that_are_not_read_do_not_fill_the_memory(start: Start) -> None:
    settings = {"limits.answerBytes": 4_000_000}
    http = await start(ScriptedAgent(script=_answer), account=TASKS, settings=settings)
    v1 = V1Client(http)
    first, second = [(await v1.send("hello"))["task"]["id"] for _ in range(2)]
    body = encode_call("GetTask", {"id": first})
    async with http.open(
        Request("POST", "/a2a/jsonrpc", JSON_TYPE, (body,)), is_slow=True
    ) as active:
        await active.wait_started()
        # Another reader of the same task shares its bytes; another task has no room.
        assert (await v1.get(first))["id"] == first
        refused = await http.post("/a2a/jsonrpc", encode_call("GetTask", {"id": second}))
        assert refused.status == 429
        assert "limits.answerBytes" in refused.json["error"]["message"]
        info = refused.json["error"]["data"][0]
        assert info["metadata"]["setting"] == "limits.answerBytes"
        active.disconnect()
    assert (await v1.get(second))["id"] == second


@pytest.mark.requirement("promise.bounds.large-reads")
async def test_a_caller_that_holds_no_large_answer_gets_one(start: Start) -> None:
    settings = {"limits.answerBytes": 4_000_000, **peers("alice", "bob", "carol")}
    http = await start(ScriptedAgent(script=_answer), account=TASKS, settings=settings)
    async with contextlib.AsyncExitStack() as readers:
        for name in ("alice", "bob", "carol"):
            own = http.with_headers(authorization=f"Bearer {token_of(name)}")
            v1 = V1Client(own)
            first, second = [(await v1.send("hello"))["task"]["id"] for _ in range(2)]
            body = encode_call("GetTask", {"id": first})
            request = Request("POST", "/a2a/jsonrpc", JSON_TYPE, (body,))
            active = await readers.enter_async_context(own.open(request, is_slow=True))
            readers.callback(active.disconnect)
            await active.wait_started()
            assert active.status == 200
            refused = await own.post("/a2a/jsonrpc", encode_call("GetTask", {"id": second}))
            assert refused.status == 429


@pytest.mark.requirement("promise.bounds.large-reads")
async def test_no_list_is_made_for_clients_that_left_while_they_waited(start: Start) -> None:
    http = await start(ScriptedAgent(script=_answer), account=TASKS)
    v1 = V1Client(http)
    await v1.send("hello")
    request = Request(
        "POST", "/a2a/jsonrpc", JSON_TYPE, (encode_call("ListTasks", {"includeArtifacts": True}),)
    )
    async with contextlib.AsyncExitStack() as readers:
        lists = [await readers.enter_async_context(http.open(request)) for _ in range(5)]
        for one in lists:
            one.disconnect()
        with anyio.fail_after(240):
            for one in lists:
                await one.wait_ended()
    # The first one did not wait.
    assert [one.status for one in lists[1:]] == [0, 0, 0, 0]
    assert len((await v1.list(includeArtifacts=True))["tasks"]) == 1
