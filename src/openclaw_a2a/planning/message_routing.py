"""Messages that come with metadata of objectives: what they create, and where they run."""

import hashlib
from collections.abc import Callable
from typing import Self, TypeGuard, cast

import msgspec

from openclaw_a2a.engine.tasks.submit import InternalOrigin
from openclaw_a2a.engine.tasks.turn_builder import AccountRules, usable_text
from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.errors import (
    GatewayError,
    InvalidParams,
    MessageIdConflict,
    PlanItemNotFound,
    Problem,
    StatusChangeNotAllowed,
)
from openclaw_a2a.model.ids import ContextId, Json, JsonObject, TaskId
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.change_builder import Change, CommandContext, chain_changes
from openclaw_a2a.planning.commands.objective import create_objective
from openclaw_a2a.planning.commands.plan import add_tasks, create_plan
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
from openclaw_a2a.planning.repository import ObjectiveRepository, find_a2a_task
from openclaw_a2a.planning.state import ObjectiveState, not_found
from openclaw_a2a.planning.step_message import (
    OBJECTIVE_KEY,
    objective_session,
    step_session,
    task_metadata,
)
from openclaw_a2a.planning.task_sync import StepLink, TaskSync
from openclaw_a2a.ports import TaskStore

OBJECTIVE = "opt/v1/objective"
PLAN = "opt/v1/plan"
PREFER = "opt/v1/preferObjective"
SUGGESTED = "opt/v1/suggestedName"
ANSWERS = "opt/v1/taskId"
_LONGEST_NAME = 80
_METHOD = "message/send"


class RoutedMessage(msgspec.Struct, frozen=True):
    """A message with its place in an objective.

    `inside` and `follow` are for the task it starts; a message that answers a task has neither,
    and names that task.
    """

    message: Message
    origin: InternalOrigin | None = None
    make_delivery: Callable[[TaskId, int], Delivery] | None = None
    answered_task_id: TaskId | None = None


