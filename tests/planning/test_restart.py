"""Objectives across restarts: stopped, killed between any two writes, damaged, and moved."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.captured_logs import capture_logs
from tests.conformance.asgi_client import Request
from tests.planning.gateway_harness import PlanningHarness, asks, first_line, planning_harness_in
from tests.planning.test_failures_and_races import Gate, gated, is_working, task_of
from tests.planning.test_lifecycle_examples import watching
from tests.store.flat_store import FlatStore

from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.ports import Store
from openclaw_a2a.store import create_store

Json = Any
WRITES = frozenset(
    {
        *("submit", "commit", "start_run", "finish_run", "delete_task"),
        *("append_log", "delete_log", "put_delivery", "update_delivery", "delete_delivery"),
    }
)


class MortalStore(FlatStore):
    """A store of a process that dies after a number of writes."""

    def __init__(self, inner: Store, writes: int | None) -> None:
        super().__init__(inner)
        self._left = writes
        self.dead = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        return self._mortal(found) if name in WRITES else found

    def _mortal(self, write: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        def wrote(*args: Any, **named: Any) -> "asyncio.Future[Any]":
            if self._left is None:
                return asyncio.ensure_future(write(*args, **named))
            if self._left <= 0:
                return asyncio.ensure_future(self._die())
            self._left -= 1
            return asyncio.ensure_future(self._last(write(*args, **named)))

        return wrote

    async def _last(self, written: Awaitable[Any]) -> Any:
        result = await written
        return result if self._left else await self._die()

    async def _die(self) -> Any:
        self.dead.set()
        raise StoreUnavailable("this process is dead")


class Mortal:
    """A harness whose gateway dies after a number of writes, over a store that stays."""

    def __init__(self, folder: Path) -> None:
        self.harness = PlanningHarness(folder, "memory")
        self.disk = create_store("memory", path=None)
        self._store = MortalStore(self.disk, None)

    async def live(self, writes: int | None, settings: Mapping[str, Json] | None = None) -> None:
        """Start a new process, with a number of writes."""
        self._store = self.harness.store = MortalStore(self.disk, None)
        await self.harness.open({"limits.cancelSeconds": 0.01, **(settings or {})})
        self._store._left = writes  # pyright: ignore[reportPrivateUsage] - it lives until now

    @property
    def dead(self) -> asyncio.Event:
        return self._store.dead

    async def die(self) -> None:
        """End the process."""
        await self.harness.close()


class Counting:
    """Work that fails the first time where a name ends in `!`, and asks where it ends in `?`."""

    def __init__(self, disk: Store | None = None) -> None:
        self.begun: Counter[str] = Counter()
        """How often each A2A task was begun."""
        self.too_late: list[str] = []
        """The steps that were started when the log had them as completed."""
        self._failed: dict[str, str] = {}
        self._disk = disk

    async def work(self, turn: Any) -> Any:
        if "This is a step of" not in turn.body:
            return f"thanks for {turn.body}"
        name = first_line(turn)
        self.begun[turn.task_id] += 1
        if self._disk is not None:
            step_id = turn.session_key.rpartition(":")[2]
            if step_id in await completed_steps(self._disk, turn.context_id):
                self.too_late.append(name)
        if name.endswith("!") and self._failed.setdefault(name, turn.task_id) == turn.task_id:
            raise RuntimeError("not the first time")
        return asks("well?") if name.endswith("?") else f"did {name}"


async def operations(disk: Store, objective_id: str) -> list[Json]:
    """The operation log of an objective."""
    stored = await disk.logs.read_log("objective", objective_id)
    return [] if stored is None else [json.loads(line.body) for line in stored.lines]


async def completed_steps(disk: Store, objective_id: str) -> set[str]:
    """The steps that are completed according to the log."""
    updates = [one["data"] for one in await operations(disk, objective_id)]
    return {one["id"] for one in updates if one.get("status") == "completed"}


async def links(disk: Store, objective_id: str) -> Counter[str]:
    """How many A2A tasks each step had, by its name."""
    names: dict[str, str] = {}
    found: Counter[str] = Counter()
    for one in await operations(disk, objective_id):
        if one["op"] == "task.create":
            names[one["data"]["id"]] = one["data"]["name"]
        elif one["op"] == "task.link":
            found[names[one["data"]["id"]]] += 1
    return found


async def answer_questions(harness: PlanningHarness, objective_id: str) -> Json:
    """Answer whatever is asked until the objective has come to its end."""
    while True:
        shown = await harness.until(
            objective_id,
            lambda one: one["status"] in ("completed", "failed", "blocked"),
        )
        waits = shown["progress"].get("oldestWaiting")
        if shown["status"] != "blocked" or waits is None:
            return shown
        await harness.ask(
            "SendMessage",
            {
                "message": {
                    "messageId": f"answer to {waits['a2aTaskId']}",
                    "role": "ROLE_USER",
                    "parts": [{"text": "yes"}],
                    "contextId": objective_id,
                    "metadata": {"opt/v1/taskId": waits["taskId"]},
                }
            },
        )


SCENARIOS: dict[str, list[tuple[str, list[int]]]] = {
    "a line": [("a", []), ("b", [0])],
    "a step that fails once": [("a!", []), ("b", [0])],
    "a question": [("a?", []), ("b", [0])],
    "steps at once": [("a", []), ("b!", []), ("c", [0, 1])],
}


async def play(mortal: Mortal, scenario: str, writes: int) -> bool:
    """Cut the gateway off after so many writes; False when it did not make so many."""
    harness, counting = mortal.harness, Counting(mortal.disk)
    harness.workers["main"].work = counting.work
    await mortal.live(None)
    objective_id = await harness.objective()
    tasks = [
        {
            "name": name,
            "dependencies": [f"task-{one}" for one in needed],
            "metadata": {"retries": int(name.endswith("!"))},
        }
        for name, needed in SCENARIOS[scenario]
    ]
    await harness.plan(objective_id, tasks)
    await mortal.die()
    await mortal.live(writes)
    await harness.ask("objectives/run", {"id": objective_id})
    ended = asyncio.ensure_future(answer_questions(harness, objective_id))
    dead = asyncio.ensure_future(mortal.dead.wait())
    await asyncio.wait({ended, dead}, return_when=asyncio.FIRST_COMPLETED, timeout=240)
    is_dead = mortal.dead.is_set()
    for one in (ended, dead):
        one.cancel()
    await asyncio.gather(ended, dead, return_exceptions=True)
    await mortal.die()

    await mortal.live(None)
    if "execution" not in await harness.get(objective_id):
        await harness.call("objectives/run", id=objective_id)
    shown = await answer_questions(harness, objective_id)
    assert shown["status"] == "completed"
    assert counting.too_late == []
    for name, count in (await links(mortal.disk, objective_id)).items():
        # A task that failed before anybody knew of it, because the gateway ended, does not count.
        assert count == 1 or (count == 2 and name.endswith("!"))
    assert max(counting.begun.values()) <= 2, "a run is repeated once for one crash"
    await mortal.die()
    await mortal.live(None)
    assert await harness.get(objective_id) == shown
    await mortal.die()
    return is_dead


@pytest.mark.requirement("opt.bad.kill", "opt.run.restart")
@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_plan_is_completed_when_the_gateway_dies_between_any_two_writes(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    writes, goes_on = 0, True
    while goes_on:
        try:
            goes_on = await play(Mortal(tmp_path), scenario, writes)
        except (AssertionError, TimeoutError) as error:
            error.add_note(f"the end came after {writes} writes")
            raise
        writes += 1
    assert writes > 7, "it was cut off at too few places"


@pytest.mark.requirement("opt.bad.kill", "opt.run.cancel")
@pytest.mark.slow
async def test_a_cancellation_is_completed_when_the_gateway_dies_between_any_two_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    writes, goes_on = 0, True
    while goes_on:
        mortal = Mortal(tmp_path)
        harness = mortal.harness
        gate = Gate()
        harness.workers["main"].work = gate.work
        await mortal.live(None)
        objective_id = await harness.objective()
        await harness.plan(objective_id, [{"name": name} for name in ("a", "b")])
        await harness.call("objectives/run", id=objective_id)
        for name in ("a", "b"):
            await is_working(harness, objective_id, name)
        await mortal.die()
        await mortal.live(writes, {"limits.cancelSeconds": 1})
        await harness.ask("objectives/update", {"id": objective_id, "status": "canceled"})
        goes_on = mortal.dead.is_set()
        await mortal.die()
        await mortal.live(None, {"limits.cancelSeconds": 1})
        if (await harness.get(objective_id))["status"] != "canceled":
            await harness.call("objectives/update", id=objective_id, status="canceled")
        ended = await harness.until(
            objective_id,
            lambda one: {task["status"] for task in one["plans"][0]["tasks"]} == {"canceled"},
        )
        for name in ("a", "b"):
            task = await harness.call("GetTask", id=task_of(ended, name)["a2aTaskId"])
            assert task["status"]["state"] == "TASK_STATE_CANCELED"
        await mortal.die()
        writes += 1
    assert writes > 2


@pytest.mark.requirement("opt.bad.kill")
@pytest.mark.slow
@pytest.mark.parametrize("is_last", [True, False])
async def test_a_skipped_plan_leaves_no_question_open_when_the_gateway_dies_between_any_two_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_last: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    writes, goes_on = 0, True
    while goes_on:
        mortal = Mortal(tmp_path)
        harness = mortal.harness
        harness.workers["main"].work = Counting().work
        await mortal.live(None, {"opt.retries": 1})
        objective_id = await harness.objective()
        plan = await harness.plan(objective_id, [{"name": "a?"}])
        await harness.plan(objective_id, [{"name": "b" if is_last else "b?"}])
        await harness.call("objectives/run", id=objective_id)
        await harness.ends(objective_id, "blocked")
        await mortal.die()
        await mortal.live(writes, {"opt.retries": 1})
        await harness.ask("plans/update", {"id": plan["id"], "status": "skipped"})
        goes_on = mortal.dead.is_set()
        await mortal.die()
        await mortal.live(None, {"opt.retries": 1})
        if (await harness.get(objective_id))["plans"][0]["status"] != "skipped":
            await harness.call("plans/update", id=plan["id"], status="skipped")
        ended = await harness.until(
            objective_id, lambda one: task_of(one, "a?")["status"] == "canceled"
        )
        task = await harness.call("GetTask", id=task_of(ended, "a?")["a2aTaskId"])
        assert task["status"]["state"] == "TASK_STATE_CANCELED"
        await harness.ends(objective_id, "completed" if is_last else "blocked")
        await mortal.die()
        writes += 1
    assert writes > 2


# -------------------------------------------------------------------- stopped and started


@pytest.mark.requirement("opt.run.pause")
@pytest.mark.parametrize("kind", ["objectives", "plans"])
async def test_what_is_paused_stays_so_over_a_restart_until_it_is_resumed(
    harness: PlanningHarness, kind: str
) -> None:
    gate = gated(harness)
    objective_id = await harness.objective()
    tasks = [{"name": "first"}, {"name": "second", "dependencies": ["task-0"]}]
    plan = await harness.plan(objective_id, tasks)
    wanted = {"objectives": objective_id, "plans": plan["id"]}[kind]
    await harness.call("objectives/run", id=objective_id)
    await is_working(harness, objective_id, "first")
    await harness.call(f"{kind}/pause", id=wanted)
    await harness.close()
    gate.go.set()
    await harness.open()
    await harness.until(objective_id, lambda one: one["progress"]["done"] == 1)
    await harness.reopen()
    other = await harness.objective("other")
    await harness.plan(other, [{"name": "meanwhile"}])
    await harness.call("objectives/run", id=other)
    await harness.ends(other)
    assert "second" not in harness.workers["main"].asked
    await harness.call(f"{kind}/resume", id=wanted)
    await harness.ends(objective_id)
    assert harness.workers["main"].asked.count("second") == 1


@pytest.mark.requirement("opt.storage.replay", "opt.run.restart")
@pytest.mark.parametrize("kind", ["sqlite", "json-file"])
async def test_a_question_outlives_restarts_on_disk(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    counting = Counting()
    async with planning_harness_in(tmp_path, kind) as harness:
        harness.workers["main"].work = counting.work
        await harness.open()
        objective_id = await harness.objective()
        await harness.plan(
            objective_id, [{"name": "a?"}, {"name": "b", "dependencies": ["task-0"]}]
        )
        await harness.call("objectives/run", id=objective_id)
        before = await harness.ends(objective_id, "blocked")
        for _ in range(3):
            await harness.reopen()
            assert await harness.get(objective_id) == before
        ended = await answer_questions(harness, objective_id)
        assert ended["status"] == "completed"
        assert list(counting.begun.values()) == [1, 1]
        await harness.reopen()
        assert await harness.get(objective_id) == ended
        assert (await harness.call("objectives/list"))["totalSize"] == 1


# -------------------------------------------------------------------- damaged journals


@pytest.fixture
async def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A harness whose objectives are files."""
    monkeypatch.chdir(tmp_path)
    async with planning_harness_in(tmp_path, "json-file") as one:
        await one.open()
        yield one


