"""Queued replies: what an agent says after its run is appended to the task, also an ended one."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from uuid import UUID, uuid5

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.tasks.journal import Journal
from openclaw_a2a.engine.tasks.result import Rejected
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.engine.tasks.submit import Continuation, SubmitRequest, body_hash, continue_task
from openclaw_a2a.engine.tasks.turn_builder import AccountRules
from openclaw_a2a.engine.transcript.content import has_content, output_modes
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.agent_event import (
    BackgroundEvent,
    BackgroundReply,
    PauseResolved,
    RecentTask,
)
from openclaw_a2a.model.errors import (
    AgentFailed,
    Conflict,
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
from openclaw_a2a.model.records import StoredTask, TaskHead, encode_json
from openclaw_a2a.model.states import is_paused
from openclaw_a2a.model.task import Artifact, ArtifactUpdate
from openclaw_a2a.model.turn import Binding
from openclaw_a2a.ports import RecentHead, SupportsBackgroundEvents

log = get_logger(__name__)

PREFIX = "queued-reply-"
NAME = "Queued follow-up reply"
_REPLY_NAMESPACE = UUID("6e0a3f5e-52a5-4c8b-9a3c-7d6f0c1d2b4e")


def reply_artifact_id(session_key: SessionKey, reply_id: str) -> ArtifactId:
    """The artifact of a reply: the same one whenever the same reply is told."""
    told = f"{session_key}\n{reply_id}"
    return ArtifactId(f"{PREFIX}{uuid5(_REPLY_NAMESPACE, told)}")


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
    can), StoreUnavailable, Conflict (something else changed the task; look again).
    """
    async with engine.task_lock(task_id):
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
    stored = await engine.store.tasks.read_task(None, task_id)
    if stored is None:
        return False
    sought = artifact_id.encode()
    return sought in stored.snapshot or any(sought in one.body for one in stored.entries)


async def _journal(engine: Engine, task_id: TaskId) -> Journal | None:
    """The journal of the task: of its runs while it has some, so that there is one order."""
    live = engine.active_tasks.get(task_id)
    if live is not None and live.journal.failure is None:
        return live.journal
    stored = await engine.store.tasks.read_task(None, task_id)
    return None if stored is None else engine.bounded(Journal.of_stored(engine.store.tasks, stored))


def _check_room(engine: Engine, journal: Journal, artifact: Artifact) -> None:
    others = journal.view.artifacts(PREFIX)
    most = engine.limits.queued_replies
    if len(others) >= most:
        raise AgentFailed(f"Task {journal.head.id} holds {most} queued replies, the most.")
    limit = engine.limits.run_bytes
    if sum(len(encode_json(one)) for one in [*others, artifact]) > limit:
        raise AgentFailed(f"The queued replies of task {journal.head.id} exceed {limit} bytes.")


