"""Several gateways on one database: whichever a client talks to, it is one gateway to it."""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.captured_logs import capture_logs
from tests.conformance.asgi_client import AsgiClient, Request
from tests.conformance.conftest import token_of
from tests.engine.controlled_agent import TIMEOUT_S, ControlledAgent, Run, ScriptedAgent
from tests.postgres_server import PostgresServer
from tests.replicas.cluster import repeat_until

from openclaw_a2a.app import build_app
from openclaw_a2a.app.gateway import Gateway
from openclaw_a2a.engine import maintenance
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.engine.tasks.submit import SubmitRequest, submit
from openclaw_a2a.model.agent_event import AgentEvent, InputRequired, Reply, TextDelta
from openclaw_a2a.model.delivery import Delivery, DeliveryId
from openclaw_a2a.model.errors import Overloaded, StoreUnavailable
from openclaw_a2a.model.ids import AccountId, AgentId, ContextId, MessageId, OwnerId, PeerName
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.turn import Scope, Turn
from openclaw_a2a.ports import Recovery
from openclaw_a2a.settings import load_settings
from openclaw_a2a.store.postgres import link as link_module

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

    @property
    def name(self) -> str:
        """The id of the replica."""
        replication = self.gateway.engines[self.gateway.settings.store].replication
        assert replication is not None
        return replication.id

    def as_peer(self, name: str) -> "Replica":
        """The same gateway, for requests with the token of a peer."""
        peer = Replica(self.gateway, self.agent, self._running)
        peer.client = self.client.with_headers(authorization=f"Bearer {token_of(name)}")
        return peer

    async def stop(self) -> None:
        """Stop as an operator would."""
        await self._running.aclose()

    @property
    def link(self) -> Any:
        """Its connection that writes."""
        return self.gateway.engines[self.gateway.settings.store].store.link  # type: ignore[attr-defined]

    @asynccontextmanager
    async def taken_for_dead(self) -> AsyncIterator[Callable[[], Any]]:
        """In the block no write of it is made; afterwards its work is another replica's.

        Gives what waits until one of its writes is held.
        """
        connection = await self.link.address.connect()
        pid = self.link.connection.get_server_pid()

        async def is_held() -> bool:
            waiting = "SELECT count(*) FROM pg_locks WHERE pid = $1 AND NOT granted"
            return bool(await connection.fetchval(waiting, pid))

        async def wait_held() -> None:
            assert await repeat_until(is_held, deadline_s=TIMEOUT_S)

        try:
            async with connection.transaction():
                gone = "UPDATE writer SET is_gone = true WHERE name = $1"
                await connection.execute(gone, self.link.name)
                yield wait_held
        finally:
            await connection.close()

    @asynccontextmanager
    async def without_new_ids(self) -> AsyncIterator[Callable[[], Any]]:
        """In the block no replica gets an id; gives what waits until this one waits for one."""
        connection = await self.link.address.connect()
        pid = self.link.connection.get_server_pid()

        async def is_held() -> bool:
            waiting = "SELECT count(*) FROM pg_locks WHERE pid = $1 AND NOT granted"
            return bool(await connection.fetchval(waiting, pid))

        async def wait_held() -> None:
            assert await repeat_until(is_held, deadline_s=TIMEOUT_S)

        try:
            async with connection.transaction():
                await connection.execute("LOCK TABLE writer IN SHARE MODE")
                yield wait_held
        finally:
            await connection.close()

    async def take_over(self) -> None:
        """Take the work of replicas that are gone."""
        await self.gateway.engines[self.gateway.settings.store].replication.take_over()  # type: ignore[union-attr]

    async def wait_ended(self, task_id: str) -> None:
        """Wait for the end of a task."""

        async def is_ended() -> bool:
            found = await self.call("GetTask", {"id": task_id})
            return found["result"]["status"]["state"] == "TASK_STATE_COMPLETED"

        assert await repeat_until(is_ended, deadline_s=TIMEOUT_S)

    def pause(self) -> None:
        """Renew no lease and write nothing, as a stopped process would."""
        self.link.lease_time = -self.link.lease_time

    def resume(self) -> None:
        """Renew leases again, after a pause."""
        self.link.lease_time = abs(self.link.lease_time)

    def lose_notifications(self) -> None:
        """Tell the others nothing, as a connection that is lost would."""
        store = self.gateway.engines[self.gateway.settings.store].store
        feed = store.replicas.feed  # type: ignore[union-attr]
        feed.set_others(())
        feed.set_others = lambda _: None

    async def drain(self, other: "Replica") -> bool:
        """Have another one accept nothing new."""
        this, that = (
            one.gateway.engines[one.gateway.settings.store].store.replicas for one in (self, other)
        )
        return await this.drain(that.id)  # type: ignore[union-attr]


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
async def start_replica(
    request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path: Path
) -> AsyncIterator[StartReplica]:
    """Start one more gateway on the database: `await start_replica(recovery=Recovery.REPEAT)`.

    The parameter is the kind of schema: one that a test changes does not come again for others.
    """
    kind: str = getattr(request, "param", "test")
    async with postgres.borrow_schema(kind) as schema, AsyncExitStack() as all_running:

        async def start(
            recovery: Recovery = Recovery.FAIL,
            lease_s: float = 20,  # a busy machine is not dead
            agent: Any = None,
            **settings: Json,
        ) -> Replica:
            number, agent = next(_numbers), agent or ControlledAgent(recovery)
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


