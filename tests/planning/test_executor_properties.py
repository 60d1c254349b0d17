"""Random plans are executed in order, within limits, no step twice, always to an end."""

import asyncio
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planning.gateway_harness import PlanningHarness, asks, first_line, planning_harness_in

from openclaw_a2a.model.turn import Turn
from openclaw_a2a.planning.state import replay
from openclaw_a2a.store import create_store

Json = Any
AGENTS = ("main", "helper", "person")


class StepSpec:
    """A step as it is to go: what it waits for, how often it fails, what it asks."""

    def __init__(self, name: str, draw: st.DrawFn, before: list[str]) -> None:
        self.name = name
        some = st.lists(st.sampled_from(before), max_size=3, unique=True) if before else st.just([])
        self.needs: list[str] = draw(some)
        self.failures = draw(st.sampled_from([0, 0, 0, 1, 2]))
        self.retries = draw(st.sampled_from([0, 1, 2]))
        self.questions = draw(st.sampled_from([0, 0, 0, 1, 2]))
        self.agent = draw(st.sampled_from(AGENTS))
        self.pauses = draw(st.integers(0, 3))

    @property
    def attempts(self) -> int:
        """How often it is tried, when it is begun at all and its questions are answered."""
        return min(self.failures, self.retries) + 1

    def __repr__(self) -> str:
        return f"{self.name}({vars(self)})"


class Case:
    """Plans with their steps, and how they are run."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.parallel = draw(st.integers(1, 4))
        self.answers = draw(st.booleans())
        self.is_paused_first = draw(st.booleans())
        self.plans: list[tuple[list[int], list[StepSpec]]] = []
        names: list[str] = []
        for place in range(draw(st.integers(1, 4))):
            needed = draw(st.lists(st.integers(0, place - 1), unique=True)) if place else []
            specs: list[StepSpec] = []
            for number in range(draw(st.integers(1, 4))):
                specs.append(StepSpec(f"s{place}.{number}", draw, names))
                names.append(specs[-1].name)
            self.plans.append((needed, specs))

    @property
    def specs(self) -> dict[str, StepSpec]:
        return {spec.name: spec for _, specs in self.plans for spec in specs}

    def before(self, name: str) -> set[str]:
        """The steps that must be done before this one."""
        place = int(name[1:].partition(".")[0])
        waited = [spec.name for one in self.plans[place][0] for spec in self.plans[one][1]]
        return {*self.specs[name].needs, *waited}

    def __repr__(self) -> str:
        return f"Case(parallel={self.parallel}, answers={self.answers}, {self.plans})"


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any plans."""
    return Case(draw)


