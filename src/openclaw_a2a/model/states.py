"""The one table of task states: what may follow what, and what each state means.

    submitted ──> working ──> completed | failed | canceled | rejected        (terminal: the end)
        │            │  ^
        │            v  │ a message on the task
        └──> input-required | auth-required ──> submitted                     (paused: waits)

Rules
  1. A terminal state is never left. Exactly one terminal event exists per task.
  2. A state may follow itself: an agent may report "working" many times.
  3. A paused task has no active run; a message starts one and the task is `submitted` again.
  4. Any state that is not terminal may become `failed` or `canceled`.
  5. A terminal task may still get artifacts of late replies; its state does not change.
"""

from openclaw_a2a.model.task import TaskState

TERMINAL = frozenset(
    {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED}
)
PAUSED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})
ACTIVE = frozenset({TaskState.SUBMITTED, TaskState.WORKING})

_OPEN = frozenset({*ACTIVE, *PAUSED, *TERMINAL})
_NOTHING: frozenset[TaskState] = frozenset()
_RESUMES = frozenset({*PAUSED, TaskState.SUBMITTED, TaskState.FAILED, TaskState.CANCELED})

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


def may_follow(old: TaskState, new: TaskState) -> bool:
    """True when the table allows the step."""
    return new in ALLOWED.get(old, _NOTHING)


def is_terminal(state: TaskState) -> bool:
    """True when nothing more happens to a task in this state."""
    return state in TERMINAL


def is_paused(state: TaskState) -> bool:
    """True when the task waits for its caller."""
    return state in PAUSED


def is_active(state: TaskState) -> bool:
    """True when a run is queued or under way."""
    return state in ACTIVE
