"""Large strings of a json-file store are stored once per task, and read as they were written."""

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.store_samples import (
    ALICE,
    Draft,
    make_message,
    make_run,
    project_task,
    put_finished,
    time_at,
)

from openclaw_a2a.model.errors import CorruptRecord, StoreUnavailable
from openclaw_a2a.model.ids import MessageId, OwnerId, TaskId
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.ports import Submission
from openclaw_a2a.store.contents import LARGE_BYTES
from openclaw_a2a.store.json_file.contents import MARK_NAME, ContentFolder, restore_strings
from openclaw_a2a.store.json_file.record_files import record_file_name
from openclaw_a2a.store.json_file.store import JsonFileStore

TASK = TaskId("t-1")
PIECE = 'Ein "Wort" \\ \n 世界 '
TEXT = PIECE * (2 * LARGE_BYTES // len(PIECE))
QUESTION = "What? " * LARGE_BYTES


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[JsonFileStore]:
    store = JsonFileStore(path)
    await store.open()
    yield store
    await store.close()


def contents_file(path: Path, task_id: str = TASK) -> Path:
    return path / ".contents" / record_file_name(TaskId(task_id)).removesuffix(".json")


def stored_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def record(path: Path, task_id: str = TASK) -> Any:
    return json.loads((path / record_file_name(TaskId(task_id))).read_bytes())


def ask(draft: Draft) -> Submission:
    """The message with a large text, in the run and in the history of its task."""
    message = make_message(f"m-{draft.name}", QUESTION)
    draft.task = msgspec.structs.replace(draft.task, history=(message,))
    draft.run = msgspec.structs.replace(draft.run, message=message)
    return draft.submission()


async def put_large(store: JsonFileStore, draft: Draft) -> None:
    """A task whose message is large, and whose events hold the same text three times."""
    await store.tasks.submit(ask(draft))
    for change in (draft.chunk(TEXT), draft.chunk(TEXT), draft.chunk("end"), draft.ended()):
        await store.tasks.commit(change)


async def crash(path: Path, store: JsonFileStore) -> None:
    """What the next process finds after a kill: close has changed nothing."""
    copy = path.with_name("copy")
    shutil.copytree(path, copy)
    await store.close()
    shutil.rmtree(path)
    copy.rename(path)
    (path / ".writer.lock").unlink()


@pytest.mark.requirement("store.json-file.contents")
async def test_a_text_that_a_task_repeats_is_stored_once(path: Path, store: JsonFileStore) -> None:
    draft = Draft()
    await put_large(store, draft)
    sizes = [len(json.dumps(text, ensure_ascii=False).encode()) for text in (TEXT, QUESTION)]
    assert sum(sizes) < stored_bytes(path) < sum(sizes) + LARGE_BYTES
    stored = await store.tasks.read_task(ALICE, TASK)
    events = await store.tasks.read_events(ALICE, TASK, after=0, limit=10)
    await store.close()
    await store.open()
    assert await store.tasks.read_events(ALICE, TASK, after=0, limit=10) == events
    again = await store.tasks.read_task(ALICE, TASK)
    assert project_task(again) == project_task(stored) == draft.task


@pytest.mark.requirement("store.json-file.contents")
async def test_a_record_with_references_is_no_schema_that_others_read(
    path: Path, store: JsonFileStore
) -> None:
    await put_large(store, Draft())
    await put_finished(store, "t-2", 0)
    large = record(path)
    assert (large["schemaVersion"], record(path, "t-2")["schemaVersion"]) == (3, 2)
    parts = large["task"]["artifacts"][0]["parts"]
    assert parts[0]["text"].startswith(large["contentMark"])
    assert parts[2]["text"] == "end"


async def test_what_only_the_log_has_is_restored_with_its_strings(
    path: Path, store: JsonFileStore
) -> None:
    """The message of the run, the events and the snapshot, when no record file was written."""
    draft = Draft()
    await store.tasks.submit(ask(draft))
    await store.tasks.commit(draft.chunk(TEXT))
    await crash(path, store)
    (path / record_file_name(TASK)).unlink()
    await store.open()
    assert project_task(await store.tasks.read_task(ALICE, TASK)) == draft.task
    [run] = await store.tasks.claim_runs(OwnerId("b"))
    assert run.message == draft.run.message
    await store.close()
    await store.open()
    assert project_task(await store.tasks.read_task(ALICE, TASK)) == draft.task


async def test_strings_go_with_their_task_and_its_message_stays_known(
    path: Path, store: JsonFileStore
) -> None:
    await put_large(store, Draft())
    other = Draft("t-2")
    await put_large(store, other)
    assert await store.tasks.delete_task(ALICE, TASK)
    assert [file.name for file in (path / ".contents").iterdir()] == [
        contents_file(path, "t-2").name
    ]
    await crash(path, store)
    await store.open()
    assert await store.tasks.read_task(ALICE, TASK) is None
    assert await store.tasks.find_duplicate(ALICE, MessageId("m-t-1")) is not None
    assert project_task(await store.tasks.read_task(ALICE, TaskId("t-2"))) == other.task


async def test_strings_of_a_message_that_was_never_accepted_are_removed_at_the_next_start(
    path: Path, store: JsonFileStore
) -> None:
    await put_large(store, Draft())
    await store.close()
    shutil.copy(contents_file(path), contents_file(path, "t-9"))
    await store.open()
    assert contents_file(path).exists()
    assert not contents_file(path, "t-9").exists()


@pytest.mark.parametrize("damage", ["lost", "cut", "changed"])
async def test_lost_strings_are_an_error_of_their_task(
    path: Path, store: JsonFileStore, damage: str
) -> None:
    await put_large(store, Draft())
    await put_finished(store, "t-2", 0)
    await store.close()
    file = contents_file(path)
    content = file.read_bytes()
    if damage == "lost":
        file.unlink()
    else:
        file.write_bytes(content[:-9] if damage == "cut" else content.replace(b"Wort", b"wort", 1))
    await store.open()
    with pytest.raises(CorruptRecord, match=TASK):
        await store.tasks.read_task(ALICE, TASK)
    assert await store.tasks.read_task(ALICE, TaskId("t-2")) is not None
    # It is as it was for its owner, who may have a copy of the strings.
    await store.close()
    file.write_bytes(content)
    await store.open()
    assert await store.tasks.read_task(ALICE, TASK) is not None


async def test_strings_that_are_lost_before_the_log_is_replayed_are_an_error_of_their_task(
    path: Path, store: JsonFileStore
) -> None:
    await store.tasks.submit(ask(Draft()))
    await crash(path, store)
    contents_file(path).unlink()
    await store.open()
    with pytest.raises(CorruptRecord, match=TASK):
        await store.tasks.read_task(ALICE, TASK)


async def test_the_beginning_of_a_string_that_a_crash_left_is_overwritten(
    path: Path, store: JsonFileStore
) -> None:
    draft = Draft()
    await store.tasks.submit(ask(draft))
    await crash(path, store)
    with contents_file(path).open("ab") as file:
        file.write(b"%b 70000\nabc" % (b"0" * 64))
    await store.open()
    await store.tasks.commit(draft.chunk(TEXT))
    await store.close()
    await store.open()
    assert project_task(await store.tasks.read_task(ALICE, TASK)) == draft.task


async def test_a_paused_task_continues_after_its_strings_were_lost(
    path: Path, store: JsonFileStore
) -> None:
    draft = Draft()
    await store.tasks.submit(ask(draft))
    await store.tasks.commit(draft.chunk(TEXT))
    await store.tasks.commit(draft.paused(b"token", at=1))
    contents_file(path).unlink()
    draft.run = make_run("answer")
    run = msgspec.structs.replace(draft.run, task_id=draft.task.id)
    change = msgspec.structs.replace(draft.status(TaskState.SUBMITTED, at=2), run_id=None)
    await store.tasks.submit(Submission(run, b"hash of the answer", time_at(2), change))
    await store.close()
    await store.open()
    assert project_task(await store.tasks.read_task(ALICE, TASK)) == draft.task


async def test_a_message_whose_strings_cannot_be_written_is_refused(
    path: Path, store: JsonFileStore
) -> None:
    (path / ".contents").write_text("a file in the place of the folder", encoding="utf-8")
    with pytest.raises(StoreUnavailable):
        await store.tasks.submit(ask(Draft()))
    assert await store.tasks.read_task(ALICE, TASK) is None
    (path / ".contents").unlink()
    draft = Draft()
    await put_large(store, draft)
    await store.close()
    await store.open()
    assert project_task(await store.tasks.read_task(ALICE, TASK)) == draft.task


async def test_a_link_in_the_place_of_the_folder_is_not_followed(
    tmp_path: Path, path: Path, store: JsonFileStore
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (path / ".contents").symlink_to(elsewhere)
    await put_large(store, Draft())
    assert list(elsewhere.iterdir()) == []
    assert contents_file(path).exists()


texts = st.text(max_size=40)
large = st.builds(
    lambda piece, tail: piece * (LARGE_BYTES // len(piece) + 1) + tail, texts.filter(bool), texts
)
values = st.recursive(
    st.one_of(texts, large, st.integers(), st.none(), st.just(f"{MARK_NAME} is only a text")),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)


@given(st.lists(values, min_size=1, max_size=3))
def test_all_json_comes_back_byte_for_byte(tmp_path_factory: Any, given: list[Any]) -> None:
    folder = ContentFolder(tmp_path_factory.mktemp("contents"))
    bodies = [msgspec.json.encode({"value": value}) for value in given]
    spilled = [folder.spill(TASK, body) for body in bodies]
    assert [folder.refer(TASK, body) for body in bodies] == spilled
    assert max(map(len, spilled)) < max(LARGE_BYTES * 7, 1)
    folder.flush()
    strings = folder.read(record_file_name(TASK))
    assert [restore_strings(body, MARK_NAME, strings) for body in spilled] == bodies
