"""Objectives that ended long ago are deleted; all others stay."""

import asyncio
from typing import Any

import anyio
import pytest
from tests.conformance.asgi_client import TIMEOUT_S
from tests.planning.gateway_harness import PlanningHarness
from tests.planning.test_step_retries import Ahead

Json = Any
SWEEP = {"retention.sweepSeconds": 0.01}


async def fails(_turn: Any) -> str:
    raise RuntimeError("never")


async def ended(harness: PlanningHarness, status: str) -> str:
    """An objective that has ended like this."""
    objective_id = await harness.objective(status)
    await harness.plan(objective_id, [{"name": "step"}])
    if status == "canceled":
        await harness.call("objectives/update", id=objective_id, status="canceled")
    else:
        harness.workers["main"].work = fails if status == "failed" else harness.workers["main"].done
        await harness.call("objectives/run", id=objective_id)
    await harness.ends(objective_id, status)
    return objective_id


async def listed(harness: PlanningHarness) -> list[str]:
    """The ids of all objectives, as a caller sees them."""
    page = await harness.call("objectives/list", pageSize=100)
    return [one["id"] for one in page["objectives"]]


async def until_listed(harness: PlanningHarness, ids: list[str]) -> None:
    with anyio.fail_after(TIMEOUT_S):
        while True:
            if await listed(harness) == ids:
                return
            await asyncio.sleep(0.005)  # it is asked again until then


@pytest.mark.parametrize("status", ["completed", "failed", "canceled"])
async def test_ended_objective_is_deleted_after_the_time_of_the_settings(
    harness: PlanningHarness, status: str
) -> None:
    objective_id = await ended(harness, status)
    still_open = await harness.objective("open")
    # Less than an hour: further, it would be a jump of the clock, which is held.
    harness.clock = Ahead(40 * 60)
    await harness.reopen({**SWEEP, "retention.objectiveSeconds": 30 * 60})
    await until_listed(harness, [still_open])
    error = await harness.fail("objectives/get", id=objective_id)
    assert error["code"] == -32050


async def test_objective_that_ended_a_while_ago_stays_until_its_time_is_over(
    harness: PlanningHarness,
) -> None:
    # Steps of less than an hour: further, they would be jumps of the clock, which are held.
    first = await ended(harness, "completed")
    harness.clock = Ahead(20 * 60)
    await harness.reopen()
    second = await ended(harness, "completed")
    harness.clock = Ahead(40 * 60)
    await harness.reopen({**SWEEP, "retention.objectiveSeconds": 30 * 60})
    await until_listed(harness, [second])
    await harness.reopen({**SWEEP, "retention.objectiveSeconds": 10 * 60})
    await until_listed(harness, [])
    assert first != second


async def test_change_of_an_ended_objective_starts_its_time_again(
    harness: PlanningHarness,
) -> None:
    old, changed = await ended(harness, "completed"), await ended(harness, "canceled")
    harness.clock = Ahead(20 * 60)
    await harness.reopen()
    await harness.call("objectives/update", id=changed, name="noted later")
    harness.clock = Ahead(40 * 60)
    await harness.reopen({**SWEEP, "retention.objectiveSeconds": 30 * 60})
    await until_listed(harness, [changed])
    assert old != changed
