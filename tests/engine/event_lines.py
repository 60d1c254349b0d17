"""Events as short lines, and the properties that every journal must have."""

from collections import Counter
from collections.abc import Sequence

from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.transcript.assistant_message import PublishedOutput, published_output
from openclaw_a2a.model.ids import ContextId, TaskId
from openclaw_a2a.model.message import Role
from openclaw_a2a.model.records import Entry
from openclaw_a2a.model.task import (
    TERMINAL,
    Artifact,
    ArtifactUpdate,
    Event,
    Task,
    TaskState,
    TaskStatus,
    apply_event,
)


def state_name(state: TaskState) -> str:
    return state.value.removeprefix("TASK_STATE_").lower().replace("_", "-")


def event_line(event: Event) -> str:
    """`status working`, `artifact a`, `artifact +a` when it appends, `artifact a.` at the end."""
    if isinstance(event, ArtifactUpdate):
        plus, dot = "+" if event.append else "", "." if event.last_chunk else ""
        return f"artifact {plus}{event.artifact.artifact_id}{dot}"
    return f"status {state_name(event.status.state)}"


def event_lines(events: Sequence[Event | Entry]) -> list[str]:
    return [event_line(one.event if isinstance(one, Entry) else one) for one in events]


def event_text(event: Event) -> str:
    """The text of a status message or of an artifact."""
    if isinstance(event, ArtifactUpdate):
        return text_of(event.artifact)
    return "" if event.status.message is None else event.status.message.text


def text_of(artifact: Artifact) -> str:
    return "".join(part.text or "" for part in artifact.parts)


def artifact_texts(task: Task) -> dict[str, str]:
    return {str(artifact.artifact_id): text_of(artifact) for artifact in task.artifacts}


def check_journal(entries: Sequence[Entry], task: Task) -> None:
    """What holds for every task at every moment."""
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    events = [entry.event for entry in entries]
    for entry, event in zip(entries, events, strict=True):
        state = None if isinstance(event, ArtifactUpdate) else event.status.state
        assert entry.state is state
    ends = [entry.sequence for entry in entries if entry.state in TERMINAL]
    assert ends in ([], [len(entries)])
    replayed = Task(task.id, task.context_id, TaskStatus(TaskState.SUBMITTED))
    for event in events:
        replayed = apply_event(replayed, event)
    assert replayed.artifacts == task.artifacts
    assert replayed.status == task.status
    said = tuple(message for message in task.history if message.role is Role.AGENT)
    assert replayed.history == said


def check_closed_once(events: Sequence[Event]) -> None:
    """Every assistant message is closed by exactly one event, its last."""
    outputs = [event for event in events if isinstance(event, ArtifactUpdate)]
    outputs = [one for one in outputs if one.artifact.artifact_id.startswith("assistant-output-")]
    closings = Counter(one.artifact.artifact_id for one in outputs if one.last_chunk)
    last = {one.artifact.artifact_id: one for one in outputs}
    assert closings == dict.fromkeys(last, 1)
    assert all(one.last_chunk for one in last.values())


def published_by(events: list[Event]) -> PublishedOutput:
    """What these events published, as recovery finds it."""
    projection = TaskProjection(Task(TaskId("t"), ContextId("c"), TaskStatus(TaskState.WORKING)))
    for event in events:
        projection.apply(event)
    steps = [
        (event.artifact.artifact_id, str((event.artifact.metadata or {})["phase"]))
        for event in events
        if isinstance(event, ArtifactUpdate)
        and event.artifact.artifact_id.startswith("tool-progress-")
        and (event.artifact.metadata or {})["phase"] != "update"
    ]
    return published_output(projection.artifacts(), projection.open_artifacts, steps)
