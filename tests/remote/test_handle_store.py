"""Task handles survive a restart when the store is durable."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.remote.scripted_peer import (
    ScriptedPeer,
    artifact_update,
    by_method,
    result,
    scripted,
    status_update,
    stream,
    task,
)
from tests.remote.tool_harness import one_target, open_tool
from tests.store.flat_store import FlatStore

from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.model.ids import JsonObject, PeerName
from openclaw_a2a.ports import Record, Store
from openclaw_a2a.remote.handles import FLUSH_S, RECORD_KIND
from openclaw_a2a.store import create_store
from openclaw_a2a.store.memory.store import MemoryStore

WORKING = by_method(
    SendMessage=result(task("WORKING")),
    GetTask=result(task("INPUT_REQUIRED")["task"]),
    SubscribeToTask=stream(
        task("WORKING", text="a"), artifact_update("b", append=True), status_update("COMPLETED")
    ),
)


MOST_ROUNDS = 10


class StoreFixture:
    """Where a store is, so that it can be opened again."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self._path = folder / "state"
        self.store = self._make()

    async def restart(self) -> Store:
        await self.store.close()
        if self.store.is_durable:
            self.store = self._make()
        await self.store.open()
        return self.store

    def _make(self) -> Store:
        return create_store(self._kind, path=None if self._kind == "memory" else str(self._path))


