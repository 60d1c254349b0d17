"""The tool `remote_agent`: any request in, one envelope out, never an exception.

Also the check of one target: its card, the interface that is used, and whether it accepts us.
"""

import asyncio
import copy
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import Json, JsonObject, PeerName
from openclaw_a2a.model.message import format_timestamp
from openclaw_a2a.model.validation import object_at
from openclaw_a2a.remote.actions import ActionCall, ActionContext
from openclaw_a2a.remote.config import OutboundConfig, TargetConfig, drop_none
from openclaw_a2a.remote.credentials import find_secrets, redact
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
from openclaw_a2a.remote.target_status import (
    PEER_LISTS,
    PEER_TEXTS,
    TargetStatus,
    describe_target,
)
from openclaw_a2a.remote.targets import Target, TargetDirectory
from openclaw_a2a.remote.transport.agent_card import (
    check_supported,
    object_list,
    parse_peer_card,
    select_interfaces,
)
from openclaw_a2a.remote.transport.client_pool import CARD_MAX_AGE, ClientPool, fetch_card
from openclaw_a2a.remote.transport.http_transport import PeerHttp, TargetConnections

log = get_logger(__name__)

TOOL_LABEL = "Remote Agent"
_NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})
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
        environment: Mapping[str, str] = _NO_ENVIRONMENT,
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
        return tuple(
            self._status(target, config)
            for target, config in zip(self._targets.configured, self._config.targets, strict=True)
        )

    def _status(self, target: Target, config: TargetConfig) -> TargetStatus:
        secrets, record = self._secrets(target), self._pool.record(target)
        found = describe_target(target, record, self._pool.breaker.status(target.base_url))
        shown = msgspec.structs.replace(
            found,
            is_default=config.is_default,
            description=config.description or found.description,
        )
        # Texts of the peer may repeat what it was sent.
        texts = {name: redact(getattr(shown, name), secrets) for name in PEER_TEXTS}
        lists = {
            name: tuple([redact(one, secrets) for one in getattr(shown, name)])
            for name in PEER_LISTS
        }
        problems = tuple([(field, redact(text, secrets)) for field, text in shown.card_problems])
        return msgspec.structs.replace(shown, **texts, **lists, card_problems=problems)

    async def _list_targets(self) -> JsonObject:
        await self.refresh_targets()
        targets = self._targets.configured
        secrets = tuple(secret for target in targets for secret in self._secrets(target))
        entries = [
            self._entries(target, config, secrets)
            for target, config in zip(targets, self._config.targets, strict=True)
        ]
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
            self._targets.by_alias(target.alias or "")  # fails when its address cannot be used
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

    def _entries(
        self, target: Target, config: TargetConfig, secrets: tuple[str, ...]
    ) -> tuple[JsonObject, JsonObject]:
        """The entry of a target in the summary and in `raw`; what the peer says without secrets."""
        record = self._pool.record(target)
        card, error = record.card, redact(copy.deepcopy(record.error), secrets)
        name = redact(card.name, secrets)
        description = config.description or redact(card.description, secrets)
        at = None if record.refreshed_at is None else format_timestamp(record.refreshed_at)
        both: JsonObject = {
            "default": config.is_default,
            "tags": list(config.tags),
            "examples": list(config.examples),
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
            "configuredDescription": config.description,
            "card": drop_none({**redact(card.raw(), secrets), **refresh}),
        }
        return drop_none(entry), drop_none(raw)


def _fail(event: str, action: str, failure: RemoteFailure) -> JsonObject:
    log.info(event, action=action, code=failure.code.value, reason=failure.message)
    return failure_envelope(action, failure)


# -------------------------------------------------------------------- checking a target


class TargetCheck(msgspec.Struct, frozen=True):
    """The result of a check.

    `auth_wanted` is what the card requires of callers, `auth_given` the kind that is configured.
    `is_let_in` is None when that could not be found out; `trouble` then says why.
    """

    url: str
    card_url: str
    name: str
    transport: str
    protocol_version: str
    address: str
    alias: str | None = None
    is_streaming: bool | None = None
    skills: tuple[str, ...] = ()
    auth_wanted: tuple[str, ...] = ()
    auth_given: str | None = None
    is_let_in: bool | None = None
    trouble: str = ""


async def check_target(target: Target, http: PeerHttp, headers: Mapping[str, str]) -> TargetCheck:
    """The check as far as the card goes. Raises: RemoteFailure."""
    members = await fetch_card(http, target.card_url, headers)
    card = parse_peer_card(members)
    interface = select_interfaces(card, target)[0]
    return TargetCheck(
        url=target.base_url,
        card_url=target.card_url,
        name=card.name or "",
        transport=interface.transport,
        protocol_version=interface.version,
        address=interface.url,
        alias=target.alias,
        is_streaming=card.streaming_supported,
        skills=tuple(skill.name for skill in card.skills),
        auth_wanted=auth_wanted(members),
        auth_given=target.auth.kind if target.auth else None,
    )


def with_access(check: TargetCheck, envelope: JsonObject) -> TargetCheck:
    """The check with the answer to a request for a task that does not exist."""
    error, details = object_at(envelope, "error"), object_at(envelope, "error", "details")
    if envelope.get("ok") is True or details.get("rpcCode") == _TASK_NOT_FOUND:
        return msgspec.structs.replace(check, is_let_in=True)
    is_refused = not _REFUSED.isdisjoint({details.get("httpStatus"), details.get("grpcStatus")})
    trouble = str(error.get("message", ""))
    return msgspec.structs.replace(check, is_let_in=False if is_refused else None, trouble=trouble)


_TASK_NOT_FOUND = -32001
_REFUSED = frozenset({401, 403, "UNAUTHENTICATED", "PERMISSION_DENIED"})


def auth_wanted(card: JsonObject) -> tuple[str, ...]:
    """What a card of either protocol version requires of callers, in a few words each."""
    schemes = object_at(card, "securitySchemes")
    wanted: dict[str, None] = {}
    for requirement in [
        *object_list(card.get("securityRequirements")),
        *object_list(card.get("security")),
    ]:
        names = object_at(requirement, "schemes") or requirement
        words = [_describe(name, object_at(schemes, name)) for name in names if name != "schemes"]
        if words:
            wanted[" and ".join(words)] = None
    return tuple(wanted)


def _describe(name: str, scheme: JsonObject) -> str:
    """A scheme of 0.3 has a type; a scheme of 1.0 is the only member of its object."""
    if "type" in scheme:
        kind, inner = str(scheme["type"]), scheme
    else:
        key = next(iter(scheme), name)
        kind, inner = key.removesuffix("SecurityScheme"), object_at(scheme, key)
    if kind in ("http", "httpAuth"):
        return f"{str(inner.get('scheme', 'http')).lower()} token"
    if kind == "apiKey":
        return f"API key ({inner.get('name', name)})"
    return {"oauth2": "OAuth 2", "openIdConnect": "OpenID Connect"}.get(kind, kind)
