"""Telling a webhook that a task has ended, once."""

import logging

from openclaw_a2a.app.gateway import VERSION, SystemClock
from openclaw_a2a.inbound.push_address import Resolver
from openclaw_a2a.inbound.push_courier import Poster, PostRules
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.stored import encode_event
from openclaw_a2a.model.task import StatusUpdate, Task
from openclaw_a2a.wire import v03
from openclaw_a2a.wire.requests import PushWish
from openclaw_a2a.wire.versions import Wire

_RULES = PostRules(timeout_s=30.0, allow_private=True, agent_name=f"openclaw-a2a/{VERSION}")
"""Whoever writes the program names the webhook, so it may be anywhere."""

_AT_ONCE = 8
_log = logging.getLogger(__name__)


class EndNotices:
    """The webhooks of tasks; each is told of the end of its task once, and then forgotten."""

    def __init__(self) -> None:
        self.webhooks: dict[TaskId, PushWish] = {}
        self._poster: Poster | None = None

    async def tell(self, task: Task) -> bool:
        """Tell the webhook of the task that it ended; True when the webhook took it.

        Whatever goes wrong is logged, and never anybody else's trouble.
        """
        webhook = self.webhooks.pop(task.id, None)
        if webhook is None:
            return False
        if self._poster is None:
            self._poster = Poster(_RULES, resolve=Resolver(_AT_ONCE), now=SystemClock().now)
        body, headers = _body(webhook, task), _headers(webhook)
        missed = await self._poster.post(webhook.url, body, headers)
        if missed is not None:
            _log.warning("The webhook of task %s was not told: %s.", task.id, missed.reason)
        return missed is None

    async def close(self) -> None:
        """Let go of the connections."""
        poster, self._poster = self._poster, None
        if poster is not None:
            await poster.close()


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
