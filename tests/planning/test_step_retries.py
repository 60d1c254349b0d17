"""Retries of failed steps on a whole gateway."""

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from tests.planning.gateway_harness import PlanningHarness

Json = Any


class Ahead:
    """The machine's clock, put forward."""

    def __init__(self, seconds: float) -> None:
        self._ahead = timedelta(seconds=seconds)

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


def pause_of(objective: Json) -> float:
    """How long it is from the failure of the only step to its next try."""
    [retry] = objective["progress"]["retrying"]
    failed_at = datetime.fromisoformat(objective["plans"][0]["updatedAt"])
    return (datetime.fromisoformat(retry["nextAt"]) - failed_at).total_seconds()


async def tried(harness: PlanningHarness, objective_id: str, times: int) -> Json:
    """The objective, when its step failed so often."""
    return await harness.until(
        objective_id,
        lambda one: [r["attempts"] for r in one["progress"].get("retrying", [])] == [times],
    )


@pytest.mark.requirement("opt.run.retry", "opt.rollup.retry")
async def test_the_delay_before_a_retry_doubles(harness: PlanningHarness) -> None:
    async def work(_turn: Any) -> str:
        raise RuntimeError("never")

    harness.workers["main"].work = work
    objective_id = await harness.objective()
    step = {"name": "stubborn", "metadata": {"retries": 2, "backoffSeconds": 1000}}
    await harness.plan(objective_id, [step])
    await harness.call("objectives/run", id=objective_id)
    first = await tried(harness, objective_id, 1)
    assert (pause_of(first), first["plans"][0]["status"]) == (1000, "working")

    harness.clock = Ahead(900)
    await harness.reopen()
    other = await harness.objective("other")
    await harness.plan(other, [{"name": "meanwhile", "metadata": {"agent": "helper"}}])
    await harness.call("objectives/run", id=other)
    await harness.ends(other)
    assert harness.workers["main"].asked == ["stubborn"]

    harness.clock = Ahead(1100)
    await harness.reopen()
    second = await tried(harness, objective_id, 2)
    assert pause_of(second) == 2000
    harness.clock = Ahead(4000)
    await harness.reopen()
    ended = await harness.ends(objective_id, "failed")
    assert ended["plans"][0]["tasks"][0]["status"] == "failed"
    assert harness.workers["main"].asked == ["stubborn"] * 3


@pytest.mark.parametrize("how", ["objectives/run", "plans/update", "step"])
async def test_a_retry_that_a_caller_asks_for_starts_at_once(
    harness: PlanningHarness, how: str
) -> None:
    async def work(_turn: Any) -> str:
        if harness.workers["main"].asked.count("stubborn") == 1:
            raise RuntimeError("not yet")
        return "done"

    harness.workers["main"].work = work
    objective_id = await harness.objective()
    step = {"name": "stubborn", "metadata": {"retries": 0, "backoffSeconds": 1000}}
    plan = await harness.plan(objective_id, [step])
    await harness.call("objectives/run", id=objective_id)
    failed = await harness.ends(objective_id, "failed")
    if how == "step":
        task_id = failed["plans"][0]["tasks"][0]["id"]
        edit = {"id": task_id, "status": "pending"}
        await harness.call("objectives/update", id=objective_id, status="planning")
        await harness.call("plans/update", id=plan["id"], status="pending", tasks=[edit])
        await harness.call("objectives/run", id=objective_id)
    elif how == "plans/update":
        await harness.call("objectives/update", id=objective_id, status="planning")
        await harness.call(how, id=plan["id"], status="pending")
        await harness.call("objectives/run", id=objective_id)
    else:
        await harness.call(how, id=objective_id)
    ended = await harness.ends(objective_id)
    assert ended["plans"][0]["tasks"][0]["status"] == "completed"
    assert harness.workers["main"].asked == ["stubborn"] * 2
