"""How long the full texts of large results are kept, also when the clock is wrong."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
from tests.captured_logs import capture_logs
from tests.conformance.manual_clock import ManualClock

from openclaw_a2a.app import build_app
from openclaw_a2a.settings import load_settings

DEADLINE_S = 240.0
LONG_AGO = timedelta(days=41)


@asynccontextmanager
async def open_gateway(folder: Path, clock: ManualClock, sweep_s: float) -> AsyncIterator[None]:
    config = folder / "gateway.json5"
    given: dict[str, Any] = {
        "store": {"kind": "memory"},
        "agents": {"main": {"adapter": "echo"}},
        "outbound": {"enabled": True, "targets": []},
        "retention": {"sweepSeconds": sweep_s},
    }
    config.write_text(json.dumps(given), encoding="utf-8")
    overrides = {"data": str(folder)}
    settings = load_settings(config, overrides=overrides, environ={"HOME": str(folder)}).settings
    async with build_app(settings, clock=clock):
        yield


def store_result(folder: Path, clock: ManualClock, letter: str, age: timedelta) -> Path:
    path = folder / "results" / "owner" / f"res_{letter * 30}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a long text", encoding="utf-8")
    os.utime(path, ((clock.now() - age).timestamp(),) * 2)
    return path


async def wait_for(is_so: Callable[[], bool]) -> None:
    with anyio.fail_after(DEADLINE_S):
        while not is_so():
            await anyio.wait_all_tasks_blocked()


async def wait_deleted(path: Path) -> None:
    await wait_for(lambda: not path.exists())


async def test_expired_results_are_deleted_by_a_sweep_not_at_the_start(tmp_path: Path) -> None:
    clock = ManualClock()
    old = store_result(tmp_path, clock, "a", LONG_AGO)
    with capture_logs() as logs:
        async with open_gateway(tmp_path, clock, 600):
            for _ in range(20):
                await anyio.wait_all_tasks_blocked()
                await asyncio.to_thread(lambda: None)
            assert old.exists()
            clock.advance(timedelta(seconds=601))
            await wait_for(lambda: "tools.results_purged" in {one["event"] for one in logs})
            assert not old.exists()
    [purged] = [one for one in logs if one["event"] == "tools.results_purged"]
    assert purged["results"] == 1


async def test_a_jump_of_the_clock_deletes_no_result(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_gateway(tmp_path, clock, 0.1):
        first = store_result(tmp_path, clock, "a", LONG_AGO)
        await wait_deleted(first)  # a sweep has seen the right time
        young = store_result(tmp_path, clock, "b", timedelta())
        # Expired by the right time, too: when it is gone, the sweep after the jump is over.
        expired = store_result(tmp_path, clock, "c", LONG_AGO)
        clock.advance(timedelta(days=40))
        await wait_deleted(expired)
        await wait_deleted(store_result(tmp_path, clock, "d", 2 * LONG_AGO))
        assert young.exists()
