"""Push configurations of a caller's tasks: create, find, list, delete.

A configuration is stored as a delivery of the outbox. A caller names a URL that this gateway will
connect to, from inside the operator's network: its text is checked here, where it leads
is checked by `net/safe_resolver.py` for every connection.
"""

import re
from collections.abc import Callable
from datetime import datetime
from urllib.parse import urlsplit

import msgspec

from openclaw_a2a.engine.outbox.outbox import Outbox
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.delivery import (
    PUSH_KIND,
    Delivery,
    DeliveryState,
    PushConfig,
    delivery_id,
    new_delivery,
)
from openclaw_a2a.model.errors import (
    InvalidParams,
    Problem,
    PushConfigNotFound,
    QuotaExceeded,
    TaskNotFound,
)
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import encode_json
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.model.url_policy import url_rejection_reason
from openclaw_a2a.ports import Store
from openclaw_a2a.protocol.requests import NewPushConfig, PushConfigRequest, PushListRequest

log = get_logger(__name__)

_URL_CHARACTERS = re.compile(r"[!-\[\]-~]+")
_decoder = msgspec.json.Decoder(PushConfig)


def webhook_rejection_reason(url: str, *, allow_private: bool) -> str | None:
    """Why a URL cannot be a webhook, judged by its text; None when it may be one."""
    if not _URL_CHARACTERS.fullmatch(url):
        return "must be an address in ASCII without spaces and backslashes"
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        return "is not an address"
    if parts.scheme not in ("http", "https") or not host:
        return "must be an http or https address"
    if "@" in parts.netloc:
        return "must not hold a user name or password; give them as authentication"
    reason = None if allow_private else url_rejection_reason(url)
    return reason and f"{reason}; a webhook must be at a public address"


class PushConfigService(msgspec.Struct, frozen=True, kw_only=True):
    """The push configurations of the tasks in one store."""

    store: Store
    outbox: Outbox
    now: Callable[[], datetime]
    per_task: int
    allow_private: bool

    def check_url(self, new: NewPushConfig) -> None:
        """Refuse a URL that cannot be a webhook. Raises: InvalidParams."""
        reason = webhook_rejection_reason(new.url, allow_private=self.allow_private)
        if reason is not None:
            problem = Problem(new.url_path, reason, "webhook")
            raise InvalidParams(f"{new.url_path} {reason}", problems=(problem,))

    async def check_count(self, scope: Scope, task_id: TaskId, new: NewPushConfig) -> None:
        """Refuse one more configuration than a task may have. Raises: QuotaExceeded."""
        if await self.store.tasks.read_task(scope, task_id) is None:
            return  # continuing the task fails with TaskNotFound
        others = [
            one for one in await self._configs(scope, task_id) if one.id != (new.id or task_id)
        ]
        if len(others) >= self.per_task:
            raise self._too_many(task_id)

    def make_delivery(self, new: NewPushConfig, task_id: TaskId, cursor: int) -> Delivery:
        """The delivery that stores a configuration; events after the cursor are sent."""
        now = self.now()
        config = PushConfig(
            id=new.id or task_id,
            task_id=task_id,
            url=new.url,
            version=new.version.value,
            created_at=now,
            token=new.token,
            schemes=new.schemes,
            credentials=new.credentials,
        )
        body = encode_json(config)
        return new_delivery(PUSH_KIND, task_id, config.id, body, cursor=cursor, now=now)

    async def create(self, scope: Scope, task_id: TaskId | None, new: NewPushConfig) -> PushConfig:
        """Create a configuration, or replace the one with its id.

        The webhook is sent the task as it is now, then what follows. The same configuration again
        changes nothing, unless its deliveries had been given up.

        Raises: TaskNotFound, InvalidParams (the URL), QuotaExceeded.
        """
        self.check_url(new)
        task_id = task_id or TaskId("")
        await self._check_task(scope, task_id)
        delivery = self.make_delivery(new, task_id, -1)
        config = _decoder.decode(delivery.body)
        known = await self.store.deliveries.read_delivery(scope, delivery.id)
        # Replacing the delivery would start at cursor -1 and send the task again.
        if known is not None and known.state is not DeliveryState.DEAD:
            old = _read_config(known)
            # A damaged one is replaced.
            if old is not None and old == msgspec.structs.replace(
                config, created_at=old.created_at
            ):
                return old
        if not await self.outbox.add_delivery(delivery, max_per_task=self.per_task):
            raise self._too_many(task_id)
        return config

    async def get(self, scope: Scope, request: PushConfigRequest) -> PushConfig:
        """One configuration; without an id the task's own, or its only one.

        Raises: TaskNotFound, PushConfigNotFound.
        """
        await self._check_task(scope, request.task_id)
        configs = await self._configs(scope, request.task_id)
        wanted = request.id or request.task_id
        for config in configs:
            if config.id == wanted:
                return config
        if request.id is None and len(configs) == 1:
            return configs[0]
        raise PushConfigNotFound(
            f"task {request.task_id} has no push configuration {wanted!r}; list them to see those "
            "it has"
        )

    async def list_page(
        self, scope: Scope, request: PushListRequest
    ) -> tuple[list[PushConfig], str]:
        """Some configurations of a task, oldest first, and the token of the next page ("": none).

        Raises: TaskNotFound, InvalidParams.
        """
        await self._check_task(scope, request.task_id)
        configs = await self._configs(scope, request.task_id)
        start = 0
        if request.page_token:
            ids = [config.id for config in configs]
            if request.page_token not in ids:
                problem = Problem("pageToken", "is not one of ours, or of another task")
                raise InvalidParams(f"pageToken {problem.message}", problems=(problem,))
            start = ids.index(request.page_token) + 1
        page = configs[start : start + request.page_size]
        has_more = start + len(page) < len(configs)
        return page, page[-1].id if has_more else ""

    async def delete(self, scope: Scope, request: PushConfigRequest) -> None:
        """Delete a configuration, if it exists. Raises: TaskNotFound."""
        try:
            config = await self.get(scope, request)
        except PushConfigNotFound:
            return  # A2A 3.1.10: deleting is idempotent
        wanted = delivery_id(PUSH_KIND, request.task_id, config.id)
        delivery = await self.store.deliveries.read_delivery(scope, wanted)
        if delivery is not None:
            await self.outbox.remove_delivery(delivery)

    async def _configs(self, scope: Scope, task_id: TaskId) -> list[PushConfig]:
        deliveries = await self.store.deliveries.list_task_deliveries(scope, task_id)
        configs = [_read_config(one) for one in deliveries if one.kind == PUSH_KIND]
        return [config for config in configs if config is not None]

    async def _check_task(self, scope: Scope, task_id: TaskId) -> None:
        # A2A 3.3.2: a task of another caller looks like one that does not exist.
        if await self.store.tasks.read_task(scope, task_id) is None:
            raise TaskNotFound(f"task not found: there is no task {task_id}")

    def _too_many(self, task_id: TaskId) -> QuotaExceeded:
        return QuotaExceeded(
            f"task {task_id} has {self.per_task} push configurations, the most there may be; "
            "delete one of them, or give its id to put this one in its place",
            setting="push.perTask",
        )


def _read_config(delivery: Delivery) -> PushConfig | None:
    """The configuration of a delivery; None, and logged, when it is damaged."""
    try:
        return _decoder.decode(delivery.body)
    except (ValueError, RecursionError) as error:
        log.warning("push.config_damaged", delivery_id=delivery.id, reason=str(error))
        return None
