"""Kill -9 in the middle of writing: what was acknowledged is there, and nothing is half there."""

import random
import subprocess
import sys
from pathlib import Path

import anyio.to_thread
import pytest
from tests.contracts.store_samples import ALICE, StoreHarness, make_lines, project_task
from tests.postgres_server import PostgresServer
from tests.store.crashing_writer import LINES, make_text

from openclaw_a2a.model.ids import MessageId, OwnerId, TaskId
from openclaw_a2a.model.task import is_terminal
from openclaw_a2a.ports import LogAppend, Store, TaskQuery

ROOT = Path(__file__).parents[2]
LAST_SEQUENCE = 5
"""What the writer says of a task that ended; its record is at version 1 then."""
Acknowledged = dict[str, int]


def write_and_kill(harness: StoreHarness, label: str, lines: int) -> Acknowledged:
    """Let a process write until it has said so many things, then kill it; what it said."""
    command = [sys.executable, "-m", "tests.store.crashing_writer", harness.kind, str(harness.path)]
    acknowledged: Acknowledged = {}
    command += [label, harness.url or "", harness.schema]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        for _ in range(lines):
            name, sequence = process.stdout.readline().split()
            acknowledged[name.decode()] = int(sequence)
        process.kill()
    return acknowledged


async def assert_whole(store: Store, label: str, acknowledged: Acknowledged) -> None:
    """Tasks, events, runs and messages of the last process agree with each other and with it."""
    for name, sequence in acknowledged.items():
        stored = await store.tasks.read_task(ALICE, TaskId(name))
        assert stored is not None, name
        assert stored.head.sequence >= sequence
    claimed = await store.tasks.claim_runs(OwnerId("next"))
    running = {run.task_id: run for run in claimed}
    page = await store.tasks.list_tasks(TaskQuery(ALICE, 10_000))
    assert page.total == len(page.tasks)
    records = {record.id: record for record in await store.records.list_records("call")}
    assert records.keys() == {task.head.id for task in page.tasks}
    for name, sequence in acknowledged.items():
        assert records[name].version >= (sequence == LAST_SEQUENCE)
    tasks = [task for task in page.tasks if task.head.id.startswith(label)]
    for task in tasks:
        events = await store.tasks.read_events(None, task.head.id, after=0, limit=100)
        assert [event.sequence for event in events] == list(range(1, task.head.sequence + 1))
        projected = project_task(task)
        assert projected.status.state is task.head.state
        texts = [part.text for artifact in projected.artifacts for part in artifact.parts]
        assert texts == [make_text(task.head.id, number) for number in range(len(texts))]
        assert is_terminal(task.head.state) == (task.head.id not in running)
        assert await store.tasks.find_duplicate(ALICE, MessageId(f"m-{task.head.id}")) is not None
    assert running.keys() <= {task.head.id for task in tasks}
    await assert_logs_whole(store, label, acknowledged)
    for run in claimed:
        await store.tasks.finish_run(run.id, fence=run.fence, answer=b"{}")


async def assert_logs_whole(store: Store, label: str, acknowledged: Acknowledged) -> None:
    """Every change of a log is complete or absent, and every acknowledged one is present."""
    heads = await store.logs.list_log_heads("objective", after="", limit=10_000)
    for head in heads:
        log = await store.logs.read_log("objective", head.id)
        assert log is not None
        assert [line.body for line in log.lines[:-1]] == make_lines(0, head.sequence - 1)
        assert head.sequence % LINES == 0
        assert head.is_closed == log.is_closed == (head.sequence == LAST_SEQUENCE * LINES)
        assert all("not written to its end" in sentence for sentence in log.problems)
        if head.id.startswith(label) and not head.is_closed:
            more = make_lines(head.sequence, 1)
            assert await store.logs.append_log(
                LogAppend("objective", head.id, more, after=head.sequence)
            )
            assert await store.logs.delete_log("objective", head.id)
    stored = {head.id: head.sequence for head in heads}
    for name, sequence in acknowledged.items():
        assert stored[name] >= (5 if sequence == LAST_SEQUENCE else 1) * LINES


@pytest.mark.requirement("opt.storage.flushed")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["json-file", "sqlite"])
async def test_a_killed_writer_leaves_everything_it_acknowledged(
    tmp_path: Path, kind: str, rounds: int | None
) -> None:
    await kill_and_check(StoreHarness(kind, tmp_path), rounds)


@pytest.mark.slow
async def test_a_killed_writer_leaves_everything_that_postgresql_acknowledged(
    tmp_path: Path, postgres: PostgresServer, rounds: int | None
) -> None:
    async with postgres.borrow_schema() as schema:
        await kill_and_check(StoreHarness("postgres", tmp_path, postgres.url(), schema), rounds)


async def kill_and_check(harness: StoreHarness, rounds: int | None) -> None:
    for number in range(rounds or 8):
        lines = random.randrange(1, 150)
        acknowledged = await anyio.to_thread.run_sync(write_and_kill, harness, f"r{number}", lines)
        harness.store = harness.make()
        await harness.store.open()
        await assert_whole(harness.store, f"r{number}-", acknowledged)
        await harness.store.close()
