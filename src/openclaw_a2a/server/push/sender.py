"""Posts push notifications to webhooks: one request each, to an address that was checked."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, cast

import msgspec

from openclaw_a2a.http.asgi import A2A_JSON, JSON
from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.push_config import PushConfig
from openclaw_a2a.net.safe_resolver import (
    AddressNotAllowed,
    HostNotFound,
    ResolveHost,
    find_addresses,
)
from openclaw_a2a.ports import Delivered, DeliveryFailed, TaskStore
from openclaw_a2a.protocol.versions import ProtocolVersion
from openclaw_a2a.server.push.payload import PushPayload, next_payload

if TYPE_CHECKING:
    import httpx2

_MOST_READ = 16 * 1024
_POLITE_S = 1.0
_GONE = 410
_DEFAULT_PORTS = {"http": 80, "https": 443}
_decoder = msgspec.json.Decoder(PushConfig)


class WebhookOptions(msgspec.Struct, frozen=True):
    """How requests are made."""

    timeout_s: float
    allow_private: bool
    agent_name: str


class WebhookSender:
    """Makes the requests. Connections are not kept: each one is checked when it is made."""

    def __init__(
        self, rules: WebhookOptions, *, resolve: ResolveHost, now: Callable[[], datetime]
    ) -> None:
        self._rules = rules
        self._resolve = resolve
        self._now = now
        self._transport: httpx2.AsyncHTTPTransport | None = None

    async def close(self) -> None:
        """Let go of everything."""
        if self._transport is not None:
            await self._transport.aclose()

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> DeliveryFailed | None:
        """Post once; None when it was taken, otherwise why not."""
        import httpx2  # loaded with the first notification: a gateway without any starts faster

        try:
            address = httpx2.URL(url)
        except httpx2.InvalidURL as error:
            return DeliveryFailed(f"the address cannot be used: {error}", is_final=True)
        host, port = address.raw_host.decode("ascii"), address.port
        try:
            found = await find_addresses(
                host,
                port or _DEFAULT_PORTS.get(address.scheme, 0),
                resolve=self._resolve,
                allow_private=self._rules.allow_private,
            )
        except HostNotFound as error:
            return DeliveryFailed(str(error))
        except AddressNotAllowed as error:
            return DeliveryFailed(str(error), is_final=True)
        named = {"Host": address.netloc.decode("ascii"), "User-Agent": self._rules.agent_name}
        request = httpx2.Request("POST", address, headers={**named, **headers}, content=body)
        return await self._send_to(found, request)

    async def _send_to(self, found: list[str], request: "httpx2.Request") -> DeliveryFailed | None:
        """Send to the first of these addresses that can be reached."""
        import httpx2

        host = request.url.raw_host.decode("ascii")
        limit, reason = self._rules.timeout_s, ""
        wait = httpx2.Timeout(limit, connect=limit / len(found))
        request.extensions |= {"timeout": wait.as_dict(), "sni_hostname": host}
        for ip in found:
            request.url = request.url.copy_with(host=ip)
            try:
                return await self._send(request)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                reason = f"{host} cannot be reached: {str(error) or 'no answer'}"
            except httpx2.TimeoutException:
                return DeliveryFailed(f"{host} did not answer within {limit:g} s")
            except httpx2.TransportError as error:
                return DeliveryFailed(f"the connection to {host} broke: {type(error).__name__}")
        return DeliveryFailed(reason)

    async def _send(self, request: "httpx2.Request") -> DeliveryFailed | None:
        import httpx2

        response = await self._opened().handle_async_request(request)
        try:
            # The receiver has said what counts; how the rest of its answer ends does not matter.
            with suppress(TimeoutError, httpx2.TransportError):
                async with asyncio.timeout(_POLITE_S):
                    await _read_a_little(response)
        finally:
            await response.aclose()
        if 200 <= response.status_code < 300:
            return None
        return self._refusal(response)

    def _opened(self) -> "httpx2.AsyncHTTPTransport":
        import httpx2

        if self._transport is None:
            # A proxy would look the name up again, elsewhere: what was checked must be called.
            # Kept connections would be shared by all names at one address.
            self._transport = httpx2.AsyncHTTPTransport(
                verify=httpx2.create_ssl_context(),
                trust_env=False,
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
            )
        return self._transport

    def _refusal(self, response: "httpx2.Response") -> DeliveryFailed:
        status = response.status_code
        reason = f"it answered {status}"
        if 300 <= status < 400:
            reason += "; redirects are not followed"
        wait_s = retry_after_s(response.headers.get("retry-after"), self._now())
        return DeliveryFailed(reason, wait_s, is_final=status == _GONE)


class PushSender:
    """Brings what happens to a task to a webhook."""

    def __init__(self, store: TaskStore, poster: WebhookSender) -> None:
        self._store = store
        self._poster = poster

    def receiver(self, delivery: Delivery) -> str:
        """The webhook's host."""
        return _decoder.decode(delivery.body).host.lower()

    async def send(self, delivery: Delivery) -> Delivered | DeliveryFailed | None:
        """Post the next notification, if there is one."""
        config = _decoder.decode(delivery.body)
        notice = await next_payload(self._store, ProtocolVersion(config.wire), delivery)
        if not isinstance(notice, PushPayload):
            return notice
        missed = await self._poster.post(config.url, notice.body, _headers(config))
        return missed or notice.brings_to


def retry_after_s(header: str | None, now: datetime) -> float | None:
    """How long a receiver wants to be left alone; None when it does not say."""
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
    media_type = A2A_JSON if config.wire == ProtocolVersion.V1.value else JSON
    headers = {"Content-Type": media_type.decode("ascii")}
    if config.token:
        headers["X-A2A-Notification-Token"] = config.token
    if config.schemes and config.credentials:
        headers["Authorization"] = f"{config.schemes[0]} {config.credentials}"
    return headers


async def _read_a_little(response: "httpx2.Response") -> None:
    """Let the receiver finish its answer, which nobody needs, unless it is long."""
    size = 0
    async for chunk in cast("httpx2.AsyncByteStream", response.stream):
        size += len(chunk)
        if size > _MOST_READ:
            return
