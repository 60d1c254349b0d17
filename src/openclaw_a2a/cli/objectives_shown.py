"""Objectives as the gateway shows them, and the words for what they wait for."""

import math
from collections.abc import Iterator
from datetime import datetime

import msgspec

from openclaw_a2a.cli.call_shown import age, duration
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.message import JsonStruct

COMPLETED = "completed"
BLOCKED = "blocked"
PENDING = "pending"
OVER = frozenset({COMPLETED, "failed", "canceled"})
"""Nothing more happens to such an objective by itself."""

ACTIVE = frozenset({"submitted", "working"})
_DONE = frozenset({COMPLETED, "skipped"})
_SKIPPED = "skipped"
_ASKS = "input-required"
_WANTS = {_ASKS: "an answer", "auth-required": "a sign-in"}
_REASON = "opt/v1/blockedReason"
_PAUSED = "paused"
_MOST_NAME = 40
_NOT_BEGUN = frozenset({"submitted", "planning"})


class ShownStep(JsonStruct, frozen=True):
    """A task that is under way or waits, and since when."""

    task_id: str = ""
    plan_id: str = ""
    name: str = ""
    status: str = ""
    since: datetime | None = None


class ShownRetry(JsonStruct, frozen=True):
    """A task that failed, how often it was tried, and when it is tried again."""

    task_id: str = ""
    name: str = ""
    attempts: int = 0
    next_at: datetime | None = None


class ShownProgress(JsonStruct, frozen=True):
    """How far an objective is."""

    done: int = 0
    total: int = 0
    percent: int = 0
    current: tuple[ShownStep, ...] = ()
    oldest_waiting: ShownStep | None = None
    retrying: tuple[ShownRetry, ...] = ()


class ShownTask(JsonStruct, frozen=True):
    """A step of a plan; `said` is what it asks, or why it failed."""

    id: str
    name: str = ""
    status: str = PENDING
    dependencies: tuple[str, ...] = ()
    a2a_task_id: str = ""
    said: str = ""
    metadata: JsonObject = msgspec.field(default_factory=dict[str, object])

    @property
    def is_live(self) -> bool:
        """True when somebody works on it, or it waits for somebody."""
        return self.status in ACTIVE or self.status in _WANTS


class ShownPlan(JsonStruct, frozen=True):
    """A plan with its steps; `execution` tells whether it is carried out, or paused."""

    id: str
    name: str = ""
    status: str = PENDING
    dependencies: tuple[str, ...] = ()
    tasks: tuple[ShownTask, ...] = ()
    metadata: JsonObject = msgspec.field(default_factory=dict[str, object])
    execution: str = ""

    @property
    def done(self) -> int:
        """How many of its steps are completed."""
        return sum(task.status == COMPLETED for task in self.tasks)


class ShownObjective(JsonStruct, frozen=True):
    """An objective, and to whom it belongs; `execution` as for plans."""

    id: str
    name: str = ""
    status: str = "submitted"
    plans: tuple[ShownPlan, ...] = ()
    metadata: JsonObject = msgspec.field(default_factory=dict[str, object])
    created_at: datetime | None = None
    updated_at: datetime | None = None
    progress: ShownProgress = ShownProgress()
    principal: str = ""
    account: str = ""
    execution: str = ""

    @property
    def is_over(self) -> bool:
        """True when nothing more is to be expected."""
        return self.status in OVER

    @property
    def is_paused(self) -> bool:
        """True when no step begins until somebody resumes it."""
        return self.execution == _PAUSED and not self.is_over

    @property
    def asks(self) -> bool:
        """True when a step of it waits for an answer."""
        return any(task.status == _ASKS for _, task in self.steps())

    @property
    def reason(self) -> str:
        """Why it is blocked, if somebody wrote that down."""
        return one_line(str(self.metadata.get(_REASON, ""))) if self.status == BLOCKED else ""

    def steps(self) -> Iterator[tuple[ShownPlan, ShownTask]]:
        """Every step with its plan."""
        for plan in self.plans:
            for task in plan.tasks:
                yield plan, task

    def agent_of(self, plan: ShownPlan, task: ShownTask) -> str:
        """Who does a step, as far as somebody is named."""
        for metadata in (task.metadata, plan.metadata, self.metadata):
            named = metadata.get("agent")
            if isinstance(named, str) and named.strip():
                return named.strip()
        return ""


