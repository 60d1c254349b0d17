"""Background tasks: what fails is reported, what is stopped has ended."""

import asyncio

import pytest
from tests.captured_logs import capture_logs

from openclaw_a2a.engine.supervisor import Supervisor, TimeoutQueue
from openclaw_a2a.model.errors import StoreUnavailable


async def fail() -> None:
    raise ValueError("out of paper")


async def wait_for_ever() -> None:
    await asyncio.Event().wait()


async def test_a_job_that_raises_is_logged_with_its_name_and_error() -> None:
    supervisor = Supervisor()
    with capture_logs() as logs:
        await asyncio.wait({supervisor.spawn("print", fail())})
        await asyncio.sleep(0)
    [entry] = logs
    assert entry["event"] == "supervisor.job_failed"
    assert entry["job"] == "print"
    assert str(entry["exc_info"]) == "out of paper"


async def test_the_owner_of_a_started_task_gets_its_exception() -> None:
    supervisor = Supervisor()
    with capture_logs() as logs, pytest.raises(ValueError, match="out of paper"):
        await supervisor.start("print", fail())
    assert logs == []


async def test_a_loop_that_raises_or_returns_is_listed_as_dead() -> None:
    supervisor = Supervisor()
    with capture_logs():
        failed = supervisor.run_loop("printer", fail())
        returned = supervisor.run_loop("clock", asyncio.sleep(0))
        supervisor.run_loop("alive", wait_for_ever())
        await asyncio.wait({failed, returned})
        await asyncio.sleep(0)
    assert supervisor.dead_loops == {
        "printer": "ValueError: out of paper",
        "clock": "it returned",
    }
    assert await supervisor.stop() == []


async def test_a_loop_that_is_started_again_is_no_longer_dead() -> None:
    supervisor = Supervisor()
    with capture_logs():
        await asyncio.wait({supervisor.run_loop("printer", fail())})
        await asyncio.sleep(0)
    supervisor.run_loop("printer", wait_for_ever())
    assert supervisor.dead_loops == {}
    await supervisor.stop()


@pytest.mark.parametrize(
    ("error", "level", "reason"),
    [
        (StoreUnavailable("the disk is full"), "warning", "the disk is full"),
        (PermissionError(13, "not allowed"), "warning", "[Errno 13] not allowed"),
        (ValueError("out of paper"), "error", "ValueError: out of paper"),
    ],
)
async def test_a_repeated_call_that_raises_is_logged_and_made_again(
    error: Exception, level: str, reason: str
) -> None:
    pauses: list[float] = []
    has_succeeded, calls = asyncio.Event(), list[int]()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    async def work() -> None:
        calls.append(len(pauses))
        if len(calls) < 3:
            raise error
        has_succeeded.set()

    supervisor = Supervisor()
    with capture_logs() as logs:
        supervisor.run_every("printer", 60.0, work, sleep=pause)
        async with asyncio.timeout(240):
            await has_succeeded.wait()
        assert supervisor.dead_loops == {}
        assert await supervisor.stop() == []
    assert calls[:3] == [1, 2, 3]  # a pause before each call
    assert set(pauses) == {60.0}
    assert [(one["event"], one["log_level"], one["loop"], one["reason"]) for one in logs] == [
        ("supervisor.call_failed", level, "printer", reason)
    ] * 2


async def test_a_dead_loop_of_a_child_is_reported_by_its_parent() -> None:
    supervisor = Supervisor()
    with capture_logs():
        await asyncio.wait({supervisor.child("office").run_loop("printer", fail())})
        await asyncio.sleep(0)
    assert list(supervisor.dead_loops) == ["printer"]


async def test_stop_ends_every_task_and_reports_none_of_them_as_dead() -> None:
    supervisor = Supervisor()
    tasks = [
        supervisor.run_loop("loop", wait_for_ever()),
        supervisor.spawn("job", wait_for_ever()),
        supervisor.child("office").run_loop("below", wait_for_ever()),
    ]
    assert await supervisor.stop() == []
    assert all(task.cancelled() for task in tasks)
    assert supervisor.dead_loops == {}


