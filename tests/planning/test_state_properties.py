"""Random callers and tasks: the tables hold, there is no cycle, the log replays to the state.

The checked checks after every change that each status followed its table, that what changed is
younger, that nothing waits for itself, and that the journal gives the same state again.
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planning.checked_objective import STATES, CheckedObjective

from openclaw_a2a.model.errors import CallerError
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.planning import rollup
from openclaw_a2a.planning.model import (
    ObjectiveStatus,
    PlanStatus,
    PlanTask,
    PlanTaskStatus,
)
from openclaw_a2a.planning.operations import encode_operation
from openclaw_a2a.planning.state import Change, ObjectiveState, replay
from openclaw_a2a.planning.steps import ready_tasks
from openclaw_a2a.planning.views import progress

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
METADATA = st.dictionaries(st.text(max_size=3), JSON, max_size=2)


class Caller:
    """Does anything that callers, agents and the executor may do, at random."""

    def __init__(self, checked: CheckedObjective, chance: random.Random, metadata: dict) -> None:
        self.checked = checked
        self.chance = chance
        self.metadata = metadata

    def act(self) -> None:
        acts = [
            *(self.create_plan, self.add_tasks, self.update_objective, self.update_plan),
            *(self.edit_task, self.replan, self.start, self.report),
        ]
        weights = [2, 1, 1, 2, 2, 0.3, 8, 12]
        self.chance.choices(acts, weights)[0]()

    def create_plan(self) -> None:
        plans = list(self.checked.state.plans)
        self.checked.call(
            "plans/create",
            objectiveId=self.checked.state.id,
            name="P",
            tasks=self._entries(),
            dependencies=self._some(plans, 2),
            metadata=self.metadata,
        )

    def add_tasks(self) -> None:
        self.checked.call(
            "plans/addTasks", id=self._plan(), tasks=self._entries() or [{"name": "x"}]
        )

    def update_objective(self) -> None:
        # The two ends are rare, or nothing would ever happen after them.
        usual = ["submitted", "planning", "working", "blocked", "failed"] * 5
        status = self.chance.choice([None, *usual, "completed", "canceled"])
        self.checked.call("objectives/update", id=self.checked.state.id, status=status)

    def update_plan(self) -> None:
        status = self.chance.choice(list(PlanStatus)).value
        self.checked.call("plans/update", id=self._plan(), status=status, metadata=self.metadata)

    def edit_task(self) -> None:
        task = self._task()
        edit: dict[str, object] = {"id": task.id}
        if self.chance.random() < 0.5:
            edit["status"] = self.chance.choice(list(PlanTaskStatus)).value
        if self.chance.random() < 0.5:
            edit["dependencies"] = self._some(list(self.checked.state.tasks), 2)
        self.checked.call("plans/update", id=task.plan_id, tasks=[edit])

    def replan(self) -> None:
        self.checked.call("objectives/replan", id=self.checked.state.id)

    def start(self) -> None:
        checked = self.checked
        task = self.chance.choice(ready_tasks(checked.state) or [self._task()])
        a2a_task_id = TaskId(f"a2a-{self.chance.randrange(10_000)}")
        checked.run(rollup.link_task, task.id, a2a_task_id)

    def report(self) -> None:
        checked = self.checked
        a2a_task_id = self._task().a2a_task_id or TaskId("nobody")
        now_in = self.chance.choice(list(STATES.values()))
        retry = self.chance.random() < 0.5
        before = progress(checked.state).done
        for _ in range(2):
            checked.run(rollup.report_task, a2a_task_id, now_in, will_retry=retry)
        assert checked.last == [], "a report is idempotent"
        assert progress(checked.state).done >= before

    def _plan(self) -> str:
        return self.chance.choice(list(self.checked.state.plans) or ["plan-zzz"])

    def _task(self) -> PlanTask:
        tasks = list(self.checked.state.tasks.values())
        if not tasks:
            raise CallerError("there is none")
        return self.chance.choice(tasks)

    def _entries(self) -> list[dict]:
        names = [f"task-{index}" for index in range(self.chance.randrange(4))]
        known = [*names, *self.checked.state.tasks]
        return [{"name": "T", "dependencies": self._some(known, 2)} for _ in names]

    def _some(self, items: list[str], most: int) -> list[str]:
        return self.chance.sample(items, min(len(items), self.chance.randrange(most + 1)))


def completed(state: ObjectiveState) -> set[str]:
    return {task.id for task in state.tasks.values() if task.status is PlanTaskStatus.COMPLETED}


@pytest.mark.requirement(
    "opt.rollup.way", "opt.object.objective-changes", "opt.object.plan-changes"
)
@given(st.integers(0, 2**32), METADATA)
def test_every_invariant_holds_after_random_actions(seed: int, metadata: dict) -> None:
    checked, chance = CheckedObjective(), random.Random(seed)
    checked.call("objectives/create", name="Party", metadata=metadata)
    caller = Caller(checked, chance, metadata)
    for _ in range(60):
        before, frozen = checked.state, b"\n".join(checked.log)
        done = completed(before)
        try:
            caller.act()
        except CallerError:
            assert checked.state is before, "all or nothing"
        assert replay(frozen.splitlines()).state == before, "the state before is as it was"
        assert done <= completed(checked.state)
        change = checked.new_change()
        rollup.roll_up(change)
        assert change.operations == [], "there is nothing left to roll up"
        assert 0 <= progress(checked.state).percent <= 100
        if chance.random() < 0.3:
            checked.tick(chance.randrange(-2, 5))


@given(st.integers(0, 2**32))
def test_a_log_cut_off_anywhere_leads_to_the_same_end(seed: int) -> None:
    """A crash may cut a change in two; when its tasks are reported again, all is as it was."""
    checked, chance = CheckedObjective(), random.Random(seed)
    checked.call("objectives/create", name="Party")
    tasks = [{"name": "A"}, {"name": "B"}]
    first = checked.call("plans/create", objectiveId="obj-n1", name="P", tasks=tasks)["plan"]["id"]
    checked.call(
        "plans/create",
        objectiveId="obj-n1",
        name="Q",
        tasks=[{"name": "C"}],
        dependencies=[first],
    )
    for _ in range(8):
        todo = ready_tasks(checked.state)
        if todo and chance.random() < 0.6:
            checked.start(chance.choice(todo).name)
        else:
            names = [task.name for task in checked.state.tasks.values() if task.a2a_task_id]
            if names:
                checked.report(chance.choice(names), chance.choice(["working", "completed"] * 3))
    if not checked.last:
        return
    kept = chance.randrange(len(checked.last))
    lines = [*checked.log[: len(checked.log) - len(checked.last)]]
    lines += [encode_operation(operation) for operation in checked.last[:kept]]
    state = replay(lines).state
    assert state is not None
    for task in checked.state.tasks.values():
        if task.a2a_task_id is None:
            continue
        if state.tasks[task.id].a2a_task_id is None:
            linked = Change(state, checked.context())
            rollup.link_task(linked, task.id, task.a2a_task_id)
            state = linked.state
        reported = Change(state, checked.context())
        rollup.report_task(reported, task.a2a_task_id, STATES[task.status.value])
        state = reported.state
    after = {plan.name: plan.status for plan in state.plans.values()}
    assert after == {plan.name: plan.status for plan in checked.state.plans.values()}
    assert state.objective.status is checked.state.objective.status
    assert state.is_archived == checked.state.is_archived


@given(st.integers(0, 2**32))
def test_running_what_is_ready_ends_and_respects_every_dependency(seed: int) -> None:
    checked, chance = CheckedObjective(), random.Random(seed)
    checked.call("objectives/create", name="Party")
    names: list[str] = []
    plans: list[str] = []
    for number in range(chance.randrange(1, 5)):
        size = chance.randrange(1, 6)
        entries = [
            {
                "name": f"{number}.{index}",
                "dependencies": [f"task-{one}" for one in range(index) if chance.random() < 0.4]
                + chance.sample(list(checked.state.tasks), min(len(names), chance.randrange(2))),
            }
            for index in range(size)
        ]
        needed = [plan for plan in plans if chance.random() < 0.3]
        made = checked.call(
            "plans/create",
            objectiveId="obj-n1",
            name=f"P{number}",
            tasks=entries,
            dependencies=needed,
        )
        plans.append(made["plan"]["id"])
        names += [entry["name"] for entry in entries]
    begun: list[str] = []
    running: list[str] = []
    while running or ready_tasks(checked.state):
        todo = ready_tasks(checked.state)
        if todo and (not running or chance.random() < 0.5):
            task = chance.choice(todo)
            assert all(
                checked.state.tasks[needed].status is PlanTaskStatus.COMPLETED
                for needed in task.dependencies
            )
            assert not checked.state.unfinished_dependencies(checked.state.plans[task.plan_id])
            checked.start(task.name)
            running.append(task.name)
            begun.append(task.name)
        else:
            checked.report(running.pop(chance.randrange(len(running))), "completed")
    assert sorted(begun) == sorted(names)
    assert checked.state.objective.status is ObjectiveStatus.COMPLETED
    assert progress(checked.state).percent == 100
