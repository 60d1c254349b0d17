"""One request to a remote agent: send, watch, status or cancel, within its deadline."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing

import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.ids import JsonObject, PeerName
from openclaw_a2a.model.validation import drop_none
from openclaw_a2a.remote.config import MAX_TIMEOUT_MS, OutboundConfig
from openclaw_a2a.remote.handles import TaskHandles
from openclaw_a2a.remote.request_builder import (
    ResolvedTarget,
    TargetResolver,
    add_extensions,
    build_headers,
    build_message_request,
    history_length,
    merge_service_parameters,
)
from openclaw_a2a.remote.result import (
    LAST_STATES,
    PAUSED_STATES,
    TERMINAL_STATES,
    ErrorCode,
    RemoteFailure,
)
from openclaw_a2a.remote.result_builder import (
    OnStreamUpdate,
    ResultBuilder,
    StreamUpdate,
    success_envelope,
)
from openclaw_a2a.remote.target_secrets import find_secrets
from openclaw_a2a.remote.transport.client import RemoteClient
from openclaw_a2a.remote.transport.client_pool import ClientPool
from openclaw_a2a.remote.transport.oauth2 import ClientCredentials, read_client_credentials
from openclaw_a2a.remote.transport.peer_errors import (
    UNSUPPORTED_OPERATION,
    is_network_failure,
    is_unauthenticated,
    is_unreachable,
)

log = get_logger(__name__)

_ATTEMPTS = 3
_BACKOFF = Backoff(first_s=0.2, factor=5.0, max_s=1.0, jitter=0.0)
_POLL_BACKOFF = Backoff(first_s=0.2, max_s=2.0, jitter=0.0)
_MIN_POLL_S = 0.2
_TASK_KEYS = ("id", "contextId", "status", "history", "artifacts")
_Request = Callable[[RemoteClient], Awaitable[JsonObject]]
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
        self,
        context: ActionContext,
        request: JsonObject,
        on_update: OnStreamUpdate | None,
        owner: PeerName | None,
    ) -> None:
        """Raises RemoteFailure when the request names no target that may be used."""
        self._config = context.config
        self._pool = context.pool
        self._environment = context.environment
        self._request = request
        self._action: str = request["action"]
        self._on_update = on_update
        self._resolved: ResolvedTarget = context.resolver.resolve(request, owner)
        is_followed = self._action == "watch" or request.get("follow_updates") is True
        self._result = ResultBuilder(
            self._resolved, context.pool, context.handles, is_followed=is_followed
        )
        self._headers: dict[str, str] = {}
        self._credentials: ClientCredentials | None = None
        self._token: str | None = None
        self._is_answered = False
        self._answer: JsonObject = {}
        """The last answer, unredacted: compared with the next one, never shown."""

    async def run(self) -> JsonObject:
        """Carry the request out within its deadline; the envelope of its result.

        Raises: RemoteFailure, with how far the work got and without our secrets.
        """
        defaults, request, target = self._config.defaults, self._request, self._resolved.target
        timeout_ms = min(request.get("timeout_ms", defaults.timeout_ms), MAX_TIMEOUT_MS)
        try:
            parameters = merge_service_parameters(defaults.service_parameters, request)
            self._headers = build_headers(parameters, target.auth, self._environment)
            push: JsonObject | None = request.get("push_notification_config")
            self._result.add_secrets(
                find_secrets(self._headers, parameters, self._environment, push)
            )
            if target.auth is not None and target.auth.oauth2 is not None:
                client = target.auth.oauth2
                self._credentials = read_client_credentials(client, self._environment)
                self._result.add_secrets(self._credentials.secrets)
            guard = self._pool.breaker.guard(target.base_url, lambda: self._result.secrets)
            async with asyncio.timeout(timeout_ms / 1000), guard:
                raw = await self._perform()
                return success_envelope(self._action, self._result.summary(), raw)
        except RemoteFailure as error:
            failure = cause = error
            if is_network_failure(failure):
                # The peer may have moved: the next call reads its card again.
                await self._pool.drop_clients(target)
        except TimeoutError as error:
            failure = RemoteFailure(ErrorCode.PEER, "request timed out", {"hint": _TIMEOUT_HINT})
            cause = error
        except Exception as error:  # any failure: the caller gets the progress so far
            log.exception("a2a.remote_agent.internal_error", action=self._action)
            failure, cause = RemoteFailure.from_bug(error), error
        raise self._result.explain(failure, request, self._config.policy) from cause

    # ---------------------------------------------------------------- the actions
    # Each returns the `raw` of the envelope: the answer, or the events of a stream.

    def _perform(self) -> Awaitable[JsonObject]:
        if self._action == "send":
            needs_task = self._request.get("task_requirement") == "required"
            if self._request.get("follow_updates") is not True:
                return self._send_for_task() if needs_task else self._send()
            return self._send_and_subscribe() if needs_task else self._send_streaming()
        task_id, headers = self._resolved.task_id, self._headers
        if task_id is None:
            raise RemoteFailure(ErrorCode.VALIDATION, "the request names no task")
        if self._action == "watch":
            return self._watch(task_id)
        # Reading a task may be repeated after any network failure. Sending and cancelling are
        # repeated only when the request certainly did not reach the peer.
        if self._action == "cancel":
            return self._call(lambda client: client.cancel(task_id, headers), is_unreachable)
        length = history_length(self._request)
        return self._call(lambda client: client.get(task_id, length, headers), is_network_failure)

    def _send(self, *, returns_at_once: bool = False) -> Awaitable[JsonObject]:
        request = {**self._request, "blocking": False} if returns_at_once else self._request
        message = build_message_request(request, self._config.policy, self._resolved)

        def send(client: RemoteClient) -> Awaitable[JsonObject]:
            declared = client.card.extensions
            return client.send(*add_extensions(self._request, message, self._headers, declared))

        return self._call(send, is_unreachable)

    async def _send_for_task(self) -> JsonObject:
        answer = await self._send()
        if answer["kind"] == "message":
            details: JsonObject = {
                "response_kind": "message",
                "message_id": answer.get("messageId") or None,
                "context_id": answer.get("contextId") or None,
            }
            message = "a task was required, but the peer sent a message"
            raise RemoteFailure(ErrorCode.TASK_REQUIRED, message, drop_none(details))
        return answer

    async def _send_streaming(self) -> JsonObject:
        # Reads the card, which says whether the peer streams.
        await self._clients()
        if self._result.streaming_supported is False:
            return await self._send_and_poll()
        message = build_message_request(self._request, self._config.policy, self._resolved)

        def stream(client: RemoteClient) -> AsyncGenerator[JsonObject]:
            declared = client.card.extensions
            return client.stream(*add_extensions(self._request, message, self._headers, declared))

        return await self._follow(stream)

    async def _send_and_poll(self) -> JsonObject:
        """Follow the task of a peer that does not stream.

        The request asks the peer not to block until the end of the task. Only then the task id is
        known from the beginning and stored, so that a restart or a deadline does not lose it.
        """
        await self._emit(await self._send(returns_at_once=True))
        answer = self._answer
        if answer["kind"] != "task":
            return await self._end_stream()
        task_id: str = answer["id"]
        self._result.created_task = task_id
        last: JsonObject | None = None
        polls = 0
        loop = asyncio.get_running_loop()
        asked_at = loop.time() - _MIN_POLL_S  # the first poll needs no delay
        while answer["status"]["state"] not in TERMINAL_STATES | PAUSED_STATES:
            generation = _generation_of(answer)
            # A peer that supports generations delays its answer until the task changes.
            if generation is None or generation == _generation_of(last):
                polls += 1
                await asyncio.sleep(_POLL_BACKOFF.delay_s(polls))
            else:  # the task may change all the time
                await asyncio.sleep(asked_at + _MIN_POLL_S - loop.time())
            asked_at = loop.time()
            last, answer = answer, await self._read_task(task_id, after_generation=generation)
            if not _is_same_task(answer, last):
                await self._emit(self._result.add_answer(answer))
        return await self._end_stream()

    async def _read_task(self, task_id: str, *, after_generation: int | None = None) -> JsonObject:
        """The task as the peer has it now; it is not added to the result."""

        def get(client: RemoteClient) -> Awaitable[JsonObject]:
            return client.get(task_id, None, self._headers, after_generation=after_generation)

        return await self._call(get, is_network_failure, is_recorded=False)

    async def _send_and_subscribe(self) -> JsonObject:
        task = await self._send_for_task()
        await self._emit(task)
        if self._result.received.is_terminal:
            return await self._end_stream()
        task_id: str = task["id"]
        # From here on a failure names the task, which may continue without us.
        self._result.created_task = task_id
        if self._result.streaming_supported is False:
            raise self._result.watch_unsupported(task_id)
        try:
            return await self._follow(
                lambda client: client.subscribe(task_id, self._headers), known=self._answer
            )
        except RemoteFailure:
            # A task that ended before it could be subscribed to is a result, not a failure.
            # One event is the answer to `send`: the subscription failed before its first event.
            if len(self._result.received.events) == 1 and await self._has_ended(task_id):
                return await self._end_stream()
            raise

    async def _has_ended(self, task_id: str) -> bool:
        try:
            task = await self._read_task(task_id)
        except RemoteFailure:
            return False
        is_over = task["status"]["state"] in TERMINAL_STATES
        if is_over:
            await self._emit(self._result.add_answer(task))
        return is_over

    async def _watch(self, task_id: str) -> JsonObject:
        # A handle may remember that the peer does not stream: then nothing is requested. Otherwise
        # `_clients` reads the card, which sets `streaming_supported`.
        if self._result.streaming_supported is not False:
            await self._clients()
        if self._result.streaming_supported is False:
            raise self._result.watch_unsupported(task_id)
        try:
            return await self._follow(lambda client: client.subscribe(task_id, self._headers))
        except RemoteFailure as failure:
            # Peers of 1.0 refuse subscriptions to a task that has ended.
            is_refused = "rpcCode" in failure.details and not self._result.received.events
            if is_refused and await self._has_ended(task_id):
                return await self._end_stream()
            if failure.details.get("rpcCode") == UNSUPPORTED_OPERATION:
                raise self._result.watch_unsupported(task_id) from failure
            raise

    # ---------------------------------------------------------------- requests and streams

    async def _clients(self) -> tuple[RemoteClient, ...]:
        """The clients of the target, and a valid access token among the headers if it wants one."""
        if self._credentials is not None:
            await self._authorize(self._credentials)
        target = self._resolved.target
        try:
            return await self._pool.clients(target, self._headers)
        except RemoteFailure as failure:  # some peers show their card only with a token
            await self._renew_token(failure)
            return await self._pool.clients(target, self._headers)

    async def _authorize(self, credentials: ClientCredentials) -> None:
        bare = {name: one for name, one in self._headers.items() if name != "authorization"}
        target = self._resolved.target
        self._token = await self._pool.access_token(target, credentials, bare)
        # In place: the requests of this call share this dict.
        self._headers["authorization"] = f"Bearer {self._token}"
        self._result.add_secrets([self._token])

    async def _renew_token(self, failure: RemoteFailure) -> None:
        """Get a new token when the peer has refused the last one; otherwise raise the failure.

        A refused request was not acted on: it is safe to repeat.
        """
        if self._credentials is None or self._token is None or not is_unauthenticated(failure):
            raise failure
        self._pool.drop_token(self._token)
        await self._authorize(self._credentials)

    async def _call(
        self,
        request: _Request,
        is_safe: Callable[[Exception], bool],
        *,
        is_recorded: bool = True,
    ) -> JsonObject:
        """Make a request, and make it again after failures that are safe to repeat.

        The action decides which those are: the peer must not process a message twice. The answer
        is added to the result, unless `is_recorded` is false.
        """
        attempt, interface = 1, 0
        clients: tuple[RemoteClient, ...] = ()
        while True:
            try:
                clients = await self._clients()
                try:
                    answer = await request(clients[interface])
                except RemoteFailure as failure:
                    await self._renew_token(failure)
                    answer = await request(clients[interface])
                self._record_answer()
                if not is_recorded:
                    return answer
                self._answer = answer
                return self._result.add_answer(answer)
            except RemoteFailure as failure:
                # Nothing was sent, so the next interface is tried at once.
                if is_unreachable(failure) and interface < len(clients) - 1:
                    interface += 1
                    continue
                if attempt == _ATTEMPTS or not is_safe(failure):
                    raise
            await asyncio.sleep(_BACKOFF.delay_s(attempt))
            attempt, interface = attempt + 1, 0

    async def _follow(
        self,
        start: Callable[[RemoteClient], AsyncGenerator[JsonObject]],
        *,
        known: JsonObject | None = None,
    ) -> JsonObject:
        """Read a stream to its end. A first event that only repeats the task `known` is dropped."""
        # With `known`, the answer to `send` is already the first of the received events.
        min_events = 1 if known is None else 2
        clients = await self._clients()

        async def read(client: RemoteClient) -> None:
            nonlocal known
            async with aclosing(start(client)) as events:
                async for event in events:
                    self._record_answer()
                    repeated, known = known, None
                    if repeated is None or not _is_same_task(event, repeated):
                        await self._emit(*self._result.add_event(event))
                    if _is_last(event):
                        break  # although a peer may keep the stream open

        for client in clients:
            try:
                try:
                    await read(client)
                except RemoteFailure as failure:
                    await self._renew_token(failure)
                    await read(client)
                break
            except RemoteFailure as failure:
                if client is clients[-1] or not is_unreachable(failure):
                    raise
        if len(self._result.received.events) < min_events:
            hint = "the work may go on; ask with action=status when the task is known"
            raise RemoteFailure.peer("EmptyStream", "the stream ended without events", hint)
        return await self._end_stream()

    def _record_answer(self) -> None:
        """Close the circuit of the peer at its first answer: a stream may last for long.

        Not at later ones: a peer whose stream continues may still refuse new requests.
        """
        if not self._is_answered:
            self._is_answered = True
            self._pool.breaker.record_answer(self._resolved.target.base_url)

    async def _emit(self, *events: JsonObject) -> None:
        if self._on_update is not None:
            for event in events:
                await self._on_update(StreamUpdate(self._action, event, self._result))

    async def _end_stream(self) -> JsonObject:
        """End of the stream: emit held-back text; returns the `raw` of all events."""
        await self._emit(*self._result.end_stream())
        events = self._result.received.events
        return {"events": events, "finalEvent": events[-1]}


def _is_last(event: JsonObject) -> bool:
    """True when the task has ended, or waits for its caller, who cannot answer while it reads.

    A task that requires authentication may continue without an answer: the caller authenticates
    elsewhere.
    """
    has_status = event["kind"] in ("task", "status-update")
    return has_status and event["status"]["state"] in LAST_STATES


def _generation_of(task: JsonObject | None) -> int | None:
    """How often the task has changed, for peers of A2A 1.1 (a draft); None for others."""
    return None if task is None else task.get("generation") or None


def _is_same_task(event: JsonObject, known: JsonObject) -> bool:
    return event["kind"] == "task" and all(event.get(key) == known.get(key) for key in _TASK_KEYS)
