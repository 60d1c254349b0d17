"""Several gateways on one database: whichever a client talks to, it is one gateway to it."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.asgi_client import AsgiClient, Request
from tests.engine.controlled_agent import TIMEOUT_S, ControlledAgent, Run
from tests.postgres_server import PostgresServer

from openclaw_a2a.app import build_app
from openclaw_a2a.app.gateway import Gateway
from openclaw_a2a.model.agent_event import InputRequired, Reply, TextDelta
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.ports import Recovery
from openclaw_a2a.settings import load_settings

Json = Any

_numbers = itertools.count(1)


class Replica:
    """One gateway of several."""

    def __init__(self, gateway: Gateway, agent: ControlledAgent, running: AsyncExitStack) -> None:
        self.gateway = gateway
        self.agent = agent
        self.client = AsgiClient(gateway.asgi)
        self._running = running

    async def call(self, method: str, params: Json) -> Json:
        """The answer to a request."""
        async with asyncio.timeout(TIMEOUT_S):
            response = await self.client.post("/a2a/jsonrpc", _body(method, params), **_VERSION)
        return response.json

    async def send(self, text: str, *, blocking: bool = True, **more: Json) -> Json:
        """Send a message; the task."""
        answer = await self.call("SendMessage", _message(text, blocking=blocking, **more))
        return answer["result"]["task"]

    @asynccontextmanager
    async def stream(
        self, method: str, params: Json, **headers: str
    ) -> AsyncIterator[Callable[[], Any]]:
        """The events of a stream, one by one; None at its end."""
        body = _body(method, params)
        named = {
            "content-type": "application/json",
            "a2a-version": "1.0",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        async with self.client.open(Request("POST", "/a2a/jsonrpc", named, (body,))) as active:
            read = b""

            async def next_event() -> Json:
                nonlocal read
                while True:
                    while b"\n\n" not in read:
                        async with asyncio.timeout(TIMEOUT_S):
                            chunk = await active.next_chunk()
                        if chunk is None:
                            return None
                        read += chunk
                    event, _, read = read.partition(b"\n\n")
                    lines = [one for one in event.split(b"\n") if one.startswith(b"data: ")]
                    if lines:
                        return json.loads(lines[0][6:])["result"]

            yield next_event

    async def stop(self) -> None:
        """Stop as an operator would."""
        await self._running.aclose()

    def pause(self) -> None:
        """Renew no lease and write nothing, as a stopped process would."""
        link = self.gateway.engines[self.gateway.settings.store].store.link  # type: ignore[attr-defined]
        link.lease_time = -link.lease_time


_VERSION = {"a2a_version": "1.0"}


def _body(method: str, params: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def _message(text: str, *, blocking: bool = True, **more: Json) -> Json:
    message = {
        "messageId": f"m-{next(_numbers)}",
        "role": "ROLE_USER",
        "parts": [{"text": text}],
        **more,
    }
    return {"message": message, "configuration": {"returnImmediately": not blocking}}


def text_of(task: Json) -> str:
    return "".join(part["text"] for one in task.get("artifacts", []) for part in one["parts"])


StartReplica = Callable[..., Any]


@pytest.fixture
async def start_replica(postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[StartReplica]:
    """Start one more gateway on the database: `await start_replica(recovery=Recovery.REPEAT)`."""
    async with postgres.borrow_schema() as schema, AsyncExitStack() as all_running:

        async def start(
            recovery: Recovery = Recovery.FAIL, lease_s: float = 2, **settings: Json
        ) -> Replica:
            number, agent = next(_numbers), ControlledAgent(recovery)
            overrides = {
                "data": str(tmp_path / f"data-{number}"),
                "store.kind": "postgres",
                "store.url": postgres.url(),
                "store.schema": schema,
                "store.connections": 4,
                "store.replicas": True,
                "lease.seconds": lease_s,
                "log.level": "error",
                "agents.main.adapter": "echo",
                **settings,
            }
            loaded = load_settings(overrides=overrides, environ={})
            gateway = build_app(loaded.settings, agents={AgentId("main"): agent})
            running = AsyncExitStack()
            await running.enter_async_context(gateway)
            all_running.push_async_callback(running.aclose)
            return Replica(gateway, agent, running)

        yield start


async def _rest(next_event: Callable[[], Any]) -> AsyncIterator[Json]:
    while (event := await next_event()) is not None:
        yield event


async def next_run(*replicas: Replica) -> tuple[Replica, Run]:
    """The next run that begins at one of the replicas."""
    waiting = {asyncio.create_task(one.agent.next_run()): one for one in replicas}
    done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    first = done.pop()
    return waiting[first], await first


async def test_a_task_is_read_and_listed_at_any_replica(start_replica: StartReplica) -> None:
    a, b = await start_replica(), await start_replica()
    sending = asyncio.create_task(a.send("hello"))
    (await a.agent.next_run()).end(Reply.of_text("done"))
    task = await sending
    found = (await b.call("GetTask", {"id": task["id"]}))["result"]
    assert found == task
    listed = (await b.call("ListTasks", {}))["result"]
    assert [one["id"] for one in listed["tasks"]] == [task["id"]]


async def test_a_stream_at_another_replica_has_every_event_once(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(), await start_replica()
    task = await a.send("hello", blocking=False)
    run = await a.agent.next_run()
    seen: list[Json] = []
    async with b.stream("SubscribeToTask", {"id": task["id"]}) as next_event:
        assert "task" in await next_event()
        for number in range(5):
            run.tell(TextDelta(f"{number} "))
            event = await next_event()
            while "artifactUpdate" not in event:
                event = await next_event()
            seen.append(event["artifactUpdate"]["artifact"]["parts"][0]["text"])
        run.end(Reply.of_text("0 1 2 3 4 "))
        states = []
        while (event := await next_event()) is not None:
            if "statusUpdate" in event:
                states.append(event["statusUpdate"]["status"]["state"])
    assert "".join(seen) == "0 1 2 3 4 "
    assert states[-1] == "TASK_STATE_COMPLETED"


async def test_a_message_for_a_session_of_another_replica_runs_there_after_the_first(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(), await start_replica()
    first = asyncio.create_task(a.send("one", contextId="c-1"))
    run = await a.agent.next_run()
    second = asyncio.create_task(b.send("two", contextId="c-1"))
    third = asyncio.create_task(b.send("elsewhere", contextId="c-2"))
    (await b.agent.next_run("elsewhere")).end(Reply.of_text("free"))
    assert text_of(await third) == "free"
    assert a.agent.is_idle
    assert b.agent.is_idle, "two runs of one session at once"
    run.end(Reply.of_text("first"))
    assert text_of(await first) == "first"
    (await a.agent.next_run("two")).end(Reply.of_text("second"))
    assert text_of(await second) == "second"


async def test_a_session_is_free_for_every_replica_when_its_runs_are_over(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(), await start_replica()
    for replica in (a, b, a, b):
        sending = asyncio.create_task(replica.send("next", contextId="c-1"))
        where, run = await next_run(a, b)
        run.end(Reply.of_text("done"))
        assert text_of(await sending) == "done"
        del where


async def test_a_follow_up_to_a_task_that_another_replica_works_on_joins_it(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(), await start_replica()
    task = await a.send("one", blocking=False)
    run = await a.agent.next_run()
    joined = await b.send("two", blocking=False, taskId=task["id"])
    assert joined["id"] == task["id"]
    async with b.stream("SubscribeToTask", {"id": task["id"]}) as next_event:
        run.end(Reply.of_text("first"))
        (await a.agent.next_run("two")).end(Reply.of_text("second"))
        events = [one async for one in _rest(next_event)]
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_pause_is_answered_at_another_replica(start_replica: StartReplica) -> None:
    a, b = await start_replica(), await start_replica()
    asking = asyncio.create_task(a.send("book"))
    (await a.agent.next_run()).end(InputRequired("when?"))
    task = await asking
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    answering = asyncio.create_task(b.send("today", taskId=task["id"]))
    (await b.agent.next_run("today")).end(Reply.of_text("booked"))
    assert (await answering)["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_task_is_canceled_at_another_replica(start_replica: StartReplica) -> None:
    a, b = await start_replica(), await start_replica()
    task = await a.send("one", blocking=False)
    run = await a.agent.next_run()
    canceled = (await b.call("CancelTask", {"id": task["id"]}))["result"]
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    assert run.stopped.is_set()
    refused = await b.call("CancelTask", {"id": task["id"]})
    assert refused["error"]["code"] == -32002


async def test_the_same_message_at_two_replicas_runs_once(start_replica: StartReplica) -> None:
    a, b = await start_replica(), await start_replica()
    params = _message("hello")
    both = [asyncio.create_task(one.call("SendMessage", params)) for one in (a, b)]
    _, run = await next_run(a, b)
    run.end(Reply.of_text("once"))
    tasks = [(await one)["result"]["task"] for one in both]
    assert tasks[0] == tasks[1]
    assert len(a.agent.turns) + len(b.agent.turns) == 1


async def test_the_work_of_a_replica_that_is_stopped_goes_on_at_another_one(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(Recovery.REPEAT), await start_replica(Recovery.REPEAT)
    task = await a.send("one", blocking=False)
    await a.agent.next_run()
    async with b.stream("SubscribeToTask", {"id": task["id"]}) as next_event:
        await next_event()
        await a.stop()
        (await b.agent.next_run("one")).end(Reply.of_text("done"))
        events = []
        while (event := await next_event()) is not None:
            events.append(event)
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_replica_that_was_taken_for_dead_drops_its_runs_and_writes_nothing(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(Recovery.REPEAT), await start_replica(Recovery.REPEAT)
    waiting = asyncio.create_task(a.send("one"))
    lost = await a.agent.next_run()
    a.pause()
    lost.tell(TextDelta("late "))  # its commit lets the lease run out
    again = await b.agent.next_run("one")
    lost.tell(TextDelta("later "))
    await asyncio.wait_for(lost.stopped.wait(), TIMEOUT_S)
    again.end(Reply.of_text("of the other"))
    # Whoever waited at the first replica gets what came of it.
    task = await waiting
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert "of the other" in text_of(task)
    assert "later" not in text_of(task)