RECENT_TASKS = 1000
"""How many tasks an agent is asked to look after when the gateway starts."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_TRIES = 5
_MOST_PAUSES = 1000
_NAMESPACE = UUID("0d7c7f1e-8d0e-4b57-8a34-5f0c9b6e2a91")
_FOR_LATER = (StoreUnavailable, Conflict, Overloaded)


class BackgroundListener:
    """One agent's words outside its runs, for all engines: the one that knows the task takes it."""

    def __init__(
        self, engines: Sequence[Engine], agent_id: AgentId, agent: SupportsBackgroundEvents
    ) -> None:
        self._engines = tuple(engines)
        self._agent_id = agent_id
        self._agent = agent
        self._clock = engines[0].clock
        self._pauses: set[tuple[TaskId, bytes]] = set()
        """Pauses that are over and whose tasks have not gone on yet."""

    async def run(self) -> None:
        """Take everything, for as long as the gateway lives; what breaks is begun again."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                async with aclosing(self._events()) as events:
                    async for event in events:
                        pause_s = _FIRST_PAUSE_S
                        await self._take(event)
            except GatewayError as error:
                reason, agent_id = error.message, self._agent_id
                log.warning("later-broken", agent_id=agent_id, reason=reason, again_in_s=pause_s)
            except Exception:  # one broad catch: whatever it is, later words must be heard
                log.exception("later-broken", agent_id=self._agent_id, again_in_s=pause_s)
            await self._clock.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _events(self) -> AsyncGenerator[BackgroundEvent]:
        stream = self._agent.background_events(await self._recent())
        try:
            async for event in stream:
                yield event
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                async with asyncio.timeout(self._engines[0].limits.cancel_s):
                    await close()

    async def _recent(self) -> list[RecentTask]:
        """The tasks of this agent from before, the newest first; their sessions are known now."""
        heads: list[RecentHead] = []
        for engine in self._engines:
            found = await engine.store.tasks.list_recent_tasks(RECENT_TASKS)
            for one, binding in self._own(found):
                engine.session_tasks.learn(binding.session_key, one.head.id)
            heads += found
        heads.sort(key=lambda one: one.head.created_at, reverse=True)
        own = [_recent_task(one, binding) for one, binding in self._own(heads)]
        return own[:RECENT_TASKS]

    def _own(self, heads: list[RecentHead]) -> Iterator[tuple[RecentHead, Binding]]:
        for one in heads:
            binding = one.head.binding
            if binding is not None and binding.agent_id == self._agent_id:
                yield one, binding

    async def _take(self, event: BackgroundEvent) -> None:
        if isinstance(event, PauseResolved):
            self._begin_again(event)
            return
        pause_s = _FIRST_PAUSE_S
        for _ in range(_TRIES):
            try:
                await self._append(event)
            except _FOR_LATER as error:
                log.warning("reply-not-queued-yet", reason=error.message, again_in_s=pause_s)
            except AgentFailed as error:
                log.warning("reply-dropped", agent_id=self._agent_id, reason=error.message)
                return
            else:
                return
            await self._clock.sleep(pause_s)
            pause_s *= 2
        raise StoreUnavailable("a queued reply could not be kept; its agent will be asked again")

    # ---------------------------------------------------------------- late replies

    async def _append(self, reply: BackgroundReply) -> None:
        """Append a reply to the newest task of its session, unless one of its tasks has it."""
        artifact_id = reply_artifact_id(reply.session_key, reply.reply_id)
        known = [
            (engine, task_id)
            for engine in self._engines
            for task_id in engine.session_tasks.tasks_of(reply.session_key)
        ]
        for engine, task_id in known:
            if await holds_reply(engine, task_id, artifact_id):
                return
        for engine, task_id in known:
            if await self._append_to(engine, task_id, reply):
                return

    async def _append_to(self, engine: Engine, task_id: TaskId, reply: BackgroundReply) -> bool:
        head = await _head(engine, task_id)
        if head is None:
            return False
        parts = output_modes(_rules(engine, head).output_modes).filter(reply.parts)
        if not has_content(parts):
            return True
        artifact = queued_artifact(
            reply_artifact_id(reply.session_key, reply.reply_id),
            parts,
            session_key=reply.session_key,
            to=f"a2a:{head.scope.account}",
        )
        return await append_reply(engine, task_id, artifact)

    # ---------------------------------------------------------------- pauses that are over

    def _begin_again(self, over: PauseResolved) -> None:
        """Let the task go on, beside what else the agent says: it may have to end a run first."""
        key = (over.task_id, _token(over.resume))
        if key in self._pauses:
            return
        if len(self._pauses) >= _MOST_PAUSES:
            log.warning("pause-not-ended", task_id=over.task_id, reason="too many wait already")
            return
        self._pauses.add(key)
        job = self._engines[0].supervisor.spawn("pause-resolved", self._go_on(over))
        job.add_done_callback(lambda _: self._pauses.discard(key))

    async def _go_on(self, over: PauseResolved) -> None:
        pause_s = _FIRST_PAUSE_S
        for _ in range(_TRIES):
            try:
                for engine in self._engines:
                    await go_on_after(engine, over)
            except _FOR_LATER as error:
                log.warning("pause-goes-on", task_id=over.task_id, reason=error.message)
            except GatewayError as error:
                log.warning("pause-not-ended", task_id=over.task_id, reason=error.message)
                return
            except Exception:  # one broad catch: nobody waits for this job
                log.exception("pause-not-ended", task_id=over.task_id)
                return
            else:
                return
            await self._clock.sleep(pause_s)
            pause_s *= 2


async def go_on_after(engine: Engine, over: PauseResolved) -> None:
    """Let a task go on that still waits with this token; what else it does is left alone.

    Raises: Overloaded, StoreUnavailable, Conflict.
    """
    while working := at_work(engine, over.task_id):
        await asyncio.wait(working)  # the pause may be on its way into the store
    if engine.is_draining:
        return
    async with engine.task_lock(over.task_id):
        if over.task_id in engine.active_tasks:
            return  # somebody answered meanwhile
        stored = await engine.store.tasks.read_task(None, over.task_id)
        resume = await engine.store.tasks.read_resume_token(over.task_id)
        if stored is None or not is_paused(stored.head.state):
            return
        if _token(over.resume) != _token(None if resume is None else msgspec.json.decode(resume)):
            return
        run = _answer(engine, over, stored, resume)
    first = await run.first.wait()
    if isinstance(first, Rejected) and first.error is not None:
        raise first.error


def at_work(engine: Engine, task_id: TaskId) -> list[asyncio.Task[None]]:
    """The runs of a task, also one that is no task yet; each ends within its own deadline."""
    runs = [run for run in engine.runs.values() if run.record.task_id == task_id]
    return [run.task for run in runs if run.task is not None and not run.task.done()]


def _answer(
    engine: Engine, over: PauseResolved, stored: StoredTask, resume: bytes | None
) -> ActiveRun:
    """The run of a message by the engine itself; the same for the same pause."""
    head = stored.head
    pause = f"{head.id}\n{head.status_at.isoformat()}\n{_token(over.resume).decode()}"
    message = Message(
        MessageId(f"pause-over-{uuid5(_NAMESPACE, pause)}"),
        Role.USER,
        (Part.of_text(over.reason),),
        head.context_id,
        head.id,
        metadata={"source": "operator"},
    )
    task = Continuation(stored, resume, body_hash(message))
    return continue_task(engine, SubmitRequest(head.scope, message), _rules(engine, head), task)


async def _head(engine: Engine, task_id: TaskId) -> TaskHead | None:
    """The task without its content, also while it is on its way into the store."""
    live = engine.active_tasks.get(task_id)
    if live is not None:
        return live.journal.head
    stored = await engine.store.tasks.read_task(None, task_id)
    return None if stored is None else stored.head


def _rules(engine: Engine, head: TaskHead) -> AccountRules:
    account, binding = head.scope.account, head.binding
    agent_id = AgentId("") if binding is None else binding.agent_id
    return engine.accounts.get(account) or AccountRules(account, agent_id)


def _token(resume: Json) -> bytes:
    """A token in one spelling, to be compared."""
    return msgspec.json.encode(resume, order="deterministic")


def _recent_task(one: RecentHead, binding: Binding) -> RecentTask:
    return RecentTask(
        one.head.id,
        binding.session_key,
        one.head.status_at,
        is_paused=is_paused(one.head.state),
        resume=None if one.resume is None else msgspec.json.decode(one.resume),
    )
