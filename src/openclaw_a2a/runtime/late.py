"""Listens to what agents say outside their runs, and brings it to the tasks it belongs to."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from uuid import UUID, uuid5

import msgspec
import structlog

from openclaw_a2a.model.errors import (
    AgentFailed,
    GatewayError,
    LeaseLost,
    Overloaded,
    StoreUnavailable,
)
from openclaw_a2a.model.ids import AgentId, Json, MessageId, TaskId
from openclaw_a2a.model.late import LateEvent, LateReply, PauseOver, RecentTask
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.states import is_paused
from openclaw_a2a.model.stored import StoredTask, TaskHead
from openclaw_a2a.model.turn import Binding
from openclaw_a2a.ports import RecentHead, SpeaksLater
from openclaw_a2a.runtime.engine import Engine
from openclaw_a2a.runtime.live import Refused
from openclaw_a2a.runtime.output import has_content, output_modes
from openclaw_a2a.runtime.queued import (
    append_reply,
    holds_reply,
    queued_artifact,
    reply_artifact_id,
)
from openclaw_a2a.runtime.run import LiveRun
from openclaw_a2a.runtime.submit import Continuation, Send, body_hash, go_on
from openclaw_a2a.runtime.turn import AccountRules

log = structlog.get_logger(__name__)

RECENT_TASKS = 1000
"""How many tasks an agent is asked to look after when the gateway starts."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_TRIES = 5
_MOST_PAUSES = 1000
_NAMESPACE = UUID("0d7c7f1e-8d0e-4b57-8a34-5f0c9b6e2a91")
_FOR_LATER = (StoreUnavailable, LeaseLost, Overloaded)


class Listener:
    """One agent's words outside its runs, for all engines: the one that knows the task takes it."""

    def __init__(self, engines: Sequence[Engine], agent_id: AgentId, agent: SpeaksLater) -> None:
        self._engines = tuple(engines)
        self._agent_id = agent_id
        self._agent = agent
        self._clock = engines[0].clock
        self._pauses: set[tuple[TaskId, bytes]] = set()
        """Pauses that are over and whose tasks have not gone on yet."""

    async def listen(self) -> None:
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

    async def _events(self) -> AsyncGenerator[LateEvent]:
        stream = self._agent.later(await self._recent())
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
            found = await engine.store.read_recent(RECENT_TASKS)
            for one, binding in self._own(found):
                engine.sessions.learn(binding.session_key, one.head.id)
            heads += found
        heads.sort(key=lambda one: one.head.created_at, reverse=True)
        own = [_recent_task(one, binding) for one, binding in self._own(heads)]
        return own[:RECENT_TASKS]

    def _own(self, heads: list[RecentHead]) -> Iterator[tuple[RecentHead, Binding]]:
        for one in heads:
            binding = one.head.binding
            if binding is not None and binding.agent_id == self._agent_id:
                yield one, binding

    async def _take(self, event: LateEvent) -> None:
        if isinstance(event, PauseOver):
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

    async def _append(self, reply: LateReply) -> None:
        """Append a reply to the newest task of its session, unless one of its tasks has it."""
        artifact_id = reply_artifact_id(reply.session_key, reply.reply_id)
        known = [
            (engine, task_id)
            for engine in self._engines
            for task_id in engine.sessions.tasks_of(reply.session_key)
        ]
        for engine, task_id in known:
            if await holds_reply(engine, task_id, artifact_id):
                return
        for engine, task_id in known:
            if await self._append_to(engine, task_id, reply):
                return

    async def _append_to(self, engine: Engine, task_id: TaskId, reply: LateReply) -> bool:
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

    def _begin_again(self, over: PauseOver) -> None:
        """Let the task go on, beside what else the agent says: it may have to end a run first."""
        key = (over.task_id, _token(over.resume))
        if key in self._pauses:
            return
        if len(self._pauses) >= _MOST_PAUSES:
            log.warning("pause-not-ended", task_id=over.task_id, reason="too many wait already")
            return
        self._pauses.add(key)
        job = self._engines[0].spawn(self._go_on(over))
        job.add_done_callback(lambda _: self._pauses.discard(key))

    async def _go_on(self, over: PauseOver) -> None:
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


async def go_on_after(engine: Engine, over: PauseOver) -> None:
    """Let a task go on that still waits with this token; what else it does is left alone.

    Raises: Overloaded, StoreUnavailable, LeaseLost.
    """
    while working := at_work(engine, over.task_id):
        await asyncio.wait(working)  # the pause may be on its way into the store
    if engine.is_draining:
        return
    async with engine.alone(over.task_id):
        if over.task_id in engine.live:
            return  # somebody answered meanwhile
        stored = await engine.store.read_task(None, over.task_id)
        resume = await engine.store.read_resume(over.task_id)
        if stored is None or not is_paused(stored.head.state):
            return
        if _token(over.resume) != _token(None if resume is None else msgspec.json.decode(resume)):
            return
        run = _answer(engine, over, stored, resume)
    first = await run.first.wait()
    if isinstance(first, Refused) and first.error is not None:
        raise first.error


def at_work(engine: Engine, task_id: TaskId) -> list[asyncio.Task[None]]:
    """The runs of a task, also one that is no task yet; each ends within its own deadline."""
    runs = [run for run in engine.runs.values() if run.record.task_id == task_id]
    return [run.task for run in runs if run.task is not None and not run.task.done()]


def _answer(engine: Engine, over: PauseOver, stored: StoredTask, resume: bytes | None) -> LiveRun:
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
    return go_on(engine, Send(head.scope, message), _rules(engine, head), task)


async def _head(engine: Engine, task_id: TaskId) -> TaskHead | None:
    """The task without its content, also while it is on its way into the store."""
    live = engine.live.get(task_id)
    if live is not None:
        return live.journal.head
    stored = await engine.store.read_task(None, task_id)
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
