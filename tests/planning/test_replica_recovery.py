"""Replicas are killed and paused while they execute a plan; no finished step is begun again.

`--rounds 50` is the long form: so many objectives.
"""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from tests.crash.gateway_process import DEADLINE_S, TERMINAL, GatewayProcess, Json
from tests.planning.plan_server import TRACES
from tests.planning.test_kill_recovery import (
    STEPS,
    Beginning,
    Traces,
    call,
    check_order,
    make_objective,
)
from tests.postgres_server import PostgresServer
from tests.replicas.history import read_losses

T = TypeVar("T")

LEASE_S = 3.0
_FAULTS = 6


class Replicas:
    """The processes, and what was seen of an objective at any of them."""

    def __init__(self, processes: list[GatewayProcess], traces: Traces) -> None:
        self.processes = processes
        self.traces = traces
        self.completed: set[str] = set()
        self.finished: dict[str, int] = {}
        """The finished tasks, and how often each was begun when it was first seen so."""
        self.pauses: list[tuple[str, float, float]] = []
        """Which replica was paused, from when to when."""

    async def look(self, at: GatewayProcess, objective_id: str) -> Json:
        """The objective as it is; what was finished must still be."""
        shown = (await call(at, "objectives/get", id=objective_id))["objective"]
        steps = [step for plan in shown["plans"] for step in plan["tasks"]]
        completed = {step["id"] for step in steps if step["status"] == "completed"}
        assert completed >= self.completed, "a finished step was taken back"
        self.completed = completed
        for task_id in [step["a2aTaskId"] for step in steps if step.get("a2aTaskId")]:
            if task_id not in self.finished:
                task = await call(at, "GetTask", id=task_id)
                if task["status"]["state"] in TERMINAL:
                    self.finished[task_id] = self.traces.begun[task_id]
        return shown

    async def harm(self, one: GatewayProcess, chance: random.Random) -> None:
        """Kill a replica and start it again, or pause it for longer than its lease."""
        if chance.random() < 0.4:
            began = time.monotonic()
            one.pause()
            await asyncio.sleep(LEASE_S * 2)  # that it is taken for dead
            one.resume()
            name = f"replica-{self.processes.index(one)}"
            self.pauses.append((name, began, time.monotonic()))
        else:
            one.kill()
            await one.start()

    def begun_again(self) -> list[Beginning]:
        """What was begun after it was finished, by a replica that can know that it was.

        One that was paused, or had no core for longer than its lease, may have been about to begin
        a task, and does that before it notices that another replica has finished it.
        """
        outputs = {str(place): one.output() for place, one in enumerate(self.processes)}
        losses = read_losses(outputs, LEASE_S, time.time() - time.monotonic())
        spans = self.pauses + [(one.replica, one.began, one.ended) for one in losses]
        left, late = Counter(self.finished), list[Beginning]()
        for one in self.traces.beginnings:
            if one.task_id in self.finished:
                left[one.task_id] -= 1
                if left[one.task_id] < 0:
                    late.append(one)
        return [
            one
            for one in late
            if not any(
                one.replica == replica and began <= one.at <= ended + LEASE_S
                for replica, began, ended in spans
            )
        ]


@pytest.fixture
async def replicas(tmp_path: Path, postgres: PostgresServer) -> AsyncIterator[Replicas]:
    server = Path(__file__).with_name("plan_server.py")
    traces = tmp_path / TRACES
    traces.touch()
    async with postgres.borrow_schema() as schema:
        processes: list[GatewayProcess] = []
        for number in range(3):
            folder = tmp_path / f"replica-{number}"
            folder.mkdir()
            place = (postgres.url(), schema, str(traces))
            processes.append(GatewayProcess(folder, "postgres", *place, server=server))
        try:
            for one in processes:
                await one.start()
            yield Replicas(processes, Traces(tmp_path))
        finally:
            for one in processes:
                with suppress(ProcessLookupError):
                    one.resume()
                one.close()


async def settle(one: GatewayProcess) -> None:
    """Wait until a replica writes again: one that was paused first learns that it lost its name."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            answer = await one.call("default", "objectives/create", {"name": "probe"})
            if "result" in answer:
                await call(one, "objectives/delete", id=answer["result"]["objective"]["id"])
                return
            await asyncio.sleep(0.1)  # another process does it


async def until_accepted(ask: Callable[[], Awaitable[T]]) -> T:
    """What is asked for, as soon as a replica does it.

    A replica that had no core for longer than its lease refuses a write, once.
    """
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                return await ask()
            except AssertionError as refused:
                print(f"refused: {refused}")
            await asyncio.sleep(0.1)  # another process gets a new id


@pytest.mark.slow
@pytest.mark.timeout(0)
async def test_a_plan_is_completed_and_no_finished_step_begun_again_whatever_replica_fails(
    replicas: Replicas, tmp_path: Path, rounds: int | None
) -> None:
    chance = random.Random(os.environ.get("CRASH_SEED", "plans"))
    faults = 0
    for _ in range(rounds or 3):
        for one in replicas.processes:
            await settle(one)
        owner = chance.choice(replicas.processes)
        objective_id = await until_accepted(partial(make_objective, owner))
        runner = chance.choice(replicas.processes)
        await until_accepted(partial(call, runner, "objectives/run", id=objective_id))
        left = _FAULTS
        async with asyncio.timeout(DEADLINE_S * 4):
            while True:
                await asyncio.sleep(chance.choice([0.0, 0.05, 0.15]))  # any moment
                harmed = chance.choice(replicas.processes)
                others = [one for one in replicas.processes if one is not harmed]
                harming = None
                if left:
                    left, faults = left - 1, faults + 1
                    harming = asyncio.create_task(replicas.harm(harmed, chance))
                shown = await replicas.look(chance.choice(others), objective_id)
                if harming is not None:
                    await harming
                if shown["status"] in ("completed", "failed", "canceled"):
                    break
        assert shown["status"] == "completed", [one.output() for one in replicas.processes]
        assert shown["progress"]["done"] == shown["progress"]["total"] == STEPS
        for one in replicas.processes:
            assert await replicas.look(one, objective_id) == shown
        assert replicas.begun_again() == []
        check_order(shown, replicas.traces.done)
        (tmp_path / TRACES).write_text("", encoding="utf-8")
        replicas.completed, replicas.finished = set(), {}
    print(f"{faults} faults")  # for who runs the long form
