"""From a validated request to what is sent: target and task, the A2A message and headers."""

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from openclaw_a2a.model.ids import Json, JsonObject, PeerName
from openclaw_a2a.model.validation import drop_none, is_list, is_object
from openclaw_a2a.protocol.validation import MAX_DEPTH, standard_base64
from openclaw_a2a.remote.config import Auth, ContinuationTargets, Policy, Transport
from openclaw_a2a.remote.handles import TaskHandle, TaskHandles
from openclaw_a2a.remote.result import ErrorCode, RemoteFailure
from openclaw_a2a.remote.target_secrets import has_variables, substitute
from openclaw_a2a.remote.targets import Target, TargetDirectory
from openclaw_a2a.remote.transport.agent_card import check_supported


class ResolvedTarget(msgspec.Struct, frozen=True):
    """The target of a request, and the task and context in it; `owner` makes the request."""

    target: Target
    task_id: str | None = None
    context_id: str | None = None
    handle: TaskHandle | None = None
    owner: PeerName | None = None


class TargetResolver(msgspec.Struct, frozen=True):
    """Resolves requests by handle, continuation, alias, address or default."""

    policy: Policy
    targets: TargetDirectory
    handles: TaskHandles

    def resolve(self, request: JsonObject, owner: PeerName | None) -> ResolvedTarget:
        """The target of a request of this owner (None: any). Raises: RemoteFailure."""
        if "continuation" in request:
            resolved = self._resolve_continuation(request["continuation"], owner)
        else:
            resolved = self._resolve_members(request, owner)
        named = {*request.get("reference_task_ids", ()), *filter(None, (resolved.task_id,))}
        context_id = resolved.context_id
        self.handles.check_owner(owner, resolved.target, task_ids=named, context_id=context_id)
        return msgspec.structs.replace(resolved, owner=owner)

    def _resolve_members(self, request: JsonObject, owner: PeerName | None) -> ResolvedTarget:
        task_id, context_id = request.get("task_id"), request.get("context_id")
        if "task_handle" not in request:
            return ResolvedTarget(self._named_target(request), task_id, context_id)
        handle = self.handles.get(owner, request["task_handle"])
        is_named = "target_alias" in request or "target_url" in request
        target = self._named_target(request) if is_named else handle.target
        return _resolve_handle(handle, target, task_id, context_id)

    def _resolve_continuation(
        self, continuation: JsonObject, owner: PeerName | None
    ) -> ResolvedTarget:
        target = self._continuation_target(continuation["target"], owner)
        task: JsonObject = continuation.get("task", {})
        task_id, context_id = task.get("task_id"), None
        if "conversation" in continuation:
            context_id = continuation["conversation"]["context_id"]
        handle = None
        if "task_handle" in task:
            with suppress(RemoteFailure):  # without a live handle the rest says enough
                handle = self.handles.get(owner, task["task_handle"])
        if handle is None:
            return ResolvedTarget(target, task_id, context_id)
        return _resolve_handle(handle, target, task_id, context_id)

    def restore_target(self, kept: Target) -> Target | None:
        """The target of a stored handle as configured now; None when it is not allowed any more."""
        if (same := _find_same(kept, self.targets.configured)) is not None:
            return same
        if not self._allows_any_url:
            return None
        is_caller_named = not self.targets.configured_at(kept.base_url)
        return msgspec.structs.replace(kept, is_caller_named=is_caller_named)

    def _named_target(self, request: JsonObject) -> Target:
        if "target_alias" in request:
            return self.targets.by_alias(request["target_alias"])
        if "target_url" in request:
            return self.targets.by_url(request["target_url"])
        default = self.targets.default
        if default is None:
            raise RemoteFailure(
                ErrorCode.VALIDATION,
                "the request names no target and there is no default target",
                {"suggested_action": "list_targets"},
            )
        return default

    def _continuation_target(self, named: JsonObject, owner: PeerName | None) -> Target:
        url: str = named["target_url"]
        transports = tuple(Transport(one) for one in named["preferred_transports"])
        if self.policy.enforce_supported_transports:
            check_supported(transports)
        try:
            normalized = self.targets.normalize(url)
        except ValueError:
            raise self.targets.url_not_allowed(url, url) from None
        target = Target(
            alias=named.get("target_alias", ""),
            base_url=normalized,
            card_path=named["card_path"],
            preferred_transports=transports,
        )
        configured = self.targets.configured_at(url)
        if (same := _find_same(target, configured)) is not None:
            return same
        if len(configured) == 1:
            [known] = configured
            auth = known.auth
            # The card says where the secret is sent: only that of the operator's choice may.
            if auth is not None and auth.oauth2 is not None and not auth.oauth2.token_url:
                auth = auth if target.card_path == known.card_path else None
            return msgspec.structs.replace(target, auth=auth, allowed_hosts=known.allowed_hosts)
        if configured:
            return target
        if self._allows_any_url or self.handles.has_target(owner, target):
            return self.targets.allow_caller_named(target)
        raise self.targets.url_not_allowed(url, normalized)

    @property
    def _allows_any_url(self) -> bool:
        """True when continuations may name any address."""
        policy = self.policy
        is_trusted = policy.continuation_targets is ContinuationTargets.TRUSTED
        return is_trusted or policy.allow_target_url_override


