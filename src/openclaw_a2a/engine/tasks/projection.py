"""Builds tasks from their events, at constant cost for each event."""

import msgspec

from openclaw_a2a.engine.scheduling.fair_queue import Pacer
from openclaw_a2a.model.ids import ArtifactId, MessageId
from openclaw_a2a.model.message import Message
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


class GrowingArtifact:
    """An artifact that is continued, at constant cost for each chunk: no tuple is copied."""

    __slots__ = ("_first", "_metadata", "_parts")

    def __init__(self, first: Artifact) -> None:
        self._first = first
        self._parts = list(first.parts)
        self._metadata = first.metadata

    def add(self, more: Artifact) -> None:
        """Append a chunk, by the rule of `continue_artifact`."""
        self._parts += more.parts
        if more.metadata:
            known = self._metadata
            self._metadata = {**known, **more.metadata} if known else more.metadata
        # Nearly always only the first chunk has any of these.
        if more.name or more.description or more.extensions:
            self._first = continue_artifact(self._first, more, parts=())

    def artifact(self) -> Artifact:
        """The artifact so far."""
        return msgspec.structs.replace(
            self._first, parts=tuple(self._parts), metadata=self._metadata
        )


class TaskProjection:
    """The content of a task after the events that were applied so far."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.status: TaskStatus = task.status
        self.history: list[Message] = list(task.history)
        self._message_ids: set[MessageId] | None = None
        self._artifacts: dict[ArtifactId, Artifact] = {
            artifact.artifact_id: artifact for artifact in task.artifacts
        }
        self.artifact_ids = self._artifacts.keys()
        """The ids of the artifacts so far, in order: a view, not a copy."""
        self._growing: dict[ArtifactId, GrowingArtifact] = {}
        """The artifacts that were appended to; `_artifacts` has each as it was before."""
        self.open_artifacts: dict[ArtifactId, None] = {}
        """Artifacts without a last chunk yet, in order."""

    @classmethod
    def from_stored(cls, stored: StoredTask) -> "TaskProjection":
        """The projection of a stored task: its snapshot and the events after it."""
        projection = cls(decode_task(stored.snapshot))
        for entry in stored.entries:
            projection.apply(entry.event)
        return projection

    @classmethod
    async def from_large(cls, stored: StoredTask) -> "TaskProjection":
        """Like `from_stored`; yields to the event loop regularly."""
        projection = cls(decode_task(stored.snapshot))
        pacer = Pacer()
        for entry in stored.entries:
            projection.apply(entry.event)
            await pacer.pause()
        return projection

    def has_message(self, message_id: MessageId) -> bool:
        """True when the history has a message of this id."""
        # Once for each message that a running task gets, which copies the history anyway.
        return any(message.message_id == message_id for message in self.history)

    def apply(self, event: Event) -> None:
        """Fold one event in."""
        if isinstance(event, StatusUpdate):
            self.apply_status(event.status)
        else:
            self.apply_artifact(event)

    def apply_status(self, status: TaskStatus) -> None:
        """Fold a status in; its message joins the history."""
        self.status = status
        if status.message is not None:
            self.add_message(status.message)

    def add_message(self, message: Message) -> None:
        """Append to the history, once per message id."""
        history, known = self.history, self._message_ids
        if known is None:
            # Made when it is needed: most tasks get few messages after their first one.
            known = self._message_ids = {one.message_id for one in history}
        if message.message_id not in known:
            known.add(message.message_id)
            history.append(message)

    def artifacts(self, prefix: str = "") -> list[Artifact]:
        """The artifacts whose id starts with `prefix`, in order."""
        found: list[Artifact] = []
        for artifact_id, artifact in self._artifacts.items():
            if artifact_id.startswith(prefix):
                growing = self._growing.get(artifact_id)
                found.append(artifact if growing is None else growing.artifact())
        return found

    def task(self) -> Task:
        """The task, frozen."""
        return msgspec.structs.replace(
            self._task,
            status=self.status,
            artifacts=tuple(self.artifacts() if self._growing else self._artifacts.values()),
            history=tuple(self.history),
        )

    def apply_artifact(self, event: ArtifactUpdate) -> None:
        """Apply an artifact update: replace the artifact, or append the chunk."""
        new = event.artifact
        artifact_id = new.artifact_id
        known = self._artifacts.get(artifact_id)
        if known is None or not event.append:
            self._artifacts[artifact_id] = new
            if known is not None:
                self._growing.pop(artifact_id, None)
        else:
            growing = self._growing.get(artifact_id)
            if growing is None:
                growing = self._growing[artifact_id] = GrowingArtifact(known)
            growing.add(new)
        if event.last_chunk:
            self.open_artifacts.pop(artifact_id, None)
        else:
            self.open_artifacts[artifact_id] = None
