"""The current task, folded from its events by the rules of `apply_event`, at constant cost each."""

import msgspec

from openclaw_a2a.model.ids import ArtifactId, MessageId
from openclaw_a2a.model.message import Message, Part
from openclaw_a2a.model.records import StoredTask, decode_task
from openclaw_a2a.model.task import (
    Artifact,
    ArtifactUpdate,
    Event,
    StatusUpdate,
    Task,
    TaskStatus,
    continue_artifact,
)


class TaskProjection:
    """A task as the events so far made it."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.status: TaskStatus = task.status
        self._history: list[Message] = []
        self._message_ids: set[MessageId] = set()
        for message in task.history:
            self._message_ids.add(message.message_id)
            self._history.append(message)
        self._artifacts: dict[ArtifactId, _GrowingArtifact] = {}
        for artifact in task.artifacts:
            self._artifacts[artifact.artifact_id] = _GrowingArtifact(artifact)
        self.open_artifacts: dict[ArtifactId, None] = {}
        """Artifacts without a last chunk yet, in order."""

    @classmethod
    def from_stored(cls, stored: StoredTask) -> "TaskProjection":
        """The projection of a stored task: its snapshot and the events after it."""
        projection = cls(decode_task(stored.snapshot))
        for entry in stored.entries:
            projection.apply(entry.event)
        return projection

    def apply(self, event: Event) -> None:
        """Fold one event in."""
        if isinstance(event, StatusUpdate):
            self.status = event.status
            if event.status.message is not None:
                self.add_message(event.status.message)
        else:
            self._apply_artifact(event)

    def add_message(self, message: Message) -> None:
        """Append to the history, once per message id."""
        if message.message_id not in self._message_ids:
            self._message_ids.add(message.message_id)
            self._history.append(message)

    @property
    def message_count(self) -> int:
        """The length of the history."""
        return len(self._history)

    def has_message(self, message_id: MessageId) -> bool:
        """True when the history holds this message."""
        return message_id in self._message_ids

    @property
    def has_artifacts(self) -> bool:
        """True when the task has an artifact."""
        return bool(self._artifacts)

    def artifacts(self, prefix: str) -> list[Artifact]:
        """The artifacts whose id starts with `prefix`, in order."""
        growing = self._artifacts.items()
        return [one.artifact() for artifact_id, one in growing if artifact_id.startswith(prefix)]

    def has_artifact(self, artifact_id: ArtifactId) -> bool:
        """True when the task has this artifact."""
        return artifact_id in self._artifacts

    def artifact_count(self, prefix: str) -> int:
        """The number of artifacts whose id starts with `prefix`."""
        return sum(artifact_id.startswith(prefix) for artifact_id in self._artifacts)

    def task(self) -> Task:
        """The task, frozen."""
        artifacts = self._artifacts and [one.artifact() for one in self._artifacts.values()]
        return msgspec.structs.replace(
            self._task,
            status=self.status,
            artifacts=tuple(artifacts),
            history=tuple(self._history),
        )

    def _apply_artifact(self, event: ArtifactUpdate) -> None:
        artifact = event.artifact
        known = self._artifacts.get(artifact.artifact_id)
        if known is None:
            self._artifacts[artifact.artifact_id] = _GrowingArtifact(artifact)
        elif event.append:
            known.grow(artifact)
        else:
            known.replace(artifact)
        if event.last_chunk:
            self.open_artifacts.pop(artifact.artifact_id, None)
        else:
            self.open_artifacts[artifact.artifact_id] = None


class _GrowingArtifact:
    """An artifact whose parts are a list once it grows, so that appending does not copy them."""

    __slots__ = ("_head", "_parts")

    def __init__(self, artifact: Artifact) -> None:
        self._head = artifact
        self._parts: list[Part] | None = None

    def replace(self, artifact: Artifact) -> None:
        self._head, self._parts = artifact, None

    def grow(self, more: Artifact) -> None:
        if self._parts is None:
            self._parts = list(self._head.parts)
            self._head = msgspec.structs.replace(self._head, parts=())
        self._parts.extend(more.parts)
        self._head = continue_artifact(self._head, msgspec.structs.replace(more, parts=()))

    def artifact(self) -> Artifact:
        if self._parts is None:
            return self._head
        return msgspec.structs.replace(self._head, parts=tuple(self._parts))
