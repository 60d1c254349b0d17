"""The message that asks an agent to execute a step, its session, and the metadata of its task."""

from openclaw_a2a.model.ids import AgentId, ContextId, JsonObject, MessageId, SessionKey
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.planning.model import MESSAGE_KEY, ObjectiveId, PlanTask
from openclaw_a2a.planning.state import ObjectiveState

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
TARGET = "target:"
"""Prefix of the ids of remote agents."""
_MAX_RESULT_LENGTH = 20_000


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
    return Message(
        attempt_message_id(task, state.attempts.get(task.id, 0) + 1),
        Role.USER,
        (Part(text=_step_text(state, task, results)),),
        context_id=ContextId(state.id),
        metadata=task_metadata(task) if agent_id.startswith(TARGET) else None,
    )


def _step_text(state: ObjectiveState, task: PlanTask, results: list[tuple[str, str]]) -> str:
    # The name of a step that a message created is only the beginning of its description.
    is_from_message = MESSAGE_KEY in task.metadata and task.description
    parts = ["\n\n".join(filter(None, ("" if is_from_message else task.name, task.description)))]
    objective = state.objective
    about = f"This is a step of: {objective.name}"
    parts.append(about if objective.description is None else f"{about}\n{objective.description}")
    for name, text in results:
        parts.append(f"Result of the step before, {name}:\n{text[:_MAX_RESULT_LENGTH]}")
    return "\n\n".join(parts)