class MessageRouter:
    """Finds or makes the objective and the plan that a message speaks of."""

    def __init__(self, book: ObjectiveRepository, mirror: TaskSync, store: TaskStore) -> None:
        self._book = book
        self._mirror = mirror
        self._store = store

    async def route(
        self, message: Message, scope: Scope, rules: AccountRules
    ) -> RoutedMessage | None:
        """Give a message its place; None when it speaks of no objective.

        What is made for it has names that come of its own id, so that the same message again
        after a crash finds the same place. A message that is refused makes nothing. Raises:
        InvalidParams, PlanItemNotFound, PlanLimitExceeded, DependencyNotValid,
        StatusChangeNotAllowed, MessageIdConflict (its step was begun without it).
        """
        if message.task_id is not None:
            return None
        wish = _Wish.of(message, scope)
        known = await self._known_objective(wish)
        if wish.answers is not None:
            return await self._answering(wish, known)
        if known is None and not wish.makes_objective:
            if wish.plan is not None:
                raise _wrong(PLAN, f"names no plan that is known here; name {OBJECTIVE} too")
            return None
        state = known or await self._make(wish)
        placed = _placed(message, state)
        if wish.plan is None:
            session = objective_session(rules.agent_id, state.id)
            return RoutedMessage(
                placed, InternalOrigin(session, metadata={OBJECTIVE_KEY: state.id})
            )
        task = await self._add_step(wish, wish.plan, state)
        inside = InternalOrigin(step_session(rules.agent_id, task), metadata=task_metadata(task))
        follow = self._mirror.delivery_factory(StepLink(state.id, task.id, attempt=1))
        return RoutedMessage(placed, inside, follow)

    # ---------------------------------------------------------------- objectives

    async def _known_objective(self, wish: "_Wish") -> ObjectiveState | None:
        """The objective that a message names: by itself, by its context or by its plan."""
        if wish.objective is not None:
            return await self._known(wish.objective.get("id"), wish.scope)
        known = await self._known(wish.message.context_id, wish.scope)
        if known is not None or wish.plan is None:
            return known
        return await self._known(wish.plan.get("objectiveId"), wish.scope) or (
            await self._with_plan(wish.plan.get("id"), wish.scope)
        )

    async def _known(self, objective_id: Json, scope: Scope) -> ObjectiveState | None:
        state = await self._found(objective_id)
        return state if state is not None and state.owner in (None, scope) else None

    async def _found(self, objective_id: Json) -> ObjectiveState | None:
        if not isinstance(objective_id, str) or not objective_id.startswith(OBJECTIVE_PREFIX):
            return None
        try:
            return await self._book.find(ObjectiveId(objective_id))
        except PlanItemNotFound:
            return None

    async def _with_plan(self, plan_id: Json, scope: Scope) -> ObjectiveState | None:
        if not isinstance(plan_id, str):
            return None
        try:
            state = await self._book.find_plan(PlanId(plan_id))
        except PlanItemNotFound:
            return None
        return state if state.owner in (None, scope) else None

    async def _make(self, wish: "_Wish") -> ObjectiveState:
        name = await self._free_id(wish)
        if (known := await self._known(name, wish.scope)) is not None:
            return known
        params = parse_as(CreateObjective, wish.new_objective(), method=_METHOD)
        occasion = self._book.creation_context()
        change = create_objective(params, occasion, objective_id=name, owner=wish.scope)
        if wish.plan is not None:  # what is wrong with it is told before anything is made
            _with_step(change.state, wish, wish.plan, wish.own_plan, occasion=occasion)
        try:
            return await self._book.create(change)
        except StatusChangeNotAllowed:  # another message came first
            if (known := await self._known(name, wish.scope)) is None:
                raise
            return known

    async def _free_id(self, wish: "_Wish") -> ObjectiveId:
        """The id that the message chooses, if it may have it; else one that comes of it."""
        named: Json = (wish.objective or {}).get("id")
        if _is_good(named, OBJECTIVE_PREFIX) and await self._found(named) is None:
            return ObjectiveId(str(named))
        return ObjectiveId(OBJECTIVE_PREFIX + wish.digest)

    # ---------------------------------------------------------------- plans and answers

    async def _add_step(self, wish: "_Wish", given: JsonObject, state: ObjectiveState) -> PlanTask:
        """The step that the message is, in its plan: both are made if need be."""
        plan_id = await self._plan_id(wish, given, state)
        try:
            change = await self._book.change(
                state.id,
                lambda known, occasion: _with_step(known, wish, given, plan_id, occasion=occasion),
            )
        except GatewayError:
            await self._book.release_plan_id(plan_id, state.id)
            raise
        task = change.state.task(wish.own_task)
        if change.state.attempts.get(task.id):
            raise _begun(task)
        return task

    async def _plan_id(self, wish: "_Wish", given: JsonObject, state: ObjectiveState) -> PlanId:
        named: Json = given.get("id")
        for one in (named, wish.own_plan):
            if isinstance(one, str) and one in state.plans:
                return PlanId(one)
        if _is_good(named, PLAN_PREFIX) and await self._book.reserve_plan_id(
            PlanId(named), state.id
        ):
            return PlanId(named)
        return wish.own_plan

    async def _answering(self, wish: "_Wish", state: ObjectiveState | None) -> RoutedMessage:
        named = wish.answers if isinstance(wish.answers, str) else str(wish.answers)
        task_id = None if state is None else await self._task_in(state, named, wish.scope)
        if state is None or task_id is None:
            raise not_found("task", named)
        placed = msgspec.structs.replace(_placed(wish.message, state), task_id=task_id)
        return RoutedMessage(placed, answered_task_id=task_id)

    async def _task_in(self, state: ObjectiveState, named: str, scope: Scope) -> TaskId | None:
        """The A2A task that is meant: of a step, or one that is about the objective."""
        task_id = find_a2a_task(state, named)
        if task_id is not None:
            return task_id
        if named in state.tasks:
            raise _wrong(ANSWERS, f"names {named}, which has not begun; it asks nothing yet")
        stored = await self._store.read_task(scope, TaskId(named))
        is_inside = stored is not None and stored.head.context_id == state.id
        return TaskId(named) if is_inside else None


def _begun(task: PlanTask) -> MessageIdConflict:
    """The error for a message whose step was begun without it, so that it is not done twice."""
    doing = f"task {task.a2a_task_id}" if task.a2a_task_id is not None else "another task"
    return MessageIdConflict(
        f"this message made the step {task.id}, and {doing} does it already; follow that one"
    )


