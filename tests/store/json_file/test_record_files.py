"""Record files as other programs write them: what is loaded, what is refused, what is written."""

import base64
import copy
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.captured_logs import capture_logs
from tests.contracts.store_samples import (
    ALICE,
    Draft,
    direct,
    make_record,
    make_run,
    next_version,
    project_task,
    put_finished,
    time_at,
)

from openclaw_a2a.model.errors import CorruptRecord, StoreUnavailable
from openclaw_a2a.model.ids import LOCAL_PEER, AccountId, OwnerId, TaskId
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import Commit, Duplicate, Submission, TaskQuery
from openclaw_a2a.store.json_file.store import JsonFileStore

Json = Any
LOCAL = Scope(LOCAL_PEER, AccountId("default"))

EXAMPLE: Json = {
    "schemaVersion": 2,
    "task": {
        "kind": "task",
        "id": "t-1",
        "contextId": "c-1",
        "status": {"state": "completed"},
        "history": [],
        "artifacts": [],
    },
    "binding": {
        "schemaVersion": 1,
        "agentId": "main",
        "channel": "a2a",
        "accountId": "default",
        "matchedBy": "default",
        "sessionKey": "agent:main:a2a:c-1",
        "mainSessionKey": "agent:main:main",
        "storePath": "...",
        "peer": {"kind": "direct", "id": "c-1", "source": "context-id"},
        "createdAt": "...",
        "updatedAt": "...",
    },
    "currentSequence": 2,
    "journal": [
        {"sequence": 1, "event": {"kind": "status-update"}},
        {"sequence": 2, "event": {"kind": "artifact-update"}},
    ],
}


def changed(**members: Json) -> Json:
    return {**copy.deepcopy(EXAMPLE), **members}


def without(name: str) -> Json:
    return {key: value for key, value in copy.deepcopy(EXAMPLE).items() if key != name}


