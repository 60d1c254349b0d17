"""A value that comes once, and fresh ids."""

import asyncio

import pytest
from tests.engine.harness import yield_to_others

from openclaw_a2a.engine.engine import new_id
from openclaw_a2a.engine.tasks.active_task import Promise


async def test_every_waiter_gets_the_first_value() -> None:
    once: Promise[int] = Promise()
    waiting = [asyncio.ensure_future(once.wait()) for _ in range(3)]
    await yield_to_others()
    once.set(1)
    once.set(2)
    assert await asyncio.gather(*waiting) == [1, 1, 1]
    assert await once.wait() == once.peek() == 1


async def test_cancelled_waiter_cancels_no_other() -> None:
    once: Promise[int] = Promise()
    gone, stays = asyncio.ensure_future(once.wait()), asyncio.ensure_future(once.wait())
    await yield_to_others()
    gone.cancel()
    await yield_to_others()
    once.set(1)
    assert await stays == 1


async def test_who_gives_up_waiting_changes_nothing() -> None:
    once: Promise[int] = Promise()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await once.wait()
    with pytest.raises(LookupError):
        once.peek()
    once.set(1)
    assert await once.wait() == 1


def test_ids_are_all_different_and_look_like_uuids() -> None:
    ids = {new_id() for _ in range(2000)}
    assert len(ids) == 2000
    assert {tuple(len(part) for part in one.split("-")) for one in ids} == {(8, 4, 4, 4, 12)}
