"""One request to a remote agent: send, watch, status or cancel, within its deadline."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing

import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.net.retry import retry
from openclaw_a2a.remote.config import MAX_TIMEOUT_MS, OutboundConfig
from openclaw_a2a.remote.credentials import find_secrets
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure
from openclaw_a2a.remote.handles import TaskHandles
from openclaw_a2a.remote.request_builder import (
    ResolvedTarget,
    TargetResolver,
    add_extensions,
    build_headers,
    build_message_request,
    merge_service_parameters,
)
from openclaw_a2a.remote.result.remote_result import TERMINAL_STATES
from openclaw_a2a.remote.result.result_builder import (
    OnStreamUpdate,
    ResultBuilder,
    StreamUpdate,
    success_envelope,
)
from openclaw_a2a.remote.transport.client import RemoteClient
from openclaw_a2a.remote.transport.client_pool import ClientPool
from openclaw_a2a.remote.transport.peer_errors import (
    UNSUPPORTED_OPERATION,
    is_network_failure,
    is_unreachable,
)

log = get_logger(__name__)

_ATTEMPTS = 3
_BACKOFF = Backoff(first_s=0.2, factor=5.0, max_s=1.0, jitter=0.0)
_TASK_KEYS = ("id", "contextId", "status", "history", "artifacts")
_TIMEOUT_HINT = (
    "raise timeout_ms for this call, or defaults.timeoutMs in the configuration; "
    "work that the peer has begun goes on"
)


class ActionContext(msgspec.Struct, frozen=True):
    """What all calls of one tool share."""

    config: OutboundConfig
    resolver: TargetResolver
    pool: ClientPool
    handles: TaskHandles
    environment: Mapping[str, str]


class ActionCall:
    """One validated request from its target to its result."""

    def __init__(
        self, context: ActionContext, request: JsonObject, on_update: OnStreamUpdate | None
    ) -> None:
        """Raises RemoteFailure when the request names no target that may be used."""
        self._config = context.config
        self._pool = context.pool
        self._environment = context.environment
        self._request = request
        self._on_update = on_update
        self._resolved: ResolvedTarget = context.resolver.resolve(request)
        self._result = ResultBuilder(self._resolved, context.pool, context.handles)
        self._headers: dict[str, str] = {}

    async def run(self) -> JsonObject:
        """Carry the request out within its deadline; the envelope of its result.

        Raises: RemoteFailure, with how far the work got and without our secrets.
        """
        actions: dict[str, Callable[[], Awaitable[JsonObject]]] = {
            "send": self._send,
            "watch": self._watch,
            "status": self._status,
            "cancel": self._cancel,
        }
        action: str = self._request["action"]
        timeout_ms = self._request.get("timeout_ms", self._config.defaults.timeout_ms)
        target = self._resolved.target
        try:
            self._prepare_headers()
            guard = self._pool.breaker.guard(target.base_url, self._result.secrets)
            async with asyncio.timeout(min(timeout_ms, MAX_TIMEOUT_MS) / 1000), guard:
                raw = await actions[action]()
                return success_envelope(action, self._result.summary(), raw)
        except RemoteFailure as failure:
            if is_network_failure(failure):
                # The peer may have moved: the next call reads its card again.
                await self._pool.drop_clients(target)
            raise self._explain(failure) from failure
        except TimeoutError as error:
            details: JsonObject = {"hint": _TIMEOUT_HINT}
            failure = RemoteFailure(ErrorCode.PEER, "request timed out", details)
            raise self._explain(failure) from error
        except Exception as error:  # the caller learns how far the work got, whatever failed
            log.exception("a2a.remote_agent.internal_error", action=action)
            raise self._explain(RemoteFailure.from_bug(error)) from error

    def _explain(self, failure: RemoteFailure) -> RemoteFailure:
        return self._result.explain(failure, self._request, self._config.policy)

    def _prepare_headers(self) -> None:
        configured = self._config.defaults.service_parameters
        parameters = merge_service_parameters(configured, self._request)
        auth = self._resolved.target.auth
        self._result.secrets = find_secrets(auth, parameters, self._environment)
        self._headers = build_headers(parameters, auth, self._environment)

    # ---------------------------------------------------------------- the four actions
    # Each returns the `raw` of the envelope: the answer, or the events of a stream.

    async def _send(self) -> JsonObject:
        needs_task = self._request.get("task_requirement") == "required"
        if self._request.get("follow_updates") is not True:
            return await self._send_blocking(needs_task=needs_task)
        if needs_task:
            return await self._send_and_subscribe()
        await self._clients()  # reads the card, which says whether the peer streams
        if self._result.streaming_supported is False:
            await self._emit(await self._send_blocking(needs_task=False))
            return self._raw_events()
        message = self._build_message()
        return await self._follow(lambda client: client.stream(*self._extend(client, message)))

    async def _send_blocking(self, *, needs_task: bool) -> JsonObject:
        message = self._build_message()
        answer = self._result.add(
            await self._request_with_retry(
                is_unreachable, lambda client: client.send(*self._extend(client, message))
            )
        )
        if needs_task and answer["kind"] == "message":
            details: JsonObject = {"response_kind": "message"}
            if answer.get("messageId"):
                details["message_id"] = answer["messageId"]
            if answer.get("contextId"):
                details["context_id"] = answer["contextId"]
            raise RemoteFailure(
                ErrorCode.TASK_REQUIRED, "a task was required, but the peer sent a message", details
            )
        return answer

    async def _send_and_subscribe(self) -> JsonObject:
        task = await self._send_blocking(needs_task=True)
        await self._emit(task)
        if self._result.received.is_terminal:
            return self._raw_events()
        task_id: str = task["id"]
        self._result.created_task = task_id
        if self._result.streaming_supported is False:
            raise self._result.watch_unsupported(task_id)
        try:
            return await self._follow(
                lambda client: _skip_known_task(client.subscribe(task_id, self._headers), task),
                min_events=2,
            )
        except RemoteFailure:
            ended = await self._read_ended_task(task_id)
            if ended is None:
                raise
            return ended

    async def _read_ended_task(self, task_id: str) -> JsonObject | None:
        """The result of a task that ended before it could be subscribed to."""
        if len(self._result.received.events) > 1:
            return None
        try:
            task = await self._request_with_retry(
                is_network_failure, lambda client: client.get(task_id, None, self._headers)
            )
        except RemoteFailure:
            return None
        if task["status"]["state"] not in TERMINAL_STATES:
            return None
        await self._emit(self._result.add(task))
        return self._raw_events()

    async def _watch(self) -> JsonObject:
        task_id = self._require_task_id()
        if self._result.streaming_supported is not False:
            await self._clients()
        if self._result.streaming_supported is False:
            raise self._result.watch_unsupported(task_id)
        try:
            return await self._follow(lambda client: client.subscribe(task_id, self._headers))
        except RemoteFailure as failure:
            if failure.details.get("rpcCode") == UNSUPPORTED_OPERATION:
                raise self._result.watch_unsupported(task_id) from failure
            raise

    async def _status(self) -> JsonObject:
        task_id, length = self._require_task_id(), self._request.get("history_length")
        return self._result.add(
            await self._request_with_retry(
                is_network_failure, lambda client: client.get(task_id, length, self._headers)
            )
        )

    async def _cancel(self) -> JsonObject:
        task_id = self._require_task_id()
        return self._result.add(
            await self._request_with_retry(
                is_unreachable, lambda client: client.cancel(task_id, self._headers)
            )
        )

    # ---------------------------------------------------------------- requests and streams

    def _request_with_retry(
        self,
        is_safe: Callable[[Exception], bool],
        request: Callable[[RemoteClient], Awaitable[JsonObject]],
    ) -> Awaitable[JsonObject]:
        return retry(
            lambda: self._request_once(request),
            attempts=_ATTEMPTS,
            backoff=_BACKOFF,
            is_safe=is_safe,
        )

    async def _request_once(
        self, request: Callable[[RemoteClient], Awaitable[JsonObject]]
    ) -> JsonObject:
        """Use the preferred interface; the next one only when nothing was sent."""
        *others, last = await self._clients()
        for client in others:
            try:
                return await request(client)
            except RemoteFailure as failure:
                if not is_unreachable(failure):
                    raise
        return await request(last)

    async def _follow(
        self, start: Callable[[RemoteClient], AsyncGenerator[JsonObject]], *, min_events: int = 1
    ) -> JsonObject:
        async with aclosing(self._events(start)) as events:
            async for event in events:
                await self._emit(self._result.add(event))
                if _is_last(event):
                    break  # nothing can follow, even when the peer keeps the stream open
        if len(self._result.received.events) < min_events:
            raise RemoteFailure(
                ErrorCode.PEER,
                "the stream ended without events",
                {
                    "errorName": "EmptyStream",
                    "hint": "the work may go on; ask with action=status when the task is known",
                },
            )
        return self._raw_events()

    async def _events(
        self, start: Callable[[RemoteClient], AsyncGenerator[JsonObject]]
    ) -> AsyncGenerator[JsonObject]:
        *others, last = await self._clients()
        for client in others:
            try:
                async with aclosing(start(client)) as events:
                    async for event in events:
                        yield event
            except RemoteFailure as failure:
                if not is_unreachable(failure):
                    raise
            else:
                return
        async with aclosing(start(last)) as events:
            async for event in events:
                yield event

    async def _emit(self, event: JsonObject) -> None:
        if self._on_update is not None:
            await self._on_update(StreamUpdate(self._request["action"], event, self._result))

    def _raw_events(self) -> JsonObject:
        events = self._result.received.events
        return {"events": events, "finalEvent": events[-1]}

    async def _clients(self) -> tuple[RemoteClient, ...]:
        """The clients to try, in order."""
        clients = await self._pool.clients(self._resolved.target, self._headers)
        return clients if self._config.policy.transport_fallback else clients[:1]

    def _build_message(self) -> JsonObject:
        return build_message_request(
            self._request,
            self._config.policy,
            task_id=self._resolved.task_id,
            context_id=self._resolved.context_id,
        )

    def _extend(
        self, client: RemoteClient, message: JsonObject
    ) -> tuple[JsonObject, dict[str, str]]:
        return add_extensions(self._request, message, self._headers, client.card.extensions)

    def _require_task_id(self) -> str:
        task_id = self._resolved.task_id
        if task_id is None:
            raise RemoteFailure(ErrorCode.VALIDATION, "the request names no task")
        return task_id


def _is_last(event: JsonObject) -> bool:
    has_status = event["kind"] in ("task", "status-update")
    return has_status and event["status"]["state"] in TERMINAL_STATES


async def _skip_known_task(
    events: AsyncGenerator[JsonObject], known: JsonObject
) -> AsyncGenerator[JsonObject]:
    """The events of a subscription, without a first task that says only what is known."""
    is_first = True
    async with aclosing(events):
        async for event in events:
            is_known = event["kind"] == "task" and all(
                event.get(key) == known.get(key) for key in _TASK_KEYS
            )
            if not (is_first and is_known):
                yield event
            is_first = False
