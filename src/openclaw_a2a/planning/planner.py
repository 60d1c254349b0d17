"""Has an agent turn an objective into plans; what it answers is checked before it counts."""

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
from openclaw_a2a.model.ids import (
    AgentId,
    ContextId,
    Json,
    JsonObject,
    MessageId,
    TaskId,
)
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.records import StoredTask
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.change_builder import Change, CommandContext
from openclaw_a2a.planning.commands.objective import update_objective
from openclaw_a2a.planning.commands.plan import create_plan
from openclaw_a2a.planning.model import ObjectiveStatus, PlanId
from openclaw_a2a.planning.params import CreatePlan, UpdateObjective, parse_as
from openclaw_a2a.planning.repository import ObjectiveRepository
from openclaw_a2a.planning.state import ObjectiveState
from openclaw_a2a.planning.step_message import OBJECTIVE_KEY, effective_owner, objective_session
from openclaw_a2a.planning.task_sync import StepLink, TaskSync

log = get_logger(__name__)

REASON_KEY = "opt/v1/blockedReason"
TRIES_KEY = "opt/v1/plannerTries"
"""How many answers could not be used before; who runs the objective again has it asked anew."""
_TRIES = 2
_MOST_TRIES = 10_000
_ENDED = frozenset({ObjectiveStatus.COMPLETED, ObjectiveStatus.CANCELED, ObjectiveStatus.FAILED})
_HOW = """Make plans for this objective. Answer with one JSON object and nothing else:
{"plans": [{"name": "...", "description": "...", "dependencies": [0],
  "tasks": [{"name": "...", "description": "...", "dependencies": ["task-0"],
             "metadata": {"agent": "..."}}]}]}
A dependency of a plan is the number of an earlier plan, counted from 0; one of a task is
task-<number> of an earlier task of the same plan. Leave out what is not needed."""


class UnusablePlans(ValueError):
    """An answer that holds no plans which can be used; its text says why."""


class Planner:
    """Asks for plans, once more when the first answer cannot be used, and then gives up.

    Which of that has happened is read from the tasks themselves, so a restart repeats nothing.
    """

    def __init__(self, engine: Engine, book: ObjectiveRepository, mirror: TaskSync) -> None:
        self._engine = engine
        self._book = book
        self._mirror = mirror

    async def advance(
        self, state: ObjectiveState, agent_id: AgentId, account: AccountRules
    ) -> bool:
        """Ask, look at the answer, or give up: whatever comes next. False: try that later."""
        if state.is_held or state.objective.status in _ENDED:
            return True
        scope = effective_owner(state, account.account)
        problem = ""
        for name in _names(state):
            known = await self._engine.store.tasks.find_duplicate(scope, name)
            if known is None:
                return await self._ask(state, _question(state, name, problem), scope, agent_id)
            stored = await self._engine.store.tasks.read_task(scope, known.task_id)
            if stored is not None and not is_terminal(stored.head.state):
                return True
            try:
                problem = await self._take(state, stored)
            except StatusChangeNotAllowed:
                return True  # it was stopped meanwhile
            if not problem:
                return True
        await self._give_up(state, problem)
        return True

    async def find_planner_tasks(self, state: ObjectiveState, scope: Scope) -> list[TaskId]:
        """The tasks that were to make the plans of an objective, which has none."""
        if state.plans or state.id not in state.execution:
            return []
        found = [
            await self._engine.store.tasks.find_duplicate(scope, name) for name in _names(state)
        ]
        return [known.task_id for known in found if known is not None]

    async def _ask(
        self, state: ObjectiveState, message: Message, scope: Scope, agent_id: AgentId
    ) -> bool:
        session = objective_session(agent_id, state.id)
        send = SubmitRequest(
            scope=scope,
            message=message,
            is_blocking=False,
            make_delivery=self._mirror.delivery_factory(StepLink(state.id)),
            internal_origin=InternalOrigin(session, metadata={OBJECTIVE_KEY: state.id}),
        )
        try:
            run = await submit(self._engine, send, AccountRules(scope.account, agent_id))
            shown = await wait_created(self._engine, run)
        except GatewayError as error:
            log.warning("plans-not-asked-for", objective_id=state.id, reason=error.message)
            return False
        if isinstance(shown, TaskCreated) and not await self._wants_plans(state):
            with suppress(GatewayError):
                await cancel_task(self._engine, scope, shown.task.id)
        return True

    async def _wants_plans(self, state: ObjectiveState) -> bool:
        """False when the objective was ended or deleted meanwhile."""
        try:
            now = await self._book.find(state.id)
        except PlanItemNotFound:
            return False
        return now.objective.status not in _ENDED

    async def _take(self, state: ObjectiveState, stored: StoredTask | None) -> str:
        """Add the plans of an answer; why that is not possible, or nothing.

        Raises: StatusChangeNotAllowed (nothing is planned any more).
        """
        try:
            plans = parse_plans(_said(stored))
            await self._book.change(
                state.id, lambda known, occasion: add_plans(known, plans, occasion)
            )
        except UnusablePlans as error:
            return str(error)
        except StatusChangeNotAllowed:
            raise
        except CallerError as error:
            return error.message
        return ""

    async def _give_up(self, state: ObjectiveState, reason: str) -> None:
        def block(known: ObjectiveState, occasion: CommandContext) -> Change:
            tries = _tries_before(known) + _TRIES
            metadata = {**known.objective.metadata, REASON_KEY: reason, TRIES_KEY: tries}
            steps: list[Change] = []
            is_new = known.objective.status is ObjectiveStatus.SUBMITTED
            way = (ObjectiveStatus.PLANNING, ObjectiveStatus.BLOCKED)
            for status in way if is_new else way[1:]:
                now = steps[-1].state if steps else known
                wanted = UpdateObjective(known.id, status=status, metadata=metadata)
                steps.append(update_objective(now, wanted, occasion))
            return _joined(steps)

        log.warning("objective-not-planned", objective_id=state.id, reason=reason)
        with suppress(StatusChangeNotAllowed):  # it was ended meanwhile
            await self._book.change(state.id, block)