class Folder:
    """A directory of records, and the store on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = JsonFileStore(path)
        path.mkdir(exist_ok=True)

    def file(self, task_id: str) -> Path:
        name = base64.urlsafe_b64encode(task_id.encode()).decode().rstrip("=")
        return self.path / f"{name}.json"

    def put(self, record: Json, task_id: str = "t-1") -> bytes:
        content = record if isinstance(record, bytes) else json.dumps(record).encode()
        self.file(task_id).write_bytes(content)
        return content

    def read(self, task_id: str = "t-1") -> Json:
        return json.loads(self.file(task_id).read_bytes())

    def log(self) -> list[Json]:
        text = (self.path / ".gateway.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines() if line]

    def add_to_log(self, text: str) -> None:
        with (self.path / ".gateway.jsonl").open(
            "a", encoding="utf-8", errors="surrogateescape"
        ) as log:
            log.write(text)

    async def opened(self) -> JsonFileStore:
        self.store = JsonFileStore(self.path)
        await self.store.open()
        return self.store


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Folder]:
    folder = Folder(tmp_path / "tasks")
    yield folder
    await folder.store.close()


@pytest.mark.requirement("store.json-file.schema-v2")
async def test_the_contracts_example_is_loaded(folder: Folder) -> None:
    folder.put(EXAMPLE)
    store = await folder.opened()
    stored = await store.tasks.read_task(LOCAL, TaskId("t-1"))
    assert stored is not None
    assert stored.head.sequence == 2
    assert stored.head.state is TaskState.COMPLETED
    assert stored.head.binding is not None
    assert stored.head.binding.session_key == "agent:main:a2a:c-1"
    assert project_task(stored).context_id == "c-1"
    assert (await store.tasks.list_tasks(TaskQuery(LOCAL, 10))).total == 1


async def test_a_record_of_another_program_belongs_to_the_local_caller(folder: Folder) -> None:
    folder.put(changed(binding={**EXAMPLE["binding"], "accountId": "work"}))
    store = await folder.opened()
    assert await store.tasks.read_task(Scope(LOCAL_PEER, AccountId("work")), TaskId("t-1"))
    assert await store.tasks.read_task(LOCAL, TaskId("t-1")) is None


async def test_a_record_without_a_binding_is_loaded_unbound(folder: Folder) -> None:
    folder.put(without("binding"))
    store = await folder.opened()
    stored = await store.tasks.read_task(LOCAL, TaskId("t-1"))
    assert stored is not None
    assert stored.head.binding is None


@pytest.mark.requirement("store.json-file.bad-records")
@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"", "record"),
        (b"{", "record"),
        (b"[]", "record"),
        (b'"text"', "record"),
        (b"\xff\xfe", "record"),
        (b"[" * 5000, "record"),
        (without("task"), "task is missing"),
        (changed(task="t-1"), "task"),
        (changed(task={**EXAMPLE["task"], "kind": "message"}), "task.kind"),
        (changed(task={k: v for k, v in EXAMPLE["task"].items() if k != "kind"}), "task"),
        (changed(task={**EXAMPLE["task"], "status": {"state": "asleep"}}), "task"),
        (changed(task={**EXAMPLE["task"], "id": "t-2"}), "not named for its task"),
        (changed(binding="main"), "binding"),
        (changed(binding=None), "binding"),
        (changed(binding=[]), "binding"),
        (without("schemaVersion"), "schemaVersion is missing"),
        (changed(schemaVersion=0), "schemaVersion is 0"),
        (changed(schemaVersion=3), "schemaVersion is 3"),
        (changed(schemaVersion="2"), "schemaVersion"),
        (changed(schemaVersion=True), "schemaVersion"),
        (without("currentSequence"), "currentSequence is missing"),
        (changed(currentSequence=1), "behind its journal"),
        (changed(currentSequence=-1), "behind its journal"),
        (changed(currentSequence=-1, journal=[]), "behind its journal"),
        (changed(currentSequence=2.5), "currentSequence"),
        (changed(currentSequence="2"), "currentSequence"),
        (changed(currentSequence=None), "currentSequence"),
        (without("journal"), "journal is missing"),
        (changed(journal={}), "journal"),
        (changed(journal=None), "journal"),
        (changed(journal=["x"]), "journal"),
        (changed(journal=EXAMPLE["journal"][::-1]), "must rise"),
        (changed(journal=[EXAMPLE["journal"][0]] * 2), "must rise"),
        (changed(journal=[{**EXAMPLE["journal"][0], "sequence": 0}]), "must rise"),
        (changed(journal=[{**EXAMPLE["journal"][0], "sequence": -1}]), "must rise"),
        (changed(journal=[{"sequence": 1, "event": {"kind": "task"}}]), "kind 'task'"),
        (changed(journal=[{"sequence": 1, "event": {}}]), "journal event"),
        (changed(gateway="mine"), "gateway"),
    ],
)
async def test_a_damaged_record_is_refused_and_the_others_are_served(
    folder: Folder, record: Json, reason: str
) -> None:
    content = folder.put(record)
    folder.put(changed(task={**EXAMPLE["task"], "id": "good"}), "good")
    with capture_logs() as logs:
        store = await folder.opened()
    assert [(entry["event"], reason in entry["reason"]) for entry in logs] == [
        ("store.record_damaged", True)
    ]
    with pytest.raises(CorruptRecord, match="t-1") as caught:
        await store.tasks.read_task(LOCAL, TaskId("t-1"))
    assert str(folder.path) not in caught.value.message  # a caller sees it
    with pytest.raises(CorruptRecord):
        await store.tasks.read_events(None, TaskId("t-1"), after=0, limit=1)
    assert await store.tasks.read_task(LOCAL, TaskId("good")) is not None
    assert (await store.tasks.list_tasks(TaskQuery(LOCAL, 10))).total == 1
    with pytest.raises(CorruptRecord):
        await store.tasks.commit(Draft("t-1").created())
    assert folder.file("t-1").read_bytes() == content


async def test_files_that_are_no_records_are_ignored(folder: Folder) -> None:
    (folder.path / "notes.txt").write_text("buy milk", encoding="utf-8")
    (folder.path / "%.json").write_text("{}", encoding="utf-8")
    (folder.path / "dC0y.json").mkdir()
    with capture_logs() as logs:
        store = await folder.opened()
    assert [entry["event"] for entry in logs] == ["store.record_damaged"] * 2
    assert (await store.tasks.list_tasks(TaskQuery(LOCAL, 10))).total == 0


@pytest.mark.requirement("store.json-file.version-1")
async def test_a_version_1_record_is_rewritten_by_the_next_write_only(folder: Folder) -> None:
    task = {**EXAMPLE["task"], "status": {"state": "input-required"}}
    content = folder.put({"schemaVersion": 1, "task": task, "binding": EXAMPLE["binding"]})
    store = await folder.opened()
    stored = await store.tasks.read_task(LOCAL, TaskId("t-1"))
    assert stored is not None
    assert stored.head.sequence == 0
    assert await store.tasks.read_events(None, TaskId("t-1"), after=0, limit=10) == []
    await store.tasks.submit(direct("other"))
    assert folder.file("t-1").read_bytes() == content

    draft = Draft("t-1")
    draft.head, draft.task = stored.head, project_task(stored)
    change = msgspec.structs.replace(draft.status(TaskState.CANCELED, at=5), run_id=None)
    await store.tasks.commit(change)
    record = folder.read()
    assert (record["schemaVersion"], record["currentSequence"]) == (2, 1)
    assert record["task"]["status"]["state"] == "canceled"
    assert [entry["event"]["kind"] for entry in record["journal"]] == ["status-update"]
    assert record["binding"]["sessionKey"] == "agent:main:a2a:c-1"


@pytest.mark.requirement("store.json-file.file-name", "store.json-file.schema-v2")
async def test_a_task_is_written_as_a_record_that_others_can_read(folder: Folder) -> None:
    store = await folder.opened()
    draft = await put_finished(store, "t/1 🦞", at=3)
    record = folder.read("t/1 🦞")
    assert record["schemaVersion"] == 2
    assert record["currentSequence"] == 3
    assert record["task"]["kind"] == "task"
    assert record["task"]["id"] == "t/1 🦞"
    assert record["task"]["status"]["state"] == "completed"
    assert record["task"]["artifacts"][0]["parts"] == [{"kind": "text", "text": "something"}]
    assert record["binding"]["agentId"] == "main"
    assert [(entry["sequence"], entry["event"]["kind"]) for entry in record["journal"]] == [
        (1, "status-update"),
        (2, "artifact-update"),
        (3, "status-update"),
    ]
    assert record["journal"][2]["event"]["final"] is True
    assert record["gateway"]["principal"] == "alice"
    stored = await store.tasks.read_task(ALICE, draft.head.id)
    assert project_task(stored) == draft.task


@pytest.mark.requirement("store.json-file.atomic")
async def test_the_directory_holds_complete_records_only(folder: Folder) -> None:
    store = await folder.opened()
    draft = Draft()
    await store.tasks.submit(draft.submission())
    for number in range(5):
        await store.tasks.commit(draft.chunk(str(number)))
        assert folder.read()["currentSequence"] == number + 1
    visible = [file.name for file in folder.path.iterdir() if not file.name.startswith(".")]
    assert visible == [folder.file("t-1").name]


async def test_a_deleted_task_leaves_no_file(folder: Folder) -> None:
    store = await folder.opened()
    await put_finished(store, "t-1", at=1)
    assert folder.file("t-1").exists()
    assert await store.tasks.delete_task(ALICE, TaskId("t-1")) is True
    assert not folder.file("t-1").exists()


async def test_several_changes_that_wait_are_one_write_of_the_file(folder: Folder) -> None:
    store = await folder.opened()
    draft = Draft()
    await store.tasks.submit(draft.submission())
    before = folder.file("t-1").stat().st_ino
    writes = [store.tasks.commit(draft.chunk(str(number))) for number in range(50)]
    for write in writes:
        await write
    assert folder.read()["currentSequence"] == 50
    assert folder.file("t-1").stat().st_ino != before


async def test_tasks_with_ids_too_long_for_a_file_name_are_stored(folder: Folder) -> None:
    long = "long " * 100
    store = await folder.opened()
    await put_finished(store, long, at=1)
    await store.close()
    store = await folder.opened()
    assert await store.tasks.read_task(ALICE, TaskId(long)) is not None


async def test_content_that_is_no_task_is_refused_before_anything_is_written(
    folder: Folder,
) -> None:
    store = await folder.opened()
    with pytest.raises(CorruptRecord):
        await store.tasks.commit(Commit(Draft().head, -1, (), b"no json"))
    assert await store.tasks.read_task(None, TaskId("t-1")) is None


async def test_changes_that_only_the_log_has_are_written_at_the_next_start(
    folder: Folder,
) -> None:
    """A process that dies after its log was synced may or may not have acknowledged the write."""
    store = await folder.opened()
    draft, other = Draft("t-1"), Draft("t-2")
    await store.tasks.submit(draft.submission())
    await store.tasks.commit(draft.status(TaskState.WORKING, at=1))
    old = folder.file("t-1").read_bytes()
    await store.tasks.commit(draft.chunk("a"))
    await store.tasks.submit(other.submission())
    gone = await put_finished(store, "t-3", at=3)
    ended = folder.file("t-3").read_bytes()
    await store.tasks.delete_task(ALICE, gone.head.id)
    log = (folder.path / ".gateway.jsonl").read_bytes()
    await store.close()

    (folder.path / ".gateway.jsonl").write_bytes(log)
    folder.file("t-1").write_bytes(old)
    folder.file("t-2").unlink()
    folder.file("t-3").write_bytes(ended)
    store = await folder.opened()
    for expected in (draft, other):
        stored = await store.tasks.read_task(ALICE, expected.head.id)
        assert stored is not None
        assert (stored.head, project_task(stored)) == (expected.head, expected.task)
    assert folder.read("t-1")["currentSequence"] == 2
    assert folder.file("t-2").exists()
    assert not folder.file("t-3").exists()
    claimed = await store.tasks.claim_runs(OwnerId("b"))
    assert [run.id for run in claimed] == ["run-t-1", "run-t-2"]


async def test_a_paused_tasks_token_survives_a_crash_after_a_late_artifact(folder: Folder) -> None:
    store = await folder.opened()
    draft = Draft()
    await store.tasks.submit(draft.submission())
    await store.tasks.commit(draft.paused(b"token", at=1))
    await store.tasks.commit(msgspec.structs.replace(draft.chunk("late"), run_id=None))
    log = (folder.path / ".gateway.jsonl").read_bytes()
    await store.close()
    (folder.path / ".gateway.jsonl").write_bytes(log)
    store = await folder.opened()
    assert await store.tasks.read_resume_token(TaskId("t-1")) == b"token"
    assert project_task(await store.tasks.read_task(ALICE, TaskId("t-1"))) == draft.task


async def test_the_token_of_a_task_that_pauses_at_once_survives_a_crash(folder: Folder) -> None:
    """Its submission brings the pause along; the crash comes before there is a record file."""
    store, draft = await folder.opened(), Draft()
    submission = draft.submission()
    change = msgspec.structs.replace(draft.paused(b"token", at=1), after=-1)
    await store.tasks.submit(msgspec.structs.replace(submission, commit=change))
    log = (folder.path / ".gateway.jsonl").read_bytes()
    await store.close()
    (folder.path / ".gateway.jsonl").write_bytes(log)
    folder.file("t-1").unlink(missing_ok=True)
    store = await folder.opened()
    assert await store.tasks.read_resume_token(TaskId("t-1")) == b"token"
    assert project_task(await store.tasks.read_task(ALICE, TaskId("t-1"))) == draft.task


def resumed(draft: Draft) -> Submission:
    """The message that answers a pause, with the change it makes."""
    draft.run = make_run("answer")
    run = msgspec.structs.replace(draft.run, task_id=draft.task.id)
    change = msgspec.structs.replace(draft.status(TaskState.SUBMITTED, at=2), run_id=None)
    return Submission(run, b"hash of the answer", time_at(2), change)


@pytest.mark.parametrize("damage", ["deleted", "damaged", "a directory"])
async def test_a_paused_task_continues_after_its_record_file_was_lost(
    folder: Folder, damage: str
) -> None:
    """Reading the lost file ended the writer thread, and every later write hung."""
    store, draft = await folder.opened(), Draft()
    await store.tasks.submit(draft.submission())
    await store.tasks.commit(draft.chunk("before the pause"))
    await store.tasks.commit(draft.paused(b"token", at=1))
    file = folder.file("t-1")
    if damage == "damaged":
        file.write_bytes(b'{"schemaVersion":')
    else:
        file.unlink()
    if damage == "a directory":
        file.mkdir()
    with anyio.fail_after(240):
        await store.tasks.submit(resumed(draft))
        await store.tasks.commit(draft.chunk("after it"))
        await store.tasks.submit(direct("t-2"))
    assert project_task(await store.tasks.read_task(ALICE, TaskId("t-1"))) == draft.task
    if damage == "a directory":
        with pytest.raises(StoreUnavailable):
            await store.check()
        file.rmdir()
    await store.check()
    [entry, *_] = folder.read()["journal"]
    assert entry["event"]["artifact"]["parts"][0]["text"] == "before the pause"
    await store.close()
    store = await folder.opened()
    assert project_task(await store.tasks.read_task(ALICE, TaskId("t-1"))) == draft.task


@pytest.mark.parametrize(
    "line",
    [
        '{"wrote":"submission","submission":{"run":{"id":"ru',
        '{"wrote":"submission","submission":{"run":{"id":"\udcff"}}}\n',
        '{"wrote":"submission","x":' + "[" * 9999 + "\n",
    ],
    ids=["half-written", "no UTF-8", "too deep"],
)
async def test_an_unreadable_last_line_of_the_log_is_ignored(folder: Folder, line: str) -> None:
    store = await folder.opened()
    await store.tasks.submit(direct("t-1"))
    await store.close()
    folder.add_to_log(line)
    with capture_logs() as logs:
        store = await folder.opened()
    assert [entry["event"] for entry in logs] == ["store.log_line_ignored"]
    known = await store.tasks.find_duplicate(ALICE, direct("t-1").run.message.message_id)
    assert known == Duplicate(make_run("t-1").id, TaskId("t-1"), None)
    assert [line["wrote"] for line in folder.log()] == ["run", "message"]


async def test_a_truncated_log_holds_a_run_and_its_record_or_neither(
    folder: Folder,
) -> None:
    store = await folder.opened()
    await store.tasks.submit(direct("before"))
    before = len((folder.path / ".gateway.jsonl").read_bytes())
    record = make_record(kind="call")
    await store.tasks.submit(msgspec.structs.replace(direct("t-1"), record=record))
    log = (folder.path / ".gateway.jsonl").read_bytes()
    await store.close()
    for end in (*range(before, len(log), 40), len(log) - 2, len(log) - 1, len(log)):
        (folder.path / ".gateway.jsonl").write_bytes(log[:end])
        store = await folder.opened()
        runs = await store.tasks.claim_runs(OwnerId("b"))
        await store.close()
        is_whole = end == len(log)  # a line is acknowledged after its newline is on the disk
        assert [run.task_id for run in runs] == (["before", "t-1"] if is_whole else ["before"])
        assert await store.records.list_records("call") == ([record] if is_whole else [])


async def test_records_are_recovered_from_the_log_at_their_last_version(folder: Folder) -> None:
    store = await folder.opened()
    record, other = make_record(kind="call"), make_record("two", kind="call")
    await store.tasks.submit(msgspec.structs.replace(Draft().submission(), record=record))
    await store.records.update_record(other)
    newest = next_version(next_version(record), body=b"newest")
    await store.records.update_record(next_version(record))
    await store.records.update_record(newest)
    log = (folder.path / ".gateway.jsonl").read_bytes()
    await store.close()
    (folder.path / ".gateway.jsonl").write_bytes(log)
    store = await folder.opened()
    assert await store.records.list_records("call") == [newest, other]


async def test_a_record_in_a_log_from_before_versions_has_version_0(folder: Folder) -> None:
    body = base64.b64encode(b"old").decode()
    line = {"kind": "handle", "id": "one", "body": body, "expires_at": "2026-11-15T06:01:00Z"}
    folder.add_to_log(json.dumps({"wrote": "record", "record": line}) + "\n")
    store = await folder.opened()
    old = msgspec.structs.replace(make_record(), body=b"old")
    assert await store.records.list_records("handle") == [old]
    assert await store.records.update_record(next_version(old))


@pytest.mark.parametrize("torn", ["", '{"wrote":"rec'])
async def test_a_log_that_could_not_be_compacted_at_start_is_kept(
    folder: Folder, torn: str
) -> None:
    store = await folder.opened()
    one, two = make_record("one"), make_record("two")
    await store.records.update_record(one)
    log = (folder.path / ".gateway.jsonl").read_text(encoding="utf-8")
    await store.close()
    (folder.path / ".gateway.jsonl").write_text(log + torn, encoding="utf-8")
    blocked = folder.path / ".writing"  # where every file is written before it gets its name
    blocked.mkdir()
    store = await folder.opened()
    await store.records.update_record(two)
    log = (folder.path / ".gateway.jsonl").read_text(encoding="utf-8")
    await store.close()
    blocked.rmdir()
    (folder.path / ".gateway.jsonl").write_text(log, encoding="utf-8")
    store = await folder.opened()
    assert await store.records.list_records("handle") == [one, two]


async def test_the_log_is_compacted_at_stop_and_at_start(folder: Folder) -> None:
    store = await folder.opened()
    for number in range(20):
        await put_finished(store, f"t-{number}", at=number)
    assert len(folder.log()) > 60
    await store.close()
    assert [line["wrote"] for line in folder.log()] == ["message"] * 20


async def test_a_long_log_is_compacted_while_the_store_is_in_use(folder: Folder) -> None:
    store = JsonFileStore(folder.path, log_limit=20_000)
    await store.open()
    for number in range(60):
        await put_finished(store, f"t-{number}", at=number)
    await store.tasks.submit(direct("t-x"))
    size = (folder.path / ".gateway.jsonl").stat().st_size
    content = (folder.path / ".gateway.jsonl").read_bytes()
    await store.close()
    assert size < 60_000
    (folder.path / ".gateway.jsonl").write_bytes(content)
    store = await folder.opened()
    assert (await store.tasks.list_tasks(TaskQuery(ALICE, 10))).total == 60
    assert await store.tasks.find_duplicate(ALICE, direct("t-0").run.message.message_id) is not None
    [run] = await store.tasks.claim_runs(OwnerId("b"))
    assert run.id == "run-t-x"


async def test_a_record_that_cannot_be_written_now_is_written_later(folder: Folder) -> None:
    """The log has the write, so it succeeds; until the file follows, `check` reports it."""
    store = await folder.opened()
    folder.file("t-1").mkdir()
    draft = Draft()
    await store.tasks.submit(draft.submission())
    assert project_task(await store.tasks.read_task(ALICE, TaskId("t-1"))) == draft.task
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        await store.check()
    folder.file("t-1").rmdir()
    await store.check()
    assert folder.read()["currentSequence"] == 0


async def test_a_record_that_never_could_be_written_is_written_at_the_next_start(
    folder: Folder,
) -> None:
    store = await folder.opened()
    folder.file("t-1").mkdir()
    draft = Draft()
    await store.tasks.submit(draft.submission())
    await store.close()
    assert [line["wrote"] for line in folder.log()][:1] == ["submission"]
    folder.file("t-1").rmdir()
    store = await folder.opened()
    assert project_task(await store.tasks.read_task(ALICE, TaskId("t-1"))) == draft.task
    assert folder.read()["currentSequence"] == 0


async def test_a_directory_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    await anyio.Path(tmp_path / "file").write_text("I am no directory")
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        await JsonFileStore(tmp_path / "file" / "tasks").open()


@pytest.mark.requirement("store.task.merge-status", "store.task.merge-artifact")
async def test_the_record_holds_the_task_with_all_events_applied(folder: Folder) -> None:
    store = await folder.opened()
    draft = Draft()
    await store.tasks.submit(draft.submission())
    await store.tasks.commit(draft.status(TaskState.WORKING, at=1, message_id="s-1"))
    await store.tasks.commit(draft.status(TaskState.WORKING, at=2, message_id="s-1"))
    await store.tasks.commit(draft.status(TaskState.WORKING, at=3, message_id="s-2"))
    await store.tasks.commit(draft.chunk("a"))
    await store.tasks.commit(draft.chunk("b"))
    task = folder.read()["task"]
    assert [message["messageId"] for message in task["history"]] == ["s-1", "s-2"]
    assert task["status"]["message"]["messageId"] == "s-2"
    [artifact] = task["artifacts"]
    assert [part["text"] for part in artifact["parts"]] == ["a", "b"]