async def count_requests(connection: Any) -> int:
    """How many requests replicas have made of each other."""
    name = "SELECT pg_sequence_last_value(pg_get_serial_sequence('handoff', 'number'))"
    return await connection.fetchval(name) or 0


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


async def test_a_session_is_free_although_the_store_could_not_be_written_when_its_runs_ended(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(), await start_replica()
    first = asyncio.create_task(a.send("one", contextId="c-1"))
    run = await a.agent.next_run()
    connection = await a.link.address.connect()
    try:
        with capture_logs() as events:
            await connection.execute("ALTER TABLE session RENAME TO elsewhere")
            run.end(Reply.of_text("done"))
            await first

            async def has_failed() -> bool:
                return any(one["event"] == "replica.sessions_not_released" for one in events)

            assert await repeat_until(has_failed, deadline_s=TIMEOUT_S)
            await connection.execute("ALTER TABLE elsewhere RENAME TO session")

        async def is_free() -> bool:
            return not await connection.fetchval("SELECT count(*) FROM session")

        assert await repeat_until(is_free, deadline_s=TIMEOUT_S)
    finally:
        await connection.close()
    second = asyncio.create_task(b.send("two", contextId="c-1"))
    (await b.agent.next_run("two")).end(Reply.of_text("done"))
    assert text_of(await second) == "done"


async def test_a_follow_up_to_a_task_that_another_replica_works_on_joins_it(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(), await start_replica()
    task = await a.send("one", blocking=False)
    run = await a.agent.next_run()
    joined = await b.send("two", blocking=False, taskId=task["id"])
    assert joined["id"] == task["id"]
    async with b.stream("SubscribeToTask", {"id": task["id"]}) as next_event:
        assert "task" in await next_event()  # it is subscribed before the task ends
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


async def test_messages_that_wait_to_be_stored_when_their_replica_is_taken_for_dead_are_refused(
    start_replica: StartReplica,
) -> None:
    """Their sessions may be another replica's by then, which knows nothing of them."""
    a = await start_replica(agent=ScriptedAgent(Reply.of_text("hi"), recovery=Recovery.REPEAT))
    async with a.taken_for_dead() as wait_held:
        first = asyncio.create_task(a.call("SendMessage", _message("one")))
        await wait_held()
        second = asyncio.create_task(a.call("SendMessage", _message("two", contextId="c-1")))

        async def is_asked() -> bool:
            return [turn.body for turn in a.agent.turns] == ["one", "two"]

        assert await repeat_until(is_asked, deadline_s=TIMEOUT_S)
    assert "error" in await first
    assert "error" in await second
    # Nothing of them is left: the session goes on.
    third = await a.send("three", contextId="c-1")
    assert third["status"]["state"] == "TASK_STATE_COMPLETED"
    listed = await a.call("ListTasks", {})
    assert [one["id"] for one in listed["result"]["tasks"]] == [third["id"]]


async def test_a_message_does_not_start_while_its_replica_gets_a_new_id(
    start_replica: StartReplica,
) -> None:
    """The session is another replica's by then, which runs an earlier message of it."""
    # A long lease: no renewal but the one that the test makes.
    a, b = [await start_replica(Recovery.REPEAT, lease_s=600) for _ in range(2)]
    engine = a.gateway.engines[a.gateway.settings.store]
    await a.send("one", blocking=False, contextId="c-1")
    await a.agent.next_run()
    async with a.taken_for_dead():
        pass
    await b.take_over()
    first = await b.agent.next_run("one")
    async with a.without_new_ids() as wait_held:
        renewing = asyncio.create_task(engine.replication.renew())
        await wait_held()
        second = asyncio.create_task(a.call("SendMessage", _message("two", contextId="c-1")))

        async def is_submitted() -> bool:
            return bool(engine.pending_submissions)

        assert await repeat_until(is_submitted, deadline_s=TIMEOUT_S)
    with suppress(StoreUnavailable):  # the write that finds out
        await renewing
    assert "error" in await second
    third = asyncio.create_task(a.send("three", contextId="c-1"))
    first.end(Reply.of_text("done"))
    _, run = await next_run(a, b)
    assert run.turn.body == "three"
    run.end(Reply.of_text("done"))
    assert (await third)["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_task_that_ended_elsewhere_takes_no_message_where_its_lost_run_still_stops(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(Recovery.REPEAT), await start_replica(Recovery.REPEAT)
    engine = a.gateway.engines[a.gateway.settings.store]
    task = await a.send("one", blocking=False)
    lost = await a.agent.next_run()
    lost.may_stop.clear()
    async with a.taken_for_dead():
        pass
    await b.take_over()
    (await b.agent.next_run("one")).end(Reply.of_text("done"))
    await b.wait_ended(task["id"])
    with suppress(StoreUnavailable):  # the write that finds out
        await engine.replication.renew()
    await asyncio.wait_for(lost.stopping.wait(), TIMEOUT_S)
    answer = await a.call("SendMessage", _message("more", taskId=task["id"]))
    assert answer["error"]["code"] == -32004
    canceled = await a.call("CancelTask", {"id": task["id"]})
    assert canceled["error"]["code"] == -32002
    lost.may_stop.set()


async def test_a_run_comes_back_to_a_replica_that_lost_it_and_has_not_stopped_it_yet(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(Recovery.REPEAT), await start_replica(Recovery.REPEAT)
    engine = a.gateway.engines[a.gateway.settings.store]
    task = await a.send("one", blocking=False)
    lost = await a.agent.next_run()
    lost.may_stop.clear()
    async with a.taken_for_dead():
        pass
    await b.take_over()
    (await b.agent.next_run("one")).tell(TextDelta("of the second "))
    with suppress(StoreUnavailable):  # the write that finds out
        await engine.replication.renew()
    await asyncio.wait_for(lost.stopping.wait(), TIMEOUT_S)
    async with b.taken_for_dead():
        pass
    await a.take_over()
    lost.may_stop.set()  # one run of a session at a time
    third = await a.agent.next_run("one")
    assert engine.has_run(task["id"]), "the end of the first run removed its successor"
    third.end(Reply.of_text("of the third"))
    await a.wait_ended(task["id"])


class JoinedAgent(ControlledAgent):
    """Follows work in another program, which every replica reaches and any may end."""

    def __init__(self, name: str, ended_by: list[str]) -> None:
        super().__init__(Recovery.REATTACH)
        self.name, self.ended_by = name, ended_by
        self._is_left: dict[str, bool] = {}

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        self._is_left[turn.run_id] = False
        events, is_over = super().run(turn), False
        try:
            async for event in events:
                yield event
            is_over = True
        finally:
            if not self._is_left.pop(turn.run_id) and not is_over:
                self.ended_by.append(self.name)
            await events.aclose()

    def detach_run(self, run_id: str) -> bool:
        if run_id in self._is_left:
            self._is_left[run_id] = True
        return run_id in self._is_left

    async def end_detached_run(self, turn: Turn) -> None:
        assert turn.attempt > 1
        self.ended_by.append(f"{self.name}, later")


@asynccontextmanager
async def without_tasks(replica: Replica) -> AsyncIterator[None]:
    """In the block no event of a task is stored, and none can be read."""
    connection = await replica.link.address.connect()
    tables = ("event", "snapshot")
    try:
        for table in tables:
            await connection.execute(f"ALTER TABLE {table} RENAME TO {table}_elsewhere")
        try:
            yield
        finally:
            for table in tables:
                await connection.execute(f"ALTER TABLE {table}_elsewhere RENAME TO {table}")
    finally:
        await connection.close()


async def test_a_replica_that_was_taken_for_dead_does_not_end_what_another_one_has_joined(
    start_replica: StartReplica,
) -> None:
    ended_by: list[str] = []
    a = await start_replica(agent=JoinedAgent("a", ended_by))
    b = await start_replica(agent=JoinedAgent("b", ended_by))
    engine = a.gateway.engines[a.gateway.settings.store]
    task = await a.send("one", blocking=False)
    lost = await a.agent.next_run()
    async with a.taken_for_dead():
        pass
    await b.take_over()
    await b.agent.next_run("one")
    with suppress(StoreUnavailable):  # the write that finds out
        await engine.replication.renew()
    await asyncio.wait_for(lost.stopped.wait(), TIMEOUT_S)
    assert ended_by == []
    canceled = (await a.call("CancelTask", {"id": task["id"]}))["result"]
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    assert ended_by == ["b"]


async def test_a_replica_without_its_store_ends_nothing_that_another_one_may_have_joined(
    start_replica: StartReplica,
) -> None:
    ended_by: list[str] = []
    a = await start_replica(agent=JoinedAgent("a", ended_by), lease_s=600)
    b = await start_replica(agent=JoinedAgent("b", ended_by), lease_s=600)
    engine = a.gateway.engines[a.gateway.settings.store]
    task = await a.send("one", blocking=False)
    lost = await a.agent.next_run()
    with capture_logs() as events:
        async with without_tasks(a):
            lost.tell(TextDelta("not stored"))
            await asyncio.wait_for(lost.stopped.wait(), TIMEOUT_S)
            assert ended_by == []
            async with a.taken_for_dead():
                pass
            taking = asyncio.create_task(b.take_over())

            async def is_taken() -> bool:
                return any(one["event"] == "recovery.delayed" for one in events)

            assert await repeat_until(is_taken, deadline_s=TIMEOUT_S)
    await taking
    joined = await b.agent.next_run("one")

    async def is_given_up() -> bool:
        with suppress(StoreUnavailable):  # the write that finds out
            await maintenance._fail_abandoned(engine)
        return not engine.abandoned

    assert await repeat_until(is_given_up, deadline_s=TIMEOUT_S)
    assert ended_by == []
    joined.end(Reply.of_text("done"))
    await b.wait_ended(task["id"])


async def test_a_replica_that_gets_its_store_back_in_time_ends_what_it_left_running(
    start_replica: StartReplica,
) -> None:
    ended_by: list[str] = []
    a = await start_replica(agent=JoinedAgent("a", ended_by), lease_s=6)
    task = await a.send("one", blocking=False)
    run = await a.agent.next_run()
    async with without_tasks(a):
        run.tell(TextDelta("not stored"))
        await asyncio.wait_for(run.stopped.wait(), TIMEOUT_S)
        assert ended_by == []

    async def is_ended() -> bool:
        return bool(ended_by)

    assert await repeat_until(is_ended, deadline_s=TIMEOUT_S)
    assert ended_by == ["a, later"]
    found = (await a.call("GetTask", {"id": task["id"]}))["result"]
    assert found["status"]["state"] == "TASK_STATE_FAILED"


async def test_runs_are_taken_over_although_the_store_cannot_be_read_in_between(
    start_replica: StartReplica,
) -> None:
    """They have a new owner by then: nobody else looks for them."""
    a, b = await start_replica(Recovery.REPEAT), await start_replica(agent=SlowCleaner())
    sent = await a.send("one", blocking=False)
    await a.agent.next_run()
    async with a.taken_for_dead():
        pass
    taking = asyncio.create_task(b.take_over())
    await asyncio.wait_for(b.agent.is_cleaning.wait(), TIMEOUT_S)
    connection = await b.link.address.connect()
    try:
        with capture_logs() as events:
            await connection.execute("ALTER TABLE snapshot RENAME TO elsewhere")
            b.agent.may_clean.set()

            async def has_failed() -> bool:
                return taking.done() or any(one["event"] == "recovery.delayed" for one in events)

            assert await repeat_until(has_failed, deadline_s=TIMEOUT_S)
            await connection.execute("ALTER TABLE elsewhere RENAME TO snapshot")
    finally:
        await connection.close()
    (await b.agent.next_run("one")).end(Reply.of_text("done"))
    await b.wait_ended(sent["id"])
    await taking


async def test_runs_that_are_being_taken_over_do_not_start_at_a_replica_that_is_taken_for_dead(
    start_replica: StartReplica,
) -> None:
    """They belong to its former name: the next take-over finds them, wherever it happens."""
    a = await start_replica(Recovery.REPEAT, lease_s=600)  # no take-over but those of the test
    b = await start_replica(agent=SlowCleaner(), lease_s=600)
    engine = b.gateway.engines[b.gateway.settings.store]
    sent = [await a.send(text, blocking=False, contextId="c-1") for text in ("one", "two")]
    await a.agent.next_run("one")  # the second waits for it
    async with a.taken_for_dead():
        pass
    taking = asyncio.create_task(b.take_over())
    await asyncio.wait_for(b.agent.is_cleaning.wait(), TIMEOUT_S)
    before = b.name
    async with b.taken_for_dead():
        pass

    async def is_renamed() -> bool:
        return b.name != before

    with suppress(StoreUnavailable):  # the write that finds out
        await engine.replication.renew()
    assert await repeat_until(is_renamed, deadline_s=TIMEOUT_S)
    b.agent.may_clean.set()
    await taking
    assert not any(engine.has_run(task["id"]) for task in sent)
    await b.take_over()
    for task, body in zip(sent, ("one", "two"), strict=True):
        (await b.agent.next_run(body)).end(Reply.of_text("done"))
        await b.wait_ended(task["id"])
    assert [turn.body for turn in b.agent.turns] == ["one", "two"]


async def test_a_replica_that_was_taken_for_dead_answers_no_request_that_went_to_another(
    start_replica: StartReplica,
) -> None:
    """It knows only that it could not carry it out; the other one does."""
    a, b, c = [await start_replica(Recovery.REPEAT) for _ in range(3)]
    engines = [one.gateway.engines[one.gateway.settings.store] for one in (a, b)]
    await a.send("one", blocking=False, contextId="c-1")
    await a.agent.next_run()
    policies = [WaitingPolicy(), WaitingPolicy()]
    for engine, policy in zip(engines, policies, strict=True):
        engine.policy = policy
    second = asyncio.create_task(c.send("two", contextId="c-1"))
    await asyncio.wait_for(policies[0].is_asked.wait(), TIMEOUT_S)
    async with a.taken_for_dead():
        pass
    await b.take_over()
    (await b.agent.next_run("one")).end(Reply.of_text("done"))
    await asyncio.wait_for(policies[1].is_asked.wait(), TIMEOUT_S)
    with suppress(StoreUnavailable):  # the write that finds out
        await engines[0].replication.renew()
    policies[0].may_decide.set()

    async def is_answered() -> bool:
        return not engines[0].replication.requests._in_progress

    assert await repeat_until(is_answered, deadline_s=TIMEOUT_S)
    connection = await b.link.address.connect()
    open_requests = "SELECT count(*) FROM handoff WHERE answer IS NULL"
    assert await connection.fetchval(open_requests) == 1
    await connection.close()
    policies[1].may_decide.set()
    (await b.agent.next_run("two")).end(Reply.of_text("done"))
    assert (await second)["status"]["state"] == "TASK_STATE_COMPLETED"


class CommitWithoutAnswer:
    """A connection that is lost after a batch was committed, and the store is locked from then on.

    `release` ends the lock.
    """

    def __init__(self, link: Any) -> None:
        self._link, self._inner = link, link.connection
        self._other: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def fetchrow(self, text: str, *values: object) -> Any:
        await self._inner.fetchrow(text, *values)
        self._other = await self._link.address.connect()
        self._inner.terminate()
        lock = "SELECT pg_advisory_lock($1, hashtext($2))"
        await self._other.execute(lock, link_module.WRITER_LOCK, self._link.address.schema)
        raise ConnectionResetError("cut by the test")

    async def release(self) -> None:
        await self._other.close()


async def test_a_message_that_was_stored_although_its_write_was_given_up_is_answered(
    start_replica: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a gateway that has the database for itself: no other one could take it."""
    monkeypatch.setattr(link_module, "HOLD_S", 0.2)
    alone = await start_replica(lease_s=3, **{"store.replicas": False})
    await alone.send("first", blocking=False, contextId="c-1")
    first = await alone.agent.next_run("first")
    cut = alone.link._connection = CommitWithoutAnswer(alone.link)
    message = _message("hello", blocking=False, contextId="c-1")
    refused = await alone.call("SendMessage", message)
    assert "error" in refused
    await cut.release()

    async def is_known() -> bool:
        return "result" in await alone.call("SendMessage", message)

    assert await repeat_until(is_known, deadline_s=TIMEOUT_S)
    first.end(Reply.of_text("done"))
    (await alone.agent.next_run("hello")).end(Reply.of_text("done"))

    async def is_ended() -> bool:
        found = await alone.call("SendMessage", message)
        task = found.get("result", {}).get("task", {})
        return bool(task) and text_of(task) == "done"

    assert await repeat_until(is_ended, deadline_s=TIMEOUT_S)
    assert [turn.body for turn in alone.agent.turns] == ["first", "hello"]


class SlowReads:
    """The store of a replica's requests, whose reads end when the test lets them."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.answers: list[int] = []
        self.may_end = asyncio.Event()
        self.has_read = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def take_handoffs(self, after: int) -> Any:
        found = await self._inner.take_handoffs(after)
        if found:
            self.has_read.set()
            await self.may_end.wait()
        return found

    async def answer_handoff(self, number: int, answer: bytes) -> None:
        await self._inner.answer_handoff(number, answer)
        self.answers.append(number)


async def test_a_request_that_is_answered_while_requests_are_read_is_carried_out_once(
    start_replica: StartReplica,
) -> None:
    """A second time it would fail, and that might be what its sender gets to hear."""
    a, b = await start_replica(), await start_replica()
    replication = a.gateway.engines[a.gateway.settings.store].replication
    task = await a.send("one", blocking=False)
    run = await a.agent.next_run()
    run.may_stop.clear()
    canceling = asyncio.create_task(b.call("CancelTask", {"id": task["id"]}))
    await asyncio.wait_for(run.stopping.wait(), TIMEOUT_S)
    store = replication.store = SlowReads(replication.store)
    replication.on_handoff()  # the request is read once more while it is carried out
    await asyncio.wait_for(store.has_read.wait(), TIMEOUT_S)
    run.may_stop.set()
    assert (await canceling)["result"]["status"]["state"] == "TASK_STATE_CANCELED"
    store.may_end.set()
    other = await a.send("two", blocking=False)
    await a.agent.next_run("two")
    canceled = await b.call("CancelTask", {"id": other["id"]})
    assert canceled["result"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert len(store.answers) == len(set(store.answers)) == 2


class SlowCleaner(ControlledAgent):
    """Takes its time to end what a gateway that is gone has left."""

    def __init__(self) -> None:
        super().__init__(Recovery.REPEAT)
        self.is_cleaning, self.may_clean = asyncio.Event(), asyncio.Event()

    async def end_orphans(self, run_id: str) -> None:
        self.is_cleaning.set()
        await self.may_clean.wait()


async def test_a_message_waits_for_the_runs_of_its_session_that_are_being_taken_over(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(Recovery.REPEAT), await start_replica(agent=SlowCleaner())
    await a.send("one", blocking=False, contextId="c-1")
    lost = await a.agent.next_run()
    a.pause()
    lost.tell(TextDelta("late "))  # its commit lets the lease run out
    await asyncio.wait_for(b.agent.is_cleaning.wait(), TIMEOUT_S)
    second = asyncio.create_task(b.send("two", contextId="c-1"))
    for _ in range(3):  # time for the second to be stored
        other = asyncio.create_task(b.send("other"))
        (await b.agent.next_run("other")).end(Reply.of_text("done"))
        await other
    b.agent.may_clean.set()
    for body in ("one", "two"):
        (await b.agent.next_run(body)).end(Reply.of_text("done"))
    assert (await second)["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_task_whose_run_is_being_taken_over_is_canceled_after_that(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(Recovery.REPEAT), await start_replica(agent=SlowCleaner())
    task = await a.send("one", blocking=False)
    await a.agent.next_run()
    async with a.taken_for_dead():
        pass
    taking = asyncio.create_task(b.take_over())
    await asyncio.wait_for(b.agent.is_cleaning.wait(), TIMEOUT_S)
    connection = await b.link.address.connect()
    try:
        before = await count_requests(connection)
        canceling = asyncio.create_task(b.call("CancelTask", {"id": task["id"]}))
        for _ in range(3):  # time for the replica to ask itself
            other = asyncio.create_task(b.send("other"))
            (await b.agent.next_run("other")).end(Reply.of_text("done"))
            await other
        assert not canceling.done()
        b.agent.may_clean.set()
        canceled = (await canceling)["result"]
        assert await count_requests(connection) == before, "it asks no replica, nor itself"
    finally:
        await connection.close()
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    await taking


async def test_a_task_whose_run_could_not_be_taken_over_is_not_canceled_without_end(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(Recovery.REPEAT), await start_replica(Recovery.REPEAT)
    task = await a.send("one", blocking=False)
    await a.agent.next_run()
    await b.take_over()
    connection = await b.link.address.connect()
    try:
        before = await count_requests(connection)
        # As a run of a damaged task, which is taken but cannot be continued.
        await connection.execute("UPDATE run SET owner = $1 WHERE task = $2", b.name, task["id"])
        refused = (await b.call("CancelTask", {"id": task["id"]}))["error"]
        assert refused["data"][0]["metadata"]["code"] == "task-not-live"
        assert await count_requests(connection) == before
    finally:
        await connection.close()


async def test_a_replica_that_does_not_know_yet_that_it_is_taken_for_dead_holds_no_session(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(Recovery.REPEAT), await start_replica(Recovery.REPEAT)
    first = asyncio.create_task(b.send("one", contextId="c-1"))
    run = await b.agent.next_run()
    async with a.taken_for_dead():
        pass
    second = asyncio.create_task(a.send("two", contextId="c-1"))
    third = asyncio.create_task(a.send("three", contextId="c-2"))
    run.end(Reply.of_text("done"))
    (await b.agent.next_run("two")).end(Reply.of_text("done"))
    (await a.agent.next_run("three")).end(Reply.of_text("done"))
    for sent in (first, second, third):
        assert (await sent)["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_the_operator_sees_the_replicas_and_drains_one(
    start_replica: StartReplica, tmp_path: Path
) -> None:
    # A lease that a busy machine does not let run out.
    a = await start_replica(lease_s=60, **{"store.replicaName": "left"})
    b = await start_replica(lease_s=60, **{"store.replicaName": "right"})
    token = (a.gateway.settings.data / "operator.token").read_text(encoding="ascii").strip()
    operator = a.client.with_headers(authorization=f"Bearer {token}")
    task = await a.send("one", blocking=False)
    run = await a.agent.next_run()
    listed = (await operator.get("/operator/replicas")).json["replicas"]
    assert [(one["name"], one["isThis"]) for one in listed] == [("left", True), ("right", False)]
    assert {tuple(one["agents"]) for one in listed} == {("main",)}
    assert all(0 < one["leaseLeftSeconds"] < 120 for one in listed)
    # The page has the same, for people and as JSON.
    page = (await operator.get("/dashboard/system")).json
    assert [(one["id"], one["isThis"]) for one in page["replicas"]] == [
        (one["id"], one["isThis"]) for one in listed
    ]
    html = (await operator.get("/dashboard/system", accept="text/html")).body.decode()
    assert 'id="h-replicas"' in html
    assert html.index("<b>left</b>") < html.index("this one") < html.index("<b>right</b>")
    drained = await operator.post(f"/operator/replicas/{listed[0]['id']}/drain", b"{}")
    assert drained.json["isDraining"] is True
    # What it has begun ends; new messages go elsewhere.

    async def is_out() -> bool:
        return (await a.client.get("/readyz")).status == 503

    assert await repeat_until(is_out, deadline_s=TIMEOUT_S)  # it looks at its row once a second
    refused = await a.call("SendMessage", _message("two"))
    assert "stopping" in refused["error"]["message"]
    run.end(Reply.of_text("done"))
    async with b.stream("SubscribeToTask", {"id": task["id"]}, last_event_id="0") as next_event:
        events = [one async for one in _rest(next_event)]
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    missing = await operator.post("/operator/replicas/nobody/drain", b"{}")
    assert missing.status == 404


HOSTILE_ANSWERS: list[tuple[bytes, str]] = [
    (b"", "corrupt-record"),
    (b"\xff\x00", "corrupt-record"),
    (b"[" * 100_000, "corrupt-record"),
    (b'{"run_id": 7}', "corrupt-record"),
    (b'{"answer": "no base64"}', "corrupt-record"),
    (b'{"code": "made-up"}', "internal-error"),
    (b'{"code": "overloaded", "message": "full"}', "overloaded"),
    (b'{"code": "unauthenticated", "details": {"a": [1]}}', "unauthenticated"),
    (b'{"code": "method-not-allowed"}', "method-not-allowed"),
    (b'{"code": "insufficient-scope", "retry_after_s": -5}', "insufficient-scope"),
]


async def test_what_another_replica_answers_may_be_anything(
    start_replica: StartReplica, postgres: PostgresServer
) -> None:
    """A replica that is broken, or of another version: its answers are errors, never tracebacks."""
    replica = await start_replica(lease_s=600)
    schema = replica.gateway.settings.store.schema
    sending = asyncio.create_task(replica.send("first", contextId="shared"))
    (await replica.agent.next_run()).end(Reply.of_text("done"))
    task = await sending
    connection = await asyncpg.connect(postgres.url(), server_settings={"search_path": schema})
    try:
        binding = await connection.fetchval("SELECT binding FROM task WHERE id = $1", task["id"])
        # A writer that is nobody holds the session.
        await connection.execute(
            "INSERT INTO writer (name, batch, instance, host, pid) VALUES ('odd', 0, '', '', 0)"
        )
        await connection.execute(
            "INSERT INTO session (key, owner, number) VALUES ($1, 'odd', -7)"
            " ON CONFLICT (key) DO UPDATE SET owner = 'odd'",
            json.loads(binding)["sessionKey"],
        )
        with capture_logs() as logs:
            for answer, code in HOSTILE_ANSWERS:
                params = _message("next", contextId="shared")
                asked = asyncio.create_task(replica.call("SendMessage", params))

                async def is_answered(answer: bytes = answer) -> bool:
                    number = await connection.fetchval(
                        "UPDATE handoff SET answer = $1 WHERE receiver = 'odd'"
                        " AND answer IS NULL RETURNING number",
                        answer,
                    )
                    channel = f"openclaw_a2a_{replica.name}"
                    await connection.execute("SELECT pg_notify($1, $2)", channel, f"a {number}")
                    return number is not None

                assert await repeat_until(is_answered, deadline_s=TIMEOUT_S)
                error = (await asked)["error"]
                assert error["data"][0]["metadata"]["code"] == code
        assert not [one for one in logs if "exc_info" in one or "traceback" in str(one).lower()]
    finally:
        await connection.execute("DELETE FROM writer WHERE name = 'odd'")
        await connection.close()


async def test_a_request_of_another_replica_that_cannot_be_read_is_answered(
    start_replica: StartReplica, postgres: PostgresServer
) -> None:
    replica = await start_replica()
    schema = replica.gateway.settings.store.schema
    connection = await asyncpg.connect(postgres.url(), server_settings={"search_path": schema})
    try:
        bodies = [b"", b"\xff", b"[" * 100_000, b'{"type": "drop"}', b'{"type": "cancel"}']
        receiver = replica.name
        for body in bodies:
            await connection.execute(
                "INSERT INTO handoff (sender, receiver, body) VALUES ('odd', $1, $2)",
                receiver,
                body,
            )
        await connection.execute("SELECT pg_notify($1, 'h')", f"openclaw_a2a_{receiver}")

        async def are_answered() -> bool:
            rows = await connection.fetch("SELECT answer FROM handoff WHERE answer IS NOT NULL")
            return len(rows) == len(bodies)

        assert await repeat_until(are_answered, deadline_s=TIMEOUT_S)
        answers = await connection.fetch("SELECT answer FROM handoff ORDER BY number")
        codes = [json.loads(one[0])["code"] for one in answers]
        # The others begin like JSON of another shape: perhaps a newer version knows them.
        assert codes == ["corrupt-record"] * 2 + ["overloaded"] * 3
    finally:
        await connection.close()


class WaitingPolicy:
    """Decides about a message when the test says so."""

    def __init__(self) -> None:
        self.is_asked, self.may_decide = asyncio.Event(), asyncio.Event()

    async def check(self, *_: object, **__: object) -> None:
        self.is_asked.set()
        await self.may_decide.wait()


async def test_a_message_is_refused_whose_session_went_to_another_replica_meanwhile(
    start_replica: StartReplica,
) -> None:
    """Else two replicas would run messages of one session at once."""
    a = await start_replica()
    engine = a.gateway.engines[a.gateway.settings.store]
    policy = engine.policy = WaitingPolicy()
    scope, rules = Scope(PeerName("alice"), AccountId("default")), engine.accounts["default"]
    message = Message(MessageId("m"), Role.USER, (Part.of_text("hi"),), ContextId("c-1"))
    request = SubmitRequest(scope, message, is_from_peer=True)
    submitting = asyncio.create_task(submit(engine, request, rules))
    await asyncio.wait_for(policy.is_asked.wait(), TIMEOUT_S)
    before = a.name
    async with a.taken_for_dead():
        pass

    async def is_renamed() -> bool:
        return a.name != before

    with suppress(StoreUnavailable):  # the write that finds out
        await engine.replication.renew()
    assert await repeat_until(is_renamed, deadline_s=TIMEOUT_S)
    policy.may_decide.set()
    with pytest.raises(Overloaded):
        await submitting
    # It is sent again, under the new id.
    engine.policy = None
    run = await submit(engine, request, rules)
    (await a.agent.next_run()).end(Reply.of_text("done"))
    assert isinstance(run, ActiveRun)


async def test_a_replica_that_has_a_new_id_claims_nothing_under_the_old_one(
    start_replica: StartReplica,
) -> None:
    a = await start_replica()
    store = a.gateway.engines[a.gateway.settings.store].store
    with pytest.raises(StoreUnavailable):
        await store.tasks.claim_runs(OwnerId("before"))
    assert await store.tasks.claim_runs(OwnerId(a.name)) == []


async def test_missing_notifications_are_a_warning_of_readyz(start_replica: StartReplica) -> None:
    a = await start_replica()
    assert "warnings" not in (await a.client.get("/readyz")).json
    store = a.gateway.engines[a.gateway.settings.store].store
    feed = store.replicas.feed

    async def is_heard() -> bool:
        return feed.lag_ms is not None

    assert await repeat_until(is_heard, deadline_s=TIMEOUT_S)
    feed.is_deaf = True  # as after a probe that did not come back
    ready = await a.client.get("/readyz")
    assert ready.status == 200
    assert "pooler" in ready.json["warnings"][0]


async def test_a_replica_with_a_new_key_leaves_deliveries_to_their_owners(
    start_replica: StartReplica, postgres: PostgresServer, tmp_path: Path
) -> None:
    keys: dict[str, str] = {}
    for name, text in (("old", "ab" * 32), ("new", "cd" * 32)):
        (tmp_path / name).write_text(text, "ascii")
        (tmp_path / name).chmod(0o600)
        keys[name] = f"file:{tmp_path / name}"
    a = await start_replica(**{"security.encryption.keys": [keys["old"], keys["new"]]})
    task = await a.send("hello", blocking=False)
    run = await a.agent.next_run()
    store = a.gateway.engines[a.gateway.settings.store].store
    now = datetime.now(UTC)
    delivery = Delivery(DeliveryId("d"), "push", task["id"], b"secret", 0, now, now, now)
    assert await store.deliveries.put_delivery(delivery, within=9)
    schema = a.gateway.settings.store.schema
    connection = await asyncpg.connect(postgres.url(), server_settings={"search_path": schema})
    try:
        before = await connection.fetchrow("SELECT owner, body FROM delivery WHERE id = 'd'")
        await start_replica(**{"security.encryption.keys": [keys["new"], keys["old"]]})
        after = await connection.fetchrow("SELECT owner, body FROM delivery WHERE id = 'd'")
    finally:
        await connection.close()
    assert before["owner"] == after["owner"] == a.name
    assert before["body"] != after["body"]
    assert await store.deliveries.read_delivery(None, delivery.id) == delivery
    run.end(Reply.of_text("done"))
