"""Slot queues: width, order of arrival, and holders that are cancelled."""

import asyncio
import gc

import anyio
import pytest

from openclaw_a2a.agents.concurrency import SlotQueue, queue_for


async def test_holders_are_admitted_in_the_order_of_arrival_and_at_the_front():
    queue, admitted = SlotQueue(), []

    async def hold(name, *, at_front=False):
        async with queue.slot(at_front=at_front):
            admitted.append(name)

    with anyio.fail_after(240):
        async with asyncio.TaskGroup() as group, queue.slot():
            for name in ("first", "second"):
                group.create_task(hold(name))
                await asyncio.sleep(0)
            group.create_task(hold("urgent", at_front=True))
            await asyncio.sleep(0)
            assert admitted == []
    assert admitted == ["urgent", "first", "second"]


async def test_width_is_the_number_of_holders():
    queue = SlotQueue(2)
    with anyio.fail_after(240):
        async with queue.slot():
            assert not queue.has_others
            async with queue.slot():
                assert queue.has_others
                with pytest.raises(TimeoutError), anyio.fail_after(0.01):
                    async with queue.slot():
                        pass


async def test_cancelled_waiter_gives_its_slot_to_the_next():
    queue = SlotQueue()
    with anyio.fail_after(240):
        async with queue.slot():
            with anyio.move_on_after(0.01):
                async with queue.slot():
                    pass
        async with queue.slot():
            pass


async def test_name_has_one_queue_while_it_is_in_use():
    first = queue_for("name", SlotQueue())
    assert queue_for("name", SlotQueue()) is first
    assert queue_for("other", SlotQueue()) is not first
    del first
    gc.collect()
    fresh = SlotQueue()
    assert queue_for("name", fresh) is fresh
