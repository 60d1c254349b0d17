"""Telling a webhook that a task has ended, once, also when the process ended before it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import msgspec

from openclaw_a2a.agents import AgentRegistry
from openclaw_a2a.app.gateway import VERSION, SystemClock
from openclaw_a2a.engine.engine import Engine, EngineLimits
from openclaw_a2a.engine.id_generator import new_id
from openclaw_a2a.engine.maintenance import MaintenanceSchedule, purge_once, renew_leases
from openclaw_a2a.engine.recovery import fail_orphaned_tasks, recover_runs
from openclaw_a2a.engine.scheduling.session_queue import QueueLimits, SessionQueues
from openclaw_a2a.engine.tasks.cancel import cancel_task
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.queries import get_task
from openclaw_a2a.engine.tasks.result import DirectAnswer, TaskFinished
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.engine.tasks.submit import SubmitRequest, submit, wait_created
from openclaw_a2a.engine.tasks.turn_builder import AccountRules
from openclaw_a2a.library.request_params import read_push
from openclaw_a2a.model.delivery import Delivery, DeliveryId, delivery_id
from openclaw_a2a.model.errors import GatewayError, TaskNotCancelable, TaskNotFound
from openclaw_a2a.model.ids import LOCAL_PEER, AccountId, AgentId, Json, TaskId
from openclaw_a2a.model.records import decode_task, encode_event
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.task import StatusUpdate, Task, TaskState
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.net.safe_resolver import HostResolver
from openclaw_a2a.ports import Agent, Store
from openclaw_a2a.protocol import v03
from openclaw_a2a.protocol.requests import NewPushConfig, SendRequest
from openclaw_a2a.protocol.versions import ProtocolVersion
from openclaw_a2a.server.push.sender import WebhookOptions, WebhookSender

_RULES = WebhookOptions(timeout_s=30.0, allow_private=True, agent_name=f"openclaw-a2a/{VERSION}")
"""Whoever writes the program names the webhook, so it may be anywhere."""

_KIND = "end-notice"
_AT_ONCE = 8
_PAGE = 100
_decode = msgspec.json.Decoder(NewPushConfig).decode
_log = logging.getLogger(__name__)


class WebhookNotifier:
    """The webhooks of tasks, kept with them; each is told of its task's end, and then forgotten."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._poster: WebhookSender | None = None
        self._told: set[TaskId] = set()
        """Tasks whose webhooks are being told; they have none any more."""

    def delivery(self, webhook: NewPushConfig, task_id: TaskId) -> Delivery:
        """The webhook of a task, as the store keeps it."""
        now = SystemClock().now()
        return Delivery(
            id=delivery_id(_KIND, task_id, _KIND),
            kind=_KIND,
            task_id=task_id,
            body=msgspec.json.encode(webhook),
            cursor=-1,
            next_at=now,
            created_at=now,
            updated_at=now,
        )

    async def save(self, webhook: NewPushConfig, task_id: TaskId) -> None:
        """Tell this webhook, and no other. Raises: TaskNotFound."""
        await self._store.deliveries.put_delivery(self.delivery(webhook, task_id), within=1)

    async def find(self, task_id: TaskId) -> NewPushConfig | None:
        """Who is to be told."""
        known = await self._store.deliveries.read_delivery(delivery_id(_KIND, task_id, _KIND))
        return None if known is None or task_id in self._told else _decode(known.body)

    async def drop(self, task_id: TaskId) -> bool:
        """Tell nobody; False when nobody was to be told."""
        if task_id in self._told:
            return False
        return await self._store.deliveries.delete_delivery(delivery_id(_KIND, task_id, _KIND))

    async def notify(self, task: Task) -> bool:
        """Tell the webhook of the task that it ended; True when the webhook took it.

        Whatever goes wrong is logged, and never anybody else's trouble.
        """
        webhook = await self.find(task.id)
        if webhook is None:
            return False
        self._told.add(task.id)
        try:
            missed = await self._open_poster().post(
                webhook.url, _body(webhook, task), _headers(webhook)
            )
            await self._store.deliveries.delete_delivery(delivery_id(_KIND, task.id, _KIND))
        finally:
            self._told.discard(task.id)
        if missed is not None:
            _log.warning("The webhook of task %s was not told: %s.", task.id, missed.reason)
        return missed is None

    async def notify_missed(self) -> None:
        """Tell the webhooks of tasks whose end an earlier life of the process did not tell."""
        after = DeliveryId("")
        while True:
            page = await self._store.deliveries.list_unfinished_deliveries(after=after, limit=_PAGE)
            for one in page.deliveries:
                stored = await self._store.tasks.read_task(None, one.task_id)
                if one.kind == _KIND and stored is not None and is_terminal(stored.head.state):
                    await self.notify(TaskProjection.from_stored(stored).task())
            if page.next_after is None:
                return
            after = page.next_after

    async def close(self) -> None:
        """Let go of the connections."""
        poster, self._poster = self._poster, None
        if poster is not None:
            await poster.close()

    def _open_poster(self) -> WebhookSender:
        if self._poster is None:
            self._poster = WebhookSender(
                _RULES, resolve=HostResolver(_AT_ONCE), now=SystemClock().now
            )
        return self._poster


