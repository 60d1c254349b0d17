"""Telling a webhook that a task has ended, once."""

import logging

import httpx2

from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.stored import encode_event
from openclaw_a2a.model.task import StatusUpdate, Task
from openclaw_a2a.wire import v03
from openclaw_a2a.wire.requests import PushWish
from openclaw_a2a.wire.versions import Wire

_DELIVERED = frozenset({200, 201, 202, 204})
_TIMEOUT_S = 30.0
_log = logging.getLogger(__name__)


class EndNotices:
    """The webhooks of tasks; each is told of the end of its task once, and then forgotten."""

    def __init__(self) -> None:
        self.webhooks: dict[TaskId, PushWish] = {}
        self._client: httpx2.AsyncClient | None = None

    async def tell(self, task: Task) -> bool:
        """Tell the webhook of the task that it ended; True when the webhook took it.

        Whatever goes wrong is logged, and never anybody else's trouble.
        """
        webhook = self.webhooks.pop(task.id, None)
        if webhook is None:
            return False
        try:
            answer = await self._http().post(
                webhook.url, content=_body(webhook, task), headers=_headers(webhook)
            )
        except Exception as error:
            _log.warning("The webhook of task %s cannot be reached: %s", task.id, error)
            return False
        if answer.status_code not in _DELIVERED:
            _log.warning("The webhook of task %s answered %s.", task.id, answer.status_code)
        return answer.status_code in _DELIVERED

    async def close(self) -> None:
        """Close the HTTP client."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _http(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = httpx2.AsyncClient(timeout=_TIMEOUT_S, trust_env=False)
        return self._client


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
