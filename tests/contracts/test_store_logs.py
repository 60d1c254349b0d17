"""What every kind of store promises about logs: lines that are only ever added."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.contracts.store_samples import StoreHarness, direct, make_lines
from tests.contracts.test_store_failures import KILOBYTE, no_room_beyond

from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.ports import LogAppend, LogLine, Store, StoredLog

KIND = "objective"
STRANGE = ["obj-1_2", "obj-1-2", "Obj", "../up", "a/b", "a b", "ä", "%5F", ".", "x" * 80, "nul\0"]


async def put(store: Store, log_id: str, count: int = 1, *, after: int = 0) -> None:
    assert await store.logs.append_log(
        LogAppend(KIND, log_id, make_lines(after, count), after=after)
    )


async def close(store: Store, log_id: str, *, after: int) -> None:
    bodies = make_lines(after, 2, closes=True)
    assert await store.logs.append_log(LogAppend(KIND, log_id, bodies, after=after, closes=True))


async def now_and_later(harness: StoreHarness) -> AsyncIterator[Store]:
    """The store as it is, and as the next process finds it."""
    yield harness.store
    yield await harness.reopen()


async def open_ids(store: Store, after: str = "", limit: int = 100) -> list[str]:
    return [log.id for log in await store.logs.list_open_logs(KIND, after=after, limit=limit)]


async def heads(store: Store, after: str = "", limit: int = 100) -> list[tuple[str, int, bool]]:
    found = await store.logs.list_log_heads(KIND, after=after, limit=limit)
    return [(head.id, head.sequence, head.is_closed) for head in found]


async def test_lines_are_kept_in_order_also_after_a_restart(harness: StoreHarness) -> None:
    await put(harness.store, "obj-1", 3)
    await put(harness.store, "obj-1", 1, after=3)
    lines = tuple(LogLine(number, body) for number, body in enumerate(make_lines(0, 4), 1))
    expected = StoredLog("obj-1", lines, is_closed=False)
    assert expected.sequence == 4
    assert await harness.store.logs.read_log(KIND, "obj-1") == expected
    store = await harness.reopen()
    assert await store.logs.read_log(KIND, "obj-1") == expected
    assert await store.logs.list_open_logs(KIND, after="", limit=10) == [expected]
    assert await heads(store) == [("obj-1", 4, False)]
    await put(store, "obj-1", 1, after=4)


async def test_a_log_that_was_never_written_is_not_found(store: Store) -> None:
    assert await store.logs.read_log(KIND, "obj-1") is None
    assert await store.logs.list_open_logs(KIND, after="", limit=10) == []
    assert await store.logs.list_log_heads(KIND, after="", limit=10) == []
    assert not await store.logs.delete_log(KIND, "obj-1")


@pytest.mark.parametrize("after", [-1, 0, 1, 3, 4])
async def test_lines_that_do_not_follow_the_last_one_change_nothing(
    harness: StoreHarness, after: int
) -> None:
    await put(harness.store, "obj-1", 2)
    before = await harness.store.logs.read_log(KIND, "obj-1")
    assert not await harness.store.logs.append_log(
        LogAppend(KIND, "obj-1", make_lines(after, 1), after=after)
    )
    assert await harness.store.logs.read_log(KIND, "obj-1") == before
    assert await (await harness.reopen()).logs.read_log(KIND, "obj-1") == before


@pytest.mark.parametrize("after", [-1, 1, 7])
async def test_a_new_log_begins_at_its_first_line(store: Store, after: int) -> None:
    assert not await store.logs.append_log(
        LogAppend(KIND, "obj-1", make_lines(after, 1), after=after)
    )
    assert await store.logs.read_log(KIND, "obj-1") is None
    assert await heads(store) == []


async def test_no_lines_are_no_change(store: Store) -> None:
    assert not await store.logs.append_log(LogAppend(KIND, "obj-1", [], after=0))
    assert await store.logs.read_log(KIND, "obj-1") is None
    await put(store, "obj-1")
    assert not await store.logs.append_log(LogAppend(KIND, "obj-1", [], after=1, closes=True))
    assert await open_ids(store) == ["obj-1"]


async def test_of_many_concurrent_appends_exactly_one_succeeds(harness: StoreHarness) -> None:
    for after in range(3):
        bodies = [b'{"seq":%d,"by":%d}' % (after + 1, writer) for writer in range(20)]
        outcomes = await asyncio.gather(
            *[
                harness.store.logs.append_log(LogAppend(KIND, "obj-1", [body], after=after))
                for body in bodies
            ]
        )
        assert outcomes == [True] + [False] * 19
    store = await harness.reopen()
    log = await store.logs.read_log(KIND, "obj-1")
    assert log is not None
    assert [line.body for line in log.lines] == [b'{"seq":%d,"by":0}' % n for n in (1, 2, 3)]


async def test_writes_that_are_not_awaited_take_effect_in_the_order_of_the_calls(
    store: Store,
) -> None:
    writes = [
        store.logs.append_log(LogAppend(KIND, "obj-1", make_lines(0, 2), after=0)),
        store.tasks.submit(direct("t-1")),
        store.logs.append_log(LogAppend(KIND, "obj-1", make_lines(2, 2), after=2)),
        store.logs.delete_log(KIND, "obj-1"),
        store.logs.append_log(LogAppend(KIND, "obj-1", make_lines(4, 1), after=4)),
        store.logs.append_log(LogAppend(KIND, "obj-1", make_lines(0, 1), after=0)),
    ]
    outcomes = await asyncio.gather(*writes)
    assert outcomes[0::2] == [True, True, False]
    assert outcomes[3::2] == [True, True]
    assert await heads(store) == [("obj-1", 1, False)]


@pytest.mark.requirement("opt.storage.archived")
async def test_closed_logs_are_not_listed_as_open_until_they_are_reopened(
    harness: StoreHarness,
) -> None:
    for log_id in ("obj-1", "obj-2"):
        await put(harness.store, log_id)
    await close(harness.store, "obj-1", after=1)
    async for store in now_and_later(harness):
        assert await open_ids(store) == ["obj-2"]
        assert await heads(store) == [("obj-1", 3, True), ("obj-2", 1, False)]
        log = await store.logs.read_log(KIND, "obj-1")
        assert log is not None
        assert log.is_closed
        assert len(log.lines) == 3
    opening = make_lines(3, 1)
    assert await harness.store.logs.append_log(
        LogAppend(KIND, "obj-1", opening, after=3, reopens=True)
    )
    async for store in now_and_later(harness):
        assert await open_ids(store) == ["obj-1", "obj-2"]


async def test_a_closed_log_that_is_appended_without_reopening_stays_closed(
    harness: StoreHarness,
) -> None:
    await put(harness.store, "obj-1")
    await close(harness.store, "obj-1", after=1)
    bodies = make_lines(3, 2, closes=True)
    assert await harness.store.logs.append_log(LogAppend(KIND, "obj-1", bodies, after=3))
    async for store in now_and_later(harness):
        assert await open_ids(store) == []
        assert await heads(store) == [("obj-1", 5, True)]


async def test_a_log_can_be_closed_with_its_first_lines(harness: StoreHarness) -> None:
    await close(harness.store, "obj-1", after=0)
    async for store in now_and_later(harness):
        assert await heads(store) == [("obj-1", 2, True)]


async def test_a_refused_append_neither_closes_nor_reopens(store: Store) -> None:
    await put(store, "obj-1")
    bodies = make_lines(5, 1, closes=True)
    assert not await store.logs.append_log(LogAppend(KIND, "obj-1", bodies, after=5, closes=True))
    assert await open_ids(store) == ["obj-1"]
    await close(store, "obj-1", after=1)
    assert not await store.logs.append_log(
        LogAppend(KIND, "obj-1", make_lines(0, 1), after=0, reopens=True)
    )
    assert await open_ids(store) == []


async def test_a_deleted_log_loses_its_lines_and_frees_its_id(harness: StoreHarness) -> None:
    store = harness.store
    for log_id in ("obj-1", "obj-2"):
        await put(store, log_id, 5)
    await close(store, "obj-1", after=5)
    assert await store.logs.delete_log(KIND, "obj-1")
    assert not await store.logs.delete_log(KIND, "obj-1")
    store = await harness.reopen()
    assert await store.logs.read_log(KIND, "obj-1") is None
    assert await heads(store) == [("obj-2", 5, False)]
    await put(store, "obj-1")
    log = await store.logs.read_log(KIND, "obj-1")
    assert log is not None
    assert not log.is_closed
    assert [line.sequence for line in log.lines] == [1]


async def test_pages_follow_each_other_in_order_of_ids(harness: StoreHarness) -> None:
    ids = [f"obj-{number:02}" for number in range(11)]
    for log_id in reversed(ids):
        await put(harness.store, log_id)
    for log_id in ids[2:8]:
        await close(harness.store, log_id, after=1)
    async for store in now_and_later(harness):
        assert await open_ids(store, limit=3) == ["obj-00", "obj-01", "obj-08"]
        assert await open_ids(store, "obj-08", 3) == ["obj-09", "obj-10"]
        assert await open_ids(store, "obj-03x", 1) == ["obj-08"]
        assert await open_ids(store, "zzz", 3) == []
        assert [head[0] for head in await heads(store, "obj-04", 4)] == ids[5:9]
        assert await heads(store, "obj-10", 4) == []


async def test_logs_of_different_kinds_have_nothing_to_do_with_each_other(
    harness: StoreHarness,
) -> None:
    await put(harness.store, "one", 2)
    assert await harness.store.logs.append_log(LogAppend("diary", "one", make_lines(0, 1), after=0))
    store = await harness.reopen()
    assert await heads(store) == [("one", 2, False)]
    assert [
        head.sequence for head in await store.logs.list_log_heads("diary", after="", limit=5)
    ] == [1]
    assert await store.logs.delete_log("diary", "one")
    assert await store.logs.read_log(KIND, "one") is not None


async def test_ids_that_look_alike_or_are_no_file_names_are_different_logs(
    harness: StoreHarness,
) -> None:
    for count, log_id in enumerate(STRANGE, 1):
        await put(harness.store, log_id, count)
    expected = sorted((log_id, count, False) for count, log_id in enumerate(STRANGE, 1))
    store = await harness.reopen()
    assert await heads(store) == expected
    assert await open_ids(store) == sorted(STRANGE)
    for log_id in STRANGE:
        assert await store.logs.delete_log(KIND, log_id)
    assert await heads(store) == []


async def test_the_time_of_a_log_is_that_of_its_last_line(store: Store) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    await put(store, "obj-1")
    (head,) = await store.logs.list_log_heads(KIND, after="", limit=1)
    assert before <= head.updated_at <= datetime.now(UTC) + timedelta(seconds=1)


async def test_a_line_of_a_megabyte_is_stored_unchanged(harness: StoreHarness) -> None:
    body = b'{"seq":1,"text":"%b"}' % (b"x" * 1024 * KILOBYTE)
    assert await harness.store.logs.append_log(LogAppend(KIND, "obj-1", [body], after=0))
    log = await (await harness.reopen()).logs.read_log(KIND, "obj-1")
    assert log is not None
    assert [line.body for line in log.lines] == [body]


async def test_a_full_disk_stores_nothing_of_a_change_and_the_next_one_succeeds(
    on_disk: StoreHarness,
) -> None:
    store = on_disk.store
    await put(store, "obj-1", 2)
    large = [b'{"text":"%b"}' % (b"x" * 100 * KILOBYTE)] * 20
    with no_room_beyond(1024 * KILOBYTE), pytest.raises(StoreUnavailable):
        await store.logs.append_log(LogAppend(KIND, "obj-1", large, after=2))
    await store.check()
    log = await store.logs.read_log(KIND, "obj-1")
    assert log is not None
    assert (log.sequence, log.problems) == (2, ())
    await put(store, "obj-1", 1, after=2)
    store = await on_disk.reopen()
    assert await heads(store) == [("obj-1", 3, False)]


async def test_a_closed_store_neither_writes_nor_reads_logs(durable: StoreHarness) -> None:
    await durable.store.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await put(durable.store, "obj-1")
    with pytest.raises(StoreUnavailable, match="not open"):
        await durable.store.logs.read_log(KIND, "obj-1")
