"""Sends push notifications: one POST each, to an address that was checked when connecting.

This is one attempt. It says whether a refusal is final; `engine/outbox` decides when there is
another attempt, and when to give up.

A stream sends every chunk of an artifact, which would be too much for a webhook. So a 1.0 webhook
gets each status, and each artifact once, complete, when it is finished; a 0.3 webhook gets the
whole task whenever one of these has happened.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, cast

import msgspec

from openclaw_a2a.engine.tasks.journal import PAGE_SIZE
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.queries import task_json
from openclaw_a2a.http.asgi import A2A_JSON, JSON
from openclaw_a2a.model.delivery import Delivery, PushConfig
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import Entry, StoredTask, encode_event
from openclaw_a2a.model.task import TERMINAL, ArtifactUpdate, is_terminal
from openclaw_a2a.net.safe_resolver import (
    AddressNotAllowed,
    HostNotFound,
    ResolveHost,
    find_addresses,
)
from openclaw_a2a.ports import Delivered, DeliveryFailed, TaskStore
from openclaw_a2a.protocol import v03, v1
from openclaw_a2a.protocol.versions import ProtocolVersion


class PushPayload(msgspec.Struct, frozen=True):
    """The body of one notification, and the progress of its delivery once it is sent."""

    body: bytes
    delivered: Delivered


async def next_payload(
    tasks: TaskStore, version: ProtocolVersion, delivery: Delivery
) -> PushPayload | Delivered | None:
    """The next notification after the delivery's cursor.

    `Delivered` when there is nothing to send up to its cursor, None when the task is gone.
    """
    cursor, task_id = delivery.cursor, delivery.task_id
    # The webhook was registered on a task that existed: it gets the task first.
    if cursor < 0:
        return await _whole_task(tasks, task_id, version)
    while entries := await tasks.read_events(None, task_id, after=cursor, limit=PAGE_SIZE):
        for entry in entries:
            if entry.state is None and _finished_artifact(entry) is None:
                continue
            # 0.3 pushes whole tasks: one stands for every event up to its sequence.
            if version is ProtocolVersion.V03:
                return await _whole_task(tasks, task_id, version)
            body = await _event_body(tasks, task_id, entry)
            if body is not None:
                has_more = entry is not entries[-1] or len(entries) == PAGE_SIZE
                delivered = Delivered(
                    entry.sequence,
                    # An artifact does not tell whether the task has ended; the next call finds out.
                    has_more=has_more or entry.state is None,
                    is_over=not has_more and entry.state in TERMINAL,
                )
                return PushPayload(body, delivered)
        cursor = entries[-1].sequence
        if len(entries) < PAGE_SIZE:
            return Delivered(cursor, is_sent=False)
    # No events after the cursor: the end was sent before, the task waits, or it was deleted.
    stored = await tasks.read_task(None, task_id)
    if stored is None:
        return None
    is_behind = stored.head.sequence > cursor
    is_over = is_terminal(stored.head.state) and not is_behind
    return Delivered(cursor, is_sent=False, has_more=is_behind, is_over=is_over)


async def _whole_task(
    tasks: TaskStore, task_id: TaskId, version: ProtocolVersion
) -> PushPayload | None:
    stored = await tasks.read_task(None, task_id)
    if stored is None:
        return None
    task = task_json(stored)
    is_v1 = version is ProtocolVersion.V1
    body = v1.wrap_task(task) if is_v1 else v03.encode_task_result(task)
    is_over = is_terminal(stored.head.state)
    return PushPayload(body, Delivered(stored.head.sequence, is_over=is_over))


def _finished_artifact(entry: Entry) -> ArtifactUpdate | None:
    event = entry.event
    return event if isinstance(event, ArtifactUpdate) and event.last_chunk else None


async def _event_body(tasks: TaskStore, task_id: TaskId, entry: Entry) -> bytes | None:
    """A notable event for 1.0; a finished artifact with all of its chunks."""
    # Chunks are not pushed one by one, so the last one must bring all that came before it.
    event = _finished_artifact(entry)
    if entry.state is not None or event is None or not event.append:
        return entry.body
    stored: StoredTask | None = await tasks.read_task(None, task_id)
    artifacts = () if stored is None else TaskProjection.from_stored(stored).task().artifacts
    for artifact in artifacts:
        if artifact.artifact_id == event.artifact.artifact_id:
            return encode_event(msgspec.structs.replace(event, artifact=artifact, append=False))
    return None


if TYPE_CHECKING:
    import httpx2

# Enough for a webhook to finish its response; an endless one must not hold a delivery slot.
_MAX_READ_BYTES = 16 * 1024
_READ_TIMEOUT_S = 1.0
_GONE = 410
# The 4xx codes after which the same request may succeed later.
_TEMPORARY = (408, 425, 429)
_decoder = msgspec.json.Decoder(PushConfig)


class WebhookOptions(msgspec.Struct, frozen=True):
    """How requests are made."""

    timeout_s: float
    allow_private: bool
    agent_name: str


class WebhookSender:
    """Posts to webhooks. Only the status of a response counts; redirects are not followed."""

    def __init__(
        self, options: WebhookOptions, *, resolve: ResolveHost, now: Callable[[], datetime]
    ) -> None:
        self._options = options
        self._find_addresses = partial(
            find_addresses, resolve=resolve, allow_private=options.allow_private
        )
        self._now = now
        self._transport: httpx2.AsyncBaseTransport | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._transport is not None:
            await self._transport.aclose()

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> DeliveryFailed | None:
        """Post once; None when the webhook accepted it, otherwise why not."""
        import httpx2  # imported with the first notification: a gateway without any starts faster

        from openclaw_a2a.net.http_client import describe_connect_failure, open_transport

        limit = self._options.timeout_s
        try:
            request = httpx2.Request(
                "POST",
                url,
                headers={"User-Agent": self._options.agent_name, **headers},
                content=body,
                extensions={"timeout": httpx2.Timeout(limit).as_dict()},
            )
        except httpx2.InvalidURL as error:
            return DeliveryFailed(f"the address cannot be used: {error}", is_final=True)
        host = request.url.raw_host.decode("ascii")
        try:
            # One for all webhooks. Addresses are checked again for each connection: since the URL
            # was registered its name may point elsewhere.
            if self._transport is None:
                self._transport = open_transport(None, self._find_addresses)
            response = await self._transport.handle_async_request(request)
            await _read_briefly(response)
        except AddressNotAllowed as error:
            return DeliveryFailed(str(error), is_final=True)
        except HostNotFound as error:
            return DeliveryFailed(str(error))
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            return DeliveryFailed(f"{host} cannot be reached: {describe_connect_failure(error)}")
        except httpx2.TimeoutException:
            return DeliveryFailed(f"{host} did not answer within {limit:g} s")
        except httpx2.TransportError as error:
            return DeliveryFailed(f"the connection to {host} broke: {type(error).__name__}")
        return None if response.is_success else self._failure(response)

    def _failure(self, response: "httpx2.Response") -> DeliveryFailed:
        status = response.status_code
        reason = f"it answered {status}"
        if response.is_redirect or 300 <= status < 400:
            reason += "; redirects are not followed"
        wait_s = retry_after_s(response.headers.get("retry-after"), self._now())
        return DeliveryFailed(
            reason,
            wait_s,
            # The webhook itself is gone: it is sent nothing more.
            is_final=status == _GONE,
            is_permanent=400 <= status < 500 and status not in _TEMPORARY,
        )


class PushSender:
    """Sends the events of a task to a webhook, for the outbox."""

    def __init__(self, tasks: TaskStore, webhooks: WebhookSender) -> None:
        self._tasks = tasks
        self._webhooks = webhooks

    def receiver(self, delivery: Delivery) -> str:
        """The webhook's host."""
        return _decoder.decode(delivery.body).host.lower()

    async def send(self, delivery: Delivery) -> Delivered | DeliveryFailed | None:
        """Post the next notification, if there is one."""
        config = _decoder.decode(delivery.body)
        # Made anew for each attempt: after a failure a 0.3 webhook gets the task as it is by then.
        payload = await next_payload(self._tasks, ProtocolVersion(config.version), delivery)
        if not isinstance(payload, PushPayload):
            return payload
        failure = await self._webhooks.post(config.url, payload.body, _headers(config))
        if failure is None or failure.is_final or not failure.is_permanent:
            return failure or payload.delivered
        # To send it again is of no use, and it must not hold up what follows, least of all the end.
        reason = f"event {payload.delivered.cursor} was skipped: {failure.reason}"
        return msgspec.structs.replace(payload.delivered, skipped=reason)


def retry_after_s(header: str | None, now: datetime) -> float | None:
    """How long a Retry-After header asks to wait; None without one."""
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:12])
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, IndexError, TypeError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())


def _headers(config: PushConfig) -> dict[str, str]:
    media_type = A2A_JSON if config.version == ProtocolVersion.V1.value else JSON
    headers = {"Content-Type": media_type.decode("ascii")}
    if config.token:
        headers["X-A2A-Notification-Token"] = config.token
    if config.schemes and config.credentials:
        headers["Authorization"] = f"{config.schemes[0]} {config.credentials}"
    return headers


async def _read_briefly(response: "httpx2.Response") -> None:
    """Read the rest of a short response, which is not used, and close it.

    Its status has arrived: how the rest ends, and how large it is, does not matter.
    """
    import httpx2

    size = 0
    try:
        with suppress(TimeoutError, httpx2.TransportError):
            async with asyncio.timeout(_READ_TIMEOUT_S):
                async for chunk in cast("httpx2.AsyncByteStream", response.stream):
                    size += len(chunk)
                    if size > _MAX_READ_BYTES:
                        return
    finally:
        await response.aclose()
