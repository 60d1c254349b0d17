"""From a checked request to what goes on the wire (1.0 spelling)."""

import re
from collections.abc import Mapping

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.remote.config import Auth, Policy
from openclaw_a2a.remote.credentials import has_variables, substitute
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure

MESSAGE_METADATA = "message_metadata"
"""What the gateway itself says with a message; no caller can give it."""

EXTENSION_METADATA = "extension_metadata"
"""By the URI of an extension, what it says only to peers that declare it."""

_EXTENSIONS_HEADER = "a2a-extensions"

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_BASE64 = re.compile(r"[A-Za-z0-9+/_\s-]*=?=?\s*")
_MOST_REASON = 300
_NOT_OURS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "accept-encoding", "upgrade"}
)

_NOT_FROM_CALLERS = (
    "a call cannot use values of the environment; only the configuration can, in "
    "outbound.defaults.serviceParameters"
)


def output_modes(request: JsonObject, policy: Policy) -> list[str]:
    """The output modes this send accepts; empty means no preference."""
    if "accepted_output_modes" in request:
        return list(request["accepted_output_modes"])
    return list(policy.accepted_output_modes)


def send_request(
    request: JsonObject, policy: Policy, *, task_id: str | None, context_id: str | None
) -> JsonObject:
    """The SendMessageRequest for a send; `message_id` is in the request by now."""
    message: JsonObject = {
        "messageId": request["message_id"],
        "role": "ROLE_USER",
        "parts": [_part(part) for part in request["parts"]],
    }
    _put(message, "taskId", task_id)
    _put(message, "contextId", context_id)
    _put(message, "referenceTaskIds", request.get("reference_task_ids"))
    _put(message, "metadata", request.get(MESSAGE_METADATA))
    configuration: JsonObject = {}
    _put(configuration, "acceptedOutputModes", output_modes(request, policy) or None)
    if request.get("task_requirement") == "required" or request.get("blocking") is False:
        configuration["returnImmediately"] = True
    _put(configuration, "historyLength", request.get("history_length"))
    if "push_notification_config" in request:
        configuration["taskPushNotificationConfig"] = _push(request["push_notification_config"])
    # Sent also when it is empty: over some transports of 0.3 its absence means not to wait.
    outgoing: JsonObject = {"message": message, "configuration": configuration}
    _put(outgoing, "metadata", request.get("metadata"))
    return outgoing


def extended(
    request: JsonObject, outgoing: JsonObject, headers: dict[str, str], declared: frozenset[str]
) -> tuple[JsonObject, dict[str, str]]:
    """A send and its headers, with what is said to a peer that declares these extensions."""
    said: dict[str, JsonObject] = request.get(EXTENSION_METADATA, {})
    uris = [uri for uri in said if uri in declared]
    if not uris:
        return outgoing, headers
    message: JsonObject = {**outgoing["message"]}
    for uri in uris:
        message["metadata"] = {**message.get("metadata", {}), **said[uri]}
    named = [uri.strip() for uri in headers.get(_EXTENSIONS_HEADER, "").split(",")]
    activated = ", ".join(dict.fromkeys([*filter(None, named), *uris]))
    return {**outgoing, "message": message}, {**headers, _EXTENSIONS_HEADER: activated}


def service_parameters(configured: Mapping[str, str], request: JsonObject) -> dict[str, str]:
    """The service parameters of a call: the configured ones, with its own over them.

    The environment is the operator's: what a caller wrote names no value of it, or a model could
    have any of them sent away. Raises: RemoteFailure.
    """
    own: dict[str, str] = request.get("service_parameters", {})
    for name, value in own.items():
        if has_variables(value):
            raise no_header(name, _NOT_FROM_CALLERS)
    return {**configured, **own}


def headers(
    parameters: Mapping[str, str], auth: Auth | None, environment: Mapping[str, str]
) -> dict[str, str]:
    """The request headers: service parameters, and who we are. Raises: RemoteFailure.

    Their names are in lower case, so that none is sent twice in two spellings; who we are is
    never left to a parameter.
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
    is_name = _HEADER_NAME.fullmatch(name) is not None and name not in _NOT_OURS
    if is_name and _HEADER_VALUE.fullmatch(value) is not None:
        return
    raise no_header(
        name,
        "a service parameter is one line of plain characters, and no header that HTTP itself uses",
    )


def no_header(name: str, hint: str) -> RemoteFailure:
    """The failure for a service parameter that has no form on the wire."""
    return RemoteFailure(
        ErrorCode.PEER,
        f'"{name[:60]}" cannot be sent as a header with the value it has',
        {"errorName": "InvalidServiceParameter", "hint": hint},
    )


def _part(part: JsonObject) -> JsonObject:
    shown: JsonObject = {}
    if part["kind"] == "text":
        shown["text"] = part["text"]
    elif part["kind"] == "data":
        shown["data"] = part["data"]
    else:
        if "uri" in part:
            shown["url"] = part["uri"]
        else:
            shown["raw"] = _base64(part["bytes"])
        _put(shown, "filename", part.get("name"))
        _put(shown, "mediaType", part.get("mime_type"))
    _put(shown, "metadata", part.get("metadata"))
    return shown


def _base64(text: str) -> str:
    """The text, when it is base64: what is not would arrive as other bytes than were meant."""
    if _BASE64.fullmatch(text) is None:
        raise unsendable("the bytes of a file are not base64")
    return text


def unsendable(reason: str) -> RemoteFailure:
    """The failure for a request that has no form on the wire."""
    return RemoteFailure(
        ErrorCode.PEER,
        f"the request cannot be sent as it is: {reason[:_MOST_REASON]}",
        {
            "errorName": "InvalidRequest",
            "hint": "correct the request: bytes of files are base64, numbers are not too large; "
            "nothing was sent",
        },
    )


def _push(config: JsonObject) -> JsonObject:
    shown: JsonObject = {"url": config["url"]}
    _put(shown, "id", config.get("id"))
    _put(shown, "token", config.get("token"))
    authentication = config.get("authentication")
    if authentication is not None:
        shown["authentication"] = {"scheme": authentication["schemes"][0]}
        _put(shown["authentication"], "credentials", authentication.get("credentials"))
    return shown


def _put(holder: JsonObject, key: str, value: Json) -> None:
    if value is not None:
        holder[key] = value
