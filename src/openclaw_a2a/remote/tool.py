"""The tool `remote_agent`: every request in, one envelope out, never an exception."""

import asyncio
import copy
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.time_format import format_timestamp
from openclaw_a2a.remote.actions import Actions, OnUpdate
from openclaw_a2a.remote.config import OutboundConfig, TargetConfig
from openclaw_a2a.remote.credentials import hide, secrets_of
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure
from openclaw_a2a.remote.handles.handles import HandleStore, NullHandleStore, TaskHandles
from openclaw_a2a.remote.request.request_builder import (
    EXTENSION_METADATA,
    MESSAGE_METADATA,
    headers,
)
from openclaw_a2a.remote.request.request_validation import RequestValidator, requested_action
from openclaw_a2a.remote.request.target_resolution import TargetResolver, check_supported
from openclaw_a2a.remote.targets import Target, TargetDirectory
from openclaw_a2a.remote.transport.client_pool import CardRecord, ClientPool
from openclaw_a2a.remote.transport.http_transport import TargetConnections

log = get_logger(__name__)

TOOL_NAME = "remote_agent"
TOOL_LABEL = "Remote Agent"
_NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})
_SENTENCE = (
    "Find remote A2A agents, send them work and follow it. Keep summary.continuation of an answer "
    "and pass it back unchanged to go on."
)


