"""Routes messages with objective metadata: creates the objective, plan and step they name."""

import hashlib
from collections.abc import Callable
from typing import Self, TypeGuard

import msgspec

from openclaw_a2a.engine.engine import AccountRules
from openclaw_a2a.engine.tasks.submit import InternalOrigin
from openclaw_a2a.engine.tasks.turn_builder import usable_text
from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.errors import (
    GatewayError,
    InvalidParams,
    MessageIdConflict,
    Problem,
    StatusChangeNotAllowed,
)
from openclaw_a2a.model.ids import LOCAL_PEER, AgentId, ContextId, Json, JsonObject, TaskId
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.model.validation import is_list, is_object
from openclaw_a2a.planning.commands import add_tasks, create_objective, create_plan
from openclaw_a2a.planning.model import (
    MESSAGE_KEY,
    OBJECTIVE_PREFIX,
    PLAN_PREFIX,
    TASK_PREFIX,
    ObjectiveId,
    PlanId,
    PlanTask,
    PlanTaskId,
    is_valid_id,
)
from openclaw_a2a.planning.params import (
    AddTasks,
    CreateObjective,
    CreatePlan,
    Params,
    TaskEntry,
    parse_as,
)
from openclaw_a2a.planning.repository import ObjectiveRepository
from openclaw_a2a.planning.state import Change, ObjectiveState, not_found
from openclaw_a2a.planning.steps import (
    OBJECTIVE_KEY,
    named_agents,
    objective_session,
    step_session,
    task_metadata,
)
from openclaw_a2a.planning.task_sync import StepLink, TaskSync
from openclaw_a2a.ports import TaskStore

OBJECTIVE = "opt/v1/objective"
PLAN = "opt/v1/plan"
PREFER_OBJECTIVE = "opt/v1/preferObjective"
SUGGESTED_NAME = "opt/v1/suggestedName"
ANSWERED_TASK = "opt/v1/taskId"
_MAX_NAME = 80
_METHOD = "message/send"


class RoutedMessage(msgspec.Struct, frozen=True):
    """A message in the context of its objective.

    `origin` and `make_delivery` are for the task that it starts. A message that answers a task has
    neither (`is_answer`): it carries the id of that task.
    """

    message: Message
    origin: InternalOrigin | None = None
    make_delivery: Callable[[TaskId, int], Delivery] | None = None
    is_answer: bool = False


class ObjectiveMetadata(msgspec.Struct, frozen=True):
    """What a message says about objectives."""

    message: Message
    scope: Scope
    objective: JsonObject | None
    plan: JsonObject | None
    digest: str
    """Identifies the message among those of all callers. The ids of what it creates are derived
    from it, so that a message that is sent again after a crash finds what it created before."""

    @classmethod
    def of(cls, message: Message, scope: Scope) -> Self:
        """Read the metadata of a message. Raises: InvalidParams."""
        objective, plan = ((message.metadata or {}).get(key) for key in (OBJECTIVE, PLAN))
        for key, value in ((OBJECTIVE, objective), (PLAN, plan)):
            if value is not None and not is_object(value):
                raise _invalid(key, "must be an object")
        return cls(message, scope, objective, plan, _digest(scope, message.message_id, size=8))

    @property
    def own_plan(self) -> PlanId:
        """The id of the plan that is created for the message, unless it names one."""
        return PlanId(PLAN_PREFIX + self.digest)

    @property
    def own_task(self) -> PlanTaskId:
        """The id of the step of the message."""
        return PlanTaskId(TASK_PREFIX + self.digest)


