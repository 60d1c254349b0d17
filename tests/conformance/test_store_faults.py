"""A slow or failing store: nothing is sent early, and errors are clear."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import anyio
import pytest
from tests.conformance.asgi_client import AsgiClient
from tests.conformance.conftest import Serve
from tests.conformance.protocol_clients import Frame, V03Client, V1Client, v1_message
from tests.conformance.scripted_agent import ScriptedAgent
from tests.conformance.stream_outline import outline
from tests.store.flat_store import FlatStore

from openclaw_a2a.app import Gateway
from openclaw_a2a.model.agent_event import Reply, TextDelta
from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.model.records import Entry
from openclaw_a2a.ports import Recovery

TASKS = {"agentStyle": "task-generating"}


class _SlowStore(FlatStore):
    """A store whose writes wait at a gate."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.gate = asyncio.Event()
        self.gate.set()

    def submit(self, submission: Any) -> Awaitable[Any]:
        return asyncio.ensure_future(self._after_gate(self.inner.tasks.submit, submission))

    def commit(self, change: Any) -> Awaitable[Any]:
        return asyncio.ensure_future(self._after_gate(self.inner.tasks.commit, change))

    async def _after_gate(self, write: Any, argument: Any) -> Any:
        await self.gate.wait()
        return await write(argument)


class _BlindStore(FlatStore):
    """A store that cannot read events any more."""

    async def read_events(self, *_: Any, **__: Any) -> list[Entry]:
        raise StoreUnavailable("the disk with the secret name is gone")


def _replace_store(gateway: Gateway, kind: Any) -> Any:
    (engine,) = gateway.engines.values()
    engine.store = kind(engine.store)
    return engine.store


@pytest.mark.requirement("inbound.stream.stored-first", "promise.commit.before-show")
async def test_nothing_is_sent_before_it_is_stored(serve: Serve) -> None:
    agent = ScriptedAgent()
    async with serve(agent, account=TASKS) as gateway:
        store = _replace_store(gateway, _SlowStore)
        v1 = V1Client(AsgiClient(gateway.asgi))
        shown: list[Frame] = []

        async def read() -> None:
            async with v1.stream("SendStreamingMessage", v1_message()) as frames:
                while (frame := await frames.next()) is not None:
                    shown.append(frame)

        async with anyio.create_task_group() as reading:
            store.gate.clear()
            reading.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            assert shown == []
            store.gate.set()
            run = await agent.next_run()
            await anyio.wait_all_tasks_blocked()
            count = len(shown)
            assert outline(shown)[0] == "task submitted"
            store.gate.clear()
            await run.emit(TextDelta("not yet"))
            await anyio.wait_all_tasks_blocked()
            assert len(shown) == count
            store.gate.set()
            await run.finish(Reply.of_text("not yet, but now"))
        assert outline(shown)[-1] == "status completed"


@pytest.mark.requirement("promise.commit.before-show", "promise.idempotent.direct")
async def test_direct_run_begins_only_when_its_message_is_stored(serve: Serve) -> None:
    agent = ScriptedAgent()
    async with serve(agent) as gateway:
        store = _replace_store(gateway, _SlowStore)
        v1 = V1Client(AsgiClient(gateway.asgi))
        async with anyio.create_task_group() as sending:
            store.gate.clear()
            sending.start_soon(v1.send)
            await anyio.wait_all_tasks_blocked()
            assert not agent.has_waiting_run
            store.gate.set()
            await (await agent.next_run()).finish(Reply.of_text("done"))


@pytest.mark.requirement("inbound.stream.error-event", "inbound.rpc.internal")
@pytest.mark.parametrize("wire", [V1Client, V03Client])
async def test_error_inside_a_stream_is_an_error_event(
    serve: Serve, wire: type[V1Client] | type[V03Client]
) -> None:
    async with serve(ScriptedAgent(Reply.of_text("hi")), account=TASKS) as gateway:
        http = AsgiClient(gateway.asgi)
        task = (await V1Client(http).send())["task"]
        _replace_store(gateway, _BlindStore)
        method = "SubscribeToTask" if wire is V1Client else "tasks/resubscribe"
        async with wire(http).stream(method, {"id": task["id"]}, last_event_id="1") as frames:
            (frame,) = await frames.rest()
    assert frame.event == "error"
    assert frame.json["error"]["code"] == -32603
    assert "secret" not in str(frame.json)


@pytest.mark.requirement("wire.stream.task-first")
async def test_the_stream_of_an_agent_that_answers_at_once_reads_no_event_back(
    serve: Serve,
) -> None:
    agent = ScriptedAgent(Reply.of_text("hi"))
    agent.recovery = Recovery.REPEAT  # so that its whole run is stored together with its message
    async with serve(agent, account=TASKS) as gateway:
        _replace_store(gateway, _BlindStore)
        frames = await V1Client(AsgiClient(gateway.asgi)).events(
            "SendStreamingMessage", v1_message()
        )
    assert outline(frames)[-1] == "status completed"
