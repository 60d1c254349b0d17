"""Restarts: tasks, streams and runs that survive, and records of other programs."""

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from tests.conformance.asgi_client import TIMEOUT_S, AsgiClient
from tests.conformance.conftest import Serve, Start
from tests.conformance.manual_clock import ManualClock
from tests.conformance.protocol_clients import Json, V03Client, V1Client, v03_message, v1_message
from tests.conformance.scripted_agent import ScriptedAgent
from tests.conformance.stream_outline import events, outline, state_of, status_text

from openclaw_a2a.model.agent_event import InputRequired, Reply, TextDelta
from openclaw_a2a.model.ids import AccountId, ContextId, PeerName, TaskId
from openclaw_a2a.model.records import TaskHead, encode_json
from openclaw_a2a.model.task import Task, TaskState, TaskStatus
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import Commit, Recovery

TASKS = {"agentStyle": "task-generating"}
STORES = ["sqlite", "json-file"]


def _agent() -> ScriptedAgent:
    return ScriptedAgent(Reply.of_text("hello"))


@pytest.fixture(params=STORES)
def durable(request: pytest.FixtureRequest) -> Json:
    """Settings of a store that survives."""
    return {"store.kind": request.param, "limits.cancelSeconds": 1}


@asynccontextmanager
async def _client(serve: Serve, agent: ScriptedAgent, settings: Json) -> AsyncGenerator[V1Client]:
    async with serve(agent, account=TASKS, settings=settings) as gateway:
        yield V1Client(AsgiClient(gateway.asgi))


async def _wait_for_end(v1: V1Client, task_id: str) -> Json:
    """The task when it has ended."""
    async with v1.stream("SubscribeToTask", {"id": task_id}, last_event_id="0") as frames:
        await frames.rest()
    return await v1.get(task_id)


@pytest.mark.requirement("promise.resume.ended", "store.task.commit")
async def test_task_and_its_events_are_there_after_a_restart(serve: Serve, durable: Json) -> None:
    async with _client(serve, _agent(), durable) as v1:
        frames = await v1.events("SendStreamingMessage", v1_message())
        task = await v1.get(events(frames)[0]["id"])
    async with _client(serve, _agent(), durable) as v1:
        assert await v1.get(task["id"]) == task
        assert (await v1.list(includeArtifacts=True))["tasks"] == [task]
        again = await v1.events("SubscribeToTask", {"id": task["id"]}, last_event_id="1")
    assert [(one.id, one.json) for one in again] == [(one.id, one.json) for one in frames[2:]]


@pytest.mark.requirement("store.task.memory")
async def test_the_memory_store_loses_tasks_at_a_restart(serve: Serve) -> None:
    async with _client(serve, _agent(), {"store.kind": "memory"}) as v1:
        task = (await v1.send())["task"]
        assert await v1.get(task["id"]) == task
    async with _client(serve, _agent(), {"store.kind": "memory"}) as v1:
        assert (await v1.list())["totalSize"] == 0
        assert (await v1.error("GetTask", {"id": task["id"]})).code == -32001


@pytest.mark.requirement("promise.idempotent.task", "promise.idempotent.direct")
@pytest.mark.parametrize("style", ["hybrid", "task-generating"])
async def test_same_message_after_a_restart_gives_the_same_answer(
    serve: Serve, durable: Json, style: str
) -> None:
    agent, params = _agent(), v1_message()
    responses: list[Json] = []
    for _ in range(2):
        async with serve(agent, account={"agentStyle": style}, settings=durable) as gateway:
            responses.append(await V1Client(AsgiClient(gateway.asgi)).call("SendMessage", params))
    assert responses[0] == responses[1]
    assert len(agent.turns) == 1


@pytest.mark.requirement(
    "runtime.transcript.shutdown", "promise.recovery.no-zombie", "promise.recovery.reason"
)
async def test_interrupted_run_that_cannot_be_repeated_is_failed_with_a_reason(
    serve: Serve, durable: Json
) -> None:
    agent = ScriptedAgent()
    async with (
        _client(serve, agent, durable) as v1,
        v1.stream("SendStreamingMessage", v1_message()) as frames,
    ):
        run = await agent.next_run()
        await run.emit(TextDelta("half of"))
        before = await frames.take(4)
    assert run.has_stopped
    async with _client(serve, ScriptedAgent(), durable) as v1:
        task = await _wait_for_end(v1, run.turn.task_id)
        assert state_of(task) == "failed"
        assert status_text(task)
        last = before[-1].id
        after = await v1.events("SubscribeToTask", {"id": task["id"]}, last_event_id=last)
    assert outline(after) == ["artifact +assistant-output-0001.", "status failed"]


