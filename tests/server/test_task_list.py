"""Large tasks of a list are read by themselves, after the page: they may have changed since."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.store_samples import ALICE, Draft, StoreHarness

from openclaw_a2a.model.task import TaskState
from openclaw_a2a.ports import Store, TaskPage, TaskQuery
from openclaw_a2a.protocol.requests import ListRequest
from openclaw_a2a.server.task_list import list_tasks

Change = Callable[[], Awaitable[object]]
LARGE = "x" * 1_000_000


class ChangedMeanwhile:
    """The tasks of a store in which something changes right after a page was read."""

    def __init__(self, store: Store, change: Change) -> None:
        self._tasks = store.tasks
        self._change = change

    async def list_tasks(self, query: TaskQuery) -> TaskPage:
        page = await self._tasks.list_tasks(query)
        await self._change()
        return page

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tasks, name)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    harness = StoreHarness(request.param, tmp_path)
    await harness.store.open()
    yield harness.store
    await harness.store.close()


async def store_task(store: Store, name: str) -> Draft:
    """A large task that is worked on."""
    draft = Draft(name)
    await store.tasks.submit(draft.submission())
    await store.tasks.start_run(draft.run.id, fence=draft.run.fence, attempt=1)
    await store.tasks.commit(draft.status(TaskState.WORKING))
    await store.tasks.commit(draft.whole(draft.chunk(LARGE)))
    return draft


async def listed(store: Store, change: Change, **wanted: Any) -> list[str]:
    request = ListRequest(include_artifacts=True, **wanted)
    tasks: Any = ChangedMeanwhile(store, change)
    page = json.loads(b"".join(await list_tasks(tasks, ALICE, request)))
    return sorted(one["id"] for one in page["tasks"])


async def test_a_large_task_that_was_deleted_meanwhile_is_left_out(store: Store) -> None:
    for name in ("t-1", "t-2"):
        draft = await store_task(store, name)
        await store.tasks.commit(draft.ended())

    async def delete() -> None:
        assert await store.tasks.delete_task(ALICE, Draft("t-1").task.id)

    assert await listed(store, delete) == ["t-2"]


async def test_a_large_task_that_left_the_state_meanwhile_is_left_out(store: Store) -> None:
    ending, _ = [await store_task(store, name) for name in ("t-1", "t-2")]

    async def end() -> None:
        await store.tasks.commit(ending.ended())

    assert await listed(store, end, state=TaskState.WORKING) == ["t-2"]
