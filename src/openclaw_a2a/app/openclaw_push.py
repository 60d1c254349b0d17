"""Telling a webhook that a task has ended, once, also when the process ended before it."""

import logging

import msgspec

from openclaw_a2a.app.gateway import VERSION, SystemClock
from openclaw_a2a.inbound.push_courier import Poster, PostRules
from openclaw_a2a.model.delivery import Delivery, DeliveryId, delivery_id
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.stored import encode_event
from openclaw_a2a.model.task import StatusUpdate, Task
from openclaw_a2a.ports import Store
from openclaw_a2a.runtime.addresses import Resolver
from openclaw_a2a.runtime.view import TaskView
from openclaw_a2a.wire import v03
from openclaw_a2a.wire.requests import PushWish
from openclaw_a2a.wire.versions import Wire

_RULES = PostRules(timeout_s=30.0, allow_private=True, agent_name=f"openclaw-a2a/{VERSION}")
"""Whoever writes the program names the webhook, so it may be anywhere."""

_KIND = "end-notice"
_AT_ONCE = 8
_PAGE = 100
_decode = msgspec.json.Decoder(PushWish).decode
_log = logging.getLogger(__name__)


class EndNotices:
    """The webhooks of tasks, kept with them; each is told of its task's end, and then forgotten."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._poster: Poster | None = None
        self._told: set[TaskId] = set()
        """Tasks whose webhooks are being told; they have none any more."""

    def delivery(self, webhook: PushWish, task_id: TaskId) -> Delivery:
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

    async def keep(self, webhook: PushWish, task_id: TaskId) -> None:
        """Tell this webhook, and no other. Raises: LeaseLost when there is no task."""
        await self._store.put_delivery(self.delivery(webhook, task_id), within=1)

    async def find(self, task_id: TaskId) -> PushWish | None:
        """Who is to be told."""
        known = await self._store.read_delivery(delivery_id(_KIND, task_id, _KIND))
        return None if known is None or task_id in self._told else _decode(known.body)

    async def drop(self, task_id: TaskId) -> bool:
        """Tell nobody; False when nobody was to be told."""
        if task_id in self._told:
            return False
        return await self._store.drop_delivery(delivery_id(_KIND, task_id, _KIND))

    async def tell(self, task: Task) -> bool:
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
            await self._store.drop_delivery(delivery_id(_KIND, task.id, _KIND))
        finally:
            self._told.discard(task.id)
        if missed is not None:
            _log.warning("The webhook of task %s was not told: %s.", task.id, missed.reason)
        return missed is None

    async def tell_missed(self) -> None:
        """Tell the webhooks of tasks whose end an earlier life of the process did not tell."""
        after = DeliveryId("")
        while True:
            page = await self._store.read_unfinished(after=after, limit=_PAGE)
            for one in page.deliveries:
                stored = await self._store.read_task(None, one.task_id)
                if one.kind == _KIND and stored is not None and is_terminal(stored.head.state):
                    await self.tell(TaskView.of_stored(stored).task())
            if page.next_after is None:
                return
            after = page.next_after

    async def close(self) -> None:
        """Let go of the connections."""
        poster, self._poster = self._poster, None
        if poster is not None:
            await poster.close()

    def _open_poster(self) -> Poster:
        if self._poster is None:
            self._poster = Poster(_RULES, resolve=Resolver(_AT_ONCE), now=SystemClock().now)
        return self._poster


def _body(webhook: PushWish, task: Task) -> bytes:
    if webhook.wire is Wire.V03:
        return v03.encode_task(task)
    return encode_event(StatusUpdate(task.id, task.context_id, task.status))


def _headers(webhook: PushWish) -> dict[str, str]:
    headers = {"Content-Type": "application/json"}
    if webhook.token:
        headers["Authorization"] = f"Bearer {webhook.token}"
    elif webhook.schemes and webhook.credentials:
        headers["Authorization"] = f"{webhook.schemes[0]} {webhook.credentials}"
    return headers
