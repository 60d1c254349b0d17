"""Has an agent make the plans of an objective, and checks them before they are added."""

from collections.abc import Sequence
from contextlib import suppress
from typing import cast

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.tasks.cancel import cancel_task
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.result import TaskCreated
from openclaw_a2a.engine.tasks.submit import InternalOrigin, SubmitRequest, submit, wait_created
from openclaw_a2a.engine.tasks.turn_builder import AccountRules
from openclaw_a2a.engine.transcript.task_text import find_json_objects, last_agent_text, status_text
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    CallerError,
    GatewayError,
    InvalidParams,
    PlanItemNotFound,
    StatusChangeNotAllowed,
)
from openclaw_a2a.model.ids import AgentId, ContextId, Json, JsonObject, MessageId, TaskId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.records import StoredTask
from openclaw_a2a.model.task import TaskState, is_terminal
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.commands import create_plan, update_objective
from openclaw_a2a.planning.execution_policy import effective_owner
from openclaw_a2a.planning.model import ObjectiveStatus, PlanId
from openclaw_a2a.planning.params import CreatePlan, UpdateObjective, parse_as
from openclaw_a2a.planning.repository import ObjectiveRepository
from openclaw_a2a.planning.state import Change, CommandContext, ObjectiveState, Step, chain_changes
from openclaw_a2a.planning.step_message import OBJECTIVE_KEY, objective_session
from openclaw_a2a.planning.task_sync import StepLink, TaskSync
from openclaw_a2a.planning.transitions import OBJECTIVE_ENDED

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


class Planner:
    """Asks an agent for plans, a second time when the first answer is not usable, then gives up.

    Like the executor it has no state: the tasks of its fixed message ids say what has happened.
    """

    def __init__(
        self, engine: Engine, repository: ObjectiveRepository, task_sync: TaskSync
    ) -> None:
        self._engine = engine
        self._repository = repository
        self._task_sync = task_sync

    async def advance(
        self, state: ObjectiveState, agent_id: AgentId, account: AccountRules
    ) -> bool:
        """Do the next thing: ask, read the answer, or give up. False: call again later."""
        if state.is_held or state.objective.status in OBJECTIVE_ENDED:
            return True
        scope = effective_owner(state, account.account)
        problem = ""
        for message_id in _message_ids(state):
            known = await self._engine.store.tasks.find_duplicate(scope, message_id)
            if known is None:
                question = _question(state, message_id, problem)
                return await self._ask(state, question, scope, agent_id)
            stored = await self._engine.store.tasks.read_task(scope, known.task_id)
            if stored is not None and not is_terminal(stored.head.state):
                return True
            try:
                problem = await self._add_answer(state, stored)
            except StatusChangeNotAllowed:
                return True  # the objective was stopped meanwhile
            if not problem:
                return True
        await self._give_up(state, problem)
        return True

    async def find_planner_tasks(self, state: ObjectiveState, scope: Scope) -> list[TaskId]:
        """The tasks that were started to make the plans of an objective without plans."""
        if state.plans or state.id not in state.execution:
            return []
        found = [
            await self._engine.store.tasks.find_duplicate(scope, one) for one in _message_ids(state)
        ]
        return [known.task_id for known in found if known is not None]

    async def _ask(
        self, state: ObjectiveState, message: Message, scope: Scope, agent_id: AgentId
    ) -> bool:
        session = objective_session(agent_id, state.id)
        request = SubmitRequest(
            scope=scope,
            message=message,
            is_blocking=False,
            make_delivery=self._task_sync.delivery_factory(StepLink(state.id)),
            internal_origin=InternalOrigin(session, metadata={OBJECTIVE_KEY: state.id}),
        )
        rules = AccountRules(scope.account, agent_id)
        try:
            created = await wait_created(self._engine, await submit(self._engine, request, rules))
        except GatewayError as error:
            log.warning("planning.planner_not_started", objective_id=state.id, reason=error.message)
            return False
        if isinstance(created, TaskCreated) and not await self._needs_plans(state):
            with suppress(GatewayError):
                await cancel_task(self._engine, scope, created.task.id)
        return True

    async def _needs_plans(self, state: ObjectiveState) -> bool:
        """False when the objective has ended or was deleted meanwhile."""
        try:
            newest = await self._repository.find(state.id)
        except PlanItemNotFound:
            return False
        return newest.objective.status not in OBJECTIVE_ENDED

    async def _add_answer(self, state: ObjectiveState, stored: StoredTask | None) -> str:
        """Add the plans of an answer; the problem with them, or an empty string.

        Raises: StatusChangeNotAllowed (the objective takes no plans any more).
        """
        try:
            plans = parse_plans(_answer_text(stored))
            await self._repository.change(
                state.id, lambda newest, context: add_plans(newest, plans, context)
            )
        except UnusablePlans as error:
            return str(error)
        except StatusChangeNotAllowed:
            raise
        except CallerError as error:
            return error.message
        return ""

    async def _give_up(self, state: ObjectiveState, reason: str) -> None:
        def block(newest: ObjectiveState, context: CommandContext) -> Change:
            tries = _earlier_tries(newest) + _MAX_ATTEMPTS
            metadata = {**newest.objective.metadata, REASON_KEY: reason, TRIES_KEY: tries}
            is_new = newest.objective.status is ObjectiveStatus.SUBMITTED
            path = (ObjectiveStatus.PLANNING, ObjectiveStatus.BLOCKED)

            def set_status(status: ObjectiveStatus) -> Step:
                update = UpdateObjective(newest.id, status=status, metadata=metadata)
                return lambda known: update_objective(known, update, context)

            return chain_changes(
                newest, [set_status(one) for one in (path if is_new else path[1:])]
            )

        log.warning("planning.planner_gave_up", objective_id=state.id, reason=reason)
        with suppress(StatusChangeNotAllowed):  # it has ended meanwhile
            await self._repository.change(state.id, block)


