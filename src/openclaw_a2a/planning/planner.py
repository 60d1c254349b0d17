"""Lets an agent make the plans of an objective, and validates them before they are added."""

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from openclaw_a2a.engine.engine import AccountRules, Engine
from openclaw_a2a.engine.tasks.active_task import TaskCreated
from openclaw_a2a.engine.tasks.cancel import cancel_task
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.results import wait_created
from openclaw_a2a.engine.tasks.submit import InternalOrigin, SubmitRequest, submit
from openclaw_a2a.engine.transcript.task_text import find_json_objects, last_agent_text, status_text
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    CallerError,
    GatewayError,
    InvalidParams,
    StatusChangeNotAllowed,
)
from openclaw_a2a.model.ids import AgentId, ContextId, Json, JsonObject, MessageId, TaskId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.records import StoredTask
from openclaw_a2a.model.task import TaskState, is_terminal
from openclaw_a2a.model.validation import as_list, is_list, is_object
from openclaw_a2a.planning.commands import create_plan, update_objective
from openclaw_a2a.planning.model import OBJECTIVE_ENDED, ObjectiveStatus, PlanId
from openclaw_a2a.planning.params import CreatePlan, UpdateObjective, parse_as
from openclaw_a2a.planning.repository import ObjectiveRepository
from openclaw_a2a.planning.state import Change, ObjectiveState
from openclaw_a2a.planning.steps import OBJECTIVE_KEY, objective_session
from openclaw_a2a.planning.task_sync import StepLink, TaskSync

log = get_logger(__name__)

REASON_KEY = "opt/v1/blockedReason"
TRIES_KEY = "opt/v1/plannerTries"
"""How many answers were not usable. Running the objective again asks under new message ids."""
_MAX_ATTEMPTS = 2
_MAX_TRIES = 10_000
_INSTRUCTIONS = """Make plans for this objective. Answer with one JSON object and nothing else:
{"plans": [{"name": "...", "description": "...", "dependencies": [0],
  "tasks": [{"name": "...", "description": "...", "dependencies": ["task-0"],
             "metadata": {"agent": "..."}}]}]}
A dependency of a plan is the number of an earlier plan, counted from 0; one of a task is
task-<number> of an earlier task of the same plan. Leave out what is not needed."""


class UnusablePlans(ValueError):
    """An answer without usable plans; its text says why."""


class Planner(msgspec.Struct, frozen=True):
    """Asks an agent for plans; after a second unusable answer it gives up.

    Like the executor it has no state: the tasks of its fixed message ids say what has happened. So
    after a crash the same question is found, not asked again, and its answer is read when the
    outbox reports the end of the task.
    """

    engine: Engine
    repository: ObjectiveRepository
    task_sync: TaskSync

    async def advance(self, state: ObjectiveState, agent_id: AgentId) -> bool:
        """Do the next thing: ask, read the answer, or give up. False: call again later."""
        if state.is_held or state.objective.status in OBJECTIVE_ENDED:
            return True
        scope, tasks = state.owner, self.engine.store.tasks
        problem = ""
        for message_id in _message_ids(state):
            # The idempotency record is the planner's memory: it says which question was asked, and
            # its task says how it ended.
            known = await tasks.find_duplicate(scope, message_id)
            if known is None:
                return await self._ask(state, _question(state, message_id, problem), agent_id)
            stored = await tasks.read_task(scope, known.task_id)
            if stored is not None and not is_terminal(stored.head.state):
                # Its end wakes the executor, through the outbox: which may be another replica's.
                return self.engine.replication is None
            try:
                plans = parse_plans(_answer_text(stored))
                await self.repository.change(state.owner, state.id, _add_first_plans, plans)
            except UnusablePlans as error:
                problem = str(error)
            except StatusChangeNotAllowed:
                return True  # the objective was stopped meanwhile
            except CallerError as error:
                problem = error.message
            else:
                return True
        log.warning("planning.planner_gave_up", objective_id=state.id, reason=problem)
        with suppress(StatusChangeNotAllowed):  # it has ended meanwhile
            await self.repository.change(state.owner, state.id, _block, problem)
        return True

    async def find_planner_tasks(self, state: ObjectiveState) -> list[TaskId]:
        """The tasks that were started to make the plans of an objective without plans."""
        if state.plans or state.id not in state.execution:
            return []
        scope, tasks = state.owner, self.engine.store.tasks
        found = [await tasks.find_duplicate(scope, one) for one in _message_ids(state)]
        return [known.task_id for known in found if known is not None]

    async def _ask(self, state: ObjectiveState, message: Message, agent_id: AgentId) -> bool:
        scope, session = state.owner, objective_session(agent_id, state.id)
        request = SubmitRequest(
            scope=scope,
            message=message,
            is_blocking=False,
            # Stored with the task: the outbox wakes the executor at its end, also after a restart.
            make_delivery=self.task_sync.delivery_factory(StepLink(state.id)),
            internal_origin=InternalOrigin(session, metadata={OBJECTIVE_KEY: state.id}),
        )
        rules = AccountRules(scope.account, agent_id)
        try:
            created = await wait_created(self.engine, await submit(self.engine, request, rules))
        except GatewayError as error:
            log.warning("planning.planner_not_started", objective_id=state.id, reason=error.message)
            return False
        # The objective may have been canceled or deleted while the task was being created, when
        # there was no task to cancel yet.
        newest = await self.repository.find(state.owner, state.id)
        needs_plans = newest is not None and newest.objective.status not in OBJECTIVE_ENDED
        if isinstance(created, TaskCreated) and not needs_plans:
            with suppress(GatewayError):
                await cancel_task(self.engine, scope, created.task.id)
        return True