@pytest.fixture(params=["memory", "json-file", "sqlite"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreFixture]:
    opened = StoreFixture(request.param, tmp_path)
    await opened.store.open()
    yield opened
    await opened.store.close()


@pytest.fixture
async def peer() -> AsyncIterator[ScriptedPeer]:
    async with scripted(WORKING) as peer:
        yield peer


def handle_of(envelope: JsonObject) -> str:
    assert envelope["ok"], envelope
    return envelope["summary"]["continuation"]["task"]["task_handle"]


@pytest.mark.requirement("remote.durable.handle", "remote.durable.watch")
async def test_a_handle_survives_a_restart_and_its_task_is_watched(
    opened: StoreFixture, peer: ScriptedPeer
) -> None:
    config = one_target(peer.url)
    async with open_tool(config, store=opened.store) as harness:
        handle = handle_of(await harness.send("hi"))
    store = await opened.restart()
    async with open_tool(config, store=store) as harness:
        await harness.tool.open()
        started_at = harness.time
        [known] = harness.tool.handles.all
        assert (known.name, known.target.alias, known.target.base_url) == (handle, "peer", peer.url)
        assert (known.task_id, known.context_id) == ("t-1", "c-1")
        assert (known.last_known.state, known.last_known.text) == ("working", None)
        assert (known.created_at, known.updated_at) == (started_at, started_at)
        assert known.expires_at == started_at + timedelta(days=1)
        harness.advance(60)
        watched = await harness.execute("watch", task_handle=handle)
        assert watched["summary"]["message_text"] == "ab"
        assert handle_of(watched) == handle
        [known] = harness.tool.handles.all
        assert (known.last_known.state, known.last_known.text) == ("completed", "ab")
        assert (known.created_at, known.updated_at) == (started_at, harness.time)


@pytest.mark.requirement("remote.durable.handle")
async def test_errors_say_whether_handles_survive_a_restart(
    opened: StoreFixture, peer: ScriptedPeer
) -> None:
    async with open_tool(one_target(peer.url), store=opened.store) as harness:
        error = await harness.fail("status", task_handle="rah_nobody")
        is_durable = opened.store.is_durable
        assert error["details"]["restartInvalidatesHandles"] is not is_durable


async def test_a_handle_is_stored_before_its_answer_is_given(
    opened: StoreFixture, peer: ScriptedPeer
) -> None:
    async with open_tool(one_target(peer.url), store=opened.store) as harness:
        handle = handle_of(await harness.send("hi"))
        [record] = await opened.store.records.list_records(RECORD_KIND)
        assert record.id == handle


class SlowStore(FlatStore):
    """A store whose writes of records wait until the test lets them through."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.may_write = asyncio.Event()
        self.asked = asyncio.Event()

    def put_record(self, record: Record) -> "asyncio.Future[None]":
        async def put() -> None:
            self.asked.set()
            await self.may_write.wait()
            await self.inner.records.put_record(record)

        return asyncio.ensure_future(put())


@pytest.mark.requirement("remote.durable.awaited")
@pytest.mark.parametrize("state", ["WORKING", "INPUT_REQUIRED", "AUTH_REQUIRED", "SUBMITTED"])
async def test_the_handle_of_a_task_that_goes_on_is_durable_before_it_is_shown(
    peer: ScriptedPeer, state: str
) -> None:
    store = SlowStore(MemoryStore())
    peer.answer = result(task(state))
    async with open_tool(one_target(peer.url), store=store) as harness, asyncio.timeout(240):
        sending = asyncio.create_task(harness.send("hi"))
        await store.asked.wait()
        await asyncio.sleep(0)
        assert not sending.done()
        store.may_write.set()
        handle = handle_of(await sending)
        [record] = await store.records.list_records(RECORD_KIND)
        assert record.id == handle


@pytest.mark.requirement("remote.durable.ended")
@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "CANCELED", "REJECTED"])
async def test_an_answer_does_not_wait_for_the_handle_of_a_task_that_has_ended(
    peer: ScriptedPeer, state: str
) -> None:
    peer.answer = result(task(state, text="done"))
    # On a busy machine the moment after which it is written may pass before the answer is there;
    # an answer that waited for it would come afterwards in every round.
    for _ in range(MOST_ROUNDS):
        store = SlowStore(MemoryStore())
        async with open_tool(one_target(peer.url), store=store) as harness, asyncio.timeout(240):
            handle = handle_of(await harness.send("hi"))
            is_first = not store.asked.is_set()
            assert handle_of(await harness.execute("status", task_handle=handle)) == handle
            # It is written a moment later, with those of other calls.
            await store.asked.wait()
            store.may_write.set()
        [record] = await store.records.list_records(RECORD_KIND)
        assert record.id == handle
        if is_first:
            return
    pytest.fail("every answer came after the write of its handle had begun")


@pytest.mark.requirement("remote.durable.ended")
async def test_a_stream_to_the_end_does_not_wait_for_the_handle_of_its_beginning(
    peer: ScriptedPeer,
) -> None:
    store = SlowStore(MemoryStore())
    peer.answer = stream(task("WORKING"), status_update("COMPLETED"))
    async with open_tool(one_target(peer.url), store=store) as harness:
        async with asyncio.timeout(FLUSH_S):  # after that an answer waits no longer
            handle = handle_of(await harness.send("hi", follow_updates=True))
        assert await store.records.list_records(RECORD_KIND) == []
        store.may_write.set()
    [record] = await store.records.list_records(RECORD_KIND)
    assert record.id == handle
    assert json.loads(record.body)["heard"]["state"] == "completed"


@pytest.mark.requirement("remote.durable.ended")
async def test_the_handles_of_ended_tasks_survive_a_restart(
    opened: StoreFixture, peer: ScriptedPeer
) -> None:
    peer.answer = result(task("COMPLETED", text="done"))
    async with open_tool(one_target(peer.url), store=opened.store) as harness:
        handles = [handle_of(await harness.send("hi")) for _ in range(3)]
    store = await opened.restart()
    async with open_tool(one_target(peer.url), store=store) as harness:
        await harness.tool.open()
        known = harness.tool.handles.all
        assert [one.name for one in reversed(known)] == handles
        assert {one.last_known.state for one in known} == {"completed"}


@pytest.mark.requirement("remote.durable.ended")
async def test_a_handle_that_is_gone_is_not_written_after_its_end(
    opened: StoreFixture, peer: ScriptedPeer
) -> None:
    peer.answer = result(task("COMPLETED", text="done"))
    config = {**one_target(peer.url), "taskHandles": {"maxEntries": 1}}
    async with open_tool(config, store=opened.store) as harness:
        handles = [handle_of(await harness.send("hi")) for _ in range(3)]
    kept = [record.id for record in await opened.store.records.list_records(RECORD_KIND)]
    assert kept == handles[2:]


@pytest.mark.requirement("remote.durable.at-once")
async def test_a_handle_is_stored_as_soon_as_the_peer_names_the_task(
    opened: StoreFixture, peer: ScriptedPeer
) -> None:
    peer.answer = stream(task("WORKING"), stays=True)
    async with open_tool(one_target(peer.url), store=opened.store) as harness:
        sending = asyncio.create_task(harness.send("hi", follow_updates=True))
        await asyncio.wait_for(harness.has_update.wait(), 240)
        async with asyncio.timeout(240):
            while not await opened.store.records.list_records(RECORD_KIND):  # noqa: ASYNC110 - the store's own thread
                await asyncio.sleep(0.01)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def test_a_stored_handle_keeps_its_owner(opened: StoreFixture, peer: ScriptedPeer) -> None:
    ann, bob = PeerName("ann"), PeerName("bob")
    send = {"action": "send", "parts": [{"kind": "text", "text": "hi"}]}
    async with open_tool(one_target(peer.url), store=opened.store) as harness:
        handle = handle_of(await harness.tool.execute(send, owner=ann))
    store, status = await opened.restart(), {"action": "status", "task_handle": handle}
    async with open_tool(one_target(peer.url), store=store) as harness:
        asked = len(peer.requests)
        refused = await harness.tool.execute(status, owner=bob)
        assert refused["error"]["code"] == "UNKNOWN_TASK_HANDLE"
        assert len(peer.requests) == asked
        found = await harness.tool.execute(status, owner=ann)
        assert found["ok"] is True, found


async def test_a_handle_that_an_earlier_version_stored_is_the_operators(
    opened: StoreFixture, peer: ScriptedPeer
) -> None:
    async with open_tool(one_target(peer.url), store=opened.store) as harness:
        handle = handle_of(await harness.send("hi"))
    [record] = await opened.store.records.list_records(RECORD_KIND)
    assert "owner" not in json.loads(record.body), "as earlier versions wrote it"
    status = {"action": "status", "task_handle": handle}
    async with open_tool(one_target(peer.url), store=opened.store) as harness:
        refused = await harness.tool.execute(status, owner=PeerName("ann"))
        assert refused["error"]["code"] == "UNKNOWN_TASK_HANDLE"
        assert (await harness.tool.execute(status, owner=PeerName("operator")))["ok"]
        by_id = {"action": "status", "task_id": "t-1"}
        assert (await harness.tool.execute(by_id, owner=PeerName("ann")))["ok"]


async def test_no_credentials_are_stored(opened: StoreFixture, peer: ScriptedPeer) -> None:
    config = one_target(peer.url, auth={"type": "bearer", "token": "tok-secret-1"})
    async with open_tool(config, store=opened.store) as harness:
        handle = handle_of(await harness.send("hi"))
    [record] = await opened.store.records.list_records(RECORD_KIND)
    assert b"tok-secret-1" not in record.body
    store = await opened.restart()
    async with open_tool(config, store=store) as harness:
        assert (await harness.execute("status", task_handle=handle))["ok"]
        assert peer.calls[-1].headers["authorization"] == "Bearer tok-secret-1"


async def test_handles_of_a_removed_target_are_deleted(
    opened: StoreFixture, peer: ScriptedPeer
) -> None:
    async with open_tool(one_target(peer.url), store=opened.store) as harness:
        handle = handle_of(await harness.send("hi"))
    asked = len(peer.requests)
    async with open_tool(one_target("http://127.0.0.1:1/"), store=opened.store) as harness:
        error = await harness.fail("status", task_handle=handle)
        assert error["code"] == "UNKNOWN_TASK_HANDLE"
    assert await opened.store.records.list_records(RECORD_KIND) == []
    assert len(peer.requests) == asked


async def test_stored_handles_stay_within_limit_and_ttl(
    opened: StoreFixture, peer: ScriptedPeer
) -> None:
    config = {**one_target(peer.url), "taskHandles": {"maxEntries": 2, "ttlMs": 60_000}}
    async with open_tool(config, store=opened.store) as harness:
        handles = [handle_of(await harness.send("hi")) for _ in range(3)]
    kept = [record.id for record in await opened.store.records.list_records(RECORD_KIND)]
    assert kept == handles[1:]
    fewer = {**config, "taskHandles": {"maxEntries": 1, "ttlMs": 60_000}}
    async with open_tool(fewer, store=opened.store) as harness:
        await harness.tool.open()
        assert [one.name for one in harness.tool.handles.all] == handles[2:]
        harness.advance(60)
        assert harness.tool.handles.all == ()
    assert await opened.store.records.list_records(RECORD_KIND) == []


@pytest.mark.parametrize(
    "body",
    [b"", b"{]", b"7", b"{}", b'{"baseUrl": 7}', b'{"baseUrl": "\xff"}', b'{"x":' + b"[" * 9999],
)
async def test_an_unreadable_record_is_skipped(
    opened: StoreFixture, peer: ScriptedPeer, body: bytes
) -> None:
    async with open_tool(one_target(peer.url), store=opened.store) as harness:
        until = harness.time + timedelta(days=1)
        await opened.store.records.put_record(Record(RECORD_KIND, "rah_bad", body, until))
        handle = handle_of(await harness.send("hi"))
        assert [one.name for one in harness.tool.handles.all] == [handle]


async def test_a_chunk_of_text_does_not_write_the_handle(peer: ScriptedPeer) -> None:
    class CountingStore(FlatStore):
        puts = 0

        def put_record(self, record: Record):  # type: ignore[no-untyped-def] # as its parent
            self.puts += 1
            return self.inner.records.put_record(record)

    store = CountingStore(MemoryStore())
    pieces = [artifact_update(str(n), append=n > 0) for n in range(200)]
    peer.answer = stream(task("WORKING"), *pieces, status_update("COMPLETED"))
    async with open_tool(one_target(peer.url), store=store) as harness:
        outcome = await harness.send("hi", follow_updates=True)
        assert len(outcome["raw"]["events"]) == 202
    assert store.puts <= 4
    [record] = await store.records.list_records(RECORD_KIND)
    assert json.loads(record.body)["heard"]["state"] == "completed"


async def test_a_store_that_fails_does_not_fail_the_call(peer: ScriptedPeer) -> None:
    class BrokenStore(FlatStore):
        def put_record(self, record: Record):  # type: ignore[no-untyped-def] # as its parent
            failed = asyncio.get_running_loop().create_future()
            failed.set_exception(StoreUnavailable("the disk is full"))
            return failed

        async def list_records(self, kind: str) -> list[Record]:
            raise StoreUnavailable("the disk is gone")

    async with open_tool(one_target(peer.url), store=BrokenStore(MemoryStore())) as harness:
        handle = handle_of(await harness.send("hi"))
        assert (await harness.execute("status", task_handle=handle))["ok"]
