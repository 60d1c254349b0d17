"""The tasks of an adapter that is used as a library: the engine, for one caller and one agent."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import msgspec

from openclaw_a2a.agents import AgentRegistry
from openclaw_a2a.app.gateway import SystemClock
from openclaw_a2a.app.openclaw_params import read_push
from openclaw_a2a.app.openclaw_push import EndNotices
from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.errors import GatewayError, TaskNotCancelable, TaskNotFound
from openclaw_a2a.model.ids import LOCAL_PEER, AccountId, AgentId, Json, TaskId
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.stored import decode_task
from openclaw_a2a.model.task import Task, TaskState
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import Agent, Store
from openclaw_a2a.runtime.cancel import cancel
from openclaw_a2a.runtime.engine import Engine, EngineLimits
from openclaw_a2a.runtime.ids import new_id
from openclaw_a2a.runtime.lane import LaneLimits, Lanes
from openclaw_a2a.runtime.live import Answer, Ended
from openclaw_a2a.runtime.read import get_task
from openclaw_a2a.runtime.recover import fail_orphans, recover
from openclaw_a2a.runtime.run import LiveRun
from openclaw_a2a.runtime.sent import first_of
from openclaw_a2a.runtime.submit import Send, submit
from openclaw_a2a.runtime.turn import AccountRules
from openclaw_a2a.runtime.upkeep import UpkeepTimes, keep_leases, sweep
from openclaw_a2a.runtime.view import TaskView
from openclaw_a2a.wire.requests import PushWish, SendRequest
from openclaw_a2a.wire.versions import Wire

_AGENT = AgentId("main")
_ACCOUNT = AccountId("default")
_SCOPE = Scope(LOCAL_PEER, _ACCOUNT)
_EVERYTHING = ("*/*",)
_RULES = AccountRules(_ACCOUNT, _AGENT, input_modes=_EVERYTHING, output_modes=_EVERYTHING)
_LIMITS = EngineLimits(run_s=30 * 86400.0, cancel_s=30.0)
"""The command has a timeout of its own, and what waits for its turn is not to be ended."""

_LANES = LaneLimits(runs=1000, queue=10_000, session_queue=1000, peer_runs=1000, peer_queue=10_000)
_log = logging.getLogger(__name__)


class Retention(msgspec.Struct, frozen=True):
    """How long ended tasks are kept (None: for ever), and how often that is looked at."""

    ttl_s: float | None = 3600.0
    interval_s: float = 300.0


class LibraryTasks:
    """Tasks from the first request to `close`."""

    def __init__(self, agent: Agent, store: Store, retention: Retention) -> None:
        self._agent = agent
        self._store = store
        self._retention = retention
        self._parts = AsyncExitStack()
        self._engine: Engine | None = None
        self._opening = asyncio.Lock()
        self._notices = EndNotices(store)

    # ---------------------------------------------------------------- tasks

    async def start(self, request: SendRequest) -> Task:
        """Begin to answer the message; the task as it is now."""
        engine = await self._open()
        message = msgspec.structs.replace(request.message, task_id=None)
        send = Send(_SCOPE, message, is_blocking=False, follow=self._follower(request.push))
        run = await submit(engine, send, _RULES)
        first = await first_of(engine, run)
        if isinstance(first, Answer):
            raise TypeError("a task store of direct answers cannot keep tasks; use another one")
        if isinstance(run, LiveRun):
            engine.spawn(self._follow(run))
        return _shown(first.task)

    async def get(self, task_id: str) -> Task | None:
        """The task, when there is one."""
        engine = await self._open()
        stored = await engine.store.read_task(_SCOPE, TaskId(task_id))
        return None if stored is None else _shown(TaskView.of_stored(stored).task())

    async def cancel(self, task_id: str) -> Task | None:
        """The task after it was stopped; one that has ended already is as it was."""
        engine = await self._open()
        try:
            return decode_task(await cancel(engine, _SCOPE, TaskId(task_id)))
        except TaskNotFound:
            return None
        except TaskNotCancelable:
            stored = await get_task(engine, _SCOPE, TaskId(task_id))
            if not is_terminal(stored.head.state):
                raise
            return TaskView.of_stored(stored).task()

    async def delete(self, task_id: str) -> bool:
        """Forget an ended task. Raises: ValueError when it has not ended."""
        engine = await self._open()
        task = await self.get(task_id)
        if task is None:
            return False
        if not is_terminal(task.status.state):
            raise ValueError(f"task {task_id} is still at work; cancel it before you delete it")
        return await engine.store.delete_task(_SCOPE, task.id)

    # ---------------------------------------------------------------- webhooks

    async def set_webhook(self, task_id: str, config: Json) -> bool:
        """Tell this webhook when the task ends; False when there is no such task."""
        if await self.get(task_id) is None:
            return False
        known = await self._notices.find(TaskId(task_id))
        wire = Wire.V1 if known is None else known.wire
        await self._notices.keep(read_push(config, TaskId(task_id), wire=wire), TaskId(task_id))
        return True

    async def webhook_of(self, task_id: str) -> PushWish | None:
        """Who is told of the task's end."""
        await self._open()
        return await self._notices.find(TaskId(task_id))

    async def drop_webhook(self, task_id: str) -> bool:
        """Tell nobody of the task's end; False when nobody was to be told."""
        await self._open()
        return await self._notices.drop(TaskId(task_id))

    def _follower(self, webhook: PushWish | None) -> Callable[[TaskId, int], Delivery] | None:
        if webhook is None:
            return None
        return lambda task_id, _cursor: self._notices.delivery(webhook, task_id)

    # ---------------------------------------------------------------- life

    async def close(self) -> None:
        """End everything that is under way; what is unfinished stays in the store."""
        async with self._opening:
            parts, self._parts, self._engine = self._parts, AsyncExitStack(), None
            await parts.aclose()

    async def _open(self) -> Engine:
        async with self._opening:
            if self._engine is None:
                self._engine = await self._start_engine()
            return self._engine

    async def _start_engine(self) -> Engine:
        async with AsyncExitStack() as parts:
            agents = AgentRegistry({_AGENT: self._agent})
            parts.push_async_callback(self._notices.close)
            await self._store.open()
            parts.push_async_callback(self._store.close)
            parts.push_async_callback(agents.close)
            engine = Engine(
                self._store,
                agents,
                lanes=Lanes(_LANES),
                clock=SystemClock(),
                limits=_LIMITS,
                new_id=new_id,
            )
            engine.accounts[_ACCOUNT] = _RULES
            parts.push_async_callback(engine.stop)
            await recover(engine, expired_at=None)
            await fail_orphans(engine)
            engine.spawn(keep_leases(engine))
            engine.spawn(self._tell(self._notices.tell_missed()))
            if self._retention.ttl_s is not None:
                engine.spawn(self._clean_up(engine, self._retention.ttl_s))
            self._parts = parts.pop_all()
        return engine

    async def _follow(self, run: LiveRun) -> None:
        """Tell the webhook when the run has ended."""
        outcome = await run.outcome()
        if isinstance(outcome, Ended):
            await self._tell(self._notices.tell(decode_task(outcome.task)))

    async def _tell(self, telling: Awaitable[Json]) -> None:
        try:
            await telling
        except GatewayError as error:  # the next start tells it
            _log.warning("A webhook could not be looked up: %s", error.message)

    async def _clean_up(self, engine: Engine, ttl_s: float) -> None:
        """Forget what ended long ago, again and again, whatever goes wrong."""
        while True:
            try:
                await sweep(engine, UpkeepTimes(ended_s=ttl_s))
            except Exception:  # whatever it is, the next round must come
                _log.exception("Ended tasks could not be cleaned up.")
            await engine.clock.sleep(self._retention.interval_s)


def _shown(task: Task) -> Task:
    """The task as callers of the library know it: one that waits for its turn is at work, too."""
    if task.status.state is not TaskState.SUBMITTED:
        return task
    status = msgspec.structs.replace(task.status, state=TaskState.WORKING)
    return msgspec.structs.replace(task, status=status)
