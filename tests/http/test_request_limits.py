"""Limits of requests: lines in the log, and timers that survive an error."""

import asyncio
from typing import Any

from tests.captured_logs import capture_logs

from openclaw_a2a.http.request_limits import EventBursts

TIMEOUT_S = 240.0


async def test_the_first_event_is_a_line_and_the_others_are_its_count() -> None:
    lines: list[tuple[str, dict[str, Any]]] = []

    def write(event: str, **fields: Any) -> None:
        lines.append((event, fields))
        if len(lines) == 4:
            has_counts.set()

    has_counts = asyncio.Event()
    bursts = EventBursts(seconds=1)
    for number in range(100):
        bursts.report(write, "refused", {"client": "a"}, path=number)
        bursts.report(write, "refused", {"client": "b"}, path=number)
    assert lines == [("refused", {"client": one, "path": 0}) for one in "ab"]
    async with asyncio.timeout(TIMEOUT_S):
        await has_counts.wait()
    assert lines[2:] == [("refused", {"client": one, "count": 99, "seconds": 1}) for one in "ab"]
    bursts.report(write, "refused", {"client": "a"}, path=1)
    assert lines[4:] == [("refused", {"client": "a", "path": 1})]


async def test_events_of_any_number_of_kinds_are_a_bounded_number_of_lines() -> None:
    lines: list[dict[str, Any]] = []

    def write(_event: str, **fields: Any) -> None:
        lines.append(fields)

    bursts = EventBursts(seconds=3600)
    for number in range(20_000):
        bursts.report(write, "refused", {"client": str(number)})
    assert len(lines) < 5000
    assert lines[-1] == {"client": "others"}


async def test_a_line_that_cannot_be_written_holds_back_no_other_line() -> None:
    counts: list[int] = []
    has_count = asyncio.Event()

    def write(_event: str, *, client: str, count: int | None = None, **_fields: Any) -> None:
        if count is None:
            return
        if client == "broken":
            raise RuntimeError("the log is closed")
        counts.append(count)
        has_count.set()

    bursts = EventBursts(seconds=0.1)
    with capture_logs() as logs:
        for client in ("broken", "broken", "working", "working"):
            bursts.report(write, "refused", {"client": client})
        # Nothing else is reported, and the count of the second is written all the same.
        async with asyncio.timeout(TIMEOUT_S):
            await has_count.wait()
    assert counts == [1]
    assert [one["event"] for one in logs] == ["supervisor.timer_failed"]
