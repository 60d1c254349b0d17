"""Large strings of events are stored once, and every row is read as it was written."""

import hashlib
import json
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.store_samples import ALICE, Draft, make_message, put_finished

from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.model.ids import OwnerId, TaskId
from openclaw_a2a.model.records import Entry
from openclaw_a2a.ports import Submission
from openclaw_a2a.store.contents import LARGE_BYTES, MARK, restore
from openclaw_a2a.store.sqlite.contents import spill
from openclaw_a2a.store.sqlite.store import SqliteStore

TASK = TaskId("t-1")
PIECE = 'Ein "Wort" \\ \n 世界 '
TEXT = PIECE * (2 * LARGE_BYTES // len(PIECE))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    yield store
    await store.close()


def fetch(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def large_submission(name: str) -> Submission:
    """A message with a large text, in the run and in the history of its task."""
    draft = Draft(name)
    message = make_message(f"m-{name}", TEXT)
    task = msgspec.structs.replace(draft.task, history=(message,))
    return msgspec.structs.replace(
        draft.submission(),
        run=msgspec.structs.replace(draft.run, message=message),
        commit=msgspec.structs.replace(draft.created(), snapshot=msgspec.json.encode(task)),
    )


async def put_large(store: SqliteStore, draft: Draft) -> list[Entry]:
    """A task whose events hold the same text three times, and its last snapshot once more."""
    await store.tasks.submit(draft.submission())
    entries: list[Entry] = []
    for change in (draft.chunk(TEXT), draft.chunk(TEXT), draft.chunk("end"), draft.ended()):
        await store.tasks.commit(change)
        entries += change.entries
    return entries


async def test_a_text_that_events_repeat_is_stored_once(path: Path, store: SqliteStore) -> None:
    entries = await put_large(store, Draft())
    await store.close()
    [(count, size)] = fetch(path, "SELECT count(*), sum(length(body)) FROM content")
    assert (count, size) == (1, len(json.dumps(TEXT, ensure_ascii=False).encode()) - 2)
    [(rest,)] = fetch(path, "SELECT sum(length(body)) FROM event")
    assert rest < LARGE_BYTES
    await store.open()
    assert await store.tasks.read_events(ALICE, TASK, after=0, limit=10) == entries


async def test_the_message_of_a_run_is_stored_once_and_claimed_as_it_was(
    path: Path, store: SqliteStore
) -> None:
    submission = large_submission("t-1")
    await store.tasks.submit(submission)
    alone = msgspec.structs.replace(large_submission("t-2"), commit=None)
    await store.tasks.submit(alone)
    assert len(fetch(path, "SELECT 1 FROM content")) == 1
    [with_task, without] = fetch(path, "SELECT length(input) FROM run ORDER BY ticket")
    assert with_task[0] < LARGE_BYTES < without[0]
    claimed = await store.tasks.claim_runs(OwnerId("next"))
    messages = [submission.run.message, alone.run.message]
    assert [run.message for run in claimed] == messages


async def test_a_run_whose_message_is_lost_is_removed(path: Path, store: SqliteStore) -> None:
    await store.tasks.submit(large_submission("t-1"))
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM content")
    await store.open()
    assert await store.tasks.claim_runs(OwnerId("next")) == []
    assert fetch(path, "SELECT 1 FROM run") == []


async def test_a_task_is_read_as_it_was_written(store: SqliteStore) -> None:
    draft = Draft()
    await put_large(store, draft)
    stored = await store.tasks.read_task(ALICE, TASK)
    assert stored is not None
    assert stored.snapshot == msgspec.json.encode(draft.task)


async def test_contents_go_with_their_task_and_those_of_others_stay(
    path: Path, store: SqliteStore
) -> None:
    await put_large(store, Draft())
    await put_large(store, Draft("t-2"))
    await put_finished(store, "t-3", 0)
    assert await store.tasks.delete_task(ALICE, TASK)
    assert len(fetch(path, "SELECT 1 FROM content")) == 1
    assert len(await store.tasks.read_events(ALICE, TaskId("t-2"), after=0, limit=10)) == 4


async def test_a_lost_content_is_an_error_of_its_task(path: Path, store: SqliteStore) -> None:
    await put_large(store, Draft())
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM content")
    await store.open()
    with pytest.raises(CorruptRecord, match=TASK):
        await store.tasks.read_events(ALICE, TASK, after=0, limit=10)


texts = st.text(max_size=40)
large = st.builds(
    lambda piece, tail: piece * (LARGE_BYTES // len(piece) + 1) + tail, texts.filter(bool), texts
)
values = st.recursive(
    st.one_of(texts, large, st.integers(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)


@given(st.lists(values, min_size=1, max_size=3), values)
def test_every_row_comes_back_byte_for_byte(events: list[Any], snapshot: Any) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE content (task, hash, body, UNIQUE (task, hash))")
        bodies = [msgspec.json.encode({"value": value}) for value in events]
        whole = msgspec.json.encode({"all": [*events, snapshot]})
        rows = [(1, number, None, body) for number, body in enumerate(bodies)]
        kept, [[*_, shot]] = spill(connection, rows, [(1, 0, whole)])

        def find(digest: bytes) -> bytes | None:
            query = "SELECT body FROM content WHERE hash = ?"
            return connection.execute(query, (digest,)).fetchone()[0]

        found = [restore(body, find) if body[0] == MARK else body for *_, body in kept]
        assert found == bodies
        assert (restore(shot, find) if shot[0] == MARK else shot) == whole


@given(st.binary(max_size=60))
def test_damaged_references_are_an_error_of_the_record(rest: bytes) -> None:
    try:
        restore(bytes([MARK]) + rest, lambda digest: b"")
    except CorruptRecord:
        return


async def test_the_slices_of_a_large_content_cost_the_same_wherever_they_are(
    store: SqliteStore, path: Path
) -> None:
    await put_finished(store, "t-1", 1)
    costs: list[float] = []
    for megabytes in (8, 32):
        body = bytes([megabytes]) * (megabytes * 1024 * 1024)
        digest = hashlib.sha256(body).digest()
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(
                "INSERT INTO content (task, hash, body) SELECT number, ?, ? FROM task",
                (digest, body),
            )
        key, tries = digest.hex().encode(), list[float]()
        for _ in range(3):
            began = time.thread_time()
            found = await store.tasks.read_contents(ALICE, TASK, [key])
            tries.append(time.thread_time() - began)
            assert found is not None
            assert b"".join(found[key]) == body
        costs.append(min(tries))
    # Four times as much. It was sixteen times when each slice was searched from the beginning.
    assert costs[1] < 8 * costs[0]


async def test_a_content_whose_file_was_moved_away_is_missing_and_no_file_is_made(
    store: SqliteStore, path: Path
) -> None:
    await put_large(store, Draft("t-1"))
    [(digest,)] = fetch(path, "SELECT hash FROM content LIMIT 1")
    file, away = anyio.Path(path), path.with_name("away")
    await file.rename(away)
    with pytest.raises(CorruptRecord):
        await store.tasks.read_contents(ALICE, TASK, [digest.hex().encode()])
    assert not await file.exists()
    await anyio.Path(away).rename(path)
    assert await store.tasks.read_contents(ALICE, TASK, [digest.hex().encode()]) is not None
