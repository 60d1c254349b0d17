"""What the tool does with a remote agent: send, follow, ask for and cancel work."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import cast

import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.remote.config import MOST_MS, OutboundConfig
from openclaw_a2a.remote.credentials import hide, secrets_of
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure
from openclaw_a2a.remote.handles.handles import TaskHandles
from openclaw_a2a.remote.request.request_builder import (
    extended,
    headers,
    send_request,
    service_parameters,
)
from openclaw_a2a.remote.request.target_resolution import ResolvedTarget, TargetResolver
from openclaw_a2a.remote.result.progress import TERMINAL
from openclaw_a2a.remote.result.result_builder import ResultBuilder
from openclaw_a2a.remote.transport.client import RemoteClient
from openclaw_a2a.remote.transport.client_pool import ClientPool
from openclaw_a2a.remote.transport.peer_errors import (
    UNSUPPORTED_OPERATION,
    is_network_trouble,
    is_unreachable,
)

log = get_logger(__name__)

OnUpdate = Callable[[JsonObject, JsonObject], None]
"""Called with the summary so far and the event that changed it."""

_PAUSES_S = (0.2, 1.0)
_SAME_TASK = ("id", "contextId", "status", "history", "artifacts")
_TIMEOUT_HINT = (
    "raise timeout_ms for this call, or defaults.timeoutMs in the configuration; "
    "work that the peer has begun goes on"
)


class Outcome(msgspec.Struct, frozen=True):
    """What a successful request gives: the summary and the peer's own words."""

    summary: JsonObject
    raw: JsonObject


class Actions:
    """The four actions that talk to a peer."""

    def __init__(
        self,
        config: OutboundConfig,
        resolver: TargetResolver,
        *,
        catalog: ClientPool,
        handles: TaskHandles,
        environment: Mapping[str, str],
    ) -> None:
        self.config = config
        self.catalog = catalog
        self.environment = environment
        self._handles = handles
        self._resolver = resolver

    async def perform(self, request: JsonObject, on_update: OnUpdate | None) -> Outcome:
        """Do what a checked request asks. Raises: RemoteFailure."""
        subject = self._resolver.subject(request)
        told = ResultBuilder(subject, self.catalog, self._handles)
        return await _Call(self, request, told=told, on_update=on_update).perform()