def log_file(harness: PlanningHarness, objective_id: str) -> Path:
    [found] = harness.folder.rglob(f"a2a_{objective_id.replace('-', '_')}.jsonl")
    return found


def odd(logs: list[Any]) -> list[str]:
    return [str(one["reason"]) for one in logs if one["event"] == "planning.log_line_skipped"]


@pytest.mark.requirement("opt.storage.cut-off")
@pytest.mark.parametrize(
    "tail", [b'{"v":1,"seq":99,"ts":"2026-', b'\t{"v":1,"seq":99}\n', b"\x00\xff\xfe", b"{}"]
)
async def test_a_log_that_was_cut_off_is_reported_and_continued(
    files: PlanningHarness, tail: bytes
) -> None:
    objective_id = await files.objective()
    await files.plan(objective_id, [{"name": "a"}])
    before = await files.get(objective_id)
    await files.close()
    path = log_file(files, objective_id)
    path.write_bytes(path.read_bytes() + tail)
    with capture_logs() as logs:
        await files.open()
    assert odd(logs)
    assert await files.get(objective_id) == before
    await files.call("objectives/run", id=objective_id)
    ended = await files.ends(objective_id)
    await files.reopen()
    assert await files.get(objective_id) == ended


@pytest.mark.requirement("opt.storage.broken-line")
@pytest.mark.parametrize(
    "rubbish", [b"{broken", b"", b"null", b'{"v":1,"seq":2}', b'{"v":7,"seq":2,"op":"x"}', b"\xff"]
)
async def test_a_broken_line_in_the_middle_is_reported_and_the_rest_is_served(
    files: PlanningHarness, rubbish: bytes
) -> None:
    objective_id, other = await files.objective("hurt"), await files.objective("well")
    for name in ("lost", "kept"):
        await files.plan(objective_id, [{"name": f"{name} step"}], name=name)
    await files.close()
    path = log_file(files, objective_id)
    lines = path.read_bytes().split(b"\n")
    place = next(number for number, line in enumerate(lines) if b"plan.create" in line)
    lines[place] = rubbish
    path.write_bytes(b"\n".join(lines))
    with capture_logs() as logs:
        await files.open()
    assert odd(logs)
    shown = await files.get(objective_id)
    assert [plan["name"] for plan in shown["plans"]] == ["kept"]
    assert (await files.get(other))["name"] == "well"
    async with watching(files, objective_id, after=0) as watcher:
        await files.call("objectives/run", id=objective_id)
        await watcher.until("archive")
    assert watcher.numbers == sorted(set(watcher.numbers))
    ended = await files.ends(objective_id)
    assert files.workers["main"].asked == ["kept step"]
    await files.reopen()
    assert await files.get(objective_id) == ended