async def test_stop_names_the_tasks_that_refuse_to_end() -> None:
    release = asyncio.Event()

    async def refuse() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    supervisor = Supervisor()
    stubborn = supervisor.spawn("stubborn", refuse())
    await asyncio.sleep(0)
    with capture_logs() as logs:
        assert await supervisor.stop(timeout_s=0.01) == ["stubborn"]
    assert logs[0]["event"] == "supervisor.tasks_not_ended"
    release.set()
    await stubborn


async def test_a_task_may_stop_its_own_supervisor() -> None:
    supervisor = Supervisor()

    async def stop_all() -> list[str]:
        return await supervisor.stop()

    assert await supervisor.start("stopper", stop_all()) == []


async def test_a_timer_that_raises_is_logged_once_listed_as_dead_and_called_again() -> None:
    calls: list[dict[str, str]] = []
    has_recovered = asyncio.Event()

    def work() -> float | None:
        calls.append(supervisor.dead_loops)
        if len(calls) < 3:
            raise ValueError("out of paper")
        has_recovered.set()
        return None

    supervisor = Supervisor()
    timer = supervisor.child("office").timer("printer", work, retry_s=0.01)
    with capture_logs() as logs:
        timer.start(0.01)
        async with asyncio.timeout(240):
            await has_recovered.wait()
    dead = {"printer": "ValueError: out of paper"}
    assert calls == [{}, dead, dead]
    assert supervisor.dead_loops == {}
    assert [(one["event"], one["loop"]) for one in logs] == [("supervisor.timer_failed", "printer")]
    assert timer.handle is None


async def test_a_timer_is_called_again_when_its_work_says() -> None:
    times: list[float] = []
    has_ended = asyncio.Event()

    def work() -> float | None:
        times.append(loop.time())
        if len(times) == 3:
            has_ended.set()
            return None
        timer.start(3600)  # ignored: the work decides
        return times[0] + 0.01 * len(times)

    loop = asyncio.get_running_loop()
    timer = Supervisor().timer("printer", work)
    timer.start(0)
    timer.start(3600)
    async with asyncio.timeout(240):
        await has_ended.wait()
    assert times[2] - times[0] >= 0.02


async def test_a_stopped_supervisor_calls_no_timer() -> None:
    supervisor = Supervisor()
    timer = supervisor.child("office").timer("printer", lambda: None)
    timer.start(3600)
    await supervisor.stop()
    assert timer.handle is None


async def test_what_is_not_taken_out_in_time_expires_in_the_order_of_the_starts() -> None:
    expired: list[str] = []
    has_all = asyncio.Event()

    def expire(name: str) -> None:
        expired.append(name)
        if name == "first, again":
            has_all.set()

    timeouts = TimeoutQueue("office", 0.01, expire, Supervisor())
    for name in ("first, again", "second", "third", "first, again"):
        timeouts.start(name)
    timeouts.pending.pop("second")
    async with asyncio.timeout(240):
        await has_all.wait()
    assert expired == ["third", "first, again"]
    assert timeouts.pending == {}


async def test_what_another_one_ends_or_begins_again_does_not_expire_with_it() -> None:
    clock = asyncio.get_running_loop().time
    expired: list[str] = []
    begun_again = 0.0
    is_over = asyncio.Event()

    def expire(name: str) -> None:
        nonlocal begun_again
        expired.append(name)
        if name == "first":
            begun_again = clock()
            timeouts.pending.pop("second")
            timeouts.start("third")
        else:
            assert clock() >= begun_again + timeouts.seconds
            is_over.set()

    timeouts = TimeoutQueue("office", 0.01, expire, Supervisor())
    for name in ("first", "second", "third"):
        timeouts.start(name)
    async with asyncio.timeout(240):
        await is_over.wait()
    assert expired == ["first", "third"]
    assert timeouts.pending == {}


async def test_one_timeout_that_fails_keeps_none_of_the_others() -> None:
    expired: list[str] = []
    has_last = asyncio.Event()

    def expire(name: str) -> None:
        expired.append(name)
        if name == "bad":
            raise ValueError("out of paper")
        has_last.set()

    timeouts = TimeoutQueue("office", 0.01, expire, Supervisor())
    timeouts.start("bad")
    timeouts.start("good")
    with capture_logs() as logs:
        async with asyncio.timeout(240):
            await has_last.wait()
    assert expired == ["bad", "good"]
    assert [one["event"] for one in logs] == ["supervisor.timer_failed"]