def _add_first_plans(change: Change, plans: Sequence[JsonObject]) -> None:
    if not change.state.plans:  # else they were added already
        add_plans(change, plans)


def add_plans(change: Change, plans: Sequence[JsonObject]) -> None:
    """Add plans to an objective; a plan depends on others of them by their numbers.

    Raises: InvalidParams, DependencyNotValid, PlanLimitExceeded, StatusChangeNotAllowed.
    """
    state = change.state
    plan_ids: list[PlanId] = []
    for plan in plans:
        needed = _plan_ids(plan.get("dependencies") or [], plan_ids)
        given = {**plan, "objectiveId": state.id, "dependencies": needed}
        params = parse_as(CreatePlan, given, method="plans/create")
        plan_ids.append(create_plan(change, params))
    metadata = state.objective.metadata
    if REASON_KEY in metadata:
        kept = {key: metadata[key] for key in metadata if key not in (REASON_KEY, TRIES_KEY)}
        update_objective(change, UpdateObjective(state.id, metadata=kept))


def _block(change: Change, reason: str) -> None:
    """Give up: block the objective, which holds it until it is run again."""
    state = change.state
    # Stored with the objective: the next run must not find the same questions answered already.
    tries = _earlier_tries(state) + _MAX_ATTEMPTS
    metadata = {**state.objective.metadata, REASON_KEY: reason, TRIES_KEY: tries}
    if state.objective.status is ObjectiveStatus.SUBMITTED:  # which cannot become blocked
        planning = UpdateObjective(state.id, status=ObjectiveStatus.PLANNING, metadata=metadata)
        update_objective(change, planning)
    update_objective(
        change, UpdateObjective(state.id, status=ObjectiveStatus.BLOCKED, metadata=metadata)
    )


def parse_plans(text: str) -> list[JsonObject]:
    """The plans in an answer. Raises: UnusablePlans."""
    found = next(find_json_objects(text), None)
    if found is None:
        raise UnusablePlans("the answer holds no JSON object")
    plans = as_list(found.get("plans"))
    if not plans or not all(map(is_object, plans)):
        raise UnusablePlans('the answer needs "plans", a list of at least one plan')
    return plans


def _plan_ids(numbers: Json, plan_ids: list[PlanId]) -> list[PlanId]:
    items = numbers if is_list(numbers) else [numbers]
    for number in items:
        is_number = isinstance(number, int) and not isinstance(number, bool)
        if not is_number or not 0 <= number < len(plan_ids):
            raise InvalidParams(
                f"a plan depends on {number!r}, which is not the number of an earlier plan"
            )
    return [plan_ids[number] for number in items]


def _earlier_tries(state: ObjectiveState) -> int:
    tries: Json = state.objective.metadata.get(TRIES_KEY)
    return tries if isinstance(tries, int) and 0 < tries < _MAX_TRIES else 0


def _message_ids(state: ObjectiveState) -> list[MessageId]:
    """The ids of the messages that ask for plans, one per attempt."""
    # With the creation time: the id of a deleted objective may be used again.
    prefix, earlier = f"{state.id}.{state.objective.created_at}.plans", _earlier_tries(state)
    return [MessageId(f"{prefix}.{earlier + one}") for one in range(1, _MAX_ATTEMPTS + 1)]


def _answer_text(stored: StoredTask | None) -> str:
    if stored is None:
        raise UnusablePlans("the answer is gone")
    task = TaskProjection.from_stored(stored).task()
    if task.status.state is not TaskState.COMPLETED:
        raise UnusablePlans(status_text(task) or "the planner did not complete its task")
    return last_agent_text(task)


def _question(state: ObjectiveState, message_id: MessageId, problem: str) -> Message:
    objective = state.objective
    parts = [_INSTRUCTIONS, f"The objective: {objective.name}"]
    if objective.description is not None:
        parts.append(objective.description)
    if problem:
        parts.append(f"Your last answer could not be used: {problem}")
    text = "\n\n".join(parts)
    return Message(message_id, Role.USER, (Part(text=text),), context_id=ContextId(state.id))
