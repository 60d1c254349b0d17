"""Remote tasks survive a restart of ours when the store is durable."""

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
from tests.remote.tool_harness import desk_with, one_target
from tests.store.flat_store import FlatStore

from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.ports import Record, Store
from openclaw_a2a.remote.handles.handle_store import KIND
from openclaw_a2a.store import create_store
from openclaw_a2a.store.memory.store import MemoryStore

WORKING = by_method(
    SendMessage=result(task("WORKING")),
    GetTask=result(task("INPUT_REQUIRED")["task"]),
    SubscribeToTask=stream(
        task("WORKING", text="a"), artifact_update("b", append=True), status_update("COMPLETED")
    ),
)


class Place:
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
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(request.param, tmp_path)
    await place.store.open()
    yield place
    await place.store.close()


@pytest.fixture
async def peer() -> AsyncIterator[ScriptedPeer]:
    async with scripted(WORKING) as peer:
        yield peer


def handle_of(envelope: JsonObject) -> str:
    assert envelope["ok"], envelope
    return envelope["summary"]["continuation"]["task"]["task_handle"]


@pytest.mark.requirement("remote.durable.handle", "remote.durable.watch")
async def test_a_handle_is_good_after_a_restart_and_a_watch_goes_on(
    place: Place, peer: ScriptedPeer
) -> None:
    config = one_target(peer.url)
    async with desk_with(config, store=place.store) as desk:
        handle = handle_of(await desk.send("hi"))
    store = await place.restart()
    async with desk_with(config, store=store) as desk:
        await desk.agent.open()
        [known] = desk.agent.followed()
        assert known == {
            "task_handle": handle,
            "target_alias": "peer",
            "target_url": peer.url,
            "task_id": "t-1",
            "context_id": "c-1",
            "status": "working",
            "created_at": "2026-01-01T00:00:00.000Z",
            "updated_at": "2026-01-01T00:00:00.000Z",
            "expires_at": "2026-01-02T00:00:00.000Z",
        }
        desk.wait(60)
        watched = await desk.ask("watch", task_handle=handle)
        assert watched["summary"]["message_text"] == "ab"
        assert handle_of(watched) == handle
        [known] = desk.agent.followed()
        assert (known["status"], known["message_text"]) == ("completed", "ab")
        assert known["updated_at"] == "2026-01-01T00:01:00.000Z"
        assert known["created_at"] == "2026-01-01T00:00:00.000Z"


@pytest.mark.requirement("remote.durable.handle")
async def test_errors_tell_the_truth_about_restarts(place: Place, peer: ScriptedPeer) -> None:
    async with desk_with(one_target(peer.url), store=place.store) as desk:
        error = await desk.fail("status", task_handle="rah_nobody")
        is_durable = place.store.is_durable
        assert error["details"]["restartInvalidatesHandles"] is not is_durable


async def test_what_was_answered_is_already_kept_when_we_die_at_once(
    place: Place, peer: ScriptedPeer
) -> None:
    async with desk_with(one_target(peer.url), store=place.store) as desk:
        handle = handle_of(await desk.send("hi"))
        [record] = await place.store.records.list_records(KIND)
        assert record.id == handle


@pytest.mark.requirement("remote.durable.at-once")
async def test_a_task_is_kept_as_soon_as_the_peer_names_it(
    place: Place, peer: ScriptedPeer
) -> None:
    peer.answer = stream(task("WORKING"), stays=True)
    async with desk_with(one_target(peer.url), store=place.store) as desk:
        sending = asyncio.create_task(desk.send("hi", follow_updates=True))
        await asyncio.wait_for(desk.has_update.wait(), 5)
        async with asyncio.timeout(5):
            while not await place.store.records.list_records(KIND):  # noqa: ASYNC110 - the store's own thread
                await asyncio.sleep(0.01)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def test_no_credentials_are_kept(place: Place, peer: ScriptedPeer) -> None:
    config = one_target(peer.url, auth={"type": "bearer", "token": "tok-secret-1"})
    async with desk_with(config, store=place.store) as desk:
        handle = handle_of(await desk.send("hi"))
    [record] = await place.store.records.list_records(KIND)
    assert b"tok-secret-1" not in record.body
    store = await place.restart()
    async with desk_with(config, store=store) as desk:
        assert (await desk.ask("status", task_handle=handle))["ok"]
        assert peer.calls[-1].headers["authorization"] == "Bearer tok-secret-1"


