"""Steps of plans: which may start now, when failed ones are retried, on which agent, with what."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import msgspec

from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.errors import InvalidParams, NotAllowed, Problem
from openclaw_a2a.model.ids import (
    GATEWAY_PREFIX,
    TARGET_PREFIX,
    AccountId,
    AgentId,
    ContextId,
    Json,
    JsonObject,
    MessageId,
    PeerName,
    SessionKey,
)
from openclaw_a2a.model.message import JsonStruct, Message, Part, Role
from openclaw_a2a.model.skill import matches_any
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.model.validation import as_list, as_object, object_at
from openclaw_a2a.planning.model import (
    MESSAGE_KEY,
    OBJECTIVE_ENDED,
    PLAN_OPEN,
    TASK_WAITING,
    ObjectiveId,
    PlanId,
    PlanTask,
    PlanTaskId,
    Timestamp,
    to_datetime,
    to_timestamp,
)
from openclaw_a2a.planning.state import ObjectiveState, match_items

EXTENSION_URI = "https://github.com/zeroasterisk/a2a-opt/v1"
"""The URI under which agent cards declare the extension for objectives, plans and tasks."""
EXTENSION_URIS = frozenset(
    {EXTENSION_URI, "https://a2a-protocol.org/extensions/objective-plan-task/v1"}
)
"""The URIs with which callers activate it."""

OBJECTIVE_KEY = "opt/v1/objectiveId"
PLAN_KEY = "opt/v1/planId"
INDEX_KEY = "opt/v1/taskIndex"
DEPENDENCIES_KEY = "opt/v1/dependencies"
TASK_KEYS = frozenset({OBJECTIVE_KEY, PLAN_KEY, INDEX_KEY, DEPENDENCIES_KEY})
"""Metadata of a task, and of messages to remote agents, that says which step it is."""
_MAX_RESULT_LENGTH = 20_000
# Long enough for the message that created a step to be stored as a task, even by a busy gateway.
_MESSAGE_GRACE = timedelta(seconds=60)
# Metadata of a caller can ask for more retries than the operator set, but not without end.
_MAX_RETRIES = 100
_DAY_S = 86_400.0
_MAX_NAMED_AGENTS = 100  # the policy decides about each


class ExecutionPolicy(msgspec.Struct, frozen=True):
    """The settings for executing steps; metadata of a step may override retries and back-off."""

    parallel: int = 4
    retries: int = 0
    backoff_s: float = 5.0
    planner: AgentId | None = None
    is_peer: Callable[[PeerName], bool] = lambda _: False
    """True for remote callers. Objectives of all others belong to this gateway's own users."""
    peers_may_ask: tuple[str, ...] = ()
    account_agents: Mapping[AccountId, tuple[str, ...]] = {}
    """Patterns of the agents that steps at an account may name; accounts left out: any."""
    credential_agents: Callable[[PeerName], frozenset[str] | None] = lambda _: None
    """The agents that all credentials of a caller together are limited to; None: all."""

    def is_agent_allowed(self, owner: Scope, agent_id: AgentId, default: AgentId) -> bool:
        """True when the owner of an objective may have steps executed by an agent.

        A peer may always use the default agent of its account.
        """
        if agent_id.startswith(GATEWAY_PREFIX):  # only the gateway itself may use it
            return False
        allowed = self.account_agents.get(owner.account)
        if allowed is not None and agent_id != default and not matches_any(allowed, agent_id):
            return False
        if agent_id == default or not self.is_peer(owner.principal):
            return True
        limited = self.credential_agents(owner.principal)
        if limited is not None and agent_id not in limited:
            return False
        return matches_any(self.peers_may_ask, agent_id)


def select_agent(state: ObjectiveState, task: PlanTask, default: AgentId) -> AgentId:
    """The agent that the metadata of the step, its plan or its objective name, in this order."""
    for metadata in (task.metadata, state.plans[task.plan_id].metadata, state.objective.metadata):
        if (named := _named_agent(metadata)) is not None:
            return named
    return default