class Crew:
    """Agents that do as the case says, and notice what must not be."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._attempts: dict[str, list[str]] = {name: [] for name in case.specs}
        self._turns: Counter[str] = Counter()
        self._begun: set[str] = set()
        self._resumed: set[str] = set()
        self._names: dict[str, str] = {}
        self.done: set[str] = set()
        self.wrongs: list[str] = []
        """What must not be; an error in an agent would only be a step that fails."""

    async def work(self, turn: Turn) -> Any:
        """Do a step, or go on with it after an answer."""
        name = self._names.setdefault(turn.task_id, first_line(turn))
        spec = self._case.specs[name]
        self._turns[turn.task_id] += 1
        is_new = self._turns[turn.task_id] == 1
        running = self._begun if is_new else self._resumed
        if is_new:
            self._check_begin(name, turn)
        running.add(turn.task_id)
        for _ in range(spec.pauses):
            await asyncio.sleep(0)
        running.discard(turn.task_id)
        if len(self._attempts[name]) <= spec.failures:
            raise RuntimeError(f"{name} fails")
        if self._turns[turn.task_id] <= spec.questions:
            return asks(f"{name}?")
        self.done.add(name)
        return f"result of {name}"

    def _check_begin(self, name: str, turn: Turn) -> None:
        if not self._case.before(name) <= self.done:
            self.wrongs.append(f"{name} began too early")
        if name in self.done:
            self.wrongs.append(f"{name} was done before")
        for needed in self._case.specs[name].needs:
            if f"result of {needed}" not in turn.body:
                self.wrongs.append(f"{name} did not get the result of {needed}")
        self._attempts[name].append(turn.task_id)
        # Steps that go on after an answer are not held back, new ones are.
        if len(self._begun) >= self._case.parallel:
            self.wrongs.append(f"{name} began beside {len(self._begun)} others")

    @property
    def attempts(self) -> dict[str, int]:
        """How often each step was tried."""
        return {name: len(tasks) for name, tasks in self._attempts.items()}


async def make(harness: PlanningHarness, case: Case) -> str:
    """The objective of a case."""
    objective_id = await harness.objective()
    plan_ids: list[str] = []
    task_ids: dict[str, str] = {}
    for needed, specs in case.plans:
        plan = await harness.plan(objective_id, [], dependencies=[plan_ids[one] for one in needed])
        plan_ids.append(plan["id"])
        for spec in specs:
            entry = {
                "name": spec.name,
                "dependencies": [task_ids[one] for one in spec.needs],
                "metadata": {"retries": spec.retries, "backoffSeconds": 0, "agent": spec.agent},
            }
            added = await harness.call("plans/addTasks", id=plan["id"], tasks=[entry])
            task_ids[spec.name] = added["plan"]["tasks"][-1]["id"]
    return objective_id


def can_go_on(objective: Json) -> bool:
    """True when something runs, or could begin."""
    plans = {plan["id"]: plan for plan in objective["plans"]}
    tasks = {task["id"]: task for plan in plans.values() for task in plan["tasks"]}
    if any(task["status"] in ("submitted", "working") for task in tasks.values()):
        return True
    return any(
        task["status"] == "pending"
        and plan["status"] in ("pending", "working", "blocked")
        and all(tasks[one]["status"] == "completed" for one in task["dependencies"])
        and all(plans[one]["status"] == "completed" for one in plan["dependencies"])
        for plan in plans.values()
        for task in plan["tasks"]
    )


async def run(harness: PlanningHarness, case: Case, objective_id: str) -> Json:
    """Run an objective until nothing more happens by itself."""
    if case.is_paused_first:
        await harness.call("objectives/pause", id=objective_id)
        await harness.reopen({"opt.parallel": case.parallel})
        assert not any(worker.turns for worker in harness.workers.values())
    await harness.call("objectives/run", id=objective_id)
    for number in count():
        shown = await harness.until(
            objective_id, lambda one: not can_go_on(one) or "oldestWaiting" in one["progress"]
        )
        waiting = shown["progress"].get("oldestWaiting")
        if waiting is None or not case.answers:
            return await harness.until(objective_id, lambda one: not can_go_on(one))
        message = {
            "messageId": f"answer {number}",
            "role": "ROLE_USER",
            "parts": [{"text": "yes"}],
            "contextId": objective_id,
            "metadata": {"opt/v1/taskId": waiting["taskId"]},
        }
        await harness.ask("SendMessage", {"message": message})  # it may have an answer by now
    raise AssertionError("counting does not end")


def lost_plans(objective: Json) -> set[str]:
    """The open plans of which all that is left waits for something that failed.

    A question in a failed plan may still be answered: then its step is done, and others go on.
    """
    dead = {one["id"] for one in objective["plans"] if one["status"] == "failed"}
    tasks = [(plan, task) for plan in objective["plans"] for task in plan["tasks"]]
    dead |= {task["id"] for _, task in tasks if task["status"] == "failed"}
    opened = [
        one for one in objective["plans"] if one["status"] in ("pending", "working", "blocked")
    ]
    for _ in range(len(tasks) + len(opened)):
        for plan, task in tasks:
            needed = {*plan["dependencies"], *task["dependencies"]}
            if task["status"] == "pending" and (plan not in opened or needed & dead):
                dead.add(task["id"])
        for plan in opened:
            needed = {*plan["dependencies"], *(task["id"] for task in plan["tasks"])}
            dead |= {plan["id"]} if needed & dead else set()
    return {
        plan["id"]
        for plan in opened
        if plan["id"] in dead
        and all(one["id"] in dead for one in plan["tasks"] if one["status"] != "completed")
    }


def check_end(case: Case, crew: Crew, ended: Json) -> None:
    """What must be true when nothing more happens."""
    assert crew.wrongs == []
    tasks = {task["name"]: task for plan in ended["plans"] for task in plan["tasks"]}
    statuses = {name: task["status"] for name, task in tasks.items()}
    assert {name for name, one in statuses.items() if one == "completed"} == crew.done
    assert ended["progress"]["done"] == len(crew.done)
    assert ended["progress"]["current"] == []
    for name, tries in crew.attempts.items():
        spec = case.specs[name]
        assert tries <= spec.attempts
        if statuses[name] in ("completed", "failed"):
            assert tries == spec.attempts
            assert (statuses[name] == "completed") == (spec.failures <= spec.retries)
    plans, lost = {plan["status"] for plan in ended["plans"]}, lost_plans(ended)
    if plans == {"completed"}:
        assert ended["status"] == "completed"
    elif any(plan["status"] == "blocked" and plan["id"] not in lost for plan in ended["plans"]):
        assert ended["status"] == "blocked"
        assert "waits for an answer" in ended["reason"]
    else:
        # All that is left waits for what failed.
        assert ended["status"] == "failed"
        assert plans - {"completed", "blocked"} == {"failed"}
        assert "failed" in ended["reason"]


async def play(case: Case, folder: Path) -> None:
    """Make, run and look at one case."""
    store, crew = create_store("memory", path=None), Crew(case)

    async with planning_harness_in(folder, "memory") as harness:
        harness.store = store
        for worker in harness.workers.values():
            worker.work = crew.work
        await harness.open({"opt.parallel": case.parallel})
        objective_id = await make(harness, case)
        ended = await run(harness, case, objective_id)
        check_end(case, crew, ended)
        stored = await store.logs.read_log("objective", objective_id)
        assert stored is not None
        rebuilt = replay(line.body for line in stored.lines)
        assert rebuilt.warnings == ()
        assert rebuilt.state is not None
        attempts = crew.attempts
        await harness.reopen({"opt.parallel": case.parallel})
        assert await harness.get(objective_id) == ended
        assert crew.attempts == attempts, "nothing is begun again"
        assert rebuilt.state.seq == len(stored.lines)


@pytest.mark.requirement(
    "opt.run.begins", "opt.run.limit", "opt.rollup.ready", "opt.storage.replay"
)
@given(case=cases())
def test_random_plans_are_run_in_order_within_limits_once_and_to_an_end(
    case: Case, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("random-plans")
    asyncio.run(play(case, folder))
