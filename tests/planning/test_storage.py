"""How objectives are stored, on a whole gateway."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.captured_logs import capture_logs
from tests.planning.gateway_harness import PlanningHarness, planning_harness_in

from openclaw_a2a.store import create_store

Json = Any
OPERATIONS = {
    *("objective.create", "objective.update", "plan.create", "plan.update"),
    *("task.create", "task.update", "task.link", "archive"),
}


@pytest.fixture
async def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PlanningHarness]:
    """A harness whose objectives are files."""
    monkeypatch.chdir(tmp_path)
    async with planning_harness_in(tmp_path, "json-file") as one:
        await one.open()
        yield one


def path_of(folder: Path, objective_id: str) -> Path:
    return folder / f"a2a_{objective_id.replace('-', '_')}.jsonl"


def lines_of(harness: PlanningHarness, objective_id: str) -> list[Json]:
    content = path_of(harness.folder / "objectives", objective_id).read_bytes()
    assert content.endswith(b"\n")
    return [json.loads(line) for line in content.splitlines()]


@pytest.mark.requirement("opt.storage.file-name", "opt.storage.directory")
async def test_an_objective_is_one_file_in_the_data_folder(files: PlanningHarness) -> None:
    message = {"role": "ROLE_USER", "parts": [{"text": "x"}]}
    hints = {"opt/v1/objective": {"id": "obj-tea-123"}}
    await files.call("SendMessage", message={**message, "metadata": hints})
    folder = files.folder / "objectives"
    assert [one.name for one in folder.glob("*.jsonl")] == ["a2a_obj_tea_123.jsonl"]


@pytest.mark.requirement("opt.storage.directory")
async def test_the_folder_may_be_one_in_which_others_keep_sessions(files: PlanningHarness) -> None:
    folder = files.folder / "agents" / "sessions"
    folder.mkdir(parents=True)
    other = folder / "0b3c.jsonl"
    other.write_bytes(b'{"type":"session"}\n')
    for _ in range(2):
        await files.reopen({"opt.directory": str(folder)})
        objective_id = await files.objective()
        assert path_of(folder, objective_id).exists()
    assert (await files.call("objectives/list"))["totalSize"] == 2
    assert other.read_bytes() == b'{"type":"session"}\n'
    assert not (files.folder / "objectives").exists()


@pytest.mark.requirement(
    "opt.storage.line", "opt.storage.operations", "opt.storage.flushed", "opt.storage.archive"
)
async def test_every_change_is_in_the_file_when_it_is_answered(files: PlanningHarness) -> None:
    objective_id = await files.objective("Tea", metadata={"a": [1]})
    [first] = lines_of(files, objective_id)
    assert first.pop("ts").endswith("Z")
    assert (first["v"], first["seq"], first["op"]) == (1, 1, "objective.create")
    assert (first["data"]["name"], first["data"]["metadata"]) == ("Tea", {"a": [1]})
    plan = await files.plan(objective_id, [{"name": "a"}])
    written = [line["op"] for line in lines_of(files, objective_id)]
    assert written == ["objective.create", "plan.create", "task.create", "objective.update"]
    await files.call("plans/update", id=plan["id"], name="other")
    assert lines_of(files, objective_id)[-1]["data"]["name"] == "other"
    await files.call("objectives/run", id=objective_id)
    await files.ends(objective_id)
    lines = lines_of(files, objective_id)
    assert {line["op"] for line in lines} == OPERATIONS
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert all(set(line) == {"v", "seq", "ts", "op", "data"} for line in lines)
    assert lines[-1]["op"] == "archive"


@pytest.mark.requirement("opt.storage.archived", "opt.storage.archive")
async def test_an_archived_objective_is_read_on_request_and_not_at_start(
    files: PlanningHarness,
) -> None:
    done, open_one = await files.objective("done"), await files.objective("open")
    await files.call("objectives/update", id=done, status="working")
    await files.call("objectives/update", id=done, status="completed")
    before = await files.get(done)
    await files.close()
    for objective_id in (done, open_one):  # whoever reads the file says that this is odd
        path = path_of(files.folder / "objectives", objective_id)
        first, rest = path.read_bytes().split(b"\n", 1)
        path.write_bytes(first + b"\nnonsense\n" + rest)
    with capture_logs() as at_start:
        await files.open()
    with capture_logs() as when_asked:
        assert await files.get(done) == before
    odd = [
        {one["objective_id"] for one in logs if one["event"] == "planning.log_line_skipped"}
        for logs in (at_start, when_asked)
    ]
    assert odd == [{open_one}, {done}]


@pytest.mark.requirement("opt.storage.archive")
async def test_an_archived_objective_that_is_changed_stays_archived(files: PlanningHarness) -> None:
    objective_id = await files.objective()
    await files.call("objectives/update", id=objective_id, status="working")
    await files.call("objectives/update", id=objective_id, status="completed")
    await files.call("objectives/update", id=objective_id, name="later")
    assert lines_of(files, objective_id)[-1]["op"] == "archive"
    await files.reopen()
    assert (await files.get(objective_id))["name"] == "later"


@pytest.mark.requirement("opt.storage.gaps", "opt.storage.replay")
async def test_numbers_that_leave_some_out_do_no_harm(files: PlanningHarness) -> None:
    objective_id = await files.objective()
    await files.plan(objective_id, [{"name": "a"}, {"name": "b", "dependencies": ["task-0"]}])
    before = await files.get(objective_id)
    await files.close()
    path = path_of(files.folder / "objectives", objective_id)
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    spread = [{**line, "seq": line["seq"] * 10} for line in lines]
    path.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in spread))
    await files.open()
    assert await files.get(objective_id) == before
    await files.call("objectives/update", id=objective_id, name="more")
    assert lines_of(files, objective_id)[-1]["seq"] > spread[-1]["seq"]
    await files.reopen()
    assert (await files.get(objective_id))["name"] == "more"


@pytest.mark.requirement("opt.storage.delete")
async def test_a_deleted_objective_has_no_file(files: PlanningHarness) -> None:
    objective_id, other = await files.objective(), await files.objective("other")
    await files.plan(objective_id, [{"name": "a"}])
    await files.call("objectives/delete", id=objective_id)
    folder = files.folder / "objectives"
    assert not path_of(folder, objective_id).exists()
    assert path_of(folder, other).exists()
    await files.reopen()
    assert (await files.fail("objectives/get", id=objective_id))["code"] == -32050


@pytest.mark.requirement("opt.storage.memory", "opt.storage.replay")
@pytest.mark.parametrize("kind", ["memory", "json-file", "sqlite"])
async def test_every_store_does_the_same_and_memory_keeps_nothing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with planning_harness_in(tmp_path, kind) as harness:
        await harness.open()
        objective_id = await harness.objective()
        first = await harness.plan(objective_id, [{"name": "a"}])
        await harness.plan(objective_id, [{"name": "b"}], dependencies=[first["id"]])
        await harness.call("objectives/run", id=objective_id)
        ended = await harness.ends(objective_id)
        unfinished = await harness.objective("open")
        before = await harness.get(unfinished)
        await harness.reopen()
        if kind == "memory":
            assert (await harness.fail("objectives/get", id=objective_id))["code"] == -32050
            assert (await harness.call("objectives/list"))["totalSize"] == 0
        else:
            assert await harness.get(objective_id) == ended
            assert await harness.get(unfinished) == before


@pytest.mark.requirement("opt.storage.archived")
@pytest.mark.parametrize(("kind", "place"), [("json-file", "tasks"), ("sqlite", "state.db")])
async def test_a_store_has_nothing_to_load_of_what_is_completed(
    kind: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with planning_harness_in(tmp_path, kind) as harness:
        await harness.open()
        done, open_one = await harness.objective("done"), await harness.objective("open")
        for status in ("working", "completed"):
            await harness.call("objectives/update", id=done, status=status)
        await harness.call("objectives/update", id=done, name="renamed")
        await harness.close()
        store = create_store(kind, path=str(tmp_path / place))
        await store.open()
        loaded = await store.logs.list_open_logs("objective", after="", limit=10)
        await store.close()
        assert [log.id for log in loaded] == [open_one]
        await harness.open()
        assert (await harness.get(done))["name"] == "renamed"