def add_plans(
    state: ObjectiveState, plans: Sequence[JsonObject], occasion: CommandContext
) -> Change:
    """The change that adds plans; a dependency of a plan is the number of one before it.

    Raises: InvalidParams, DependencyNotValid, PlanLimitExceeded.
    """
    if state.plans:
        return Change(state)  # they were added before
    made: list[PlanId] = []
    steps: list[Change] = []
    for plan in plans:
        numbers: Json = plan.get("dependencies") or []
        params = parse_as(
            CreatePlan,
            {**plan, "objectiveId": state.id, "dependencies": _plan_ids(numbers, made)},
            method="plans/create",
        )
        steps.append(create_plan(steps[-1].state if steps else state, params, occasion))
        made.append(list(steps[-1].state.plans)[-1])
    if REASON_KEY in state.objective.metadata:
        kept = {
            key: one
            for key, one in state.objective.metadata.items()
            if key not in (REASON_KEY, TRIES_KEY)
        }
        steps.append(
            update_objective(steps[-1].state, UpdateObjective(state.id, metadata=kept), occasion)
        )
    return _joined(steps)


def parse_plans(text: str) -> list[JsonObject]:
    """The plans in an answer. Raises: BadPlans."""
    found = next(find_json_objects(text), None)
    if found is None:
        raise UnusablePlans("the answer holds no JSON object")
    plans = found.get("plans")
    items = cast("list[Json]", plans) if isinstance(plans, list) else []
    if not items or not all(isinstance(one, dict) for one in items):
        raise UnusablePlans('the answer needs "plans", a list of at least one plan')
    return cast("list[JsonObject]", items)


def _plan_ids(numbers: Json, made: list[PlanId]) -> list[PlanId]:
    items = cast("list[Json]", numbers) if isinstance(numbers, list) else [numbers]
    found: list[PlanId] = []
    for number in items:
        is_number = isinstance(number, int) and not isinstance(number, bool)
        if not is_number or not 0 <= number < len(made):
            raise InvalidParams(
                f"a plan depends on {number!r}, which is no number of one before it"
            )
        found.append(made[number])
    return found


def _tries_before(state: ObjectiveState) -> int:
    tries: Json = state.objective.metadata.get(TRIES_KEY)
    return tries if isinstance(tries, int) and 0 < tries < _MOST_TRIES else 0


def _names(state: ObjectiveState) -> list[MessageId]:
    """The ids of the messages that ask for plans, one after the other."""
    # An id may be used again when its objective was deleted, but not at the same moment.
    begins, before = f"{state.id}.{state.objective.created_at}.plans", _tries_before(state)
    return [MessageId(f"{begins}.{before + one}") for one in range(1, _TRIES + 1)]


def _joined(steps: Sequence[Change]) -> Change:
    operations = tuple(one for step in steps for one in step.operations)
    return Change(steps[-1].state, operations)


def _said(stored: StoredTask | None) -> str:
    if stored is None:
        raise UnusablePlans("the answer is gone")
    task = TaskProjection.from_stored(stored).task()
    if task.status.state is not TaskState.COMPLETED:
        raise UnusablePlans(status_text(task) or "the planner did not complete its task")
    return last_agent_text(task)


def _question(state: ObjectiveState, name: MessageId, problem: str) -> Message:
    objective = state.objective
    parts = [_HOW, f"The objective: {objective.name}"]
    if objective.description is not None:
        parts.append(objective.description)
    if problem:
        parts.append(f"Your last answer could not be used: {problem}")
    text = "\n\n".join(parts)
    return Message(name, Role.USER, (Part(text=text),), context_id=ContextId(state.id))
