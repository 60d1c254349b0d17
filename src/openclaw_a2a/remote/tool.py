"""The tool `remote_agent`: any request in, one envelope out, never an exception."""

import asyncio
import copy
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import Json, JsonObject, PeerName
from openclaw_a2a.model.message import format_timestamp
from openclaw_a2a.model.validation import drop_none
from openclaw_a2a.remote.actions import ActionCall, ActionContext
from openclaw_a2a.remote.config import OutboundConfig
from openclaw_a2a.remote.handles import HandleStore, TaskHandles
from openclaw_a2a.remote.request_builder import (
    EXTENSION_METADATA,
    MESSAGE_METADATA,
    TargetResolver,
    build_headers,
)
from openclaw_a2a.remote.request_validation import RequestValidator, requested_action
from openclaw_a2a.remote.result import ErrorCode, RemoteFailure
from openclaw_a2a.remote.result_builder import (
    OnStreamUpdate,
    failure_envelope,
    success_envelope,
)
from openclaw_a2a.remote.target_secrets import find_secrets, redact
from openclaw_a2a.remote.target_status import TargetStatus, describe_target
from openclaw_a2a.remote.targets import Target, TargetDirectory
from openclaw_a2a.remote.transport.agent_card import check_supported
from openclaw_a2a.remote.transport.client_pool import CARD_MAX_AGE, ClientPool
from openclaw_a2a.remote.transport.http_transport import TargetConnections

log = get_logger(__name__)

TOOL_LABEL = "Remote Agent"
_SENTENCE = (
    "Find remote A2A agents, send them work and follow it. Keep summary.continuation of an answer "
    "and pass it back unchanged to continue."
)