class ObjectiveList(JsonStruct, frozen=True):
    """The newest objectives, the newest first, and how many there are."""

    objectives: tuple[ShownObjective, ...] = ()
    total_size: int = 0


def one_line(text: str) -> str:
    """The text on one line."""
    return " ".join(text.split())


def short(name: str) -> str:
    """A name on one line, cut where it is too long."""
    line = one_line(name)
    return line if len(line) <= _MOST_NAME else f"{line[: _MOST_NAME - 1]}…"


def plan_note(objective: ShownObjective, plan: ShownPlan) -> str:
    """What a plan waits for."""
    if plan.execution == _PAUSED:
        return "paused"
    states = {one.id: one for one in objective.plans}
    missing = [
        short(states[one].name) if one in states else one
        for one in plan.dependencies
        if one not in states or states[one].status not in _DONE
    ]
    is_open = plan.status in {PENDING, BLOCKED}
    return f"after {', '.join(missing)}" if missing and is_open else ""


def task_note(
    objective: ShownObjective, plan: ShownPlan, task: ShownTask, now: datetime
) -> Iterator[str]:
    """Who does a step, since when, and what it waits for."""
    agent = objective.agent_of(plan, task)
    if agent:
        yield agent
    since = _since(objective, task)
    if task.status in _WANTS:
        yield f"waits for {_WANTS[task.status]}"
    elif task.status == PENDING:
        yield from _again(objective, task, now)
        yield from _before(plan, task)
    elif task.status != COMPLETED:
        yield task.status
    if since is not None:
        yield age(since, now)
    if task.a2a_task_id and task.status != PENDING:
        yield f"task {task.a2a_task_id[:8]}"
    if task.said:
        yield one_line(task.said)


def waiting_words(objective: ShownObjective, now: datetime) -> str:
    """The one thing that an objective waits for most; nothing when it goes on by itself."""
    waiting = objective.progress.oldest_waiting
    if objective.is_paused:
        return "somebody to resume it"
    if objective.reason:
        return objective.reason
    if waiting is not None:
        wanted = _WANTS.get(waiting.status, "somebody")
        said = [task.said for _, task in objective.steps() if task.id == waiting.task_id]
        question = f": {one_line(said[0])}" if said and said[0] else ""
        return f"{wanted} to {short(waiting.name)}, for {age(waiting.since, now)}{question}"
    if retry := _next_retry(objective):
        return f"another try of {short(retry.name)}, {_in(retry.next_at, now)}"
    if objective.status in _NOT_BEGUN and not objective.execution:
        return "somebody to run it" if objective.progress.total else "a plan"
    return ""


def working_words(objective: ShownObjective, now: datetime) -> str:
    """What is being worked on, by whom, and for how long."""
    agents = {task.id: objective.agent_of(plan, task) for plan, task in objective.steps()}
    told: list[str] = []
    for step in objective.progress.current:
        agent = agents.get(step.task_id)
        who = f" ({agent})" if agent else ""
        told.append(f"{short(step.name)}{who}, for {age(step.since, now)}")
    return "; ".join(told)


def _since(objective: ShownObjective, task: ShownTask) -> datetime | None:
    oldest = objective.progress.oldest_waiting
    known = [*objective.progress.current, *([oldest] if oldest else [])]
    return next((one.since for one in known if one.task_id == task.id), None)


def _again(objective: ShownObjective, task: ShownTask, now: datetime) -> Iterator[str]:
    for retry in objective.progress.retrying:
        if retry.task_id == task.id:
            times = "once" if retry.attempts == 1 else f"{retry.attempts} times"
            yield f"failed {times}, again {_in(retry.next_at, now)}"


def _next_retry(objective: ShownObjective) -> ShownRetry | None:
    """What is tried again next, where nothing else goes on."""
    if objective.progress.current or objective.is_over:
        return None
    return next(iter(objective.progress.retrying), None)


def _in(moment: datetime | None, now: datetime) -> str:
    wait_s = 0 if moment is None else math.ceil((moment - now).total_seconds())
    return f"in {duration(wait_s)}" if wait_s > 0 else "now"


def _before(plan: ShownPlan, task: ShownTask) -> Iterator[str]:
    states = {one.id: one for one in plan.tasks}
    missing = [
        short(states[one].name) if one in states else one
        for one in task.dependencies
        if one not in states or states[one].status != COMPLETED
    ]
    if missing and plan.status != _SKIPPED:
        yield f"after {', '.join(missing)}"
