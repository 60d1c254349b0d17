"""The tasks of `OpenClawAgentAdapter`: an embedded gateway without HTTP, for one caller."""

from urllib.parse import urlsplit

import msgspec

from openclaw_a2a.app.gateway import VERSION
from openclaw_a2a.engine.engine import Engine, SystemClock
from openclaw_a2a.engine.outbox.delivery_tracking import DeliveryChannel, DeliveryPolicy
from openclaw_a2a.engine.outbox.outbox import Outbox
from openclaw_a2a.engine.tasks.active_task import DirectAnswer
from openclaw_a2a.engine.tasks.cancel import cancel_task
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.results import wait_created
from openclaw_a2a.engine.tasks.submit import SubmitRequest, submit
from openclaw_a2a.engine.transcript.transcript import Transcript
from openclaw_a2a.library.agent_card import build_agent_card
from openclaw_a2a.library.asgi_app import ACCOUNT, AdapterApp, ServedAgent
from openclaw_a2a.library.inputs import read_push
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.delivery import Delivery, delivery_id, new_delivery
from openclaw_a2a.model.errors import TaskNotCancelable, TaskNotFound
from openclaw_a2a.model.ids import LOCAL_PEER, Json, TaskId
from openclaw_a2a.model.records import decode_task, encode_event
from openclaw_a2a.model.task import StatusUpdate, Task, TaskState, is_terminal
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.net.safe_resolver import HostResolver
from openclaw_a2a.ports import Agent, Delivered, Store
from openclaw_a2a.protocol import v03
from openclaw_a2a.protocol.requests import NewPushConfig, SendRequest
from openclaw_a2a.protocol.versions import ProtocolVersion
from openclaw_a2a.server.push.sender import WebhookOptions, WebhookSender
from openclaw_a2a.settings import Limits, RetentionSettings

log = get_logger(__name__)

END_NOTICE = "end-notice"
"""The kind of deliveries that notify a webhook of the end of a task."""

_SCOPE = Scope(LOCAL_PEER, ACCOUNT)
_LIMITS = Limits(
    runs=1000,
    queue=10_000,
    session_queue=1000,
    per_peer_runs=1000,
    per_peer_queue=10_000,
    run_seconds=30 * 86400.0,  # the command has a timeout of its own, which does not count queueing
    cancel_seconds=30.0,
)
_PARALLEL_WEBHOOKS = 8
_WEBHOOK_OPTIONS = WebhookOptions(
    timeout_s=30.0,
    allow_private=True,  # the developer of the program names the webhook
    agent_name=f"openclaw-a2a/{VERSION}",
)
_decode_config = msgspec.json.Decoder(NewPushConfig).decode