def _named_agent(metadata: JsonObject) -> AgentId | None:
    named = metadata.get("agent")
    return AgentId(named.strip()) if isinstance(named, str) and named.strip() else None


def named_agents(given: Json) -> set[AgentId]:
    """The agents that an objective or plan and its steps name, as a caller gave them."""
    members = as_object(given)
    # Only one level: steps have no steps.
    items = [members, *map(as_object, as_list(members.get("tasks")))]
    named = (_named_agent(object_at(item, "metadata")) for item in items)
    return {agent_id for agent_id in named if agent_id is not None}


def check_named_agents(named: set[AgentId], limited: frozenset[str] | None) -> None:
    """Refuse a change that names agents for which the caller's credentials are not valid.

    Raises: NotAllowed, InvalidParams (it names too many to decide about each).
    """
    if len(named) > _MAX_NAMED_AGENTS:
        reason = f"names {len(named)} agents; the most are {_MAX_NAMED_AGENTS}"
        raise InvalidParams(f"metadata.agent {reason}", problems=(Problem("metadata", reason),))
    for agent in sorted(named):
        if limited is not None and agent not in limited:
            raise NotAllowed(
                f"metadata.agent: these credentials are not valid for agent {agent[:80]}; "
                "name another one, or leave it out"
            )


def ready_tasks(state: ObjectiveState) -> list[PlanTask]:
    """The plan tasks that may start now, in the order of plans and indexes.

    In a plan that waits for an answer, other tasks may start; in one that waits for other plans,
    or that a caller blocked, none. Nothing starts in an objective that has ended or is held.
    """
    if state.is_held or state.objective.status in OBJECTIVE_ENDED:
        return []
    return [
        task
        for plan in state.plans.values()
        if plan.status in PLAN_OPEN
        and plan.id not in state.held
        and not (plan.dependencies and state.unfinished_dependencies(plan))
        for task in state.unblocked_tasks(plan.id)
    ]


def find_waiting_step(state: ObjectiveState, step: str | None) -> PlanTask:
    """The step to answer: the one that is named, or the only one that waits.

    Raises: PlanItemNotFound (there is no such step), InvalidParams (it does not wait; none or
    several do).
    """
    waiting = [
        one for one in state.tasks.values() if one.a2a_task_id and one.status in TASK_WAITING
    ]
    found = waiting if step is None else match_items(waiting, step)
    if len(found) == 1:
        return found[0]
    if step is not None and not found:
        state.find_step(step)  # an unknown one is not found
    listed = ", ".join(f"{task.id} ({task.name[:40]})" for task in (found or waiting)[:5])
    if not waiting:
        reason = f"no step of {state.id} waits for an answer"
    elif found:
        reason = f"{len(found)} steps wait for an answer, name one of them: {listed}"
    else:
        reason = f"{str(step)[:80]} does not wait for an answer; these do: {listed}"
    raise InvalidParams(f"step: {reason}", problems=(Problem("step", reason),))


def max_retries(task: PlanTask, policy: ExecutionPolicy) -> int:
    """How often a failed step is retried."""
    given: Json = task.metadata.get("retries")
    if isinstance(given, bool) or not isinstance(given, int):
        return policy.retries
    return min(max(given, 0), _MAX_RETRIES)


def earliest_start(
    state: ObjectiveState, task: PlanTask, policy: ExecutionPolicy
) -> datetime | None:
    """When the executor may start a step; None for at once.

    A failed step waits for its back-off, unless a caller asked for the next attempt. A step that a
    message created is started by that message; if that has not happened within the grace time (the
    gateway stopped, or was overloaded), the executor starts it.
    """
    attempts = state.attempts.get(task.id, 0)
    if task.id in state.at_once or (not attempts and MESSAGE_KEY not in task.metadata):
        return None
    since = to_datetime(state.status_since[task.id])
    if not attempts:
        return since + _MESSAGE_GRACE
    given: Json = task.metadata.get("backoffSeconds")
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    first_s = min(max(given, 0), _DAY_S) if is_number else policy.backoff_s
    return since + timedelta(seconds=Backoff(first_s, _DAY_S).delay_s(attempts))


