"""Steps that fail on a whole gateway: when they are tried again."""

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from tests.planning.gateway_harness import PlanningGateway

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


async def tried(workshop: PlanningGateway, objective_id: str, times: int) -> Json:
    """The objective, when its step failed so often."""
    return await workshop.until(
        objective_id,
        lambda one: [r["attempts"] for r in one["progress"].get("retrying", [])] == [times],
    )


@pytest.mark.requirement("opt.run.retry", "opt.rollup.retry")
async def test_the_pause_before_a_step_is_tried_again_doubles(workshop: PlanningGateway) -> None:
    async def work(_turn: Any) -> str:
        raise RuntimeError("never")

    workshop.workers["main"].work = work
    objective_id = await workshop.objective()
    step = {"name": "stubborn", "metadata": {"retries": 2, "backoffSeconds": 1000}}
    await workshop.plan(objective_id, [step])
    await workshop.call("objectives/run", id=objective_id)
    first = await tried(workshop, objective_id, 1)
    assert (pause_of(first), first["plans"][0]["status"]) == (1000, "working")

    workshop.clock = Ahead(900)
    await workshop.reopen()
    other = await workshop.objective("other")
    await workshop.plan(other, [{"name": "meanwhile", "metadata": {"agent": "helper"}}])
    await workshop.call("objectives/run", id=other)
    await workshop.ends(other)
    assert workshop.workers["main"].asked == ["stubborn"]

    workshop.clock = Ahead(1100)
    await workshop.reopen()
    second = await tried(workshop, objective_id, 2)
    assert pause_of(second) == 2000
    workshop.clock = Ahead(4000)
    await workshop.reopen()
    ended = await workshop.ends(objective_id, "failed")
    assert ended["plans"][0]["tasks"][0]["status"] == "failed"
    assert workshop.workers["main"].asked == ["stubborn"] * 3