class _Wish(msgspec.Struct, frozen=True):
    """What a message says about objectives."""

    message: Message
    scope: Scope
    objective: JsonObject | None
    plan: JsonObject | None
    answers: Json
    digest: str
    """A short name that comes of who sent which message."""

    @classmethod
    def of(cls, message: Message, scope: Scope) -> Self:
        """Read it. Raises: InvalidParams."""
        metadata = message.metadata or {}
        return cls(
            message,
            scope,
            _object(OBJECTIVE, metadata.get(OBJECTIVE)),
            _object(PLAN, metadata.get(PLAN)),
            metadata.get(ANSWERS),
            _digest(message, scope),
        )

    @property
    def makes_objective(self) -> bool:
        """True when an objective is to be made if none is known."""
        metadata = self.message.metadata or {}
        return self.objective is not None or metadata.get(PREFER) is True

    @property
    def own_plan(self) -> PlanId:
        """The id of the plan that is made for the message, unless it chooses one."""
        return PlanId(PLAN_PREFIX + self.digest)

    @property
    def own_task(self) -> PlanTaskId:
        """The id of the step that the message is."""
        return PlanTaskId(TASK_PREFIX + self.digest)

    def new_objective(self) -> JsonObject:
        """What a new objective is made of."""
        metadata = self.message.metadata or {}
        suggested: JsonObject = {"name": metadata.get(SUGGESTED)}
        given = suggested if self.objective is None else self.objective
        return _wanted(given, CreateObjective, self.message)


def _with_step(
    state: ObjectiveState,
    wish: _Wish,
    given: JsonObject,
    plan_id: PlanId,
    *,
    occasion: CommandContext,
) -> Change:
    """The change that makes a message a step of a plan; what is there already is not made."""
    steps: list[Callable[[ObjectiveState], Change]] = []
    if plan_id not in state.plans:
        wanted = {**_wanted(given, CreatePlan, wish.message), "objectiveId": state.id}
        params = parse_as(CreatePlan, wanted, method=_METHOD)
        steps.append(lambda now: create_plan(now, params, occasion, plan_id=plan_id))
    if wish.own_task not in state.tasks:
        added = AddTasks(plan_id, (_entry(wish.message),))
        named = msgspec.structs.replace(occasion, new_id=lambda: wish.digest)
        steps.append(lambda now: add_tasks(now, added, named))
    return chain_changes(state, steps)


def _entry(message: Message) -> TaskEntry:
    name, text = _title(message), usable_text(message)
    described = None if text in ("", name) else text
    return TaskEntry(name, described, metadata={MESSAGE_KEY: message.message_id})


def _wanted(given: JsonObject, kind: type[Params], message: Message) -> JsonObject:
    """What a new objective or plan is made of; a name is found in the message if need be.

    Members that are not for callers to choose, as the status, are passed over.
    """
    wanted = _known_members(given, kind)
    name: Json = wanted.get("name")
    has_name = isinstance(name, str) and bool(name.strip())
    if isinstance(tasks := wanted.get("tasks"), list):
        entries = cast("list[Json]", tasks)
        wanted["tasks"] = [_known_members(one, TaskEntry) for one in entries]
    return {**wanted, "name": name if has_name else _title(message)}


def _known_members(given: Json, kind: type[Params]) -> Json:
    if not isinstance(given, dict):
        return given
    names = {field.encode_name for field in msgspec.structs.fields(kind)}
    members = cast("JsonObject", given)
    return {name: value for name, value in members.items() if name in names}


def _placed(message: Message, state: ObjectiveState) -> Message:
    return msgspec.structs.replace(message, context_id=ContextId(state.id))


def _is_good(named: Json, prefix: str) -> TypeGuard[str]:
    """True for an id that a message may choose."""
    return isinstance(named, str) and named.startswith(prefix) and is_valid_id(named)


def _digest(message: Message, scope: Scope) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in (scope.principal, scope.account, message.message_id):
        digest.update(f"{len(part)}:{part}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _title(message: Message) -> str:
    """The first characters of what it says, as one line."""
    text = usable_text(message).strip()[:_LONGEST_NAME]
    return "".join(" " if one.isspace() else one for one in text) or "A message"


def _object(key: str, value: Json) -> JsonObject | None:
    if value is None or isinstance(value, dict):
        return cast("JsonObject | None", value)
    raise _wrong(key, "must be an object")


def _wrong(key: str, reason: str) -> InvalidParams:
    path = f"message.metadata[{key!r}]"
    return InvalidParams(f"{path} {reason}", problems=(Problem(path, reason),))
