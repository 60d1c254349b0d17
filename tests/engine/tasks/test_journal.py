"""When the events of a task are committed, and published."""

import asyncio
from typing import cast

import pytest
from tests.contracts.store_samples import Draft

from openclaw_a2a.engine.outbox.wakeups import WakeupRegistry
from openclaw_a2a.engine.tasks.journal import UNLIMITED, Journal
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.model.task import (
    StatusUpdate,
    TaskState,
    TaskStatus,
)
from openclaw_a2a.ports import Commit, TaskStore


class CancellingStore:
    """Cancels the future of every commit."""

    def commit(self, _commit: Commit) -> "asyncio.Future[None]":
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        answer.cancel()
        return answer


async def test_events_of_a_cancelled_commit_are_not_published() -> None:
    draft = Draft()
    journal = Journal(
        cast("TaskStore", CancellingStore()),
        draft.head,
        TaskProjection(draft.task),
        exists=True,
        wakeups=WakeupRegistry(),
        limits=UNLIMITED,
    )
    working = StatusUpdate(draft.task.id, draft.task.context_id, TaskStatus(TaskState.WORKING))
    with pytest.raises(StoreUnavailable):
        await journal.end([working], run=draft.run)
    assert journal.feed.since(0) == []
    assert isinstance(journal.failure, StoreUnavailable)
