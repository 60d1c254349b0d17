"""Turns errors of requests to peers into failures with details and a hint for the caller.

Secrets that a peer repeats are still in them: `remote/target_secrets` hides those in all results.
"""

import ssl
from collections.abc import Iterator

import httpx2

from openclaw_a2a.model.errors import ParseFailed
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import as_list, as_object, drop_none, is_list, is_object
from openclaw_a2a.net.http_client import ResponseEncoded, ResponseTooLarge
from openclaw_a2a.remote.result import ErrorCode, RemoteFailure
from openclaw_a2a.remote.transport.codec import AnswerUnreadable, decode_json

_CODES = {
    "TaskNotFoundError": -32001,
    "TaskNotCancelableError": -32002,
    "PushNotificationNotSupportedError": -32003,
    "UnsupportedOperationError": -32004,
    "ContentTypeNotSupportedError": -32005,
    "InvalidAgentResponseError": -32006,
    "ExtendedAgentCardNotConfiguredError": -32007,
    "ExtensionSupportRequiredError": -32008,
    "VersionNotSupportedError": -32009,
    "InvalidRequestError": -32600,
    "MethodNotFoundError": -32601,
    "InvalidParamsError": -32602,
    "InternalError": -32603,
    "JSONParseError": -32700,
}
"""The errors of the protocol: their JSON-RPC codes by the names that the official kits use."""

UNSUPPORTED_OPERATION = _CODES["UnsupportedOperationError"]
METHOD_NOT_FOUND = _CODES["MethodNotFoundError"]
VERSION_NOT_SUPPORTED = _CODES["VersionNotSupportedError"]
_NAMES: dict[Json, str] = {code: name for name, code in _CODES.items()}
_NOT_FOUND = 404
_UNAUTHORIZED = 401
_NOT_A2A_HINT = (
    "the answer is not what A2A peers send: check that the target's baseUrl "
    "is the address of an A2A agent"
)
_CREDENTIALS_HINT = "the peer wants credentials: set auth on this target in the configuration"
_BUSY_HINT = "the peer has too much to do: try again later"
_TOO_LARGE_HINT = "the answer is larger than we read: ask for less, or for a link to the file"
_TRY_LATER_HINT = "the peer answered with an error: try again later or look at its log"
_REDIRECT_HINT = "the peer redirects, which is not followed: configure its final address as baseUrl"
_POOL_HINT = (
    "so many requests to this target are open that there is no connection left: end some watches, "
    "or try again later; nothing was sent"
)
_BROKEN_HINT = "the connection broke: the work may go on; ask with action=status"
_MAX_KEYS = 20
_MAX_TEXT_CHARS = 500
_STATUS_HINTS: dict[int | str, str] = {
    **dict.fromkeys(range(300, 400), _REDIRECT_HINT),
    401: _CREDENTIALS_HINT,
    403: _CREDENTIALS_HINT,
    404: "there is nothing at this address: check the target's baseUrl and cardPath",
    429: _BUSY_HINT,
    "UNAUTHENTICATED": _CREDENTIALS_HINT,
    "PERMISSION_DENIED": _CREDENTIALS_HINT,
    "UNAVAILABLE": _BROKEN_HINT,
    "RESOURCE_EXHAUSTED": _BUSY_HINT,
}
_CAUSE_HINTS: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    ((ResponseTooLarge,), _TOO_LARGE_HINT),
    ((AnswerUnreadable, ResponseEncoded, ParseFailed), _NOT_A2A_HINT),
    ((httpx2.PoolTimeout,), _POOL_HINT),
    (
        (httpx2.ConnectError, httpx2.ConnectTimeout),
        "the peer cannot be reached: check that it runs, and the target's baseUrl",
    ),
    (
        (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol),
        "the request cannot be sent like this: check service parameters and addresses",
    ),
    ((httpx2.TransportError,), _BROKEN_HINT),
)
"""The first row that fits: the later kinds contain the earlier ones."""
_UNSENT = (
    httpx2.LocalProtocolError,
    httpx2.UnsupportedProtocol,
    httpx2.PoolTimeout,  # our own limit
)
_NOT_NETWORK = (*_UNSENT, ResponseTooLarge, ResponseEncoded, httpx2.DecodingError)


