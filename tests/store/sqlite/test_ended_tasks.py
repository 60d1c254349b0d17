"""Tasks that ended lately are read from memory: as they were committed, and not once deleted."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.store_samples import ALICE, BOB, Draft, project_task, purge_all, time_at

from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.ports import Retention
from openclaw_a2a.store.sqlite.store import SqliteStore
from openclaw_a2a.store.sqlite.transaction import MAX_ENDED_BYTES, EndedTasks

TASK = TaskId("t-1")
MOST = 100_000


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "state.db")
    await store.open()
    yield store
    await store.close()


def execute(store: SqliteStore, statement: str) -> None:
    """As another program does while the store is open."""
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute(statement)
        connection.commit()


async def put_ended(store: SqliteStore, name: str = "t-1") -> Draft:
    draft = Draft(name)
    await store.tasks.submit(draft.submission())
    await store.tasks.commit(draft.ended(at=3))
    return draft


async def test_a_task_that_ended_is_read_as_it_was_committed(store: SqliteStore) -> None:
    await put_ended(store)
    before = await store.tasks.read_snapshot(ALICE, TASK, most_bytes=MOST)
    # Without a query: what others write into the file meanwhile is not seen.
    execute(store, "UPDATE snapshot SET body = x'7b7d'")
    assert await store.tasks.read_snapshot(ALICE, TASK, most_bytes=MOST) == before
    assert await store.tasks.read_snapshot(BOB, TASK, most_bytes=MOST) is None


async def test_the_file_is_read_again_after_the_store_was_closed(store: SqliteStore) -> None:
    await put_ended(store)
    known = await store.tasks.read_snapshot(ALICE, TASK, most_bytes=MOST)
    await store.close()
    assert known is not None
    execute(store, f"UPDATE snapshot SET body = x'{known.hex()}20'")  # a blank more
    await store.open()
    assert await store.tasks.read_snapshot(ALICE, TASK, most_bytes=MOST) == known + b" "


@pytest.mark.parametrize("how", ["deleted", "purged", "purged with its end"])
async def test_a_task_that_is_gone_is_not_read(store: SqliteStore, how: str) -> None:
    everything = Retention(time_at(9), keep_ended=0, messages_before=time_at(0))
    draft = Draft("t-1")
    await store.tasks.submit(draft.submission())
    ending = store.tasks.commit(draft.ended(at=3))
    if how == "purged with its end":  # in one transaction
        await asyncio.gather(ending, purge_all(store, everything))
    else:
        await ending
        assert await store.tasks.read_snapshot(ALICE, TASK, most_bytes=MOST) is not None
        if how == "deleted":
            assert await store.tasks.delete_task(ALICE, TASK)
        else:
            await purge_all(store, everything)
    assert await store.tasks.read_snapshot(ALICE, TASK, most_bytes=MOST) is None


@pytest.mark.parametrize("is_same_group", [False, True])
async def test_what_is_added_after_the_end_is_read(
    store: SqliteStore, *, is_same_group: bool
) -> None:
    """A late reply of its agent is added to an ended task, perhaps together with its end."""
    draft = Draft("t-1")
    await store.tasks.submit(draft.submission())
    writes = [
        lambda: store.tasks.commit(draft.ended(at=3)),
        # Any deletion writes what was collected before it.
        lambda: store.tasks.delete_task(BOB, TaskId("another")),
        lambda: store.tasks.commit(msgspec.structs.replace(draft.chunk("late"), run_id=None)),
    ]
    if is_same_group:
        await asyncio.gather(*[write() for write in writes])
    else:
        for write in writes:
            await write()
    assert await store.tasks.read_snapshot(ALICE, TASK, most_bytes=MOST) is None
    stored = await store.tasks.read_task(ALICE, TASK)
    assert stored is not None
    assert stored.head.sequence == draft.head.sequence
    assert project_task(stored) == draft.task


async def test_an_end_that_was_not_committed_is_not_read(store: SqliteStore) -> None:
    draft = Draft("t-1")
    await store.tasks.submit(draft.submission())
    # Fails after the snapshot was written, in the same transaction.
    execute(
        store,
        "CREATE TRIGGER full BEFORE UPDATE ON tally WHEN NEW.state = 3"
        " BEGIN SELECT RAISE(ABORT, 'disk full'); END",
    )
    execute(
        store,
        "CREATE TRIGGER full_too BEFORE INSERT ON tally WHEN NEW.state = 3"
        " BEGIN SELECT RAISE(ABORT, 'disk full'); END",
    )
    ended = draft.ended(at=3)
    with pytest.raises(StoreUnavailable):
        await store.tasks.commit(ended)
    assert await store.tasks.read_snapshot(ALICE, TASK, most_bytes=MOST) != ended.snapshot
    execute(store, "DROP TRIGGER full")
    execute(store, "DROP TRIGGER full_too")
    await store.tasks.commit(ended)
    assert await store.tasks.read_snapshot(ALICE, TASK, most_bytes=MOST) == ended.snapshot


_SIZES = (-1, 0, 1000, MAX_ENDED_BYTES // 4, MAX_ENDED_BYTES // 3)
_STEPS = st.tuples(st.sampled_from("abcdef"), st.sampled_from(_SIZES))


@given(st.lists(_STEPS, min_size=5, max_size=30))
def test_the_memory_for_ended_tasks_is_bounded_and_the_newest_stay(
    steps: list[tuple[str, int]],
) -> None:
    """A size of -1 removes the task."""
    tasks, sizes = EndedTasks(), dict[str, int]()
    for name, size in steps:
        task_id = TaskId(name)
        sizes.pop(name, None)
        if size < 0:
            tasks.remove(task_id)
        else:
            tasks.add({task_id: (ALICE, b"x" * size)})
            sizes[name] = size
        found = {
            one: len(body)
            for one in "abcdef"
            if (body := tasks.find(ALICE, TaskId(one))) is not None
        }
        assert sum(found.values()) <= MAX_ENDED_BYTES
        gone = [one for one in sizes if one not in found]
        assert list(sizes)[: len(gone)] == gone  # the oldest
        for one in gone:
            # The last of them had no room.
            assert one != gone[-1] or sum(found.values()) + sizes[one] > MAX_ENDED_BYTES - 10_000
            del sizes[one]
        assert found == sizes
        assert tasks.find(BOB, task_id) is None