def _body(webhook: NewPushConfig, task: Task) -> bytes:
    if webhook.wire is ProtocolVersion.V03:
        return v03.encode_task(task)
    return encode_event(StatusUpdate(task.id, task.context_id, task.status))


def _headers(webhook: NewPushConfig) -> dict[str, str]:
    headers = {"Content-Type": "application/json"}
    if webhook.token:
        headers["Authorization"] = f"Bearer {webhook.token}"
    elif webhook.schemes and webhook.credentials:
        headers["Authorization"] = f"{webhook.schemes[0]} {webhook.credentials}"
    return headers


_AGENT = AgentId("main")
_ACCOUNT = AccountId("default")
_SCOPE = Scope(LOCAL_PEER, _ACCOUNT)
_EVERYTHING = ("*/*",)
_RULES_OPENCLAW_TASKS = AccountRules(
    _ACCOUNT, _AGENT, input_modes=_EVERYTHING, output_modes=_EVERYTHING
)
_LIMITS = EngineLimits(run_s=30 * 86400.0, cancel_s=30.0)
"""The command has a timeout of its own, and what waits for its turn is not to be ended."""

_LANES = QueueLimits(runs=1000, queue=10_000, session_queue=1000, peer_runs=1000, peer_queue=10_000)


class TaskRetention(msgspec.Struct, frozen=True):
    """How long ended tasks are kept (None: for ever), and how often that is looked at."""

    ttl_s: float | None = 3600.0
    interval_s: float = 300.0


