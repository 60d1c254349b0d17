"""Messages that come with metadata of objectives: what they create, and where they run."""

import hashlib
from collections.abc import Callable
from typing import cast

import msgspec

from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.errors import (
    GatewayError,
    InvalidParams,
    PlanItemNotFound,
    Problem,
    StatusChangeNotAllowed,
)
from openclaw_a2a.model.ids import ContextId, Json, JsonObject, TaskId
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.book import ObjectiveBook, task_of
from openclaw_a2a.planning.changes import create_objective
from openclaw_a2a.planning.draft import Change, Occasion
from openclaw_a2a.planning.mirror import Followed, Mirror
from openclaw_a2a.planning.objects import (
    MESSAGE_KEY,
    OBJECTIVE_PREFIX,
    PLAN_PREFIX,
    TASK_PREFIX,
    ObjectiveId,
    PlanId,
    PlanTaskId,
    is_own_id,
)
from openclaw_a2a.planning.params import (
    AddTasks,
    CreateObjective,
    CreatePlan,
    TaskEntry,
    read_as,
)
from openclaw_a2a.planning.plan_changes import add_tasks, create_plan
from openclaw_a2a.planning.state import ObjectiveState, not_found
from openclaw_a2a.planning.steps import (
    OBJECTIVE_KEY,
    objective_session,
    step_session,
    task_keys,
)
from openclaw_a2a.runtime.submit import FromInside
from openclaw_a2a.runtime.turn import AccountRules, usable_text

OBJECTIVE = "opt/v1/objective"
PLAN = "opt/v1/plan"
PREFER = "opt/v1/preferObjective"
SUGGESTED = "opt/v1/suggestedName"
ANSWERS = "opt/v1/taskId"
_LONGEST_NAME = 80
_METHOD = "message/send"


class Taken(msgspec.Struct, frozen=True):
    """A message with its place in an objective.

    `inside` and `follow` are for the task it starts; a message that answers a task has neither,
    and names that task.
    """

    message: Message
    inside: FromInside | None = None
    follow: Callable[[TaskId, int], Delivery] | None = None
    answers: TaskId | None = None


