"""The gateway is killed at random times; every step is completed, and none is repeated.

`--rounds 200` is the long form: so many objectives.
"""

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.crash import gateway_process as crash
from tests.crash.gateway_process import DEADLINE_S, GatewayProcess, Json
from tests.planning.plan_server import TRACES

from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.store import create_store

# Twelve steps in three plans: a diamond, a line, and some that wait for nobody.
PLANS: list[tuple[list[int], list[tuple[str, list[int]]]]] = [
    ([], [("dig", []), ("stone!", [0]), ("wood", [0]), ("wall", [1, 2])]),
    ([], [("draw", []), ("ask", [0]), ("sign!", [1])]),
    ([0, 1], [("roof", []), ("door", []), ("paint", [1]), ("clean!", [0, 2]), ("feast", [3])]),
]
STEPS = sum(len(steps) for _, steps in PLANS)


@pytest.fixture
async def killable(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[GatewayProcess]:
    """A gateway process whose agent leaves traces."""
    monkeypatch.setattr(crash, "SERVER", Path(__file__).with_name("plan_server.py"))
    (tmp_path / TRACES).touch()
    gateway = GatewayProcess(tmp_path, request.param)
    yield gateway
    gateway.close()


class Beginning(NamedTuple):
    """An agent begins an A2A task, by the clock that all processes share."""

    task_id: str
    replica: str
    at: float


class Traces:
    """What the agent did, however often it was killed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / TRACES

    @property
    def begun(self) -> Counter[str]:
        """How often each A2A task was begun."""
        return Counter(one.task_id for one in self.beginnings)

    @property
    def beginnings(self) -> list[Beginning]:
        """When which replica began which A2A task, in this order."""
        lines = self._path.read_text(encoding="utf-8").splitlines()
        begun = [line.split(" ")[2:] for line in lines if line.startswith("begin")]
        return [Beginning(task_id, replica, float(at)) for task_id, replica, at in begun]

    @property
    def done(self) -> list[str]:
        """The names of steps, in the order in which they were first done."""
        lines = self._path.read_text(encoding="utf-8").splitlines()
        names = [line.split(" ")[1] for line in lines if line.startswith("done")]
        return list(dict.fromkeys(names))


async def call(gateway: GatewayProcess, method: str, **params: Json) -> Json:
    answer = await gateway.call("default", method, params)
    assert "result" in answer, answer
    return answer["result"]


async def make_objective(gateway: GatewayProcess) -> str:
    """An objective with the plans, not run yet."""
    made = await call(gateway, "objectives/create", name="house")
    objective_id, ids = made["objective"]["id"], list[str]()
    for needed, steps in PLANS:
        tasks = [
            {
                "name": name,
                "dependencies": [f"task-{one}" for one in before],
                "metadata": {"retries": 50},  # a run that is killed three times is given up
            }
            for name, before in steps
        ]
        wanted = {"objectiveId": objective_id, "name": "plan", "tasks": tasks}
        needed_ids = [ids[one] for one in needed]
        plan = await call(gateway, "plans/create", **wanted, dependencies=needed_ids)
        ids.append(plan["plan"]["id"])
    return objective_id


class Left:
    """What a dead gateway left in its store: the finished steps, and the finished tasks."""

    def __init__(self) -> None:
        self.steps: set[str] = set()
        self.tasks: set[str] = set()


async def what_is_left(folder: Path, kind: str, objective_id: str) -> Left:
    paths = {"sqlite": "state.db", "json-file": "tasks"}
    store = create_store(kind, path=str(folder / paths[kind]))
    await store.open()
    left = Left()
    try:
        stored = await store.logs.read_log("objective", objective_id)
        assert stored is not None
        lines = [json.loads(line.body) for line in stored.lines]
        for line in lines:
            if line["data"].get("status") == "completed" and line["op"] == "task.update":
                left.steps.add(line["data"]["id"])
        for task_id in {line["data"]["a2aTaskId"] for line in lines if line["op"] == "task.link"}:
            task = await store.tasks.read_task(None, TaskId(task_id))
            assert task is not None
            if task.head.state in (TaskState.COMPLETED, TaskState.FAILED):
                left.tasks.add(task_id)
    finally:
        await store.close()
    return left


async def until_ended(gateway: GatewayProcess, objective_id: str) -> Json:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            shown = (await call(gateway, "objectives/get", id=objective_id))["objective"]
            if shown["status"] in ("completed", "failed", "canceled"):
                return shown
            await asyncio.sleep(0.02)  # another process does it, and is asked how far it is


def check_order(objective: Json, done: list[str]) -> None:
    """Every step was done after those it depends on, and after the plans its plan depends on."""
    names = {task["id"]: task["name"] for plan in objective["plans"] for task in plan["tasks"]}
    plans = {plan["id"]: [task["name"] for task in plan["tasks"]] for plan in objective["plans"]}
    for plan in objective["plans"]:
        before_plan = [name for needed in plan["dependencies"] for name in plans[needed]]
        for task in plan["tasks"]:
            for name in [*before_plan, *(names[one] for one in task["dependencies"])]:
                assert done.index(name) < done.index(task["name"])


@pytest.mark.requirement("opt.bad.kill", "opt.run.restart")
@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("killable", "kind", "usual"),
    [("sqlite", "sqlite", 2), ("json-file", "json-file", 1)],
    indirect=["killable"],
)
async def test_a_plan_is_completed_and_no_step_repeated_however_often_the_gateway_is_killed(
    killable: GatewayProcess, tmp_path: Path, kind: str, usual: int, rounds: int | None
) -> None:
    chance = random.Random(os.environ.get("CRASH_SEED", "plans"))
    traces, kills = Traces(tmp_path), 0
    await killable.start()
    for _ in range(rounds or usual):
        objective_id = await make_objective(killable)
        await call(killable, "objectives/run", id=objective_id)
        finished: dict[str, int] = {}
        steps: set[str] = set()
        while len(steps) < STEPS and kills < 1000:
            await asyncio.sleep(chance.choice([0.0, 0.02, 0.06, 0.15, 0.3]))  # any moment
            killable.kill()
            kills += 1
            left = await what_is_left(tmp_path, kind, objective_id)
            assert left.steps >= steps, "a finished step was taken back"
            steps, begun = left.steps, traces.begun
            finished |= {one: begun[one] for one in left.tasks if one not in finished}
            if chance.random() < 0.2:
                killable.spawn()
                await asyncio.sleep(chance.uniform(0.3, 1.0))  # somewhere in its start
                killable.kill()
            await killable.start()
        ended = await until_ended(killable, objective_id)
        assert ended["status"] == "completed", killable.output()[-4000:]
        assert ended["progress"]["done"] == ended["progress"]["total"] == STEPS
        begun = traces.begun
        assert {one: begun[one] for one in finished} == finished, "a finished step ran again"
        tasks = [task for plan in ended["plans"] for task in plan["tasks"]]
        assert all(begun[task["a2aTaskId"]] >= 1 for task in tasks)
        check_order(ended, traces.done)
        killable.kill()
        (tmp_path / TRACES).write_text("", encoding="utf-8")
        await killable.start()
        again = (await call(killable, "objectives/get", id=objective_id))["objective"]
        assert again == ended
    print(f"{kills} kills")  # for who runs the long form