class TaskService:
    """Tasks from the first request to `close`."""

    def __init__(self, agent: Agent, store: Store, retention: TaskRetention) -> None:
        self._agent = agent
        self._store = store
        self._retention = retention
        self._parts = AsyncExitStack()
        self._engine: Engine | None = None
        self._opening = asyncio.Lock()
        self._notices = WebhookNotifier(store)

    # ---------------------------------------------------------------- tasks

    async def start(self, request: SendRequest) -> Task:
        """Begin to answer the message; the task as it is now."""
        engine = await self._open()
        message = msgspec.structs.replace(request.message, task_id=None)
        send = SubmitRequest(
            _SCOPE, message, is_blocking=False, make_delivery=self._follower(request.push)
        )
        run = await submit(engine, send, _RULES_OPENCLAW_TASKS)
        first = await wait_created(engine, run)
        if isinstance(first, DirectAnswer):
            raise TypeError("a task store of direct answers cannot keep tasks; use another one")
        if isinstance(run, ActiveRun):
            engine.supervisor.spawn("webhook", self._follow(run))
        return _shown(first.task)

    async def get(self, task_id: str) -> Task | None:
        """The task, when there is one."""
        engine = await self._open()
        stored = await engine.store.tasks.read_task(_SCOPE, TaskId(task_id))
        return None if stored is None else _shown(TaskProjection.from_stored(stored).task())

    async def cancel(self, task_id: str) -> Task | None:
        """The task after it was stopped; one that has ended already is as it was."""
        engine = await self._open()
        try:
            return decode_task(await cancel_task(engine, _SCOPE, TaskId(task_id)))
        except TaskNotFound:
            return None
        except TaskNotCancelable:
            stored = await get_task(engine, _SCOPE, TaskId(task_id))
            if not is_terminal(stored.head.state):
                raise
            return TaskProjection.from_stored(stored).task()

    async def delete(self, task_id: str) -> bool:
        """Forget an ended task. Raises: ValueError when it has not ended."""
        engine = await self._open()
        task = await self.get(task_id)
        if task is None:
            return False
        if not is_terminal(task.status.state):
            raise ValueError(f"task {task_id} is still at work; cancel it before you delete it")
        return await engine.store.tasks.delete_task(_SCOPE, task.id)

    # ---------------------------------------------------------------- webhooks

    async def set_webhook(self, task_id: str, config: Json) -> bool:
        """Tell this webhook when the task ends; False when there is no such task."""
        if await self.get(task_id) is None:
            return False
        known = await self._notices.find(TaskId(task_id))
        wire = ProtocolVersion.V1 if known is None else known.wire
        await self._notices.save(read_push(config, TaskId(task_id), wire=wire), TaskId(task_id))
        return True

    async def webhook_of(self, task_id: str) -> NewPushConfig | None:
        """Who is told of the task's end."""
        await self._open()
        return await self._notices.find(TaskId(task_id))

    async def drop_webhook(self, task_id: str) -> bool:
        """Tell nobody of the task's end; False when nobody was to be told."""
        await self._open()
        return await self._notices.drop(TaskId(task_id))

    def _follower(self, webhook: NewPushConfig | None) -> Callable[[TaskId, int], Delivery] | None:
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
                queues=SessionQueues(_LANES),
                clock=SystemClock(),
                limits=_LIMITS,
                new_id=new_id,
            )
            engine.accounts[_ACCOUNT] = _RULES_OPENCLAW_TASKS
            parts.push_async_callback(engine.stop)
            await recover_runs(engine, expired_at=None)
            await fail_orphaned_tasks(engine)
            engine.supervisor.run_loop("leases", renew_leases(engine))
            engine.supervisor.spawn("webhook", self._tell(self._notices.notify_missed()))
            if self._retention.ttl_s is not None:
                clean_up = self._clean_up(engine, self._retention.ttl_s)
                engine.supervisor.run_loop("retention", clean_up)
            self._parts = parts.pop_all()
        return engine

    async def _follow(self, run: ActiveRun) -> None:
        """Tell the webhook when the run has ended."""
        outcome = await run.wait_result()
        if isinstance(outcome, TaskFinished):
            await self._tell(self._notices.notify(decode_task(outcome.task)))

    async def _tell(self, telling: Awaitable[Json]) -> None:
        try:
            await telling
        except GatewayError as error:  # the next start tells it
            _log.warning("A webhook could not be looked up: %s", error.message)

    async def _clean_up(self, engine: Engine, ttl_s: float) -> None:
        """Forget what ended long ago, again and again, whatever goes wrong."""
        while True:
            try:
                await purge_once(engine, MaintenanceSchedule(ended_s=ttl_s))
            except Exception:  # whatever it is, the next round must come
                _log.exception("Ended tasks could not be cleaned up.")
            await engine.clock.sleep(self._retention.interval_s)


def _shown(task: Task) -> Task:
    """The task as callers of the library know it: one that waits for its turn is at work, too."""
    if task.status.state is not TaskState.SUBMITTED:
        return task
    status = msgspec.structs.replace(task.status, state=TaskState.WORKING)
    return msgspec.structs.replace(task, status=status)
