"""What every kind of store that writes files promises when its disk fails."""

import asyncio
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import msgspec
import pytest
from tests.contracts.store_samples import (
    ALICE,
    Draft,
    StoreHarness,
    direct,
    make_message,
    project_task,
)

from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.model.ids import OwnerId, TaskId
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.ports import Accepted, Store, Submission

KILOBYTE = 1024


@contextmanager
def no_room_beyond(size: int) -> Iterator[None]:
    """No file of this process may grow beyond the size: to a writer, a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def large(name: str) -> Submission:
    submission = direct(name)
    message = make_message(f"m-{name}", "x" * 100 * KILOBYTE)
    run = msgspec.structs.replace(submission.run, message=message)
    return msgspec.structs.replace(submission, run=run)


async def fill(store: Store) -> list[str]:
    """Submit until the store refuses; the names it took."""
    taken: list[str] = []
    with pytest.raises(StoreUnavailable):
        for number in range(100):
            await store.tasks.submit(large(f"t-{number}"))
            taken.append(f"t-{number}")
    return taken


async def test_a_full_disk_is_reported_and_accepted_writes_stay(on_disk: StoreHarness) -> None:
    store = on_disk.store
    with no_room_beyond(1024 * KILOBYTE):
        taken = await fill(store)
    assert taken
    with no_room_beyond(16 * KILOBYTE), pytest.raises(StoreUnavailable):
        await store.check()
    store = await on_disk.reopen()
    claimed = await store.tasks.claim_runs(OwnerId("b"))
    assert [str(run.task_id) for run in claimed] == taken


async def test_a_store_accepts_writes_again_when_the_disk_has_room(on_disk: StoreHarness) -> None:
    store = on_disk.store
    with no_room_beyond(1024 * KILOBYTE):
        taken = await fill(store)
    await store.check()
    refused = large(f"t-{len(taken)}")
    assert isinstance(await store.tasks.submit(refused), Accepted)
    store = await on_disk.reopen()
    claimed = await store.tasks.claim_runs(OwnerId("b"))
    assert [str(run.task_id) for run in claimed] == [*taken, str(refused.run.task_id)]


async def test_writes_that_depend_on_a_failed_write_fail_with_it(on_disk: StoreHarness) -> None:
    store = on_disk.store
    draft = Draft("t-x")
    with no_room_beyond(1024 * KILOBYTE):
        await fill(store)
        writes = [
            store.tasks.submit(large("more")),
            store.tasks.submit(draft.submission()),
            store.tasks.commit(draft.status(TaskState.WORKING, at=1)),
            store.tasks.submit(large("even more")),
        ]
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
    for_task = outcomes[1:3]
    stored = await store.tasks.read_task(ALICE, TaskId("t-x"))
    if isinstance(for_task[0], Accepted):
        assert stored is not None
    else:
        assert stored is None
        assert all(isinstance(outcome, Exception) for outcome in for_task)
        again = Draft("t-x")
        await store.tasks.submit(again.submission())
        await store.tasks.commit(again.status(TaskState.WORKING, at=1))
        assert project_task(await store.tasks.read_task(ALICE, TaskId("t-x"))) == again.task


async def test_a_dead_writer_is_reported_and_fails_every_write(on_disk: StoreHarness) -> None:
    """A store whose writer thread is dead looked healthy, and its writes hung."""
    store = on_disk.store
    await store.tasks.submit(direct("t-1"))
    with anyio.fail_after(240):
        with pytest.raises(StoreUnavailable):
            await on_disk.writer.write(_exit)
        with pytest.raises(StoreUnavailable, match="has died"):
            await store.check()
        with pytest.raises(StoreUnavailable, match="has died"):
            await store.tasks.submit(direct("t-2"))
        store = await on_disk.reopen()
        claimed = await store.tasks.claim_runs(OwnerId("b"))
    assert [run.task_id for run in claimed] == ["t-1"]


def _exit(*_: object) -> None:
    raise SystemExit
