"""Builds the A2A request (in the form of 1.0) and the headers for a validated request."""

import re
from collections.abc import Mapping

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.remote.config import Auth, Policy
from openclaw_a2a.remote.credentials import has_variables, substitute
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure

MESSAGE_METADATA = "message_metadata"
"""Metadata from the gateway itself; callers cannot give it."""

EXTENSION_METADATA = "extension_metadata"
"""Metadata by extension URI, for peers that declare the extension."""

_EXTENSIONS_HEADER = "a2a-extensions"

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_BASE64 = re.compile(r"[A-Za-z0-9+/_\s-]*=?=?\s*")
_MAX_REASON_CHARS = 300
_RESERVED_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "accept-encoding", "upgrade"}
)

_VARIABLE_HINT = (
    "a call cannot use values of the environment; only the configuration can, in "
    "outbound.defaults.serviceParameters"
)


def accepted_modes(request: JsonObject, policy: Policy) -> list[str]:
    """The output modes this send accepts; empty means no preference."""
    if "accepted_output_modes" in request:
        return list(request["accepted_output_modes"])
    return list(policy.accepted_output_modes)


def build_message_request(
    request: JsonObject, policy: Policy, *, task_id: str | None, context_id: str | None
) -> JsonObject:
    """The SendMessageRequest for a send whose `message_id` is set."""
    message = {
        "messageId": request["message_id"],
        "role": "ROLE_USER",
        "parts": [_part(part) for part in request["parts"]],
        "taskId": task_id,
        "contextId": context_id,
        "referenceTaskIds": request.get("reference_task_ids"),
        "metadata": request.get(MESSAGE_METADATA),
    }
    is_required = request.get("task_requirement") == "required"
    push = request.get("push_notification_config")
    configuration = {
        "acceptedOutputModes": accepted_modes(request, policy) or None,
        "returnImmediately": True if is_required or request.get("blocking") is False else None,
        "historyLength": request.get("history_length"),
        "taskPushNotificationConfig": None if push is None else _push_config(push),
    }
    outgoing: JsonObject = {"message": _given(message)}
    # Sent also when it is empty: over some transports of 0.3 its absence means not to wait.
    outgoing["configuration"] = _given(configuration)
    if "metadata" in request:
        outgoing["metadata"] = request["metadata"]
    return outgoing


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
            raise invalid_header(name, _VARIABLE_HINT)
    return {**configured, **own}


def build_headers(
    parameters: Mapping[str, str], auth: Auth | None, environment: Mapping[str, str]
) -> dict[str, str]:
    """The request headers: service parameters and credentials. Raises: RemoteFailure.

    Names are in lower case, so that none is sent twice in two spellings. Credentials win over a
    parameter of the same name.
    """
    sent: dict[str, str] = {}
    for name, value in parameters.items():
        sent[name.strip().lower()] = substitute(value, environment)
    if auth is not None and auth.kind == "bearer":
        sent["authorization"] = f"Bearer {substitute(auth.token, environment)}"
    elif auth is not None:
        sent["x-api-key"] = substitute(auth.token, environment)
    for name, value in sent.items():
        _check_header(name, value)
    return sent


def _check_header(name: str, value: str) -> None:
    is_name = _HEADER_NAME.fullmatch(name) is not None and name not in _RESERVED_HEADERS
    if is_name and _HEADER_VALUE.fullmatch(value) is not None:
        return
    raise invalid_header(
        name,
        "a service parameter is one line of plain characters, and no header that HTTP itself uses",
    )


def invalid_header(name: str, hint: str) -> RemoteFailure:
    """The failure for a service parameter that cannot be a header."""
    return RemoteFailure(
        ErrorCode.PEER,
        f'"{name[:60]}" cannot be sent as a header with the value it has',
        {"errorName": "InvalidServiceParameter", "hint": hint},
    )


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
            built["raw"] = _base64(part["bytes"])
        built["filename"] = part.get("name")
        built["mediaType"] = part.get("mime_type")
    return _given(built)


def _base64(text: str) -> str:
    """The text when it is base64: anything else would arrive as other bytes."""
    if _BASE64.fullmatch(text) is None:
        raise invalid_request("the bytes of a file are not base64")
    return text


def invalid_request(reason: str) -> RemoteFailure:
    """The failure for a request that A2A cannot express."""
    return RemoteFailure(
        ErrorCode.PEER,
        f"the request cannot be sent as it is: {reason[:_MAX_REASON_CHARS]}",
        {
            "errorName": "InvalidRequest",
            "hint": "correct the request: bytes of files are base64, numbers are not too large; "
            "nothing was sent",
        },
    )


def _push_config(config: JsonObject) -> JsonObject:
    built: JsonObject = {"url": config["url"], "id": config.get("id"), "token": config.get("token")}
    authentication = config.get("authentication")
    if authentication is not None:
        credentials = authentication.get("credentials")
        scheme = authentication["schemes"][0]
        built["authentication"] = _given({"scheme": scheme, "credentials": credentials})
    return _given(built)


def _given(members: JsonObject) -> JsonObject:
    return {key: value for key, value in members.items() if value is not None}
