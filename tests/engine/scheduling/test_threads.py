"""Blocking calls in threads that nobody has to wait for."""

import asyncio
import threading

import pytest

from openclaw_a2a.engine.scheduling.threads import DaemonThreads

DEADLINE_S = 240.0


class Blocked:
    """Calls that hang until the test lets them go."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Queue[None] = asyncio.Queue()

    def call(self) -> str:
        self._loop.call_soon_threadsafe(self._started.put_nowait, None)
        self.release.wait(DEADLINE_S)
        return "late"

    async def wait_begun(self) -> None:
        await self._started.get()

    async def abandon_one(self, threads: DaemonThreads, receiver: str) -> None:
        """Begin such a call, and stop waiting for it."""
        waiting = asyncio.ensure_future(threads.run(receiver, self.call))
        await self.wait_begun()
        waiting.cancel()
        await asyncio.wait({waiting})


async def test_a_call_that_hangs_gives_its_slot_back_when_its_caller_leaves() -> None:
    threads, blocked = DaemonThreads(2, each=1), Blocked()
    async with asyncio.timeout(DEADLINE_S):
        await blocked.abandon_one(threads, "alice")
        assert await threads.run("alice", lambda: "second") == "second"
        blocked.release.set()


async def test_one_receiver_has_no_more_hanging_calls_than_slots() -> None:
    threads, blocked = DaemonThreads(2, each=1), Blocked()
    async with asyncio.timeout(DEADLINE_S):
        for _ in range(2):
            await blocked.abandon_one(threads, "alice")
        waiting = asyncio.ensure_future(threads.run("alice", lambda: "next"))
        # The other slot is for others.
        assert await threads.run("bob", lambda: "of bob") == "of bob"
        assert not waiting.done()
        blocked.release.set()
        assert await waiting == "next"


async def test_all_receivers_have_no_more_hanging_calls_than_slots() -> None:
    threads, blocked = DaemonThreads(2, each=1), Blocked()
    async with asyncio.timeout(DEADLINE_S):
        for name in ("alice", "bob", "carol", "dave"):
            await blocked.abandon_one(threads, name)
        with pytest.raises(TimeoutError):
            await threads.run("eve", lambda: "too much", begin_within_s=0.01)
        blocked.release.set()
        assert await threads.run("eve", lambda: "in time") == "in time"


async def test_a_call_that_does_not_begin_in_time_never_begins() -> None:
    threads, blocked = DaemonThreads(1, each=1), Blocked()
    begun: list[str] = []
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(threads.run("alice", blocked.call))
        await blocked.wait_begun()
        with pytest.raises(TimeoutError):
            await threads.run("bob", lambda: begun.append("bob"), begin_within_s=0.01)
        blocked.release.set()
        assert await first == "late"
        await threads.run("carol", lambda: begun.append("carol"), begin_within_s=DEADLINE_S)
    assert begun == ["carol"]


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
