"""Slots for parts of coroutines: shared fairly, and never lost with a coroutine that ends."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.engine.scheduling.fair_queue import FairSemaphore


async def test_a_slot_that_was_granted_to_a_cancelled_coroutine_goes_to_the_next() -> None:
    semaphore = FairSemaphore(slots=1)
    held = await semaphore.acquire("first", is_retry=False)
    granted = asyncio.create_task(semaphore.acquire("granted", is_retry=False))
    behind = asyncio.create_task(semaphore.acquire("behind", is_retry=False))
    await asyncio.sleep(0)
    semaphore.release(held, "first")
    granted.cancel()  # it has the slot, and has not resumed yet
    with pytest.raises(asyncio.CancelledError):
        await granted
    async with asyncio.timeout(60):
        await behind


async def test_a_receiver_at_its_limit_does_not_hold_up_another_one() -> None:
    semaphore = FairSemaphore(slots=8)  # two for each receiver
    for _ in range(2):
        await semaphore.acquire("busy", is_retry=False)
    third = asyncio.create_task(semaphore.acquire("busy", is_retry=False))
    await asyncio.sleep(0)
    assert not third.done()
    async with asyncio.timeout(60):
        await semaphore.acquire("other", is_retry=False)
    third.cancel()


async def test_nobody_overtakes_a_coroutine_of_its_receiver_that_waits() -> None:
    semaphore = FairSemaphore(slots=4)  # one for each receiver
    held = await semaphore.acquire("one", is_retry=False)
    order: list[str] = []

    async def work(name: str) -> None:
        async with semaphore.slot("one", is_retry=False):
            order.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(work("waits"))
        await asyncio.sleep(0)
        semaphore.release(held, "one")  # granted, and not resumed yet
        group.create_task(work("comes later"))
    assert order == ["waits", "comes later"]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 3)), min_size=1, max_size=30
    )
)
def test_slots_are_bounded_and_all_come_back(work: list[tuple[str, bool, int]]) -> None:
    async def run() -> None:
        semaphore, active, most = FairSemaphore(slots=8), 0, 0

        async def hold(receiver: str, is_retry: bool, turns: int) -> None:
            nonlocal active, most
            async with semaphore.slot(receiver, is_retry=is_retry):
                active += 1
                most = max(most, active)
                try:
                    for _ in range(turns):
                        await asyncio.sleep(0)
                finally:
                    active -= 1

        tasks = [asyncio.create_task(hold(*one)) for one in work]
        for task, (_, is_retry, turns) in zip(tasks, work, strict=True):
            if is_retry and turns == 3:
                await asyncio.sleep(0)
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert most <= 8
        # Every slot is free again: two for each receiver, half of them for retries.
        for receivers, is_retry in (("abcd", False), ("ab", True)):
            async with asyncio.timeout(60):
                held = [
                    (await semaphore.acquire(receiver, is_retry=is_retry), receiver)
                    for receiver in receivers * 2
                ]
            for queue, receiver in held:
                semaphore.release(queue, receiver)

    asyncio.run(run())