class MessageRouter(msgspec.Struct, frozen=True):
    """Finds or creates the objective, plan and step that the metadata of a message name."""

    repository: ObjectiveRepository
    task_sync: TaskSync
    tasks: TaskStore

    async def route(
        self, message: Message, scope: Scope, rules: AccountRules
    ) -> RoutedMessage | None:
        """Route a message; None when it belongs to no objective.

        A rejected message creates nothing.

        Raises: InvalidParams, PlanItemNotFound, PlanLimitExceeded, DependencyNotValid,
        StatusChangeNotAllowed, MessageIdConflict (its step was started without it).
        """
        # It continues a task, and with it the objective of that task.
        if message.task_id is not None:
            return None
        hints, metadata = message.metadata or {}, ObjectiveMetadata.of(message, scope)
        state = await self._find_named(metadata)
        if (answered := hints.get(ANSWERED_TASK)) is not None:
            return await self._route_answer(message, str(answered), scope, state)
        if state is None:
            if metadata.objective is None and hints.get(PREFER_OBJECTIVE) is not True:
                if metadata.plan is not None:
                    raise _invalid(PLAN, f"names no plan that is known here; name {OBJECTIVE} too")
                return None
            state = await self._create_objective(metadata)
        placed = msgspec.structs.replace(message, context_id=ContextId(state.id))
        if metadata.plan is None:
            session = objective_session(rules.agent_id, state.id)
            origin = InternalOrigin(session, metadata={OBJECTIVE_KEY: state.id})
            return RoutedMessage(placed, origin)
        # A crash between this and the engine's commit leaves a step without a task: the executor
        # of a running objective starts it after the grace time; the repeated message finds it.
        task = await self._add_step(metadata, metadata.plan, state)
        origin = InternalOrigin(step_session(rules.agent_id, task), metadata=task_metadata(task))
        # The link is stored with the task that the engine starts for the message.
        link = StepLink(state.id, task.id, attempt=1)
        return RoutedMessage(placed, origin, self.task_sync.delivery_factory(link))

    # ---------------------------------------------------------------- objectives

    async def _find_named(self, metadata: ObjectiveMetadata) -> ObjectiveState | None:
        """The objective that a message names: directly, by its context or by its plan."""
        scope, plan = metadata.scope, metadata.plan or {}
        if metadata.objective is not None:
            return await self._find(metadata.objective.get("id"), scope)
        known = await self._find(metadata.message.context_id, scope)
        known = known or await self._find(plan.get("objectiveId"), scope)
        plan_id: Json = plan.get("id")
        if known is None and isinstance(plan_id, str):
            known = await self.repository.find_by_plan(scope, PlanId(plan_id))
        return known

    async def _find(self, objective_id: Json, scope: Scope) -> ObjectiveState | None:
        if not isinstance(objective_id, str) or not objective_id.startswith(OBJECTIVE_PREFIX):
            return None
        found = await self.repository.find(scope, ObjectiveId(objective_id))
        if found is None:
            own = ObjectiveId(_own_id(OBJECTIVE_PREFIX, scope, objective_id))
            found = await self.repository.find(scope, own)
        return found

    async def _create_objective(self, metadata: ObjectiveMetadata) -> ObjectiveState:
        scope, message = metadata.scope, metadata.message
        suggested: JsonObject = {"name": (message.metadata or {}).get(SUGGESTED_NAME)}
        given = suggested if metadata.objective is None else metadata.objective
        # The id that the message names, if it is valid and free; of a peer, one made of it.
        objective_id = ObjectiveId(OBJECTIVE_PREFIX + metadata.digest)
        named: Json = given.get("id")
        if _is_valid(named, OBJECTIVE_PREFIX):
            own = ObjectiveId(_own_id(OBJECTIVE_PREFIX, scope, named))
            # In any scope: ids are unique.
            is_free = await self.repository.find(None, own) is None
            objective_id = own if is_free else objective_id
        # The message was sent before, and its objective was created then.
        if (known := await self._find(objective_id, scope)) is not None:
            return known
        members = _creation_params(given, CreateObjective, message)
        params = parse_as(CreateObjective, members, method=_METHOD)
        context = self.repository.creation_context()
        change = create_objective(params, context, objective_id=objective_id, owner=scope)
        if metadata.plan is not None:
            # A dry run: a problem with the plan must not leave an objective behind.
            _add_step(Change(change.state, context), metadata, metadata.plan, metadata.own_plan)
        try:
            return await self.repository.create(change)
        except StatusChangeNotAllowed:  # another message created it first
            if (known := await self._find(objective_id, scope)) is None:
                raise
            return known

    # ---------------------------------------------------------------- plans and answers

    async def _add_step(
        self, metadata: ObjectiveMetadata, given: JsonObject, state: ObjectiveState
    ) -> PlanTask:
        """The step of a message in its plan; both are created if they do not exist."""
        plan_id = await self._choose_plan_id(metadata, given, state)
        try:
            change = await self.repository.change(
                metadata.scope, state.id, _add_step, metadata, given, plan_id
            )
        except GatewayError:
            # Otherwise the id would stay reserved until a restart, for a plan that does not exist.
            await self.repository.release_plan_id(plan_id, state.id)
            raise
        task = change.state.task(metadata.own_task)
        if change.state.attempts.get(task.id):
            # The executor started the step after the grace time: it must not run twice.
            worker = f"task {task.a2a_task_id}" if task.a2a_task_id else "another task"
            raise MessageIdConflict(
                f"this message created the step {task.id}, and {worker} executes it already; "
                "follow that one"
            )
        return task

    async def _choose_plan_id(
        self, metadata: ObjectiveMetadata, given: JsonObject, state: ObjectiveState
    ) -> PlanId:
        named: Json = given.get("id")
        for one in (named, metadata.own_plan):
            if isinstance(one, str) and one in state.plans:
                return PlanId(one)
        if _is_valid(named, PLAN_PREFIX):
            plan_id = PlanId(_own_id(PLAN_PREFIX, metadata.scope, named))
            if plan_id in state.plans:
                return plan_id
            # Reserved, because two objectives are changed under different locks.
            if await self.repository.reserve_plan_id(plan_id, state.id):
                return plan_id
        return metadata.own_plan

    async def _route_answer(
        self, message: Message, named: str, scope: Scope, state: ObjectiveState | None
    ) -> RoutedMessage:
        """Route a message to the A2A task of a step, or to a task about the objective itself."""
        if state is None:
            if message.context_id is None:
                reason = f"is missing: {ANSWERED_TASK} needs the id of the objective in it"
                problem = Problem("message.contextId", reason, "required")
                raise InvalidParams(f"message.contextId {reason}", problems=(problem,))
            raise not_found("objective", message.context_id)
        task_id = state.find_a2a_task(named)
        if task_id is None:
            if named in state.tasks:
                reason = f"names {named}, which has not started; it asks nothing"
                raise _invalid(ANSWERED_TASK, reason)
            stored = await self.tasks.read_task(scope, TaskId(named))
            if stored is not None and stored.head.context_id == state.id:
                task_id = TaskId(named)
        if task_id is None:
            raise not_found("task", named, within=f" in objective {state.id}")
        context_id = ContextId(state.id)
        answer = msgspec.structs.replace(message, context_id=context_id, task_id=task_id)
        return RoutedMessage(answer, is_answer=True)