class RemoteAgentTool:
    """The tool, for one configuration."""

    def __init__(
        self,
        config: OutboundConfig,
        connections: TargetConnections,
        *,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        environment: Mapping[str, str],
        handle_store: HandleStore | None = None,
    ) -> None:
        """Raises RemoteFailure when a target needs a transport that this build does not support."""
        if config.policy.enforce_supported_transports:
            for target in config.targets:
                check_supported(target.preferred_transports)
        self._config = config
        self._new_id = new_id
        self._environment = environment
        self._targets = TargetDirectory(config, environment)
        self._validator = RequestValidator(config, self._targets)
        self.schema = self._validator.schema
        """The JSON Schema of a request."""
        self._handle_store = handle_store or HandleStore()
        self._loading = asyncio.Lock()
        self._is_loaded = False
        self.handles = TaskHandles(
            config.task_handles, now=now, new_id=new_id, store=self._handle_store
        )
        self._pool = ClientPool(connections, now=now, falls_back=config.policy.transport_fallback)
        self._resolver = TargetResolver(config.policy, self._targets, self.handles)
        self._context = ActionContext(config, self._resolver, self._pool, self.handles, environment)

    @property
    def description(self) -> str:
        """What the tool does and which targets there are, for the models that may call it."""
        config = self._config
        may_override = config.policy.allow_target_url_override
        if config.targets:
            default = config.default_target
            standard = f"the default is {default.alias}" if default else "none is the default"
            others = f"other addresses are {'allowed' if may_override else 'not allowed'}"
            return f"{_SENTENCE} Targets: {', '.join(config.aliases)}; {standard}; {others}."
        if may_override:
            return f"{_SENTENCE} No targets are configured; name the remote agent with target_url."
        return (
            f"{_SENTENCE} No targets are configured; add one to outbound.targets, "
            "or set outbound.policy.allowTargetUrlOverride."
        )

    async def open(self) -> None:
        """Load the handles of earlier remote tasks; the first request does it, too."""
        # Requests that come meanwhile wait: they may name a handle that is being loaded.
        async with self._loading:
            if self._is_loaded:
                return
            try:
                self.handles.load(await self._handle_store.load(self._resolver.restore_target))
            except GatewayError as error:
                log.warning("remote.handles_not_loaded", reason=str(error))
            self._is_loaded = True

    async def close(self) -> None:
        """Wait until all handles are written, and close the clients."""
        await self._handle_store.close()
        await self._pool.close()

    async def execute(
        self,
        request: Json,
        on_update: OnStreamUpdate | None = None,
        *,
        owner: PeerName | None = None,
        message_metadata: JsonObject | None = None,
        extension_metadata: Mapping[str, JsonObject] | None = None,
    ) -> JsonObject:
        """Carry out a request; the envelope of its result. Events of a stream go to `on_update`.

        `owner` may use its own handles only, and owns new ones; None, the one user of a program,
        may use all.

        `message_metadata` is sent as the metadata of a message. `extension_metadata`, by the URI of
        an extension, is sent only to peers that declare the extension, which activates it.
        """
        action, error_event = requested_action(request), "a2a.remote_agent.validation_error"
        try:
            if not self._is_loaded:
                await self.open()
            checked = self._validator.check(request)
            is_streamed = action == "send" and checked.get("follow_updates") is True
            error_event = f"a2a.remote_agent.{'send_stream' if is_streamed else action}.error"
            if action == "list_targets":
                envelope = await self._list_targets()
            else:
                given: JsonObject = {"message_id": self._new_id()} if action == "send" else {}
                if message_metadata:
                    given[MESSAGE_METADATA] = message_metadata
                if extension_metadata:
                    given[EXTENSION_METADATA] = extension_metadata
                call = ActionCall(self._context, {**given, **checked}, on_update, owner)
                envelope = await call.run()
        except RemoteFailure as failure:
            envelope = _fail(error_event, action, failure)
        except Exception as error:  # the tool never raises
            log.exception("a2a.remote_agent.internal_error", action=action)
            envelope = failure_envelope(action, RemoteFailure.from_bug(error))
        # Respond only after the handles that the caller needs are stored.
        await self._handle_store.flush()
        return envelope

    def refuse(self, request: Json, reason: str, hint: str) -> JsonObject:
        """The envelope for a request that is refused before it is read."""
        failure = RemoteFailure(ErrorCode.VALIDATION, reason, {"hint": hint})
        return _fail("a2a.remote_agent.refused", requested_action(request), failure)

    # ---------------------------------------------------------------- list_targets

    async def refresh_targets(
        self, alias: str | None = None, *, max_age: timedelta = CARD_MAX_AGE
    ) -> None:
        """Fetch cards older than that again; with `alias` only the card of this target.

        What fails is in the status of the target.
        """
        targets = [one for one in self._targets.configured if alias in (None, one.alias)]
        await asyncio.gather(*[self._refresh_card(target, max_age) for target in targets])

    def target_statuses(self) -> tuple[TargetStatus, ...]:
        """The status of each configured target, without a request to it."""
        pool = self._pool
        return tuple(
            describe_target(
                one, pool.record(one), pool.breaker.circuit(one.base_url), self._secrets(one)
            )
            for one in self._targets.configured
        )

    async def _list_targets(self) -> JsonObject:
        await self.refresh_targets()
        targets = self._targets.configured
        secrets = tuple(secret for target in targets for secret in self._secrets(target))
        entries = [self._entries(target, secrets) for target in targets]
        summary: JsonObject = {"targets": [shown for shown, _ in entries]}
        return success_envelope("list_targets", summary, [raw for _, raw in entries])

    def _secrets(self, target: Target) -> tuple[str, ...]:
        parameters = self._config.defaults.service_parameters
        fetched = self._pool.record(target).secrets
        try:
            headers = build_headers(parameters, target.auth, self._environment)
        except RemoteFailure:
            return fetched
        return (*find_secrets(headers, parameters, self._environment), *fetched)

    async def _refresh_card(self, target: Target, max_age: timedelta) -> None:
        try:
            self._targets.by_alias(target.alias)  # fails when its address cannot be used
            parameters = self._config.defaults.service_parameters
            headers = build_headers(parameters, target.auth, self._environment)
            async with asyncio.timeout(self._config.defaults.timeout_ms / 1000):
                await self._pool.refresh_card(target, headers, max_age=max_age)
        except TimeoutError:
            hint = "raise defaults.timeoutMs (or timeout_ms of a call), or check the peer"
            failure = RemoteFailure(ErrorCode.PEER, "request timed out", {"hint": hint})
        except RemoteFailure as error:
            failure = error
        except Exception as error:  # a card that causes an error must not hide the other targets
            log.exception("a2a.remote_agent.internal_error", action="list_targets")
            failure = RemoteFailure.from_bug(error)
        else:
            return
        self._pool.record_failure(target, failure)
        reason: str = redact(failure.message, self._secrets(target))
        event = "a2a.remote_agent.target_card.refresh_error"
        log.warning(event, target=target.base_url, reason=reason)

    def _entries(self, target: Target, secrets: tuple[str, ...]) -> tuple[JsonObject, JsonObject]:
        """The entry of a target in the summary and in `raw`; what the peer says without secrets."""
        record = self._pool.record(target)
        card, error = record.card, redact(copy.deepcopy(record.error), secrets)
        name = redact(card.name, secrets)
        description = target.description or redact(card.description, secrets)
        at = None if record.refreshed_at is None else format_timestamp(record.refreshed_at)
        both: JsonObject = {
            "default": target.is_default,
            "tags": list(target.tags),
            "examples": list(target.examples),
        }
        entry: JsonObject = {
            **both,
            "target_alias": target.alias,
            "target_url": target.base_url,
            "target_name": name,
            "description": description,
            "streaming_supported": card.streaming_supported,
            "peer_card": redact(card.summary(), secrets),
            "last_refreshed_at": at,
            "last_refresh_error": error,
        }
        shown: JsonObject = {
            **target.as_object(),
            "displayName": name,
            "description": description,
            "streamingSupported": card.streaming_supported,
        }
        refresh = {"lastRefreshedAt": at, "lastRefreshError": copy.deepcopy(error)}
        raw: JsonObject = {
            **both,
            "target": drop_none(shown),
            "configuredDescription": target.description,
            "card": drop_none({**redact(card.raw(), secrets), **refresh}),
        }
        return drop_none(entry), drop_none(raw)


def _fail(event: str, action: str, failure: RemoteFailure) -> JsonObject:
    log.info(event, action=action, code=failure.code.value, reason=failure.message)
    return failure_envelope(action, failure)