async def test_log_files_without_an_objective_are_ignored(files: PlanningHarness) -> None:
    objective_id = await files.objective()
    await files.close()
    folder = log_file(files, objective_id).parent
    (folder / "a2a_obj_empty.jsonl").write_bytes(b"")
    (folder / "a2a_obj_rubbish.jsonl").write_bytes(b"\x00" * 1000)
    (folder / "a2a_obj_noise.jsonl").write_bytes(b"[" * 100_000 + b"\n{}\n")
    (folder / "a2a_obj_headless.jsonl").write_bytes(
        b'{"v":1,"seq":1,"ts":"2026-01-05T10:00:00.000Z","op":"plan.create",'
        b'"data":{"id":"plan-1","name":"x"}}\n'
    )
    (folder / "notes.txt").write_bytes(b"not ours")
    await files.open()
    listed = await files.call("objectives/list")
    assert [one["id"] for one in listed["objectives"]] == [objective_id]
    for name in ("empty", "rubbish", "noise", "headless"):
        assert (await files.fail("objectives/get", id=f"obj-{name}"))["code"] == -32050
    assert (await files.fail("plans/get", id="plan-1"))["code"] == -32050


# -------------------------------------------------------------------- moved


async def operator(harness: PlanningHarness, line: str, body: bytes = b"") -> Any:
    """What the operator is answered."""
    token = (harness.folder / "operator.token").read_text(encoding="ascii").strip()
    method, _, path = line.partition(" ")
    headers = {"authorization": f"Bearer {token}", "content-length": str(len(body))}
    return await harness.client.request(
        Request(method, f"/operator/objectives{path}", headers, (body,))
    )