def _find_same(target: Target, configured: Sequence[Target]) -> Target | None:
    """The configured target with the same identity; of several, the one with the same alias."""
    same = [one for one in configured if one.identity == target.identity]
    return next((one for one in same if one.alias == target.alias), same[0] if same else None)


def _resolve_handle(
    handle: TaskHandle, target: Target, task_id: str | None, context_id: str | None
) -> ResolvedTarget:
    """The task of a handle. What else the request names must be what the handle stands for."""
    ids = (("task", handle.task_id, task_id), ("context", handle.context_id, context_id))
    for kind, ours, theirs in ids:
        if ours and theirs and ours != theirs:
            raise RemoteFailure(
                ErrorCode.VALIDATION,
                f"the task handle is for {kind} {ours}, the request for {theirs}",
                {
                    "task_handle": handle.name,
                    f"handle_{kind}_id": ours,
                    f"explicit_{kind}_id": theirs,
                },
            )
    if target.identity != handle.target.identity:
        raise RemoteFailure(
            ErrorCode.VALIDATION,
            "the task handle belongs to another target than the request names",
            {
                "task_handle": handle.name,
                "handle_target": handle.target.as_object(),
                "explicit_target": target.as_object(),
            },
        )
    return ResolvedTarget(handle.target, handle.task_id, context_id or handle.context_id, handle)


# -------------------------------------------------------------------- message and headers

MESSAGE_METADATA = "message_metadata"
"""Metadata from the gateway itself; callers cannot give it."""

EXTENSION_METADATA = "extension_metadata"
"""Metadata by extension URI, for peers that declare the extension."""

_EXTENSIONS_HEADER = "a2a-extensions"

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_MAX_REASON_CHARS = 300
_RESERVED_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "accept-encoding", "upgrade"}
)


def build_message_request(
    request: JsonObject, policy: Policy, resolved: ResolvedTarget
) -> JsonObject:
    """The SendMessageRequest for a send whose `message_id` is set."""
    message = {
        "messageId": request["message_id"],
        "role": "ROLE_USER",
        "parts": [_part(part) for part in request["parts"]],
        "taskId": resolved.task_id,
        "contextId": resolved.context_id,
        "referenceTaskIds": request.get("reference_task_ids"),
        "metadata": request.get(MESSAGE_METADATA),
    }
    is_required = request.get("task_requirement") == "required"
    push = request.get("push_notification_config")
    modes = request.get("accepted_output_modes", policy.accepted_output_modes)
    configuration = {
        # Empty means no preference.
        "acceptedOutputModes": list(modes) or None,
        "returnImmediately": True if is_required or request.get("blocking") is False else None,
        "historyLength": history_length(request),
        "taskPushNotificationConfig": None if push is None else _push_config(push),
    }
    outgoing: JsonObject = {"message": drop_none(message)}
    parts: list[JsonObject] = request["parts"]
    for holder in (request, *parts):
        for name in ("data", "metadata"):
            if name in holder:
                check_sendable(holder[name])
    # Sent also when it is empty: over some transports of 0.3 its absence means not to wait.
    outgoing["configuration"] = drop_none(configuration)
    if "metadata" in request:
        outgoing["metadata"] = request["metadata"]
    return outgoing


def history_length(request: JsonObject) -> int | None:
    """The wanted length of the history; to JSON, 3.0 is a whole number too."""
    length = request.get("history_length")
    return None if length is None else int(length)


def file_bytes(part: JsonObject) -> str | None:
    """The bytes of a file part as standard base64; None when they are not base64."""
    return standard_base64("".join(part["bytes"].split()))