async def test_a_target_that_is_gone_takes_its_handles_along(
    place: Place, peer: ScriptedPeer
) -> None:
    async with desk_with(one_target(peer.url), store=place.store) as desk:
        handle = handle_of(await desk.send("hi"))
    asked = len(peer.heard)
    async with desk_with(one_target("http://127.0.0.1:1/"), store=place.store) as desk:
        error = await desk.fail("status", task_handle=handle)
        assert error["code"] == "UNKNOWN_TASK_HANDLE"
    assert await place.store.records.list_records(KIND) == []
    assert len(peer.heard) == asked


async def test_only_so_many_are_kept_and_none_past_its_time(
    place: Place, peer: ScriptedPeer
) -> None:
    config = {**one_target(peer.url), "taskHandles": {"maxEntries": 2, "ttlMs": 60_000}}
    async with desk_with(config, store=place.store) as desk:
        handles = [handle_of(await desk.send("hi")) for _ in range(3)]
    kept = [record.id for record in await place.store.records.list_records(KIND)]
    assert kept == handles[1:]
    fewer = {**config, "taskHandles": {"maxEntries": 1, "ttlMs": 60_000}}
    async with desk_with(fewer, store=place.store) as desk:
        await desk.agent.open()
        assert [one["task_handle"] for one in desk.agent.followed()] == handles[2:]
        desk.wait(60)
        assert desk.agent.followed() == []
    assert await place.store.records.list_records(KIND) == []


@pytest.mark.parametrize("body", [b"", b"{]", b"7", b"{}", b'{"baseUrl": 7}'])
async def test_a_record_that_cannot_be_read_is_forgotten(
    place: Place, peer: ScriptedPeer, body: bytes
) -> None:
    async with desk_with(one_target(peer.url), store=place.store) as desk:
        until = desk.time + timedelta(days=1)
        await place.store.records.put_record(Record(KIND, "rah_bad", body, until))
        handle = handle_of(await desk.send("hi"))
        assert [one["task_handle"] for one in desk.agent.followed()] == [handle]


async def test_a_talkative_task_is_not_written_down_with_every_word(peer: ScriptedPeer) -> None:
    class CountingStore(FlatStore):
        puts = 0

        def put_record(self, record: Record):  # type: ignore[no-untyped-def] # as its parent
            self.puts += 1
            return self.inner.records.put_record(record)

    store = CountingStore(MemoryStore())
    pieces = [artifact_update(str(n), append=n > 0) for n in range(200)]
    peer.answer = stream(task("WORKING"), *pieces, status_update("COMPLETED"))
    async with desk_with(one_target(peer.url), store=store) as desk:
        told = await desk.send("hi", follow_updates=True)
        assert len(told["raw"]["events"]) == 202
        assert store.puts <= 4
        [record] = await store.records.list_records(KIND)
        assert json.loads(record.body)["heard"]["state"] == "completed"


async def test_a_store_that_fails_does_not_fail_the_call(peer: ScriptedPeer) -> None:
    class BrokenStore(FlatStore):
        def put_record(self, record: Record):  # type: ignore[no-untyped-def] # as its parent
            failed = asyncio.get_running_loop().create_future()
            failed.set_exception(StoreUnavailable("the disk is full"))
            return failed

        async def list_records(self, kind: str) -> list[Record]:
            raise StoreUnavailable("the disk is gone")

    async with desk_with(one_target(peer.url), store=BrokenStore(MemoryStore())) as desk:
        handle = handle_of(await desk.send("hi"))
        assert (await desk.ask("status", task_handle=handle))["ok"]