@pytest.mark.requirement("runtime.transcript.shutdown", "promise.recovery.repeat")
async def test_an_interrupted_repeatable_run_is_run_again(serve: Serve, durable: Json) -> None:
    first, second = ScriptedAgent(), _agent()
    first.recovery = second.recovery = Recovery.REPEAT
    async with _client(serve, first, durable) as v1:
        task = await v1.start("once more")
        await first.next_run()
    async with _client(serve, second, durable) as v1:
        ended = await _wait_for_end(v1, task["id"])
    assert state_of(ended) == "completed"
    assert [turn.body for turn in second.turns] == ["once more"]
    assert second.turns[0].attempt == 2
    assert second.turns[0].run_id == first.turns[0].run_id


@pytest.mark.requirement("promise.recovery.no-zombie", "promise.bounds.keeps-accepted")
async def test_message_that_waited_is_run_after_the_restart(serve: Serve, durable: Json) -> None:
    first, second = ScriptedAgent(), _agent()
    async with _client(serve, first, durable) as v1:
        await v1.start("begun", contextId="mine")
        await first.next_run()
        waiting = await v1.start("not begun", contextId="mine")
    async with _client(serve, second, durable) as v1:
        assert state_of(await _wait_for_end(v1, waiting["id"])) == "completed"
    assert [turn.body for turn in second.turns] == ["not begun"]


@pytest.mark.requirement("promise.recovery.no-zombie")
async def test_interrupted_direct_run_leaves_a_failed_task(serve: Serve, durable: Json) -> None:
    agent, params = ScriptedAgent(), v1_message()
    async with serve(agent, settings=durable) as gateway:
        v1 = V1Client(AsgiClient(gateway.asgi))
        async with anyio.create_task_group() as sending:
            sending.start_soon(v1.post, "SendMessage", params)
            await agent.next_run()
            sending.cancel_scope.cancel()
    async with serve(_agent(), settings=durable) as gateway:
        v1 = V1Client(AsgiClient(gateway.asgi))
        (task,) = (await v1.list())["tasks"]
        assert state_of(task) == "failed"
        assert (await v1.call("SendMessage", params))["task"]["id"] == task["id"]


@pytest.mark.requirement("runtime.transcript.pause-open")
async def test_a_paused_task_continues_after_a_restart(serve: Serve, durable: Json) -> None:
    asking, answering = ScriptedAgent(InputRequired("Which one?", resume=[1])), _agent()
    async with _client(serve, asking, durable) as v1:
        task = (await v1.send(contextId="mine"))["task"]
    async with _client(serve, answering, durable) as v1:
        ended = (await v1.send("red", taskId=task["id"]))["task"]
    assert state_of(ended) == "completed"
    assert answering.turns[0].resume == [1]
    assert answering.turns[0].binding == asking.turns[0].binding


def _write_record(folder: Path, task_id: str, *, state: str, binding: Json | None) -> None:
    """A task as another program leaves it."""
    task: Json = {
        "kind": "task",
        "id": task_id,
        "contextId": "c-1",
        "status": {"state": state},
        "history": [],
        "artifacts": [],
    }
    record: Json = {"schemaVersion": 2, "task": task, "currentSequence": 0, "journal": []}
    if binding is not None:
        record["binding"] = binding
    name = base64.urlsafe_b64encode(task_id.encode()).decode().rstrip("=")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")


BINDING = {
    "schemaVersion": 1,
    "agentId": "main",
    "channel": "a2a",
    "accountId": "default",
    "matchedBy": "default",
    "sessionKey": "agent:main:a2a:c-1",
    "mainSessionKey": "agent:main:main",
    "storePath": "",
    "peer": {"kind": "direct", "id": "c-1", "source": "context-id"},
    "createdAt": "2026-01-01T00:00:00Z",
    "updatedAt": "2026-01-01T00:00:00Z",
}


@asynccontextmanager
async def _over_records(
    serve: Serve, agent: ScriptedAgent, folder: Path
) -> AsyncGenerator[AsgiClient]:
    settings = {"store.kind": "json-file", "store.path": str(folder)}
    async with serve(agent, account=TASKS, settings=settings) as gateway:
        yield AsgiClient(gateway.asgi)