class PeerError(Exception):
    """The peer answered with an error of the protocol, or with one of its own."""

    def __init__(
        self, message: str, *, code: int | None = None, name: str = "", data: Json = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.name = name or _NAMES.get(code, "JsonRpcError")
        self.data = data


def read_rpc_error(error: Json) -> PeerError | None:
    """The error in the member `error` of a JSON-RPC answer; None when it has none."""
    if error is None:
        return None
    if not is_object(error):
        raise AnswerUnreadable("the answer has an error that is not an object")
    message, code = error.get("message"), error.get("code")
    return PeerError(
        message if isinstance(message, str) and message else "no reason given",
        code=code if isinstance(code, int) else None,
        data=error.get("data"),
    )


def read_rest_error(answer: Json, status: int) -> PeerError | None:
    """The error of the protocol in the body of an HTTP+JSON answer; None when it names none."""
    body = as_object(answer)
    inner = body.get("error")
    error = inner if is_object(inner) else body
    message, name, data = error.get("message"), error.get("type"), None  # 0.3 names the type
    for detail in as_list(error.get("details")):
        reason = as_object(detail).get("reason")
        if isinstance(reason, str):  # 1.0 has the name as a reason: TASK_NOT_FOUND
            name = f"{reason.title().replace('_', '')}Error"
            data = detail.get("metadata") or None
            break
    text = message if isinstance(message, str) else ""
    if isinstance(name, str) and name in _CODES:
        return PeerError(text or name, code=_CODES[name], name=name, data=data)
    if status == _NOT_FOUND:  # the operation has no path there
        return PeerError(text or "there is nothing at this path", code=METHOD_NOT_FOUND)
    return PeerError(text, name="StreamError") if text and not status else None


def to_failure(error: Exception) -> RemoteFailure:
    """The failure for any error of a request to a peer."""
    code, grpc = _rpc_code(error), _grpc_error(error)
    # The response whose status made the request fail.
    response = next(
        (one.response for one in _causes(error) if isinstance(one, httpx2.HTTPStatusError)), None
    )
    challenge = None if response is None else response.headers.get("www-authenticate")
    cause, data = error.__cause__, getattr(error, "data", None)
    details: JsonObject = {
        "errorName": error.name if isinstance(error, PeerError) else type(error).__name__,
        "cause": cause and {"name": type(cause).__name__, "message": _short(_describe(cause))},
        "rpcCode": code,
        "rpcData": outline(data),
        "grpcStatus": grpc and grpc.code().name,
        "httpStatus": response and response.status_code,
        "challenge": challenge and _short(challenge),
        "hint": _hint(error, code, response),
    }
    message = _short(_describe(error)) or type(error).__name__
    # An error that the peer explains says more than the status that carries it.
    if not isinstance(error, PeerError) and type(error).__name__ not in _CODES:
        if response is not None:
            reason = _reason(response) or response.reason_phrase or "without a reason"
            message = f"the peer answered with HTTP status {response.status_code}: {_short(reason)}"
        elif grpc is not None:
            message = f"the peer answered with {_describe(grpc)}"
    return RemoteFailure(ErrorCode.PEER, message, drop_none(details))


def task_not_found(task_id: str) -> RemoteFailure:
    """The failure for a task that must look as if the peer did not know it."""
    code = _CODES["TaskNotFoundError"]
    return to_failure(PeerError(f"task not found: there is no task {task_id}", code=code))


def is_unreachable(failure: Exception) -> bool:
    """True when the request was never sent: it is safe to repeat."""
    return any(
        isinstance(one, httpx2.ConnectError | httpx2.ConnectTimeout) for one in _causes(failure)
    )


def is_unsent(failure: Exception) -> bool:
    """True when the request failed on our side: it says nothing about the peer."""
    return any(isinstance(one, _UNSENT) for one in _causes(failure))


def is_unauthenticated(failure: RemoteFailure) -> bool:
    """True when the peer did not accept our credentials, and so did nothing."""
    details = failure.details
    return details.get("httpStatus") == _UNAUTHORIZED or (
        details.get("grpcStatus") == "UNAUTHENTICATED"
    )


def is_network_failure(failure: Exception) -> bool:
    """True when the network failed before a whole answer had come."""
    causes = list(_causes(failure))
    is_answer = any(isinstance(one, _NOT_NETWORK) for one in causes)
    is_broken = any(isinstance(one, httpx2.TransportError) for one in causes)
    grpc = _grpc_error(failure)
    return not is_answer and (is_broken or (grpc is not None and grpc.code().name == "UNAVAILABLE"))


def outline(value: Json) -> Json:
    """Scalars unchanged; arrays and objects as their kind and size or keys."""
    if is_object(value):
        keys = list(value)[:_MAX_KEYS]
        return {"type": "object", "keys": [_valid_unicode(key) for key in keys]}
    if is_list(value):
        return {"type": "array", "length": len(value)}
    return _valid_unicode(value) if isinstance(value, str) else value


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _rpc_code(error: Exception) -> int | None:
    if isinstance(error, PeerError):
        return error.code
    # The official client, which is used for gRPC, has a class for each error of the protocol.
    code = _CODES.get(type(error).__name__)
    grpc = _grpc_error(error)
    is_unknown = code is None and grpc is not None and grpc.code().name == "UNIMPLEMENTED"
    return METHOD_NOT_FOUND if is_unknown else code


def _grpc_error(error: BaseException) -> Json:
    """The gRPC error behind another; found by its name, because grpc may not be installed."""
    return next((one for one in _causes(error) if type(one).__name__ == "AioRpcError"), None)


def _reason(response: httpx2.Response) -> str | None:
    """The reason in the body of an error response, when it has the form of A2A."""
    try:
        parsed = decode_json(response.content)
    except AnswerUnreadable:
        return None
    if not is_object(parsed):
        return None
    inner = parsed.get("error")
    message = (inner if is_object(inner) else parsed).get("message")
    return message if isinstance(message, str) else None


def _describe(error: BaseException) -> str:
    """The text of an error."""
    if isinstance(error, httpx2.HTTPStatusError):
        return f"HTTP status {error.response.status_code}"
    if error is _grpc_error(error):
        status: Json = error
        return f"gRPC status {status.code().name}: {_short(status.details() or 'without a reason')}"
    return str(error) or type(error).__name__


def _hint(error: Exception, code: int | None, response: httpx2.Response | None) -> str | None:
    if code in (METHOD_NOT_FOUND, VERSION_NOT_SUPPORTED):
        return (
            "the peer does not speak the protocol version that its card names for this address: "
            "tell its operator, or prefer another transport for this target"
        )
    if response is not None:
        return _STATUS_HINTS.get(response.status_code, _TRY_LATER_HINT)
    grpc = _grpc_error(error)
    if grpc is not None and code is None:
        status, reason = grpc.code().name, grpc.details() or ""
        if status == "RESOURCE_EXHAUSTED" and "larger than max" in reason:
            return _TOO_LARGE_HINT
        if status in ("INTERNAL", "UNKNOWN") and "deserializ" in reason:
            return _NOT_A2A_HINT
        return _STATUS_HINTS.get(status, _TRY_LATER_HINT)
    for one in _causes(error):
        if isinstance(one, httpx2.ConnectError) and _is_about_tls(one):
            return (
                "the secure connection failed: check the peer's certificate, and https in baseUrl"
            )
        for kinds, hint in _CAUSE_HINTS:
            if isinstance(one, kinds):
                return hint
    other = _TRY_LATER_HINT if isinstance(error, PeerError) else _NOT_A2A_HINT
    return None if code is not None else other


def _is_about_tls(error: BaseException) -> bool:
    seen = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _short(text: str) -> str:
    text = _valid_unicode(text)
    return text if len(text) <= _MAX_TEXT_CHARS else text[:_MAX_TEXT_CHARS] + "..."


def _valid_unicode(text: str) -> str:
    """The text without lone surrogates, which JSON can escape but UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()
