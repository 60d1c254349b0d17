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
        self._artifacts: dict[ArtifactId, Artifact] = {}
        for artifact in task.artifacts:
            self._artifacts[artifact.artifact_id] = artifact
        self._grown_parts: dict[ArtifactId, list[Part]] = {}
        """The parts of artifacts that grow, as lists: appending to a tuple would copy them all."""
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
            message = event.status.message
            if message is not None and message.message_id not in self._message_ids:
                self._message_ids.add(message.message_id)
                self._history.append(message)
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

    def artifacts(self, prefix: str = "") -> list[Artifact]:
        """The artifacts whose id starts with `prefix`, in order."""
        found: list[Artifact] = []
        for artifact_id, artifact in self._artifacts.items():
            if artifact_id.startswith(prefix):
                parts = self._grown_parts.get(artifact_id)
                if parts is not None:
                    artifact = msgspec.structs.replace(artifact, parts=tuple(parts))
                found.append(artifact)
        return found

    def has_artifact(self, artifact_id: ArtifactId) -> bool:
        """True when the task has this artifact."""
        return artifact_id in self._artifacts

    def artifact_count(self, prefix: str) -> int:
        """The number of artifacts whose id starts with `prefix`."""
        return sum(artifact_id.startswith(prefix) for artifact_id in self._artifacts)

    def task(self) -> Task:
        """The task, frozen."""
        return msgspec.structs.replace(
            self._task,
            status=self.status,
            artifacts=tuple(self.artifacts()) if self._artifacts else (),
            history=tuple(self._history),
        )

    def _apply_artifact(self, event: ArtifactUpdate) -> None:
        new = event.artifact
        artifact_id = new.artifact_id
        known = self._artifacts.get(artifact_id)
        if known is None or not event.append:
            self._artifacts[artifact_id] = new
            if known is not None:
                self._grown_parts.pop(artifact_id, None)
        else:
            self._grown_parts.setdefault(artifact_id, list(known.parts)).extend(new.parts)
            # Its parts are in the list from now on; only the other members are merged.
            known, new = (msgspec.structs.replace(one, parts=()) for one in (known, new))
            self._artifacts[artifact_id] = continue_artifact(known, new)
        if event.last_chunk:
            self.open_artifacts.pop(artifact_id, None)
        else:
            self.open_artifacts[artifact_id] = None