class _Call:
    """One request in progress."""

    def __init__(
        self,
        actions: Actions,
        request: JsonObject,
        *,
        told: ResultBuilder,
        on_update: OnUpdate | None,
    ) -> None:
        self._actions = actions
        self._request = request
        self._told = told
        self._on_update = on_update
        self._headers: dict[str, str] = {}

    async def perform(self) -> Outcome:
        """Do it within its deadline; secrets are in no outcome, good or bad."""
        try:
            self._sign()
            outcome = await self._in_time()
        except RemoteFailure as failure:
            raise self._explained(failure) from failure
        except Exception as error:  # whatever it is, the caller learns how far the work got
            log.exception("a2a.remote_agent.internal_error", action=self._request["action"])
            raise self._explained(RemoteFailure.of_bug(error)) from error
        return outcome

    def _explained(self, failure: RemoteFailure) -> RemoteFailure:
        policy, secrets = self._actions.config.policy, self._told.secrets
        told = self._told.explained(failure, self._request, policy)
        return RemoteFailure(told.code, hide(told.message, secrets), hide(told.details, secrets))

    def _sign(self) -> None:
        configured = self._actions.config.defaults.service_parameters
        parameters = service_parameters(configured, self._request)
        auth, environment = self._subject.target.auth, self._actions.environment
        self._told.secrets = secrets_of(auth, parameters, environment)
        self._headers = headers(parameters, auth, environment)

    async def _in_time(self) -> Outcome:
        takes: dict[str, Callable[[], Awaitable[Outcome]]] = {
            "send": self._send,
            "watch": self._watch,
            "status": self._status,
            "cancel": self._cancel,
        }
        limit = self._request.get("timeout_ms", self._actions.config.defaults.timeout_ms)
        health, url = self._actions.catalog.health, self._subject.target.base_url
        watching = health.watching(url, self._told.secrets)
        try:
            async with asyncio.timeout(min(limit, MOST_MS) / 1000), watching:
                return await takes[self._request["action"]]()
        except TimeoutError:
            hint: JsonObject = {"hint": _TIMEOUT_HINT}
            raise RemoteFailure(ErrorCode.PEER, "request timed out", hint) from None
        except RemoteFailure as failure:
            if is_network_trouble(failure):
                await self._actions.catalog.forget_peers(self._subject.target)
            raise

    # ---------------------------------------------------------------- the four actions

    async def _send(self) -> Outcome:
        is_required = self._request.get("task_requirement") == "required"
        if self._request.get("follow_updates") is not True:
            answer = await self._send_plain(is_required)
            return Outcome(self._told.summary(), answer)
        if is_required:
            return await self._send_and_follow()
        await self._peers()
        if self._told.streaming_supported is False:
            self._tell(await self._send_plain(is_required))
            return self._streamed()
        outgoing = self._outgoing()
        return await self._follow(lambda peer: peer.stream(*self._said_to(peer, outgoing)))

    async def _send_plain(self, is_required: bool) -> JsonObject:
        outgoing = self._outgoing()
        answer = await self._ask(
            is_unreachable, lambda peer: peer.send(*self._said_to(peer, outgoing))
        )
        if is_required and answer["kind"] == "message":
            details: JsonObject = {"response_kind": "message"}
            if answer.get("messageId"):
                details["message_id"] = answer["messageId"]
            if answer.get("contextId"):
                details["context_id"] = answer["contextId"]
            raise RemoteFailure(
                ErrorCode.TASK_REQUIRED, "a task was required, but the peer sent a message", details
            )
        return answer

    async def _send_and_follow(self) -> Outcome:
        task = await self._send_plain(is_required=True)
        self._tell(task)
        if self._told.progress.is_terminal:
            return self._streamed()
        task_id: str = task["id"]
        self._told.created_task = task_id
        if self._told.streaming_supported is False:
            raise self._told.cannot_be_watched(task_id)
        try:
            return await self._follow(
                lambda peer: _without_first(peer.subscribe(task_id, self._headers), task), least=2
            )
        except RemoteFailure:
            ended = await self._ended_meanwhile(task_id)
            if ended is None:
                raise
            return ended

    async def _ended_meanwhile(self, task_id: str) -> Outcome | None:
        """What came of a task that had ended before it could be followed."""
        if len(self._told.progress.events) > 1:
            return None
        try:
            task = await self._answer(
                is_network_trouble, lambda peer: peer.get(task_id, None, self._headers)
            )
        except RemoteFailure:
            return None
        if task["status"]["state"] not in TERMINAL:
            return None
        self._tell(self._told.take(task))
        return self._streamed()

    async def _watch(self) -> Outcome:
        task_id = self._task_id()
        if self._told.streaming_supported is not False:
            await self._peers()
        if self._told.streaming_supported is False:
            raise self._told.cannot_be_watched(task_id)
        try:
            return await self._follow(lambda peer: peer.subscribe(task_id, self._headers))
        except RemoteFailure as failure:
            if failure.details.get("rpcCode") == UNSUPPORTED_OPERATION:
                raise self._told.cannot_be_watched(task_id) from failure
            raise

    async def _status(self) -> Outcome:
        task_id, length = self._task_id(), self._request.get("history_length")
        task = await self._ask(
            is_network_trouble, lambda peer: peer.get(task_id, length, self._headers)
        )
        return Outcome(self._told.summary(), task)

    async def _cancel(self) -> Outcome:
        task_id = self._task_id()
        task = await self._ask(is_unreachable, lambda peer: peer.cancel(task_id, self._headers))
        return Outcome(self._told.summary(), task)

    # ---------------------------------------------------------------- asking and following

    async def _ask(
        self,
        is_safe: Callable[[RemoteFailure], bool],
        ask: Callable[[RemoteClient], Awaitable[JsonObject]],
    ) -> JsonObject:
        """Ask, and ask again after failures that are safe to repeat; what was told is taken."""
        return self._told.take(await self._answer(is_safe, ask))

    async def _answer(
        self,
        is_safe: Callable[[RemoteFailure], bool],
        ask: Callable[[RemoteClient], Awaitable[JsonObject]],
    ) -> JsonObject:
        for pause in _PAUSES_S:
            try:
                return await self._ask_each(ask)
            except RemoteFailure as failure:
                if not is_safe(failure):
                    raise
            await asyncio.sleep(pause)
        return await self._ask_each(ask)

    async def _ask_each(self, ask: Callable[[RemoteClient], Awaitable[JsonObject]]) -> JsonObject:
        """Ask at the chosen interface; at the next one only when nothing was sent."""
        *others, last = await self._peers()
        for peer in others:
            try:
                return await ask(peer)
            except RemoteFailure as failure:
                if not is_unreachable(failure):
                    raise
        return await ask(last)

    async def _follow(
        self, begin: Callable[[RemoteClient], AsyncIterator[JsonObject]], least: int = 1
    ) -> Outcome:
        async with aclosing(self._events(begin)) as events:
            async for event in events:
                self._tell(self._told.take(event))
                if _is_last(event):
                    break  # nothing can follow, even when the peer keeps the stream open
        if len(self._told.progress.events) < least:
            raise RemoteFailure(
                ErrorCode.PEER,
                "the stream ended without events",
                {
                    "errorName": "EmptyStream",
                    "hint": "the work may go on; ask with action=status when the task is known",
                },
            )
        return self._streamed()

    async def _events(
        self, begin: Callable[[RemoteClient], AsyncIterator[JsonObject]]
    ) -> AsyncGenerator[JsonObject]:
        *others, last = await self._peers()
        for peer in others:
            try:
                async for event in _closing(begin(peer)):
                    yield event
            except RemoteFailure as failure:
                if not is_unreachable(failure):
                    raise
            else:
                return
        async for event in _closing(begin(last)):
            yield event

    def _streamed(self) -> Outcome:
        events = self._told.progress.events
        return Outcome(self._told.summary(), {"events": events, "finalEvent": events[-1]})

    def _tell(self, event: JsonObject) -> None:
        if self._on_update is not None:
            self._on_update(self._told.summary(), event)

    # ---------------------------------------------------------------- building blocks

    @property
    def _subject(self) -> ResolvedTarget:
        return self._told.subject

    async def _peers(self) -> tuple[RemoteClient, ...]:
        """The clients to try, in order."""
        peers = await self._actions.catalog.peers(self._subject.target, self._headers)
        return peers if self._actions.config.policy.transport_fallback else peers[:1]

    def _outgoing(self) -> JsonObject:
        return send_request(
            self._request,
            self._actions.config.policy,
            task_id=self._subject.task_id,
            context_id=self._subject.context_id,
        )

    def _said_to(
        self, peer: RemoteClient, outgoing: JsonObject
    ) -> tuple[JsonObject, dict[str, str]]:
        return extended(self._request, outgoing, self._headers, peer.card.extensions)

    def _task_id(self) -> str:
        task_id = self._subject.task_id
        if task_id is None:
            raise RemoteFailure(ErrorCode.VALIDATION, "the request names no task")
        return task_id


def _is_last(event: JsonObject) -> bool:
    is_about_state = event["kind"] in ("task", "status-update")
    return is_about_state and event["status"]["state"] in TERMINAL


async def _closing(events: AsyncIterator[JsonObject]) -> AsyncGenerator[JsonObject]:
    async with aclosing(cast("AsyncGenerator[JsonObject]", events)):
        async for event in events:
            yield event


async def _without_first(
    events: AsyncIterator[JsonObject], known: JsonObject
) -> AsyncGenerator[JsonObject]:
    """The events of a subscription without a first task that says only what is known."""
    is_first = True
    async for event in _closing(events):
        is_known = event["kind"] == "task" and all(
            event.get(key) == known.get(key) for key in _SAME_TASK
        )
        if not (is_first and is_known):
            yield event
        is_first = False
