"""One objective, called by method name with JSON params; every change is checked against the
tables of the contract."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.planning import commands, rollup
from openclaw_a2a.planning.commands import check_acyclic
from openclaw_a2a.planning.model import PlanLimits, PlanTaskId
from openclaw_a2a.planning.operations import Operation, encode_operation
from openclaw_a2a.planning.params import parse_params
from openclaw_a2a.planning.rollup import running_tasks
from openclaw_a2a.planning.state import Change, CommandContext, ObjectiveState, apply, replay

# The contract's section 2, written down a second time.
OBJECTIVES = {
    "submitted": "planning working canceled",
    "planning": "working blocked failed canceled",
    "working": "blocked completed failed canceled",
    "blocked": "planning working failed canceled",
    "completed": "",
    "failed": "submitted planning",
    "canceled": "submitted",
}
PLANS = {
    "pending": "working blocked skipped",
    "working": "blocked completed failed",
    "blocked": "pending working failed skipped",
    "failed": "pending working",
    "completed": "",
    "skipped": "",
}

STATES = {
    "submitted": TaskState.SUBMITTED,
    "working": TaskState.WORKING,
    "input-required": TaskState.INPUT_REQUIRED,
    "auth-required": TaskState.AUTH_REQUIRED,
    "completed": TaskState.COMPLETED,
    "failed": TaskState.FAILED,
    "canceled": TaskState.CANCELED,
    "rejected": TaskState.REJECTED,
}


def as_json(thing: object) -> object:
    return json.loads(msgspec.json.encode(thing))


class CheckedObjective:
    """An objective, its operation log, and a clock that stands still unless it is moved."""

    def __init__(self, limits: PlanLimits | None = None) -> None:
        self.limits = limits or PlanLimits()
        self.now = datetime(2026, 1, 5, 10, tzinfo=UTC)
        self.log: list[bytes] = []
        self.last: list[Operation] = []
        self._count = 0
        self._state: ObjectiveState | None = None

    @property
    def state(self) -> ObjectiveState:
        assert self._state is not None
        return self._state

    @property
    def running(self) -> list[str]:
        """The A2A tasks that have not ended."""
        return list(running_tasks(self.state))

    @property
    def objective(self) -> dict:
        return as_json(self.state.to_objective())

    def plan(self, name: str) -> dict:
        return next(plan for plan in self.objective["plans"] if plan["name"] == name)

    def task(self, name: str) -> dict:
        plans = self.objective["plans"]
        return next(task for plan in plans for task in plan["tasks"] if task["name"] == name)

    @property
    def statuses(self) -> dict[str, str]:
        """Every name with its status."""
        objective = self.objective
        found = {objective["name"]: objective["status"]}
        for plan in objective["plans"]:
            found[plan["name"]] = plan["status"]
            found |= {task["name"]: task["status"] for task in plan["tasks"]}
        return found

    def context(self) -> CommandContext:
        return CommandContext(self.now, self._new_id, self.limits)

    def tick(self, ms: int = 1000) -> None:
        self.now += timedelta(milliseconds=ms)

    def call(self, method: str, **params: object) -> dict:
        """A method of the contract; its result as JSON."""
        wanted = parse_params(method, params)
        match method:
            case "objectives/create":
                self.apply_change(commands.create_objective(wanted, self.context()))
            case "objectives/update":
                self.run(commands.update_objective, wanted)
            case "objectives/replan":
                self.run(commands.replan)
            case "objectives/get":
                shown = self.state.to_objective(
                    with_plans=wanted.include_plans, with_tasks=wanted.include_tasks
                )
                return {"objective": as_json(shown)}
            case "objectives/delete":
                commands.check_delete(self.state, wanted)
                return {"deleted": True}
            case _:
                return {"plan": self._call_plan(method, wanted)}
        return {"objective": self.objective}

    def _call_plan(self, method: str, wanted) -> dict:
        match method:
            case "plans/create":
                self.run(commands.create_plan, wanted)
                return as_json(self.state.plan_with_tasks(list(self.state.plans)[-1]))
            case "plans/update":
                self.run(commands.update_plan, wanted)
            case "plans/addTasks":
                self.run(commands.add_tasks, wanted)
            case "plans/get":
                return as_json(
                    self.state.plan_with_tasks(wanted.id, with_tasks=wanted.include_tasks)
                )
        return as_json(self.state.plan_with_tasks(wanted.id))

    def start(self, name: str, a2a_task_id: str | None = None) -> None:
        """An A2A task begins to do the plan task with this name."""
        task_id = PlanTaskId(self.task(name)["id"])
        a2a_task_id = TaskId(a2a_task_id or f"a2a-{name}")
        self.run(rollup.link_task, task_id, a2a_task_id)

    def report(self, name: str, state: str, **how: bool) -> None:
        """The A2A task that does the plan task is in this state now."""
        a2a_task_id = TaskId(self.task(name).get("a2aTaskId", "nobody"))
        self.run(rollup.report_task, a2a_task_id, STATES[state], **how)

    def finish(self, *names: str) -> None:
        for name in names:
            self.start(name)
            self.report(name, "working")
            self.report(name, "completed")

    def new_change(self) -> Change:
        return Change(self.state, self.context())

    def run(self, command: Callable, *args: object, **how: object) -> None:
        """Run a command and write what it changes."""
        change = self.new_change()
        command(change, *args, **how)
        self.apply_change(change)

    def apply_change(self, change: Change) -> None:
        """Write a change, and check what must be true of every change."""
        before = self._state
        state = before
        for operation in change.operations:
            check_step(state, operation)
            state, warning = apply(None if state is None else state.copy(), operation)
            assert warning is None
        assert state == change.state or (state == before and not change.operations)
        self.last = list(change.operations)
        self.log += [encode_operation(operation) for operation in change.operations]
        if change.operations:
            check_younger(before, change)
            check_acyclic(change.state)
        self._state = change.state
        assert replay(self.log) == msgspec.structs.replace(replay(()), state=self._state), (
            "the log gives another state"
        )

    def _new_id(self) -> str:
        self._count += 1
        return f"n{self._count}"


def check_step(state: ObjectiveState | None, operation: Operation) -> None:
    """A status changes along the tables only."""
    if state is None or getattr(operation.data, "status", None) is None:
        return
    item_id, new = operation.data.id, operation.data.status.value
    if item_id == state.id:
        old, table = state.objective.status.value, OBJECTIVES
    elif item_id in state.plans:
        old, table = state.plans[item_id].status.value, PLANS
    else:
        return
    assert old == new or new in table[old].split(), f"{item_id}: {old} -> {new}"


def check_younger(before: ObjectiveState | None, change: Change) -> None:
    """Whatever changed is younger than before, and so is what it belongs to."""
    if before is None:
        return
    assert change.state.objective.updated_at > before.objective.updated_at
    for plan_id, plan in change.state.plans.items():
        old = before.plans.get(plan_id)
        tasks = [before.tasks.get(task_id) for task_id in change.state.task_ids[plan_id]]
        same = old == plan and tasks == [
            change.state.tasks[t] for t in change.state.task_ids[plan_id]
        ]
        assert same or old is None or plan.updated_at > old.updated_at