def check_sendable(value: Json) -> None:
    """Raises RemoteFailure for free-form JSON that a peer could not read as it is meant."""
    waiting: list[tuple[int, Json]] = [(0, value)]
    while waiting:
        depth, one = waiting.pop()
        if depth > MAX_DEPTH:
            raise invalid_request(f"data nests deeper than {MAX_DEPTH} levels")
        if is_object(one):
            waiting += [(depth + 1, member) for member in one.values()]
        elif is_list(one):
            waiting += [(depth + 1, item) for item in one]
        elif isinstance(one, int | float):
            try:
                is_number = math.isfinite(one)
            except OverflowError:
                is_number = False
            if not is_number:
                raise invalid_request("a number is too large, or not a number")


def add_extensions(
    request: JsonObject, outgoing: JsonObject, headers: dict[str, str], declared: frozenset[str]
) -> tuple[JsonObject, dict[str, str]]:
    """The send and its headers, with the metadata for the extensions that a peer declares."""
    metadata: dict[str, JsonObject] = request.get(EXTENSION_METADATA, {})
    uris = [uri for uri in metadata if uri in declared]
    if not uris:
        return outgoing, headers
    message: JsonObject = {**outgoing["message"]}
    for uri in uris:
        message["metadata"] = {**message.get("metadata", {}), **metadata[uri]}
    named = [uri.strip() for uri in headers.get(_EXTENSIONS_HEADER, "").split(",")]
    activated = ", ".join(dict.fromkeys([*filter(None, named), *uris]))
    return {**outgoing, "message": message}, {**headers, _EXTENSIONS_HEADER: activated}


def merge_service_parameters(configured: Mapping[str, str], request: JsonObject) -> dict[str, str]:
    """The configured service parameters, overridden by those of the call. Raises: RemoteFailure.

    Parameters of a call may not refer to environment variables: a model could send any of the
    operator's secrets to a peer of its choice.
    """
    own: dict[str, str] = request.get("service_parameters", {})
    for name, value in own.items():
        if has_variables(value):
            hint = (
                "a call cannot use values of the environment; only the configuration can, in "
                "outbound.defaults.serviceParameters"
            )
            raise invalid_header(name, hint)
    return {**configured, **own}


def build_headers(
    parameters: Mapping[str, str], auth: Auth | None, environment: Mapping[str, str]
) -> dict[str, str]:
    """The request headers: service parameters and credentials. Raises: RemoteFailure.

    Names are in lower case, so that none is sent twice in two spellings. Credentials win over a
    parameter of the same name.
    """
    sent = {
        name.strip().lower(): substitute(value, environment) for name, value in parameters.items()
    }
    if auth is not None and auth.kind == "bearer":
        sent["authorization"] = f"Bearer {substitute(auth.token, environment)}"
    elif auth is not None and auth.kind == "apiKey":
        sent["x-api-key"] = substitute(auth.token, environment)
    for name, value in sent.items():
        is_name = _HEADER_NAME.fullmatch(name) is not None and name not in _RESERVED_HEADERS
        if not is_name or _HEADER_VALUE.fullmatch(value) is None:
            hint = (
                "a service parameter is one line of plain characters, and no header that HTTP "
                "itself uses"
            )
            raise invalid_header(name, hint)
    return sent


def invalid_header(name: str, hint: str) -> RemoteFailure:
    """The failure for a service parameter that cannot be a header."""
    message = f'"{name[:60]}" cannot be sent as a header with the value it has'
    return RemoteFailure.peer("InvalidServiceParameter", message, hint)


def _part(part: JsonObject) -> JsonObject:
    built: JsonObject = {"metadata": part.get("metadata")}
    if part["kind"] == "text":
        built["text"] = part["text"]
    elif part["kind"] == "data":
        built["data"] = part["data"]
    else:
        if "uri" in part:
            built["url"] = part["uri"]
        else:
            built["raw"] = file_bytes(part)
        built["filename"] = part.get("name")
        built["mediaType"] = part.get("mime_type")
    return drop_none(built)


def invalid_request(reason: str) -> RemoteFailure:
    """The failure for a request that A2A cannot express."""
    return RemoteFailure.peer(
        "InvalidRequest",
        f"the request cannot be sent as it is: {reason[:_MAX_REASON_CHARS]}",
        "correct the request: numbers are not too large, data is not too deep; nothing was sent",
    )


def _push_config(config: JsonObject) -> JsonObject:
    if "authentication" not in config:
        return config
    schemes, credentials = map(config["authentication"].get, ("schemes", "credentials"))
    authentication = drop_none({"scheme": schemes[0], "credentials": credentials})
    return {**config, "authentication": authentication}