@pytest.mark.requirement("opt.move.stores")
@pytest.mark.parametrize(("here", "there"), [("sqlite", "json-file"), ("json-file", "sqlite")])
async def test_an_objective_moves_between_stores_with_everything_in_it(
    here: str, there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with (
        planning_harness_in(tmp_path / "here", here) as old,
        planning_harness_in(tmp_path / "there", there) as new,
    ):
        await old.open()
        await new.open()
        whole = await old.objective("Größe 🎉", metadata={"deep": {"list": [1, 2.5, None]}})
        first = await old.plan(whole, [{"name": "a"}, {"name": "b", "dependencies": ["task-0"]}])
        await old.plan(whole, [{"name": "c"}], dependencies=[first["id"]])
        await old.call("plans/run", id=first["id"])
        await old.until(whole, lambda one: one["plans"][0]["status"] == "completed")
        shown = await old.until(whole, lambda one: one["plans"][1]["status"] == "pending")
        exported = await operator(old, f"GET /{whole}/export")
        assert exported.status == 200
        taken = await operator(new, "POST /import", exported.body)
        assert taken.status == 200, taken.body
        assert await new.get(whole) == shown
        assert (await operator(new, f"GET /{whole}/export")).body == exported.body
        again = await operator(new, "POST /import", exported.body)
        assert (again.status, "already" in again.json["error"]["message"]) == (400, True)
        await new.reopen()
        assert await new.get(whole) == shown
        await new.call("objectives/run", id=whole)
        ended = await new.ends(whole)
        assert new.workers["main"].asked == ["c"]
        archived = await operator(new, f"GET /{whole}/export")
        await old.call("objectives/delete", id=whole)
        assert (await operator(old, "POST /import", archived.body)).status == 200
        assert await old.get(whole) == ended
        await old.reopen()
        assert await old.get(whole) == ended


@pytest.mark.requirement("opt.move.under-way")
async def test_a_step_that_was_running_when_its_objective_was_moved_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with (
        planning_harness_in(tmp_path / "here") as old,
        planning_harness_in(tmp_path / "there") as new,
    ):
        await old.open()
        await new.open()
        objective_id = await old.objective()
        await old.plan(objective_id, [{"name": "a"}, {"name": "b", "dependencies": ["task-0"]}])
        hold = Gate()

        async def work(turn: Any) -> str:
            return await hold.work(turn) if first_line(turn) == "b" else "did a"

        old.workers["main"].work = work
        await old.call("objectives/run", id=objective_id)
        await is_working(old, objective_id, "b")
        exported = await operator(old, f"GET /{objective_id}/export")
        await old.close()
        assert (await operator(new, "POST /import", exported.body)).status == 200
        await new.ends(objective_id)
        assert new.workers["main"].asked == ["b"]


async def ask_then_answer(turn: Any) -> Any:
    return asks("Which one?") if turn.body.startswith("book") else "booked"


async def export_waiting(folder: Path, task_id: str) -> tuple[str, bytes]:
    """An objective whose step waits for an answer to this task, from another gateway."""
    async with planning_harness_in(folder) as other:
        await other.open()
        other.workers["main"].work = ask_then_answer
        objective_id = await other.objective()
        await other.plan(
            objective_id, [{"name": "book"}, {"name": "go", "dependencies": ["task-0"]}]
        )
        await other.call("objectives/run", id=objective_id)
        shown = await other.until(objective_id, lambda one: one["status"] == "blocked")
        exported = await operator(other, f"GET /{objective_id}/export")
        linked = task_of(shown, "book")["a2aTaskId"]
        return objective_id, exported.body.replace(linked.encode(), task_id.encode())


async def start_task(harness: PlanningHarness) -> str:
    """A task of a caller that waits for an answer."""
    harness.workers["main"].work = ask_then_answer
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "book"}]}
    return (await harness.call("SendMessage", message=message))["task"]["id"]