class Messages:
    """Finds or makes the objective and the plan that a message speaks of."""

    def __init__(self, book: ObjectiveBook, mirror: Mirror) -> None:
        self._book = book
        self._mirror = mirror

    async def take(self, message: Message, scope: Scope, rules: AccountRules) -> Taken | None:
        """Give a message its place; None when it speaks of no objective.

        What is made for it has names that come of its own id, so that the same message again
        after a crash finds the same place. Raises: InvalidParams,
        PlanItemNotFound, PlanLimitExceeded, StatusChangeNotAllowed.
        """
        metadata = message.metadata or {}
        if message.task_id is not None:
            return None
        state = await self._objective(message, metadata, scope)
        if state is None:
            return None
        placed = msgspec.structs.replace(message, context_id=ContextId(state.id))
        if metadata.get(ANSWERS) is not None:
            return _answering(placed, state, metadata[ANSWERS])
        if metadata.get(PLAN) is None:
            session = objective_session(rules.agent_id, state.id)
            return Taken(placed, FromInside(session, metadata={OBJECTIVE_KEY: state.id}))
        return await self._in_plan(placed, state, scope, rules)

    async def _objective(
        self, message: Message, metadata: JsonObject, scope: Scope
    ) -> ObjectiveState | None:
        given: Json = metadata.get(OBJECTIVE)
        if given is not None:
            return await self._given_objective(_object(OBJECTIVE, given), message, scope)
        if message.context_id is not None and message.context_id.startswith(OBJECTIVE_PREFIX):
            known = await self._known(ObjectiveId(message.context_id), scope)
            if known is not None:
                return known
        if metadata.get(PREFER) is True:
            suggested: Json = metadata.get(SUGGESTED)
            return await self._make({"name": suggested}, message, scope)
        return None

    async def _given_objective(
        self, given: JsonObject, message: Message, scope: Scope
    ) -> ObjectiveState:
        named: Json = given.get("id")
        if not isinstance(named, str) or not named:
            return await self._make(given, message, scope)
        known = await self._known(ObjectiveId(named), scope)
        if known is not None:
            return known
        is_good = is_own_id(named) and named.startswith(OBJECTIVE_PREFIX)
        is_free = is_good and not await self._is_taken(named)
        return await self._make(given, message, scope, ObjectiveId(named) if is_free else None)

    async def _known(self, objective_id: ObjectiveId, scope: Scope) -> ObjectiveState | None:
        try:
            state = await self._book.find(objective_id)
        except PlanItemNotFound:
            return None
        return state if state.owner in (None, scope) else None

    async def _is_taken(self, objective_id: str) -> bool:
        try:
            await self._book.find(ObjectiveId(objective_id))
        except PlanItemNotFound:
            return False
        return True

    async def _make(
        self,
        given: JsonObject,
        message: Message,
        scope: Scope,
        objective_id: ObjectiveId | None = None,
    ) -> ObjectiveState:
        own = ObjectiveId(OBJECTIVE_PREFIX + _digest(message, scope))
        name = objective_id or own
        if name == own and (known := await self._known(own, scope)) is not None:
            return known
        params = read_as(CreateObjective, _wanted(given, message), method=_METHOD)
        change = create_objective(params, self._book.occasion, objective_id=name, owner=scope)
        try:
            return await self._book.create(change)
        except StatusChangeNotAllowed:  # another message came first
            if (known := await self._known(name, scope)) is None:
                raise
            return known

    async def _in_plan(
        self, message: Message, state: ObjectiveState, scope: Scope, rules: AccountRules
    ) -> Taken:
        given = _object(PLAN, (message.metadata or {})[PLAN])
        digest = _digest(message, scope)
        plan_id = await self._plan(given, message, state, PlanId(PLAN_PREFIX + digest))
        name, text = _title(message), usable_text(message)
        described = None if text in ("", name) else text
        entry = TaskEntry(name, described, metadata={MESSAGE_KEY: message.message_id})
        params = AddTasks(plan_id, (entry,))
        task_id = PlanTaskId(TASK_PREFIX + digest)

        def add(known: ObjectiveState, occasion: Occasion) -> Change:
            if task_id in known.tasks:
                return Change(known)
            named = msgspec.structs.replace(occasion, new_id=lambda: digest)
            return add_tasks(known, params, named)

        change = await self._book.change(state.id, add)
        task = change.state.task(task_id)
        inside = FromInside(step_session(rules.agent_id, task), metadata=task_keys(task))
        follow = self._mirror.follow(Followed(state.id, task.id, attempt=1))
        return Taken(message, inside, follow)

    async def _plan(
        self, given: JsonObject, message: Message, state: ObjectiveState, own: PlanId
    ) -> PlanId:
        named: Json = given.get("id")
        for one in (named, own):
            if isinstance(one, str) and one in state.plans:
                return PlanId(one)
        params = read_as(
            CreatePlan, {**_wanted(given, message), "objectiveId": state.id}, method=_METHOD
        )
        is_good = isinstance(named, str) and named.startswith(PLAN_PREFIX) and is_own_id(named)
        plan_id = own
        if is_good and await self._book.claim_plan(PlanId(str(named)), state.id):
            plan_id = PlanId(str(named))

        def create(known: ObjectiveState, occasion: Occasion) -> Change:
            if plan_id in known.plans:
                return Change(known)  # another message came first
            return create_plan(known, params, occasion, plan_id=plan_id)

        try:
            await self._book.change(state.id, create)
        except GatewayError:
            self._book.release_plan(plan_id, state.id)
            raise
        return plan_id


def _answering(message: Message, state: ObjectiveState, named: Json) -> Taken:
    task_id = task_of(state, named) if isinstance(named, str) else None
    if task_id is None:
        raise not_found("task", str(named))
    return Taken(msgspec.structs.replace(message, task_id=task_id), answers=task_id)


def _wanted(given: JsonObject, message: Message) -> JsonObject:
    """What a new objective or plan is made of; a name is found in the message if need be."""
    name: Json = given.get("name")
    has_name = isinstance(name, str) and bool(name.strip())
    wanted: JsonObject = {"name": name if has_name else _title(message)}
    for key in ("description", "metadata"):
        if given.get(key) is not None:
            wanted[key] = given[key]
    return wanted


def _digest(message: Message, scope: Scope) -> str:
    """A short name that comes of who sent which message."""
    digest = hashlib.blake2b(digest_size=8)
    for part in (scope.principal, scope.account, message.message_id):
        digest.update(f"{len(part)}:{part}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _title(message: Message) -> str:
    text = " ".join(usable_text(message).split())
    return text[:_LONGEST_NAME].strip() or "A message"


def _object(key: str, value: Json) -> JsonObject:
    if not isinstance(value, dict):
        path = f"message.metadata[{key!r}]"
        problem = Problem(path, "must be an object")
        raise InvalidParams(f"{path} {problem.message}", problems=(problem,))
    return cast("JsonObject", value)