def agents_of_message(message: Message) -> set[AgentId]:
    """The agents that steps of an objective or plan in a message would go to."""
    metadata = message.metadata or {}
    return named_agents(metadata.get(OBJECTIVE)) | named_agents(metadata.get(PLAN))


def _add_step(
    change: Change, metadata: ObjectiveMetadata, given: JsonObject, plan_id: PlanId
) -> None:
    """Add the step of a message, and its plan; what exists is not added again."""
    state, message = change.state, metadata.message
    if plan_id not in state.plans:
        members = _creation_params(given, CreatePlan, message)
        params = parse_as(CreatePlan, {**members, "objectiveId": state.id}, method=_METHOD)
        create_plan(change, params, plan_id=plan_id)
    if metadata.own_task not in state.tasks:
        name, text = _title(message), usable_text(message)
        description = None if text in ("", name) else text
        entry = TaskEntry(name, description, metadata={MESSAGE_KEY: message.message_id})
        add_tasks(change, AddTasks(plan_id, (entry,)), task_id=metadata.own_task)


def _own_id(prefix: str, scope: Scope, named: str) -> str:
    """The id under which an objective or plan that a caller named is stored.

    Ids of peers are scoped by their owner: whether another peer has the same one makes no
    difference to anything that a peer sees. The local caller is the operator, who sees all of them
    anyway and gets the id it named.
    """
    if scope.principal == LOCAL_PEER:
        return named
    return prefix + _digest(scope, named, size=16)


def _digest(scope: Scope, text: str, *, size: int) -> str:
    digest = hashlib.blake2b(digest_size=size)
    for part in (scope.principal, scope.account, text):
        # With its length: `a` + `bc` and `ab` + `c` must not give the same digest.
        digest.update(f"{len(part)}:{part}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _creation_params(given: JsonObject, kind: type[Params], message: Message) -> JsonObject:
    """The members of an objective or plan that callers may choose; a name is derived if missing.

    Others, such as the status, are ignored.
    """
    members = _known_members(given, kind)
    name: Json = members.get("name")
    has_name = isinstance(name, str) and bool(name.strip())
    if is_list(tasks := members.get("tasks")):
        members["tasks"] = [_known_members(one, TaskEntry) for one in tasks]
    return {**members, "name": name if has_name else _title(message)}


def _known_members(given: Json, kind: type[Params]) -> Json:
    if not is_object(given):
        return given
    names = {field.encode_name for field in msgspec.structs.fields(kind)}
    return {name: value for name, value in given.items() if name in names}


def _is_valid(named: Json, prefix: str) -> TypeGuard[str]:
    """True for an id that a message may choose."""
    return isinstance(named, str) and named.startswith(prefix) and is_valid_id(named)


def _title(message: Message) -> str:
    """The first characters of the text, on one line."""
    text = usable_text(message).strip()[:_MAX_NAME]
    return "".join(" " if one.isspace() else one for one in text) or "A message"


def _invalid(key: str, reason: str) -> InvalidParams:
    path = f"message.metadata[{key!r}]"
    return InvalidParams(f"{path} {reason}", problems=(Problem(path, reason),))
