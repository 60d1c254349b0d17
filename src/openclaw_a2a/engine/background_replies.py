"""What agents send outside their runs: late replies, and pauses that were resolved elsewhere.

A late reply becomes an artifact of the newest task of its session, also when that task has ended.
An agent may repeat its events after a reconnect; the artifact id is derived from the reply id, so
that a repetition is recognised.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from itertools import count
from uuid import UUID, uuid5

import msgspec

from openclaw_a2a.engine.engine import AccountRules, Engine
from openclaw_a2a.engine.engine_state import EngineState
from openclaw_a2a.engine.tasks.active_task import Rejected
from openclaw_a2a.engine.tasks.submit import (
    SubmitRequest,
    continue_task,
    hash_message,
    hold_session,
)
from openclaw_a2a.engine.transcript.assistant_message import (
    has_content,
    omitted_files,
    output_modes,
)
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.agent_event import (
    BackgroundEvent,
    BackgroundReply,
    PauseResolved,
    RecentTask,
)
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.errors import (
    AgentFailed,
    Conflict,
    CorruptRecord,
    GatewayError,
    Overloaded,
    StoreUnavailable,
)
from openclaw_a2a.model.ids import (
    AgentId,
    ArtifactId,
    Json,
    JsonObject,
    MessageId,
    SessionKey,
    TaskId,
)
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.records import TaskHead, decode_resume, encode_json
from openclaw_a2a.model.task import PAUSED, Artifact, ArtifactUpdate
from openclaw_a2a.ports import SupportsBackgroundEvents

log = get_logger(__name__)

REPLY_PREFIX = "queued-reply-"
RECENT_TASKS = 1000
"""How many tasks an agent is asked to look after when the gateway starts."""

_REPLY_NAME = "Queued follow-up reply"
# Never to be changed: ids in stored tasks and idempotency records are derived from these two.
_REPLY_NAMESPACE = UUID("6e0a3f5e-52a5-4c8b-9a3c-7d6f0c1d2b4e")
_PAUSE_NAMESPACE = UUID("0d7c7f1e-8d0e-4b57-8a34-5f0c9b6e2a91")
_BACKOFF = Backoff(first_s=1.0, max_s=60.0)
_MAX_RESOLVED_PAUSES = 1000
# Conflict: the task changed between the read and the commit, so the next attempt reads it again.
_RETRYABLE = (StoreUnavailable, Conflict, Overloaded)


# ---------------------------------------------------------------- artifacts of replies


def reply_artifact_id(session_key: SessionKey, reply_id: str) -> ArtifactId:
    """The artifact id of a reply; the same whenever the same reply comes again."""
    name = f"{session_key}\n{reply_id}"
    return ArtifactId(f"{REPLY_PREFIX}{uuid5(_REPLY_NAMESPACE, name)}")


def reply_artifact(
    artifact_id: ArtifactId,
    parts: tuple[Part, ...],
    *,
    session_key: str | None = None,
    to: str | None = None,
) -> Artifact:
    """A late reply as an artifact."""
    metadata: JsonObject = {"source": "queued-reply", "channel": "a2a"}
    metadata |= {"sessionKey": session_key} if session_key else {}
    metadata |= {"to": to} if to else {}
    return Artifact(artifact_id, parts, name=_REPLY_NAME, metadata=metadata)


async def append_reply(engine: Engine, task_id: TaskId, artifact: Artifact) -> bool:
    """Append the artifact to the task, once; False when there is no such task.

    It is durable when this returns. Raises: AgentFailed (it is too large, or the task has too many
    replies), StoreUnavailable, Conflict (the task changed meanwhile; try again).
    """
    # The lock: two replies that come at once must not both open a journal of a stored task.
    async with engine.task_lock(task_id):
        active = engine.active_tasks.get(task_id)
        # A journal with a failure takes nothing more; the store knows what became of the task.
        if active is not None and active.journal.failure is None:
            journal = active.journal  # that of the runs: two journals would give two orders
        else:
            stored = await engine.store.tasks.read_task(None, task_id)
            if stored is None:
                return False
            journal = engine.journal_of(stored)
        if artifact.artifact_id in journal.projection.artifact_ids:
            # It may be another caller's commit that is under way; it is not durable before that.
            await journal.wait_durable(journal.sequence)
            return True
        others, most = journal.projection.artifacts(REPLY_PREFIX), engine.limits.queued_replies
        if len(others) >= most:
            raise AgentFailed(
                f"Task {task_id} has {most} queued replies, the most (limits.queuedReplies)."
            )
        limit = engine.limits.run_bytes
        if sum(len(encode_json(one)) for one in [*others, artifact]) > limit:
            raise AgentFailed(
                f"The queued replies of task {task_id} exceed {limit} bytes (limits.artifactBytes)."
            )
        context_id = journal.head.context_id
        await journal.add(ArtifactUpdate(task_id, context_id, artifact, last_chunk=True))
    log.info("background.reply_appended", task_id=task_id, artifact_id=artifact.artifact_id)
    return True


async def has_reply(engine: Engine, task_id: TaskId, artifact_id: ArtifactId) -> bool:
    """True when the task has this artifact; no other content of a task holds such an id."""
    stored = await engine.store.tasks.read_task(None, task_id)
    if stored is None:
        return False
    # A search in the bytes: decoding a large task only to find one id would cost far more.
    encoded = artifact_id.encode()
    return encoded in stored.snapshot or any(encoded in entry.body for entry in stored.entries)


# ---------------------------------------------------------------- the listener


class BackgroundListener:
    """Reads the background events of one agent and applies them to the tasks of all engines."""

    def __init__(
        self, engines: Sequence[Engine], agent_id: AgentId, agent: SupportsBackgroundEvents
    ) -> None:
        self._engines = tuple(engines)
        self._agent_id = agent_id
        self._agent = agent
        self._clock = engines[0].clock
        self._resolving: set[tuple[TaskId, bytes]] = set()
        """Resolved pauses whose tasks have not continued yet."""

    async def run(self) -> None:
        """Apply events until cancelled; a stream that breaks is opened again."""
        failures = 0
        while True:
            try:
                # Closed before it is opened again: the agent must not send to two readers.
                async with aclosing(self._events()) as events:
                    async for event in events:
                        await self._apply(event)
                        # Not before: an event that always fails must not prevent the back-off.
                        failures = 0
            except GatewayError as error:
                reason = error.message
                log.warning("background.stream_failed", agent_id=self._agent_id, reason=reason)
            except Exception:  # one broad catch: later events must still be read
                log.exception("background.stream_failed", agent_id=self._agent_id)
            failures += 1
            await self._clock.sleep(_BACKOFF.delay_s(failures))

    async def _events(self) -> AsyncGenerator[BackgroundEvent]:
        stream = self._agent.background_events(await self._recent_tasks())
        try:
            async for event in stream:
                yield event
        finally:
            # The time limit: a clean-up that hangs must not keep the stream from being opened
            # again.
            close = getattr(stream, "aclose", None)
            if close is not None:
                async with asyncio.timeout(self._engines[0].limits.cancel_s):
                    await close()

    async def _recent_tasks(self) -> list[RecentTask]:
        """The stored tasks of this agent, the newest first; their sessions are known from now."""
        own: list[tuple[datetime, RecentTask]] = []
        # Also for sessions from before a restart: otherwise their late replies find no task.
        for engine in self._engines:
            for one in await engine.store.tasks.list_recent_tasks(RECENT_TASKS):
                head, binding = one.head, one.head.binding
                if binding is None or binding.agent_id != self._agent_id:
                    continue
                engine.session_tasks.add_oldest(binding.session_key, head.id)
                try:
                    resume = decode_resume(one.resume)
                except CorruptRecord as error:
                    log.warning("store.record_damaged", id=head.id, reason=error.message)
                    continue
                task = RecentTask(
                    head.id,
                    binding.session_key,
                    head.status_at,
                    is_paused=head.state in PAUSED,
                    resume=resume,
                )
                own.append((head.created_at, task))
        own.sort(key=lambda one: one[0], reverse=True)
        return [task for _, task in own[:RECENT_TASKS]]

    async def _apply(self, event: BackgroundEvent) -> None:
        if isinstance(event, PauseResolved):
            self._start_resolving(event)
            return
        # In order, and so one at a time: a reply that cannot be stored holds up those behind it.
        # Without a limit: an agent that is asked again may not report the reply any more.
        for attempt in count(1):
            try:
                await self._append(event)
            except _RETRYABLE as error:
                log.warning("background.reply_delayed", reason=error.message, attempt=attempt)
            except AgentFailed as error:
                log.warning(
                    "background.reply_dropped", agent_id=self._agent_id, reason=error.message
                )
                return
            else:
                return
            await self._clock.sleep(_BACKOFF.delay_s(attempt))

    async def _append(self, reply: BackgroundReply) -> None:
        """Append a reply to the newest task of its session, unless one of its tasks has it."""
        artifact_id = reply_artifact_id(reply.session_key, reply.reply_id)
        tasks = [
            (engine, task_id)
            for engine in self._engines
            for task_id in engine.session_tasks.find(reply.session_key)
        ]
        # First whether any task has it, then the newest takes it: the session may have gone on to
        # another task between the reply and its repetition. A damaged task is left out: the stream
        # would break at this reply each time it is opened.
        readable: list[tuple[Engine, TaskId]] = []
        for engine, task_id in tasks:
            try:
                if await has_reply(engine, task_id, artifact_id):
                    return
                readable.append((engine, task_id))
            except CorruptRecord as error:
                log.warning("background.task_skipped", task_id=task_id, reason=error.message)
        for engine, task_id in readable:
            try:
                if await self._append_to_task(engine, task_id, reply):
                    return
            except CorruptRecord as error:
                log.warning("background.task_skipped", task_id=task_id, reason=error.message)

    async def _append_to_task(
        self, engine: Engine, task_id: TaskId, reply: BackgroundReply
    ) -> bool:
        """Append what callers of the task accept; False when there is no such task."""
        active = engine.active_tasks.get(task_id)  # its first commit may be under way
        if active is not None:
            head = active.journal.head
        elif (stored := await engine.store.tasks.read_task(None, task_id)) is not None:
            head = stored.head
        else:
            return False
        modes = output_modes(_rules(engine, head).output_modes)
        parts = modes.filter(reply.parts)
        if omitted := modes.omitted_text(reply.parts):
            log.warning(
                "task.files_omitted",
                task_id=task_id,
                caller=head.scope.principal,
                account=head.scope.account,
                agent=None if head.binding is None else head.binding.agent_id,
                reason=omitted,
            )
        # Nothing that callers of this account accept: dropped, not offered to an older task.
        if not has_content(parts):
            return True
        artifact = reply_artifact(
            reply_artifact_id(reply.session_key, reply.reply_id),
            parts,
            session_key=reply.session_key,
            to=f"a2a:{head.scope.account}",
        )
        if omitted:
            metadata = {**(artifact.metadata or {}), **omitted_files([omitted])}
            artifact = msgspec.structs.replace(artifact, metadata=metadata)
        return await append_reply(engine, task_id, artifact)

    # ---------------------------------------------------------------- resolved pauses

    def _start_resolving(self, pause: PauseResolved) -> None:
        """Continue the task in a job of its own: it may have to wait for a run to end first."""
        key = (pause.task_id, _canonical(pause.resume))
        if key in self._resolving:
            return
        if len(self._resolving) >= _MAX_RESOLVED_PAUSES:
            reason = f"{_MAX_RESOLVED_PAUSES} others wait already"
            log.warning("background.pause_not_resolved", task_id=pause.task_id, reason=reason)
            return
        # Events may be repeated; one job for each pause is enough, and its end makes room.
        self._resolving.add(key)
        job = self._engines[0].supervisor.spawn("resolve-pause", self._resolve(pause))
        job.add_done_callback(lambda _: self._resolving.discard(key))

    async def _resolve(self, pause: PauseResolved) -> None:
        # Without a limit: the agent reports a resolved pause once.
        for attempt in count(1):
            try:
                for engine in self._engines:
                    await resolve_pause(engine, pause)
            except _RETRYABLE as error:
                log.warning("background.pause_delayed", task_id=pause.task_id, reason=error.message)
            except GatewayError as error:
                log.warning(
                    "background.pause_not_resolved", task_id=pause.task_id, reason=error.message
                )
                return
            else:
                return
            await self._clock.sleep(_BACKOFF.delay_s(attempt))


async def resolve_pause(engine: Engine, pause: PauseResolved) -> None:
    """Continue a task that is still paused with this token; otherwise do nothing.

    Raises: Overloaded, StoreUnavailable, Conflict.
    """
    while running := engine.running_tasks(pause.task_id):
        await asyncio.wait(running)  # the commit of the pause may be under way
    if engine.state is not EngineState.SERVING:
        return  # the agent sends the event again after the restart
    async with engine.task_lock(pause.task_id):
        if pause.task_id in engine.active_tasks:
            return  # it was answered meanwhile
        stored = await engine.store.tasks.read_task(None, pause.task_id)
        resume = await engine.store.tasks.read_resume_token(pause.task_id)
        if stored is None or stored.head.state not in PAUSED:
            return
        token = decode_resume(resume)
        if _canonical(pause.resume) != _canonical(token):
            return
        head = stored.head
        # The same pause gives the same message id, so it continues the task once.
        name = f"{head.id}\n{head.status_at.isoformat()}\n{_canonical(pause.resume).decode()}"
        message = Message(
            MessageId(f"pause-over-{uuid5(_PAUSE_NAMESPACE, name)}"),
            Role.USER,
            (Part.of_text(pause.reason),),
            head.context_id,
            head.id,
            metadata={"source": "operator"},
        )
        session = None if head.binding is None else head.binding.session_key
        hold = None if session is None else await hold_session(engine, session)
        run = continue_task(
            engine,
            SubmitRequest(head.scope, message),
            _rules(engine, head),
            stored,
            resume=resume,
            body_hash=hash_message(message),
            hold=hold,
        )
    first = await run.created.wait()
    if isinstance(first, Rejected) and first.error is not None:
        raise first.error


def _rules(engine: Engine, head: TaskHead) -> AccountRules:
    agent_id = AgentId("") if head.binding is None else head.binding.agent_id
    return engine.rules_of(head.scope.account, agent_id)


def _canonical(resume: Json) -> bytes:
    """A resume token in one canonical encoding, to be compared."""
    return msgspec.json.encode(resume, order="deterministic")
