"""Queued replies: what an agent says after its run is appended to the task, also an ended one."""

from uuid import UUID, uuid5

import structlog

from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import ArtifactId, JsonObject, SessionKey, TaskId
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.stored import encode_record
from openclaw_a2a.model.task import Artifact, ArtifactUpdate
from openclaw_a2a.runtime.engine import Engine
from openclaw_a2a.runtime.journal import Journal

log = structlog.get_logger(__name__)

PREFIX = "queued-reply-"
NAME = "Queued follow-up reply"
_NAMESPACE = UUID("6e0a3f5e-52a5-4c8b-9a3c-7d6f0c1d2b4e")


def reply_artifact_id(session_key: SessionKey, reply_id: str) -> ArtifactId:
    """The artifact of a reply: the same one whenever the same reply is told."""
    told = f"{session_key}\n{reply_id}"
    return ArtifactId(f"{PREFIX}{uuid5(_NAMESPACE, told)}")


def queued_artifact(
    artifact_id: ArtifactId,
    parts: tuple[Part, ...],
    *,
    session_key: str | None = None,
    to: str | None = None,
) -> Artifact:
    """A queued reply as an artifact."""
    metadata: JsonObject = {"source": "queued-reply", "channel": "a2a"}
    metadata |= {"sessionKey": session_key} if session_key else {}
    metadata |= {"to": to} if to else {}
    return Artifact(artifact_id, parts, name=NAME, metadata=metadata)


async def append_reply(engine: Engine, task_id: TaskId, artifact: Artifact) -> bool:
    """Append the artifact to the task, once; False when there is no such task.

    It is durable when this returns. Raises: AgentFailed (it is too large, or the task holds all it
    can), StoreUnavailable, LeaseLost (something else changed the task; look again).
    """
    async with engine.alone(task_id):
        journal = await _journal(engine, task_id)
        if journal is None:
            return False
        if journal.view.has_artifact(artifact.artifact_id):
            await journal.reach(journal.sequence)
            return True
        _check_room(engine, journal, artifact)
        head = journal.head
        update = ArtifactUpdate(head.id, head.context_id, artifact, last_chunk=True)
        await journal.add(update)
    log.info("reply-queued", task_id=task_id, artifact_id=artifact.artifact_id)
    return True


async def holds_reply(engine: Engine, task_id: TaskId, artifact_id: ArtifactId) -> bool:
    """True when the task has this artifact already; nobody else's words hold such an id."""
    stored = await engine.store.read_task(None, task_id)
    if stored is None:
        return False
    sought = artifact_id.encode()
    return sought in stored.snapshot or any(sought in one.body for one in stored.entries)


async def _journal(engine: Engine, task_id: TaskId) -> Journal | None:
    """The journal of the task: of its runs while it has some, so that there is one order."""
    live = engine.live.get(task_id)
    if live is not None and live.journal.failure is None:
        return live.journal
    stored = await engine.store.read_task(None, task_id)
    return None if stored is None else engine.bounded(Journal.of_stored(engine.store, stored))


def _check_room(engine: Engine, journal: Journal, artifact: Artifact) -> None:
    others = journal.view.artifacts(PREFIX)
    most = engine.limits.queued_replies
    if len(others) >= most:
        raise AgentFailed(f"Task {journal.head.id} holds {most} queued replies, the most.")
    limit = engine.limits.run_bytes
    if sum(len(encode_record(one)) for one in [*others, artifact]) > limit:
        raise AgentFailed(f"The queued replies of task {journal.head.id} exceed {limit} bytes.")
