"""The writer thread: a failing group fails alone, and a dead thread fails every write."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import pytest
from tests.captured_logs import capture_logs

from openclaw_a2a.model.errors import StoreUnavailable, TaskNotFound
from openclaw_a2a.store.group_writer import GroupWriter, Write, WriteOutcome


def write_group(group: Sequence[Write[str | BaseException]]) -> list[WriteOutcome]:
    """A group commit that knows refusals only: any other error of a write escapes from it."""
    outcomes: list[WriteOutcome] = []
    for write in group:
        try:
            if isinstance(write.command, BaseException):
                raise write.command
            outcomes.append((write, write.command, None))
        except TaskNotFound as error:
            outcomes.append((write, None, error))
    return outcomes


@pytest.fixture
async def writer() -> AsyncIterator[GroupWriter[Any]]:
    writer: GroupWriter[Any] = GroupWriter("test", write_group)
    writer.start()
    with anyio.fail_after(240):
        yield writer
        await writer.stop()


async def test_writes_are_performed_in_call_order(writer: GroupWriter[Any]) -> None:
    written = await asyncio.gather(*[writer.write(str(number)) for number in range(2000)])
    assert written == [str(number) for number in range(2000)]


async def test_a_refused_write_fails_alone(writer: GroupWriter[Any]) -> None:
    outcomes = await asyncio.gather(
        writer.write("a"),
        writer.write(TaskNotFound("no such task")),
        writer.write("b"),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [str, TaskNotFound, str]


@pytest.mark.parametrize("error", [ValueError("a bug"), MemoryError(), RuntimeError("a bug")])
async def test_a_group_that_fails_fails_its_own_writes_only(
    writer: GroupWriter[Any], error: Exception
) -> None:
    with capture_logs() as logs:
        outcomes = await asyncio.gather(
            writer.write("a"), writer.write(error), return_exceptions=True
        )
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 2
    assert [entry["event"] for entry in logs] == ["store.group_failed"]
    assert await writer.write("next") == "next"
    writer.check()


async def test_a_dead_thread_is_reported_and_fails_every_write(
    writer: GroupWriter[Any],
) -> None:
    """Without the thread every write waited for ever, and nothing was logged."""
    with capture_logs() as logs:
        outcomes = await asyncio.gather(
            writer.write("a"), writer.write(SystemExit()), return_exceptions=True
        )
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 2
    assert [entry["event"] for entry in logs] == ["store.writer_died"]
    with pytest.raises(StoreUnavailable, match="has died"):
        await writer.write("later")
    with pytest.raises(StoreUnavailable, match="has died"):
        writer.check()


async def test_writes_are_refused_before_the_start_and_after_the_stop() -> None:
    writer: GroupWriter[Any] = GroupWriter("test", write_group)
    with pytest.raises(StoreUnavailable, match="not open"):
        await writer.write("early")
    writer.start()
    pending = writer.write("accepted")
    await writer.stop()
    assert await pending == "accepted"
    with pytest.raises(StoreUnavailable, match="not open"):
        writer.check()