class TaskService:
    """Starts, reads, cancels and deletes tasks. It opens with the first call."""

    def __init__(
        self,
        agent: Agent,
        store: Store,
        retention: RetentionSettings,
        *,
        transcript_type: type[Transcript],
    ) -> None:
        self._webhooks = WebhookSender(
            _WEBHOOK_OPTIONS, resolve=HostResolver(_PARALLEL_WEBHOOKS), now=SystemClock().now
        )
        self._sender = EndNoticeSender(store, self._webhooks)
        policy = DeliveryPolicy(attempt_timeout_s=None, max_parallel=_PARALLEL_WEBHOOKS)
        channel = DeliveryChannel(self._sender, policy, final_states_only=True)
        served = ServedAgent(
            agent=agent,
            card=build_agent_card(agent),
            store=store,
            limits=_LIMITS,
            retention=retention,
            transcript_type=transcript_type,
            channels={END_NOTICE: lambda _engine: channel},
        )
        self._rules = msgspec.structs.replace(served.rules, accepts_empty=False)
        self._app = AdapterApp(served)

    # ---------------------------------------------------------------- tasks

    async def start(self, request: SendRequest) -> Task:
        """Start to answer the message; the task as it is now."""
        engine, _ = await self._open()
        message = msgspec.structs.replace(request.message, task_id=None)
        webhook = request.push
        command = SubmitRequest(
            _SCOPE,
            message,
            is_blocking=False,
            make_delivery=webhook and (lambda task_id, _cursor: _delivery(webhook, task_id)),
        )
        created = await wait_created(engine, await submit(engine, command, self._rules))
        if isinstance(created, DirectAnswer):
            raise TypeError("a task store of direct answers cannot keep tasks; use another one")
        return _as_working(created.task)

    async def get(self, task_id: str) -> Task | None:
        """The task; None: unknown."""
        engine, _ = await self._open()
        stored = await engine.store.tasks.read_task(_SCOPE, TaskId(task_id))
        return None if stored is None else _as_working(TaskProjection.from_stored(stored).task())

    async def cancel(self, task_id: str) -> Task | None:
        """The task after it was stopped; an ended one is returned as it is; None: unknown."""
        engine, _ = await self._open()
        try:
            return decode_task(await cancel_task(engine, _SCOPE, TaskId(task_id)))
        except TaskNotFound:
            return None
        except TaskNotCancelable:
            task = await self.get(task_id)
            if task is None or not is_terminal(task.status.state):
                raise
            return task

    async def delete(self, task_id: str) -> bool:
        """Delete an ended task; False: unknown. Raises: ValueError when it has not ended."""
        engine, _ = await self._open()
        task = await self.get(task_id)
        if task is None:
            return False
        if not is_terminal(task.status.state):
            raise ValueError(f"task {task_id} is still at work; cancel it before you delete it")
        return await engine.store.tasks.delete_task(_SCOPE, task.id)

    # ---------------------------------------------------------------- webhooks

    async def set_webhook(self, task_id: str, config: Json) -> bool:
        """Notify this webhook, and no other, when the task ends; False: unknown task."""
        _, outbox = await self._open()
        if await self.get(task_id) is None:
            return False
        known = await self.find_webhook(task_id)
        version = ProtocolVersion.V1 if known is None else known.version
        webhook = read_push(config, TaskId(task_id), wire=version)
        await outbox.add_delivery(_delivery(webhook, TaskId(task_id)), max_per_task=1)
        return True

    async def find_webhook(self, task_id: str) -> NewPushConfig | None:
        """The webhook that will be notified of the task's end."""
        delivery = await self._find_delivery(task_id)
        return None if delivery is None else _decode_config(delivery.body)

    async def remove_webhook(self, task_id: str) -> bool:
        """Remove the webhook of the task; False: there was none."""
        _, outbox = await self._open()
        delivery = await self._find_delivery(task_id)
        if delivery is None:
            return False
        await outbox.remove_delivery(delivery)
        return True

    async def _find_delivery(self, task_id: str) -> Delivery | None:
        engine, _ = await self._open()
        if task_id in self._sender.sending:  # it is dropped as soon as the webhook has answered
            return None
        wanted = delivery_id(END_NOTICE, TaskId(task_id), END_NOTICE)
        return await engine.store.deliveries.read_delivery(None, wanted)

    # ---------------------------------------------------------------- life cycle

    async def close(self) -> None:
        """Stop everything that is under way; unfinished tasks stay in the store."""
        # No time for runs to end: a command may take minutes.
        await self._app.stop(within_s=0)
        await self._webhooks.close()

    async def _open(self) -> tuple[Engine, Outbox]:
        gateway = await self._app.start()
        ((engine, outbox),) = gateway.push.outboxes.items()
        return engine, outbox


class EndNoticeSender:
    """Posts the end of a task to its webhook: once, whether the webhook accepts it or not."""

    def __init__(self, store: Store, webhooks: WebhookSender) -> None:
        self._store = store
        self._webhooks = webhooks
        self.sending: set[str] = set()
        """Tasks whose webhook is being notified now."""

    def receiver(self, delivery: Delivery) -> str:
        """The webhook's host."""
        return urlsplit(_decode_config(delivery.body).url).hostname or ""

    async def send(self, delivery: Delivery) -> Delivered | None:
        """Notify the webhook if the task has ended. A failure is only logged."""
        stored = await self._store.tasks.read_task(None, delivery.task_id)
        if stored is None:
            return None
        if not is_terminal(stored.head.state):
            return Delivered(delivery.cursor, is_sent=False)
        webhook, task = _decode_config(delivery.body), TaskProjection.from_stored(stored).task()
        headers = {"Content-Type": "application/json"}
        if webhook.token:
            headers["Authorization"] = f"Bearer {webhook.token}"
        elif webhook.schemes and webhook.credentials:
            headers["Authorization"] = f"{webhook.schemes[0]} {webhook.credentials}"
        if webhook.version is ProtocolVersion.V03:
            body = v03.encode_task(task)
        else:
            body = encode_event(StatusUpdate(task.id, task.context_id, task.status))
        # While it is posted the webhook counts as gone: a change would come too late.
        self.sending.add(task.id)
        try:
            failure = await self._webhooks.post(webhook.url, body, headers)
            # After the post, never before: a crash in between repeats it instead of losing it.
            await self._store.deliveries.delete_delivery(delivery.id)
        finally:
            self.sending.discard(task.id)
        if failure is not None:
            log.warning("webhook.notification_failed", task_id=task.id, reason=failure.reason)
        return Delivered(stored.head.sequence, is_over=True)


def _delivery(webhook: NewPushConfig, task_id: TaskId) -> Delivery:
    body, now = msgspec.json.encode(webhook), SystemClock().now()
    return new_delivery(END_NOTICE, task_id, END_NOTICE, body, cursor=-1, now=now)


def _as_working(task: Task) -> Task:
    """The task as the library shows it: a queued one is `working`, too."""
    if task.status.state is not TaskState.SUBMITTED:
        return task
    status = msgspec.structs.replace(task.status, state=TaskState.WORKING)
    return msgspec.structs.replace(task, status=status)
