"""Blocking calls in threads that nobody has to wait for."""

import asyncio
import threading

import pytest

from openclaw_a2a.engine.scheduling.threads import DaemonThreads

DEADLINE_S = 60.0


async def test_a_call_whose_caller_left_keeps_its_slot_until_it_ends() -> None:
    threads = DaemonThreads(2, each=1)
    release, started = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def block() -> str:
        loop.call_soon_threadsafe(started.set)
        release.wait(DEADLINE_S)
        return "late"

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(threads.run("alice", block))
        await started.wait()
        first.cancel()
        second = tasks.create_task(threads.run("alice", lambda: "second"))
        # The other slot is for others.
        assert await threads.run("bob", lambda: "of bob") == "of bob"
        assert not second.done()
        release.set()
        assert await second == "second"
    assert first.cancelled()


async def test_a_call_that_nobody_waits_for_any_more_is_not_begun() -> None:
    threads = DaemonThreads(1, each=1)
    release = threading.Event()
    begun: list[str] = []
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(threads.run("alice", lambda: release.wait(DEADLINE_S)))
        second = tasks.create_task(threads.run("alice", lambda: begun.append("second")))
        await asyncio.sleep(0)
        second.cancel()
        release.set()
        assert await first is True
        await threads.run("alice", lambda: begun.append("third"))
    assert begun == ["third"]


@pytest.mark.parametrize("error", [ValueError("no"), StopIteration(), SystemExit(3)])
async def test_what_a_call_raises_reaches_its_caller_and_ends_nothing_else(
    error: BaseException,
) -> None:
    threads = DaemonThreads(1, each=1)

    def fail() -> None:
        raise error

    with pytest.raises((ValueError, RuntimeError)):
        await threads.run("alice", fail)
    assert await threads.run("alice", lambda: "next") == "next"
