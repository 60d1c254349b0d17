"""How a step of a plan is asked of an agent: its words, its session, its keys."""

from datetime import datetime, timedelta

import msgspec

from openclaw_a2a.model.glob import matches_any
from openclaw_a2a.model.ids import (
    LOCAL_PEER,
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
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.model import (
    MESSAGE_KEY,
    ObjectiveId,
    PlanId,
    PlanTask,
    PlanTaskId,
    PlanTaskStatus,
    Timestamp,
    to_datetime,
    to_timestamp,
)
from openclaw_a2a.planning.state import ObjectiveState

OBJECTIVE_KEY = "opt/v1/objectiveId"
PLAN_KEY = "opt/v1/planId"
INDEX_KEY = "opt/v1/taskIndex"
DEPENDENCIES_KEY = "opt/v1/dependencies"
EXTENSION_URI = "https://github.com/zeroasterisk/a2a-opt/v1"
"""By what the extension of objectives, plans and tasks is known."""

EXTENSION_URIS = frozenset(
    {EXTENSION_URI, "https://a2a-protocol.org/extensions/objective-plan-task/v1"}
)
"""All names it is activated by."""

TASK_KEYS = frozenset({OBJECTIVE_KEY, PLAN_KEY, INDEX_KEY, DEPENDENCIES_KEY})
"""What says of a task, and to remote agents of a message, which step it does."""
TARGET = "target:"
"""How the id of an agent begins that is a remote one."""

_INNER = "gateway:"
"""How the ids of agents begin that only the gateway itself asks."""

_ON_ITS_WAY = timedelta(seconds=60)
"""After so long a message that made a step and did not begin it is not waited for."""
_MOST_RESULT = 20_000
_MOST_RETRIES = 100
_DAY_S = 86_400.0


class ExecutionPolicy(msgspec.Struct, frozen=True):
    """How steps are run unless they say otherwise."""

    parallel: int = 4
    retries: int = 0
    backoff_s: float = 5.0
    planner: AgentId | None = None
    peers: frozenset[PeerName] = frozenset()
    """Callers from elsewhere; what others ask for is asked by somebody of this house."""
    peers_may_ask: tuple[str, ...] = ()

    def is_agent_allowed(self, owner: Scope | None, agent_id: AgentId, own: AgentId) -> bool:
        """True when the owner of an objective may have steps done by an agent."""
        if agent_id == own or owner is None or owner.principal not in self.peers:
            return not agent_id.startswith(_INNER)
        return matches_any(self.peers_may_ask, agent_id) and not agent_id.startswith(_INNER)


def effective_owner(state: ObjectiveState, account: AccountId) -> Scope:
    """For whom the steps of an objective are done; one that is nobody's is the gateway's own."""
    return state.owner or Scope(LOCAL_PEER, account)


def task_metadata(task: PlanTask) -> JsonObject:
    """What the A2A task of a step carries."""
    keys: JsonObject = {
        OBJECTIVE_KEY: task.objective_id,
        PLAN_KEY: task.plan_id,
        INDEX_KEY: task.task_index,
    }
    return {**keys, DEPENDENCIES_KEY: list(task.dependencies)} if task.dependencies else keys


def objective_session(agent_id: AgentId, objective_id: ObjectiveId) -> SessionKey:
    """The session of an agent for messages about an objective."""
    return SessionKey(f"agent:{agent_id.lower().replace(':', '.')}:a2a:obj:{objective_id}")


def step_session(agent_id: AgentId, task: PlanTask) -> SessionKey:
    """The session of an agent for one step: steps that are independent do not wait in line."""
    return SessionKey(f"{objective_session(agent_id, task.objective_id)}:{task.id}")


def select_agent(state: ObjectiveState, task: PlanTask, default: AgentId) -> AgentId:
    """Who does a step: named by itself, by its plan or by the objective."""
    for metadata in (task.metadata, state.plans[task.plan_id].metadata, state.objective.metadata):
        named = metadata.get("agent")
        if isinstance(named, str) and named.strip():
            return AgentId(named.strip())
    return default


def dependency_steps(state: ObjectiveState, task: PlanTask) -> list[PlanTask]:
    """The steps whose results a step gets: those it names, and the last ones of plans before."""
    found = {one: state.tasks[one] for one in task.dependencies if one in state.tasks}
    for plan_id in state.plans[task.plan_id].dependencies:
        steps = state.tasks_of(plan_id) if plan_id in state.plans else []
        passed_on = {needed for step in steps for needed in step.dependencies}
        found |= {step.id: step for step in steps if step.id not in passed_on}
    return list(found.values())


def max_retries(task: PlanTask, rules: ExecutionPolicy) -> int:
    """How often a step is tried again."""
    given: Json = task.metadata.get("retries")
    if isinstance(given, bool) or not isinstance(given, int):
        return rules.retries
    return min(max(given, 0), _MOST_RETRIES)


def earliest_start(
    state: ObjectiveState, task: PlanTask, rules: ExecutionPolicy
) -> datetime | None:
    """When a step may be begun by the gateway; None when it need not wait.

    One that failed waits for its next try. One that a message made is begun by that message, which
    is on its way; if the gateway was stopped before, or too busy for it, it is like any other step.
    """
    attempts = state.attempts.get(task.id, 0)
    if not attempts:
        is_sent = MESSAGE_KEY in task.metadata
        return to_datetime(state.status_since[task.id]) + _ON_ITS_WAY if is_sent else None
    given: Json = task.metadata.get("backoffSeconds")
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    first_s: float = min(max(given, 0), _DAY_S) if is_number else rules.backoff_s
    pause = timedelta(seconds=min(first_s * 2.0 ** min(attempts - 1, 20), _DAY_S))
    return to_datetime(state.status_since[task.id]) + pause


class PendingRetry(JsonStruct, frozen=True):
    """A plan task that failed, how often it was tried, and when it is tried again."""

    task_id: PlanTaskId
    plan_id: PlanId
    name: str
    attempts: int
    next_at: Timestamp


def pending_retries(state: ObjectiveState, rules: ExecutionPolicy) -> list[PendingRetry]:
    """What is going to be tried again, the next first."""
    found: list[PendingRetry] = []
    for task in state.tasks.values():
        attempts = state.attempts.get(task.id, 0)
        is_again = attempts > 0 and task.status is PlanTaskStatus.PENDING
        due = earliest_start(state, task, rules) if is_again else None
        if due is not None and state.is_running(task.plan_id) and state.is_ready(task):
            found.append(
                PendingRetry(task.id, task.plan_id, task.name, attempts, to_timestamp(due))
            )
    return sorted(found, key=lambda retry: retry.next_at)


def attempt_message_id(task: PlanTask, attempt: int) -> MessageId:
    """The id of the message that starts an attempt: always the same for the same attempt."""
    return MessageId(f"{task.id}.{attempt}")


def step_message(
    state: ObjectiveState, task: PlanTask, results: list[tuple[str, str]], *, agent_id: AgentId
) -> Message:
    """What the agent of a step is asked."""
    attempt = state.attempts.get(task.id, 0) + 1
    is_remote = agent_id.startswith(TARGET)
    return Message(
        attempt_message_id(task, attempt),
        Role.USER,
        (Part(text=_words(state, task, results)),),
        context_id=ContextId(state.id),
        metadata=task_metadata(task) if is_remote else None,
    )


def _words(state: ObjectiveState, task: PlanTask, results: list[tuple[str, str]]) -> str:
    is_message = MESSAGE_KEY in task.metadata
    name = "" if is_message and task.description else task.name
    parts = ["\n\n".join(filter(None, (name, task.description)))]
    objective = state.objective
    about = f"This is a step of: {objective.name}"
    parts.append(about if objective.description is None else f"{about}\n{objective.description}")
    for name, text in results:
        parts.append(f"Result of the step before, {name}:\n{text[:_MOST_RESULT]}")
    return "\n\n".join(parts)