class PendingRetry(JsonStruct, frozen=True):
    """A failed plan task, how often it was tried, and when it is retried."""

    task_id: PlanTaskId
    plan_id: PlanId
    name: str
    attempts: int
    next_at: Timestamp


def pending_retries(state: ObjectiveState, policy: ExecutionPolicy) -> list[PendingRetry]:
    """The steps that will be retried, the next one first."""
    found: list[PendingRetry] = []
    for task in ready_tasks(state):
        attempts = state.attempts.get(task.id, 0)
        start = earliest_start(state, task, policy) if attempts else None
        if start is not None and state.is_running(task.plan_id):
            found.append(
                PendingRetry(task.id, task.plan_id, task.name, attempts, to_timestamp(start))
            )
    return sorted(found, key=lambda retry: retry.next_at)


def task_metadata(task: PlanTask) -> JsonObject:
    """The metadata of the A2A task of a step."""
    metadata: JsonObject = {
        OBJECTIVE_KEY: task.objective_id,
        PLAN_KEY: task.plan_id,
        INDEX_KEY: task.task_index,
    }
    if task.dependencies:
        metadata[DEPENDENCIES_KEY] = list(task.dependencies)
    return metadata


def objective_session(agent_id: AgentId, objective_id: ObjectiveId) -> SessionKey:
    """The session of an agent for messages about an objective."""
    # Session keys are split at colons, and the id of a remote agent contains one.
    return SessionKey(f"agent:{agent_id.lower().replace(':', '.')}:a2a:obj:{objective_id}")


def step_session(agent_id: AgentId, task: PlanTask) -> SessionKey:
    """The session of an agent for one step: independent steps must not queue behind each other."""
    return SessionKey(f"{objective_session(agent_id, task.objective_id)}:{task.id}")


def dependency_steps(state: ObjectiveState, task: PlanTask) -> list[PlanTask]:
    """The steps whose results are input of a step.

    Its own dependencies, and the last steps of the plans that its plan depends on.
    """
    found = {one: state.tasks[one] for one in task.dependencies if one in state.tasks}
    for plan_id in state.plans[task.plan_id].dependencies:
        steps = state.tasks_of(plan_id) if plan_id in state.plans else []
        has_successor = {needed for step in steps for needed in step.dependencies}
        found |= {step.id: step for step in steps if step.id not in has_successor}
    return list(found.values())


def attempt_message_id(task: PlanTask, attempt: int) -> MessageId:
    """The message id of an attempt. It is fixed, so that starting an attempt twice is a no-op."""
    return MessageId(f"{task.id}.{attempt}")


def step_message(
    state: ObjectiveState, task: PlanTask, results: list[tuple[str, str]], *, agent_id: AgentId
) -> Message:
    """The message that asks an agent to execute a step, given the results of earlier steps."""
    # The name of a step that a message created is only the beginning of its description.
    is_from_message = MESSAGE_KEY in task.metadata and task.description
    objective = state.objective
    about = f"This is a step of: {objective.name}"
    parts = [
        "\n\n".join(filter(None, ("" if is_from_message else task.name, task.description))),
        about if objective.description is None else f"{about}\n{objective.description}",
    ]
    for name, text in results:
        parts.append(f"Result of the step before, {name}:\n{text[:_MAX_RESULT_LENGTH]}")
    return Message(
        attempt_message_id(task, state.attempts.get(task.id, 0) + 1),
        Role.USER,
        (Part(text="\n\n".join(parts)),),
        context_id=ContextId(state.id),
        # Local agents have it in their task; a remote agent sees nothing but the message.
        metadata=task_metadata(task) if agent_id.startswith(TARGET_PREFIX) else None,
    )