@pytest.mark.requirement("inbound.rpc.unbound")
async def test_message_to_a_task_without_binding_is_unsupported(
    serve: Serve, tmp_path: Path
) -> None:
    agent = _agent()
    _write_record(tmp_path / "records", "t-1", state="input-required", binding=None)
    async with _over_records(serve, agent, tmp_path / "records") as http:
        old = await V03Client(http).error("message/send", v03_message(taskId="t-1"))
        new = await V1Client(http).error("SendMessage", v1_message(taskId="t-1"))
    assert (old.code, new.code) == (-32004, -32004)
    assert agent.turns == []


@pytest.mark.requirement("promise.recovery.no-zombie", "promise.recovery.reason")
async def test_active_record_that_another_program_left_is_failed_with_a_reason(
    serve: Serve, tmp_path: Path
) -> None:
    _write_record(tmp_path / "records", "t-1", state="working", binding=BINDING)
    async with _over_records(serve, _agent(), tmp_path / "records") as http:
        task = await V03Client(http).call("tasks/get", {"id": "t-1"})
    assert state_of(task) == "failed"
    assert "No run exists for this task" in status_text(task)


@pytest.mark.requirement("inbound.rpc.not-live", "inbound.resubscribe.orphaned")
async def test_active_task_that_runs_nowhere_can_be_read_and_not_canceled(serve: Serve) -> None:
    """Another replica's task whose owner is gone, before somebody takes it over."""
    now = datetime.now(UTC)
    scope = Scope(PeerName("local"), AccountId("default"))
    status = TaskStatus(TaskState.WORKING, timestamp=now)
    task = Task(TaskId("t-1"), ContextId("c-1"), status)
    head = TaskHead(task.id, scope, task.context_id, status.state, now, now, 0)
    async with serve(_agent(), account=TASKS) as gateway:
        (engine,) = gateway.engines.values()
        await engine.store.tasks.commit(Commit(head, -1, snapshot=encode_json(task)))
        v03 = V03Client(AsgiClient(gateway.asgi))
        assert (await v03.error("tasks/cancel", {"id": "t-1"})).code == -32004
        assert outline(await v03.events("tasks/resubscribe", {"id": "t-1"})) == ["task working"]


@pytest.mark.requirement("inbound.turn.binding-kept")
async def test_follow_up_on_a_foreign_record_uses_its_binding(serve: Serve, tmp_path: Path) -> None:
    agent = _agent()
    _write_record(tmp_path / "records", "t-1", state="input-required", binding=BINDING)
    async with _over_records(serve, agent, tmp_path / "records") as http:
        task = await V03Client(http).send(taskId="t-1")
    assert state_of(task) == "completed"
    assert agent.turns[0].session_key == "agent:main:a2a:c-1"
    assert agent.turns[0].binding.peer.source == "context-id"


async def _until_total(v1: V1Client, total: int) -> None:
    with anyio.fail_after(TIMEOUT_S):
        while (await v1.list())["totalSize"] != total:
            await anyio.wait_all_tasks_blocked()


@pytest.mark.requirement("retention.age", "retention.open-kept")
async def test_finished_tasks_are_deleted_after_the_retention_time(start: Start) -> None:
    clock = ManualClock()
    agent = ScriptedAgent(
        script=lambda turn: [InputRequired("?") if turn.body == "ask" else Reply.of_text("hi")]
    )
    settings = {"retention.endedSeconds": 3600}
    v1 = V1Client(await start(agent, account=TASKS, settings=settings, clock=clock))
    await v1.send()
    await v1.send("ask")
    clock.advance(timedelta(minutes=30))
    kept = (await v1.send())["task"]["id"]
    clock.advance(timedelta(minutes=40))
    await _until_total(v1, 2)
    assert kept in [task["id"] for task in (await v1.list())["tasks"]]
    for _ in range(10):  # in steps that are no jumps of the clock
        clock.advance(timedelta(minutes=50))
        await _until_total(v1, 1)
    (left,) = (await v1.list())["tasks"]
    assert state_of(left) == "input-required"


@pytest.mark.requirement("retention.count")
async def test_finished_tasks_past_the_count_are_deleted_oldest_first(start: Start) -> None:
    clock = ManualClock()
    settings = {"retention.keepEnded": 2}
    v1 = V1Client(await start(_agent(), account=TASKS, settings=settings, clock=clock))
    ids = [(await v1.send())["task"]["id"] for _ in range(5)]
    clock.advance(timedelta(minutes=2))
    await _until_total(v1, 2)
    assert {task["id"] for task in (await v1.list())["tasks"]} == set(ids[-2:])
