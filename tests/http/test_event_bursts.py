"""Events that strangers cause are few lines in the log, and none is left out of the counts."""

import asyncio
from typing import Any

from openclaw_a2a.http.asgi import EventBursts

TIMEOUT_S = 60


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
