"""Tasks, their states and artifacts, and the two kinds of event that change them.

The one table of task states: what may follow what, and what each state means.

    submitted ──> working ──> completed | failed | canceled | rejected        (terminal: the end)
        │            │  ^
        │            v  │ a message on the task
        └──> input-required | auth-required ──> submitted                     (paused: waits)

Rules
  1. A terminal state is never left. Exactly one terminal event exists per task.
  2. A state may follow itself: an agent may report "working" many times.
  3. A paused task has no active run; a message starts one and the task is `submitted` again.
  4. Any state that is not terminal may become `failed`, `canceled` or `rejected`.
  5. A terminal task may still get artifacts of late replies; its state does not change.
"""

from datetime import datetime
from enum import Enum

import msgspec

from openclaw_a2a.model.ids import ArtifactId, ContextId, JsonObject, TaskId
from openclaw_a2a.model.message import JsonStruct, Message, Part


class TaskState(Enum):
    """The states of A2A."""

    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    REJECTED = "TASK_STATE_REJECTED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"
    UNSPECIFIED = "TASK_STATE_UNSPECIFIED"

    __hash__ = object.__hash__  # members are single objects; hashing their names costs a call

    @property
    def label(self) -> str:
        """The state as people read it: `input-required`."""
        return self.value.removeprefix("TASK_STATE_").lower().replace("_", "-")


class TaskStatus(JsonStruct, frozen=True):
    """The state of a task, since when, and the message of the agent that came with it."""

    state: TaskState
    message: Message | None = None
    timestamp: datetime | None = None


class Artifact(JsonStruct, frozen=True):
    """Something a task produced."""

    artifact_id: ArtifactId
    parts: tuple[Part, ...]
    name: str | None = None
    description: str | None = None
    metadata: JsonObject | None = None
    extensions: tuple[str, ...] = ()


class Task(JsonStruct, frozen=True):
    """One unit of work."""

    id: TaskId
    context_id: ContextId
    status: TaskStatus
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: JsonObject | None = None


class StatusUpdate(JsonStruct, frozen=True):
    """The task has a new status."""

    task_id: TaskId
    context_id: ContextId
    status: TaskStatus
    metadata: JsonObject | None = None


class ArtifactUpdate(JsonStruct, frozen=True):
    """An artifact was added, replaced or (with `append`) continued."""

    task_id: TaskId
    context_id: ContextId
    artifact: Artifact
    append: bool = False
    last_chunk: bool = False
    metadata: JsonObject | None = None


Event = StatusUpdate | ArtifactUpdate


def apply_event(task: Task, event: Event) -> Task:
    """The task after the event: the rule that readers and stores agree on.

    A status replaces the status and its message joins the history (once per message id). An
    artifact replaces the one with its id, or with `append` adds its parts to it and merges
    metadata, name and description.
    """
    if isinstance(event, StatusUpdate):
        return msgspec.structs.replace(
            task, status=event.status, history=_with_message(task.history, event.status.message)
        )
    return msgspec.structs.replace(task, artifacts=_with_artifact(task.artifacts, event))


def _with_message(history: tuple[Message, ...], message: Message | None) -> tuple[Message, ...]:
    if message is None or any(known.message_id == message.message_id for known in history):
        return history
    return (*history, message)


def _with_artifact(artifacts: tuple[Artifact, ...], event: ArtifactUpdate) -> tuple[Artifact, ...]:
    new = event.artifact
    for index, old in enumerate(artifacts):
        if old.artifact_id == new.artifact_id:
            merged = continue_artifact(old, new) if event.append else new
            return (*artifacts[:index], merged, *artifacts[index + 1 :])
    return (*artifacts, new)


def continue_artifact(
    old: Artifact, more: Artifact, *, parts: tuple[Part, ...] | None = None
) -> Artifact:
    """The old artifact with the parts of `more` added (or these parts), and the rest merged."""
    metadata = {**old.metadata, **more.metadata} if old.metadata and more.metadata else None
    return msgspec.structs.replace(
        old,
        parts=old.parts + more.parts if parts is None else parts,
        name=more.name or old.name,
        description=more.description or old.description,
        metadata=metadata or more.metadata or old.metadata,
        extensions=more.extensions or old.extensions,
    )


TERMINAL = frozenset(
    {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED}
)
PAUSED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})
ACTIVE = frozenset({TaskState.SUBMITTED, TaskState.WORKING})

_OPEN = frozenset({*ACTIVE, *PAUSED, *TERMINAL})
_RESUMES = frozenset(
    {*PAUSED, TaskState.SUBMITTED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED}
)

ALLOWED: dict[TaskState, frozenset[TaskState]] = {
    TaskState.SUBMITTED: _OPEN,
    TaskState.WORKING: _OPEN,
    TaskState.INPUT_REQUIRED: _RESUMES,
    TaskState.AUTH_REQUIRED: _RESUMES,
    TaskState.COMPLETED: frozenset(),
    TaskState.FAILED: frozenset(),
    TaskState.CANCELED: frozenset(),
    TaskState.REJECTED: frozenset(),
}


def is_terminal(state: TaskState) -> bool:
    """True when nothing more happens to a task in this state."""
    return state in TERMINAL


def is_paused(state: TaskState) -> bool:
    """True when the task waits for its caller."""
    return state in PAUSED


def is_active(state: TaskState) -> bool:
    """True when a run is queued or under way."""
    return state in ACTIVE