async def answer_task(harness: PlanningHarness, task_id: str) -> None:
    message = {
        "messageId": "m-2",
        "role": "ROLE_USER",
        "parts": [{"text": "it"}],
        "taskId": task_id,
    }
    await harness.call("SendMessage", message=message)


@pytest.mark.requirement("opt.move.under-way")
@pytest.mark.parametrize("is_reopened", [False, True])
async def test_a_step_whose_task_is_under_way_here_follows_it_after_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_reopened: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    async with planning_harness_in(tmp_path / "there") as new:
        await new.open()
        task_id = await start_task(new)
        objective_id, exported = await export_waiting(tmp_path / "here", task_id)
        assert (await operator(new, "POST /import", exported)).status == 200
        if is_reopened:
            await new.reopen()
        await answer_task(new, task_id)
        shown = await new.ends(objective_id)
        assert task_of(shown, "book")["a2aTaskId"] == task_id
        assert new.workers["main"].asked[-1] == "go"


@pytest.mark.requirement("opt.move.under-way")
async def test_a_gateway_that_died_during_an_import_follows_the_tasks_of_the_objective_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for writes in range(1, 9):
        mortal = Mortal(tmp_path / f"there-{writes}")
        await mortal.live(None)
        task_id = await start_task(mortal.harness)
        objective_id, exported = await export_waiting(tmp_path / f"here-{writes}", task_id)
        await mortal.die()
        await mortal.live(writes)
        await operator(mortal.harness, "POST /import", exported)
        await mortal.die()
        await mortal.live(None)
        shown = (await operator(mortal.harness, f"GET /{objective_id}")).json
        if shown.get("error") is None:
            await answer_task(mortal.harness, task_id)
            await mortal.harness.ends(objective_id)
        await mortal.die()


