"""Turns errors of the official client into failures with details and a hint for the caller."""

import json
import ssl
from collections.abc import Iterator

import httpx
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError
from google.protobuf.json_format import ParseError

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import is_list, is_object
from openclaw_a2a.remote.config import drop_none
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure
from openclaw_a2a.remote.transport.http_transport import AnswerTooLarge, AnswerUnreadable

UNSUPPORTED_OPERATION = -32004
METHOD_NOT_FOUND = -32601
VERSION_NOT_SUPPORTED = -32009
_NAMES: dict[Json, str] = {code: kind.__name__ for kind, code in JSON_RPC_ERROR_CODE_MAP.items()}
_NOT_A2A_HINT = (
    "the answer is not what A2A peers send: check that the target's baseUrl "
    "is the address of an A2A agent"
)
_CREDENTIALS_HINT = "the peer wants credentials: set auth on this target in the configuration"
_BUSY_HINT = "the peer has too much to do: try again later"
_TOO_LARGE_HINT = "the answer is larger than we read: ask for less, or for a link to the file"
_TRY_LATER_HINT = "the peer answered with an error: try again later or look at its log"
_REDIRECT_HINT = "the peer redirects, which is not followed: configure its final address as baseUrl"
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
    ((AnswerTooLarge,), _TOO_LARGE_HINT),
    ((AnswerUnreadable, json.JSONDecodeError, ParseError, UnicodeDecodeError), _NOT_A2A_HINT),
    (
        (httpx.ConnectError, httpx.ConnectTimeout),
        "the peer cannot be reached: check that it runs, and the target's baseUrl",
    ),
    (
        (httpx.LocalProtocolError, httpx.UnsupportedProtocol),
        "the request cannot be sent like this: check service parameters and addresses",
    ),
    ((httpx.TransportError,), _BROKEN_HINT),
)
"""The first row that fits: the later kinds contain the earlier ones."""
_NOT_NETWORK = (
    AnswerTooLarge,
    AnswerUnreadable,
    httpx.LocalProtocolError,
    httpx.UnsupportedProtocol,
    httpx.DecodingError,
)


class JsonRpcFailure(Exception):
    """The peer answered with a JSON-RPC error."""

    def __init__(self, error: JsonObject) -> None:
        message = error.get("message")
        super().__init__(message if isinstance(message, str) and message else "no reason given")
        code = error.get("code")
        self.code = code if isinstance(code, int) else None
        self.name = _NAMES.get(code, "JsonRpcError")
        self.data = error.get("data")


def to_failure(error: Exception) -> RemoteFailure:
    """The failure for any error of a request to a peer."""
    code, grpc = _rpc_code(error), _grpc_error(error)
    # The response whose status made the request fail.
    response = next(
        (one.response for one in _causes(error) if isinstance(one, httpx.HTTPStatusError)), None
    )
    challenge = None if response is None else response.headers.get("www-authenticate")
    cause, data = error.__cause__, getattr(error, "data", None)
    details: JsonObject = {
        "errorName": error.name if isinstance(error, JsonRpcFailure) else type(error).__name__,
        "cause": cause and {"name": type(cause).__name__, "message": _short(_describe(cause))},
        "rpcCode": code,
        "rpcData": outline(data),
        "grpcStatus": grpc and grpc.code().name,
        "httpStatus": response and response.status_code,
        "challenge": challenge and _short(challenge),
        "hint": _hint(error, code, response),
    }
    message = _short(_describe(error)) or type(error).__name__
    # An error that the protocol defines says more than the status that carries it.
    if type(error) not in JSON_RPC_ERROR_CODE_MAP:
        if response is not None:
            reason = _reason(response) or response.reason_phrase or "without a reason"
            message = f"the peer answered with HTTP status {response.status_code}: {_short(reason)}"
        elif grpc is not None:
            message = f"the peer answered with {_describe(grpc)}"
    return RemoteFailure(ErrorCode.PEER, message, drop_none(details))


def is_unreachable(failure: Exception) -> bool:
    """True when the request was never sent: it is safe to repeat."""
    return any(
        isinstance(one, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
        for one in _causes(failure)
    )


def is_network_failure(failure: Exception) -> bool:
    """True when the network failed before a whole answer had come."""
    causes = list(_causes(failure))
    is_answer = any(isinstance(one, _NOT_NETWORK) for one in causes)
    is_broken = any(isinstance(one, httpx.TransportError) for one in causes)
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
    if isinstance(error, JsonRpcFailure):
        return error.code
    code = JSON_RPC_ERROR_CODE_MAP.get(type(error)) if isinstance(error, A2AError) else None
    grpc = _grpc_error(error)
    is_unknown = code is None and grpc is not None and grpc.code().name == "UNIMPLEMENTED"
    return METHOD_NOT_FOUND if is_unknown else code


def _grpc_error(error: BaseException) -> Json:
    """The gRPC error behind another; found by its name, because grpc may not be installed."""
    return next((one for one in _causes(error) if type(one).__name__ == "AioRpcError"), None)


def _reason(response: httpx.Response) -> str | None:
    """The reason in the body of an error response, when it has the form of A2A."""
    try:
        parsed: Json = json.loads(response.content)
    except (httpx.StreamError, ValueError):
        return None
    if not is_object(parsed):
        return None
    inner = parsed.get("error")
    message = (inner if is_object(inner) else parsed).get("message")
    return message if isinstance(message, str) else None


def _describe(error: BaseException) -> str:
    """The text of an error."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"HTTP status {error.response.status_code}"
    if error is _grpc_error(error):
        status: Json = error
        return f"gRPC status {status.code().name}: {_short(status.details() or 'without a reason')}"
    return str(error) or type(error).__name__


def _hint(error: Exception, code: int | None, response: httpx.Response | None) -> str | None:
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
        if isinstance(one, httpx.ConnectError) and _is_about_tls(one):
            return (
                "the secure connection failed: check the peer's certificate, and https in baseUrl"
            )
        for kinds, hint in _CAUSE_HINTS:
            if isinstance(one, kinds):
                return hint
    return None if code is not None else _NOT_A2A_HINT


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
