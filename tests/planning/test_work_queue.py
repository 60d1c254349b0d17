"""The work queue of objectives: its transition table, its order and its delays."""

import asyncio

import anyio
import pytest

from openclaw_a2a.planning.executor import TRANSITIONS, WorkEvent, WorkQueue, WorkState
from openclaw_a2a.planning.model import ObjectiveId

A, B = ObjectiveId("obj-a"), ObjectiveId("obj-b")
WAIT_S = 240.0


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Both event loops: their timers differ, and the gateway runs on uvloop where there is one."""
    return "asyncio", {"use_uvloop": request.param}


async def reach(queue: WorkQueue, state: WorkState | None) -> None:
    """Bring A to a state."""
    if state is not None:
        queue.add(A)
    if state in (WorkState.PROCESSING, WorkState.CHANGED):
        assert await queue.get() == A
    if state is WorkState.CHANGED:
        queue.add(A)
    assert queue.states.get(A) is state


async def happen(queue: WorkQueue, event: WorkEvent) -> None:
    match event:
        case WorkEvent.ADD:
            queue.add(A)
        case WorkEvent.GET:
            assert await queue.get() == A
        case WorkEvent.DONE:
            queue.done(A)


@pytest.mark.parametrize("state", [None, *WorkState])
@pytest.mark.parametrize("event", [WorkEvent.ADD, WorkEvent.DONE])
async def test_every_event_follows_the_table(state: WorkState | None, event: WorkEvent) -> None:
    queue = WorkQueue()
    await reach(queue, state)
    if (state, event) in TRANSITIONS:
        await happen(queue, event)
        assert queue.states.get(A) is TRANSITIONS[state, event]
    else:
        with pytest.raises(KeyError):
            await happen(queue, event)


async def test_get_takes_queued_objectives_only() -> None:
    assert [state for state, event in TRANSITIONS if event is WorkEvent.GET] == [WorkState.QUEUED]
    queue = WorkQueue()
    await reach(queue, WorkState.CHANGED)
    queue.add(B)
    assert await queue.get() == B


async def test_objective_is_in_the_queue_once_however_often_it_is_added() -> None:
    queue = WorkQueue()
    for _ in range(3):
        queue.add(A)
    queue.add(B)
    assert [await queue.get(), await queue.get()] == [A, B]
    queue.done(A)
    queue.done(B)
    assert queue.states == {}


async def test_objective_that_changes_while_it_is_processed_comes_again_after_the_others() -> None:
    queue = WorkQueue()
    queue.add(A)
    assert await queue.get() == A
    queue.add(B)
    queue.add(A)
    queue.done(A)
    assert [await queue.get(), await queue.get()] == [B, A]


async def test_worker_that_waits_gets_the_next_objective() -> None:
    queue = WorkQueue()
    with anyio.fail_after(WAIT_S):
        async with asyncio.TaskGroup() as workers:
            waiting = workers.create_task(queue.get())
            await anyio.wait_all_tasks_blocked()
            queue.add(A)
        assert waiting.result() == A


async def test_of_several_delays_the_shortest_counts() -> None:
    queue = WorkQueue()
    queue.add_later(A, 3600.0)
    queue.add_later(A, 0.0)
    queue.add_later(A, 3600.0)
    with anyio.fail_after(WAIT_S):
        assert await queue.get() == A
    queue.close()


async def test_delay_that_is_over_already_is_kept_when_another_follows() -> None:
    queue = WorkQueue()
    for delay_s in (-1.0, 0.0, 0.0001, 0.01):
        queue.add_later(A, delay_s)
        queue.add_later(A, 3600.0)
        with anyio.fail_after(WAIT_S):
            assert await queue.get() == A
        queue.done(A)
    queue.close()


async def test_closed_queue_adds_nothing_later() -> None:
    queue = WorkQueue()
    queue.add_later(A, 0.0)
    queue.close()
    await anyio.wait_all_tasks_blocked()
    assert queue.states == {}