@pytest.mark.parametrize(
    "body",
    [
        b"hello",
        b"{}",
        b"\xff\xfe",
        b'{"v":1,"seq":1,"ts":"2026-01-05T10:00:00.000Z","op":"archive","data":{}}\n',
        b'{"v":1,"seq":1,"ts":"never","op":"objective.create","data":{"id":"obj-1","name":"x"}}',
    ],
)
async def test_an_import_that_is_not_a_log_is_rejected(
    harness: PlanningHarness, body: bytes
) -> None:
    answer = await operator(harness, "POST /import", body)
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid-params")
    assert (await harness.call("objectives/list"))["totalSize"] == 0


@pytest.mark.parametrize("wanted", ["../../evil", "obj-../x", "obj-A_b", "", "obj-" + "x" * 300])
async def test_an_id_that_could_not_be_made_here_is_not_taken_in(
    files: PlanningHarness, wanted: str
) -> None:
    data = {"id": wanted, "name": "x"}
    line = {"v": 1, "seq": 1, "ts": "2026-01-05T10:00:00.000Z", "op": "objective.create"}
    answer = await operator(files, "POST /import", json.dumps({**line, "data": data}).encode())
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid-params")
    assert (await files.call("objectives/list"))["totalSize"] == 0


@pytest.mark.parametrize(
    ("of_plan", "of_step", "reason"),
    [
        ([], ["task-gone"], "the step 'task-gone', which does not exist. Change the dependencies"),
        (["plan-gone"], [], "the plan 'plan-gone', which does not exist; skip the plan 'House'."),
    ],
)
async def test_an_imported_plan_that_waits_for_nothing_known_says_so(
    harness: PlanningHarness, of_plan: list[str], of_step: list[str], reason: str
) -> None:
    plan = {"id": "plan-1", "objectiveId": "obj-1", "name": "House", "dependencies": of_plan}
    step = {"id": "task-1", "planId": "plan-1", "name": "build", "dependencies": of_step}
    entries = [
        ("objective.create", {"id": "obj-1", "name": "goal"}),
        ("plan.create", {**plan, "status": "blocked"}),
        ("task.create", {**step, "objectiveId": "obj-1", "taskIndex": 0}),
    ]
    lines = [
        {"v": 1, "seq": seq, "ts": "2026-01-05T10:00:00.000Z", "op": op, "data": data}
        for seq, (op, data) in enumerate(entries, start=1)
    ]
    body = "".join(json.dumps(line) + "\n" for line in lines).encode()
    taken = await operator(harness, "POST /import", body)
    assert taken.status == 200, taken.body
    await operator(harness, "POST /obj-1/run")
    shown = (await operator(harness, "GET /obj-1")).json
    assert shown["status"] == "failed", shown
    assert shown["reason"].startswith(f"The plan 'House' waits for {reason}")