def add_plans(
    state: ObjectiveState, plans: Sequence[JsonObject], context: CommandContext
) -> Change:
    """The change that adds plans; a dependency of a plan is the number of an earlier one.

    Raises: InvalidParams, DependencyNotValid, PlanLimitExceeded.
    """
    if state.plans:
        return Change(state)  # added already
    plan_ids: list[PlanId] = []

    def add(plan: JsonObject) -> Step:
        def create(newest: ObjectiveState) -> Change:
            numbers: Json = plan.get("dependencies") or []
            given = {**plan, "objectiveId": state.id, "dependencies": _plan_ids(numbers, plan_ids)}
            params = parse_as(CreatePlan, given, method="plans/create")
            change = create_plan(newest, params, context)
            plan_ids.append(list(change.state.plans)[-1])
            return change

        return create

    steps = [add(plan) for plan in plans]
    if REASON_KEY in state.objective.metadata:
        old = state.objective.metadata
        metadata = {key: old[key] for key in old if key not in (REASON_KEY, TRIES_KEY)}
        update = UpdateObjective(state.id, metadata=metadata)
        steps.append(lambda newest: update_objective(newest, update, context))
    return chain_changes(state, steps)


def parse_plans(text: str) -> list[JsonObject]:
    """The plans in an answer. Raises: UnusablePlans."""
    found = next(find_json_objects(text), None)
    if found is None:
        raise UnusablePlans("the answer holds no JSON object")
    plans = found.get("plans")
    items = cast("list[Json]", plans) if isinstance(plans, list) else []
    if not items or not all(isinstance(one, dict) for one in items):
        raise UnusablePlans('the answer needs "plans", a list of at least one plan')
    return cast("list[JsonObject]", items)


def _plan_ids(numbers: Json, plan_ids: list[PlanId]) -> list[PlanId]:
    items = cast("list[Json]", numbers) if isinstance(numbers, list) else [numbers]
    found: list[PlanId] = []
    for number in items:
        is_number = isinstance(number, int) and not isinstance(number, bool)
        if not is_number or not 0 <= number < len(plan_ids):
            raise InvalidParams(
                f"a plan depends on {number!r}, which is not the number of an earlier plan"
            )
        found.append(plan_ids[number])
    return found


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