class RemoteAgentTool:
    """The tool, for one configuration."""

    def __init__(
        self,
        config: OutboundConfig,
        network: TargetConnections,
        *,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        environment: Mapping[str, str] = _NO_ENVIRONMENT,
        keeper: HandleStore | None = None,
    ) -> None:
        """Raises RemoteFailure when a target wants a transport that this build does not speak."""
        self._config = config
        self._new_id = new_id
        self._environment = environment
        self._targets = TargetDirectory(config, environment)
        if config.policy.enforce_supported_transports:
            for target in config.targets:
                check_supported(target.preferred_transports)
        self._validator = RequestValidator(config, self._targets)
        self._keeper = keeper or NullHandleStore()
        self._opening: asyncio.Task[None] | None = None
        self.handles = TaskHandles(config.task_handles, now=now, new_id=new_id, keeper=self._keeper)
        self._catalog = ClientPool(network, now=now)
        self._resolver = TargetResolver(config, self._targets, self.handles)
        self._actions = Actions(
            config,
            self._resolver,
            catalog=self._catalog,
            handles=self.handles,
            environment=environment,
        )

    @property
    def schema(self) -> JsonObject:
        """The JSON Schema of a request."""
        return self._validator.schema

    @property
    def description(self) -> str:
        """What the tool is for and which targets there are, for whoever may call it."""
        return f"{_SENTENCE} {_targets_sentence(self._config)}"

    async def open(self) -> None:
        """Take up the remote tasks that were followed before; the first request does it too."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._load())
        await asyncio.shield(self._opening)

    async def close(self) -> None:
        """Have everything written down and let go of the peers."""
        if self._opening is not None:
            await asyncio.wait({self._opening})
        await self._keeper.settle()
        await self._catalog.close()

    def followed(self) -> list[JsonObject]:
        """The remote tasks that are known here, the one heard of last first."""
        return [handle.as_object() for handle in self.handles.all]

    def resting(self) -> dict[str, JsonObject]:
        """The targets that are left alone after failures, by alias: until when, and why."""
        health = self._catalog.health
        shown = {one.alias or "": health.shown(one.base_url) for one in self._targets.configured}
        return {alias: state for alias, state in shown.items() if state is not None}

    async def execute(
        self,
        request: Json,
        on_update: Callable[[JsonObject], None] | None = None,
        *,
        said_with: JsonObject | None = None,
        by_extension: Mapping[str, JsonObject] | None = None,
    ) -> JsonObject:
        """Do what a request asks; the envelope of its result. Updates come meanwhile.

        `said_with` goes along with a message that is sent, as its metadata; `by_extension`, by
        the URI of an extension, only to peers that declare it, which is activated then.
        """
        action = requested_action(request)
        try:
            envelope = await self._checked(
                request, on_update, {MESSAGE_METADATA: said_with, EXTENSION_METADATA: by_extension}
            )
            await self._keeper.settle()
        except RemoteFailure as failure:
            _log(_event_name(request), action, failure)
            await self._keeper.settle()
            return _failed(action, failure)
        except Exception as error:  # one broad catch: the tool answers, whatever happens
            log.exception("a2a.remote_agent.internal_error", action=action)
            return _failed(action, RemoteFailure.of_bug(error))
        return envelope

    def refuse(self, request: Json, reason: str, hint: str) -> JsonObject:
        """The envelope for a request that must not be carried out, whatever it says."""
        failure = RemoteFailure(ErrorCode.VALIDATION, reason, {"hint": hint})
        _log("a2a.remote_agent.refused", requested_action(request), failure)
        return _failed(requested_action(request), failure)

    async def _checked(
        self,
        request: Json,
        on_update: Callable[[JsonObject], None] | None,
        said: JsonObject,
    ) -> JsonObject:
        await self.open()
        try:
            checked = self._validator.check(request)
        except RemoteFailure as failure:
            _log("a2a.remote_agent.validation_error", requested_action(request), failure)
            return _failed(requested_action(request), failure)
        added = {name: value for name, value in said.items() if value}
        return await self._perform({**checked, **added}, on_update)

    async def _load(self) -> None:
        try:
            self.handles.load(await self._keeper.load(self._resolver.revive))
        except GatewayError as error:
            log.warning("remote-tasks-not-loaded", reason=str(error))

    async def _perform(
        self, request: JsonObject, on_update: Callable[[JsonObject], None] | None
    ) -> JsonObject:
        action = request["action"]
        if action == "list_targets":
            return await self._list_targets()
        if action == "send" and "message_id" not in request:
            request = {**request, "message_id": self._new_id()}

        tell = None if on_update is None else _updates(action, on_update)
        outcome = await self._actions.perform(request, tell)
        return _succeeded(action, outcome.summary, outcome.raw)

    # ---------------------------------------------------------------- list_targets

    async def _list_targets(self) -> JsonObject:
        targets = self._targets.configured
        await asyncio.gather(*[self._refresh(target) for target in targets])
        shown = [self._entry(target) for target in targets]
        raw = [self._raw_entry(target) for target in targets]
        listed = _succeeded("list_targets", {"targets": shown}, raw)
        return hide(listed, tuple(secret for one in targets for secret in self._secrets(one)))

    def _secrets(self, target: Target) -> tuple[str, ...]:
        parameters = self._config.defaults.service_parameters
        try:
            return secrets_of(target.auth, parameters, self._environment)
        except RemoteFailure:
            return ()

    async def _refresh(self, target: Target) -> None:
        limit = self._config.defaults.timeout_ms / 1000
        try:
            self._targets.named(target.alias or "")
            sent = headers(self._config.defaults.service_parameters, target.auth, self._environment)
            async with asyncio.timeout(limit):
                await self._catalog.refresh(target, sent)
        except TimeoutError:
            hint = "raise defaults.timeoutMs (or timeout_ms of a call), or check the peer"
            failure = RemoteFailure(ErrorCode.PEER, "request timed out", {"hint": hint})
            self._note_old_card(target, failure)
        except RemoteFailure as failure:
            self._note_old_card(target, failure)

    def _note_old_card(self, target: Target, failure: RemoteFailure) -> None:
        self._catalog.note_failure(target, failure)
        reason: str = hide(failure.message, self._secrets(target))
        event = "a2a.remote_agent.target_card.refresh_error"
        log.warning(event, target=target.base_url, reason=reason)

    def _entry(self, target: Target) -> JsonObject:
        record, config = self._catalog.record(target), self._config_of(target)
        entry: JsonObject = {
            "target_alias": target.alias,
            "target_url": target.base_url,
            "default": config.is_default,
            "tags": list(config.tags),
            "examples": list(config.examples),
            "target_name": record.card.name,
            "description": config.description or record.card.description,
            "streaming_supported": record.card.streaming_supported,
            "peer_card": record.card.summary(),
            "last_refreshed_at": _refreshed(record),
            "last_refresh_error": copy.deepcopy(record.error),
        }
        return {key: value for key, value in entry.items() if value is not None}

    def _raw_entry(self, target: Target) -> JsonObject:
        record, config = self._catalog.record(target), self._config_of(target)
        shown: JsonObject = {
            **target.as_object(),
            "displayName": record.card.name,
            "description": config.description or record.card.description,
            "streamingSupported": record.card.streaming_supported,
        }
        card = {
            **record.card.raw(),
            "lastRefreshedAt": _refreshed(record),
            "lastRefreshError": copy.deepcopy(record.error),
        }
        entry: JsonObject = {
            "target": {key: value for key, value in shown.items() if value is not None},
            "configuredDescription": config.description,
            "default": config.is_default,
            "tags": list(config.tags),
            "examples": list(config.examples),
            "card": {key: value for key, value in card.items() if value is not None},
        }
        return {key: value for key, value in entry.items() if value is not None}

    def _config_of(self, target: Target) -> TargetConfig:
        return next(one for one in self._config.targets if one.alias == target.alias)


def _updates(action: str, on_update: Callable[[JsonObject], None]) -> OnUpdate:
    def tell(summary: JsonObject, event: JsonObject) -> None:
        on_update({**_succeeded(action, summary, event), "phase": "update"})

    return tell


def _event_name(request: JsonObject) -> str:
    """Where a checked request failed, as logs name it."""
    action: str = request["action"]
    is_streamed = action == "send" and request.get("follow_updates") is True
    return f"a2a.remote_agent.{'send_stream' if is_streamed else action}.error"


def _log(event: str, action: str, failure: RemoteFailure) -> None:
    log.info(event, action=action, code=failure.code.value, reason=failure.message)


def _succeeded(action: str, summary: JsonObject, raw: Json) -> JsonObject:
    return {"ok": True, "operation": TOOL_NAME, "action": action, "summary": summary, "raw": raw}


def _failed(action: str, failure: RemoteFailure) -> JsonObject:
    return {"ok": False, "operation": TOOL_NAME, "action": action, "error": failure.as_object()}


def _refreshed(record: CardRecord) -> str | None:
    return None if record.refreshed_at is None else format_timestamp(record.refreshed_at)


def _targets_sentence(config: OutboundConfig) -> str:
    may_override = config.policy.allow_target_url_override
    if not config.targets:
        if may_override:
            return "No targets are configured; name the remote agent with target_url."
        return (
            "No targets are configured; add one to outbound.targets, "
            "or set outbound.policy.allowTargetUrlOverride."
        )
    default = config.default_target
    aliases = ", ".join(config.aliases)
    standard = f"the default is {default.alias}" if default else "none is the default"
    urls = "other addresses are allowed" if may_override else "other addresses are not allowed"
    return f"Targets: {aliases}; {standard}; {urls}."
