"""Health endpoints, and stopping."""

import asyncio

import anyio
import pytest
from tests.captured_logs import capture_logs
from tests.conformance.asgi_client import AsgiClient, Request
from tests.conformance.conftest import Serve, Start, peers
from tests.conformance.protocol_clients import V1Client, encode_call, v1_message
from tests.conformance.scripted_agent import ScriptedAgent

from openclaw_a2a.engine.engine import SystemClock
from openclaw_a2a.model.agent_event import Reply
from openclaw_a2a.model.errors import SettingsInvalid

RPC = "/a2a/jsonrpc"
TASKS = {"agentStyle": "task-generating"}


def _agent() -> ScriptedAgent:
    return ScriptedAgent(Reply.of_text("hello"))


@pytest.mark.requirement("door.healthz", "door.readyz")
async def test_running_gateway_is_alive_and_ready(start: Start) -> None:
    http = await start(_agent())
    assert (await http.get("/healthz")).status == 200
    assert (await http.get("/readyz")).status == 200


@pytest.mark.requirement("door.healthz", "door.readyz")
async def test_health_needs_no_token(start: Start) -> None:
    http = await start(_agent(), settings=peers("alice"))
    assert (await http.get("/healthz")).status == 200
    assert (await http.get("/readyz")).status == 200


@pytest.mark.requirement("door.readyz")
async def test_a_gateway_with_a_dead_background_loop_is_alive_and_not_ready(serve: Serve) -> None:
    async def fail() -> None:
        raise ValueError("the reason is for the log")

    async with serve(_agent()) as gateway:
        http = AsgiClient(gateway.asgi)
        (engine,) = gateway.engines.values()
        with capture_logs() as logs:
            await asyncio.wait({engine.supervisor.run_loop("leases", fail())})
            await anyio.wait_all_tasks_blocked()
        assert "supervisor.loop_died" in [entry["event"] for entry in logs]
        ready = await http.get("/readyz")
        assert ready.status == 503
        assert "leases" in ready.json["reasons"][0]
        assert b"the reason is for the log" not in ready.body
        assert (await http.get("/healthz")).status == 200


@pytest.mark.requirement("door.readyz")
async def test_a_gateway_is_not_ready_while_a_timer_fails(serve: Serve) -> None:
    failures = ["the reason is for the log"]
    was_called = asyncio.Event()

    def work() -> None:
        was_called.set()
        if failures:
            raise ValueError(failures[0])

    async with serve(_agent()) as gateway:
        http = AsgiClient(gateway.asgi)
        timer = gateway.supervisor.timer("connection sweep", work, retry_s=3600)
        with capture_logs() as logs, anyio.fail_after(240):
            timer.start(0)
            await was_called.wait()
        assert "supervisor.timer_failed" in [entry["event"] for entry in logs]
        ready = await http.get("/readyz")
        assert ready.status == 503
        assert "connection sweep" in ready.json["reasons"][0]
        assert b"the reason is for the log" not in ready.body
        failures.clear()
        was_called.clear()
        timer.stop()
        timer.start(0)
        with anyio.fail_after(240):
            await was_called.wait()
        assert (await http.get("/readyz")).status == 200


@pytest.mark.requirement("door.readyz")
async def test_only_this_machine_reads_where_a_broken_store_is(serve: Serve) -> None:
    async with serve(_agent(), settings={"store.kind": "sqlite"}) as gateway:
        (engine,) = gateway.engines.values()
        await engine.store.close()
        for client, is_told in (("127.0.0.1", True), ("192.0.2.7", False), (None, False)):
            ready = await AsgiClient(gateway.asgi).request(Request("GET", "/readyz", client=client))
            assert ready.status == 503
            [reason] = ready.json["reasons"]
            assert ("state.db" in reason) is is_told, reason


_SWEEP_S = 777


class _FailingSweeps(SystemClock):
    """Waits for the next sweep fail: of the engine, and of the stored results of tools."""

    def __init__(self) -> None:
        self.has_failed = anyio.Event()

    async def sleep(self, seconds: float) -> None:
        if seconds == _SWEEP_S:
            self.has_failed.set()
            raise ValueError("the reason is for the log")
        await super().sleep(seconds)


@pytest.mark.requirement("door.readyz")
async def test_a_dead_loop_outside_the_engines_makes_the_gateway_not_ready(start: Start) -> None:
    settings = {"outbound.enabled": True, "retention.sweepSeconds": _SWEEP_S}
    clock = _FailingSweeps()
    http = await start(_agent(), settings=settings, clock=clock)
    with anyio.fail_after(240):
        await clock.has_failed.wait()
    await anyio.wait_all_tasks_blocked()
    ready = await http.get("/readyz")
    assert ready.status == 503
    assert "tool-results-retention" in " ".join(ready.json["reasons"])
    assert b"the reason is for the log" not in ready.body
    assert (await http.get("/healthz")).status == 200


@pytest.mark.requirement("door.drain", "door.readyz")
async def test_a_stopping_gateway_finishes_runs_and_accepts_nothing_new(serve: Serve) -> None:
    agent = ScriptedAgent()
    async with serve(agent, account=TASKS) as gateway:
        http = AsgiClient(gateway.asgi)
        await V1Client(http).start()
        run = await agent.next_run()
        left: list[int] = []

        async def drain() -> None:
            left.append(await gateway.drain(10))

        async with anyio.create_task_group() as stopping:
            stopping.start_soon(drain)
            await anyio.wait_all_tasks_blocked()
            refused = await http.post(RPC, encode_call("SendMessage", v1_message()))
            assert refused.status == 503
            assert int(refused.headers["retry-after"]) >= 1
            ready = await http.get("/readyz")
            assert ready.status == 503
            assert (await http.get("/healthz")).status == 200
            await run.finish(Reply.of_text("done"))
        assert left == [0]
        task = await V1Client(http).get(run.turn.task_id)
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.requirement("door.drain")
async def test_streams_end_when_the_time_to_stop_is_over(serve: Serve) -> None:
    agent = ScriptedAgent()
    async with serve(agent, account=TASKS) as gateway:
        v1 = V1Client(AsgiClient(gateway.asgi))
        async with v1.stream("SendStreamingMessage", v1_message()) as frames:
            await agent.next_run()
            assert await gateway.drain(0.01) == 1
            await frames.rest()


@pytest.mark.requirement("door.bind")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "gate.example"])
async def test_open_bind_without_tokens_is_refused(serve: Serve, host: str) -> None:
    with pytest.raises(SettingsInvalid) as refused:
        serve(_agent(), settings={"server.host": host})
    assert "channels.a2a.security.peers" in refused.value.message
    async with serve(_agent(), settings={"server.host": host, **peers("alice")}):
        pass
