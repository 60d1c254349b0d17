"""Error codes: the one table from our errors to JSON-RPC codes, HTTP and gRPC statuses."""

from typing import cast

import msgspec

from openclaw_a2a.model import errors as named
from openclaw_a2a.model.errors import (
    GatewayError,
    GatewayFault,
    InvalidParams,
    StoreUnavailable,
    VersionNotSupported,
)
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.protocol.versions import ProtocolVersion

A2A_DOMAIN = "a2a-protocol.org"
"""The domain of errors that the protocol defines."""

OUR_DOMAIN = "openclaw-a2a"
"""The domain of errors that only this gateway defines."""

FAULT_MESSAGE = "The gateway failed on its side. Try again; if it stays, tell whoever runs it."
"""The message of a fault of the gateway: peers get no details."""

STORE_MESSAGE = (
    "The gateway cannot store anything at the moment, so it stopped this work or did not begin it. "
    "Try again in a minute; if it stays, tell whoever runs it."
)
"""The message while the store takes no writes, for example because its disk is full."""

_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"

_encode = msgspec.json.Encoder().encode


_REASONS = {
    -32001: "TASK_NOT_FOUND",
    -32002: "TASK_NOT_CANCELABLE",
    -32003: "PUSH_NOTIFICATION_NOT_SUPPORTED",
    -32004: "UNSUPPORTED_OPERATION",
    -32005: "CONTENT_TYPE_NOT_SUPPORTED",
    -32007: "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
    -32008: "EXTENSION_SUPPORT_REQUIRED",
    -32009: "VERSION_NOT_SUPPORTED",
    -32600: "INVALID_REQUEST",
    -32601: "METHOD_NOT_FOUND",
    -32602: "INVALID_PARAMS",
    -32603: "INTERNAL_ERROR",
    -32700: "INVALID_REQUEST",
}
"""The reasons of the protocol, by its codes.

Clients choose the class they raise by the code on JSON-RPC and by the reason on HTTP+JSON, so the
code alone decides both. What exactly happened is `metadata.code`, the same over each binding.
"""


class ErrorCodes(msgspec.Struct, frozen=True):
    """The codes of one error.

    `v1` and `v03` are JSON-RPC codes. `http` is the HTTP+JSON status and `grpc` its name,
    `rpc_http` the HTTP status of a JSON-RPC response: 200, unless proxies and clients must act on
    it. `legacy` is the code in an older draft; it is sent in the details.
    """

    v1: int
    v03: int
    http: int
    grpc: str
    rpc_http: int = 200
    legacy: int | None = None
    strict03: int | None = None
    """The code of the protocol, where `v03` is that of the channel's contract."""

    def reason(self, code: str) -> str:
        """The reason of an error with this code of ours: the protocol's, where it has one."""
        return _REASONS.get(self.v1) or code.upper().replace("-", "_")

    @property
    def domain(self) -> str:
        """Who defines the reason."""
        return A2A_DOMAIN if self.v1 in _REASONS else OUR_DOMAIN


_Row = ErrorCodes
_BAD, _EARLY = "INVALID_ARGUMENT", "FAILED_PRECONDITION"
_FULL, _GONE = "RESOURCE_EXHAUSTED", "UNAVAILABLE"

ERROR_TABLE: dict[type[GatewayError], ErrorCodes] = {
    named.GatewayError: _Row(-32603, -32603, 500, "INTERNAL"),
    named.CallerError: _Row(-32600, -32600, 400, _BAD),
    named.ParseFailed: _Row(-32700, -32700, 400, _BAD),
    named.InvalidRequest: _Row(-32600, -32600, 400, _BAD),
    named.MethodNotFound: _Row(-32601, -32601, 404, "NOT_FOUND"),
    named.InvalidParams: _Row(-32602, -32602, 400, _BAD),
    named.ContentTooLarge: _Row(-32602, -32602, 413, _BAD, 413),
    named.PartNotAccepted: _Row(-32005, -32602, 400, _BAD, strict03=-32005),
    named.MessageIdConflict: _Row(-32602, -32602, 409, "ALREADY_EXISTS"),
    named.ContextMismatch: _Row(-32602, -32600, 400, _BAD),
    named.TaskNotFound: _Row(-32001, -32001, 404, "NOT_FOUND"),
    named.TaskTerminal: _Row(-32004, -32600, 400, _EARLY),
    named.TaskNotWaiting: _Row(-32004, -32004, 400, _EARLY),
    named.TaskNotCancelable: _Row(-32002, -32002, 400, _EARLY),
    named.TaskNotLive: _Row(-32002, -32004, 400, _EARLY),
    named.TaskUnbound: _Row(-32004, -32004, 400, _EARLY),
    named.UnsupportedOperation: _Row(-32004, -32004, 400, _EARLY),
    named.PushNotSupported: _Row(-32003, -32003, 400, _EARLY),
    named.PushConfigNotFound: _Row(-32001, -32001, 404, "NOT_FOUND"),
    named.ApprovalNotFound: _Row(-32602, -32602, 404, "NOT_FOUND"),
    named.ApprovalOver: _Row(-32602, -32602, 409, _EARLY),
    named.DeliveryNotFound: _Row(-32602, -32602, 404, "NOT_FOUND"),
    named.CallNotFound: _Row(-32602, -32602, 404, "NOT_FOUND"),
    named.PlanItemNotFound: _Row(-32050, -32050, 404, "NOT_FOUND", legacy=-32000),
    named.StatusChangeNotAllowed: _Row(-32051, -32051, 409, _EARLY, legacy=-32001),
    named.ChangedMeanwhile: _Row(-32054, -32054, 409, "ABORTED"),
    named.PlanLimitExceeded: _Row(-32052, -32052, 413, _EARLY),
    named.DependencyNotValid: _Row(-32053, -32053, 400, _BAD),
    named.OutputNotAccepted: _Row(-32005, -32005, 400, _BAD),
    named.ExtendedCardNotConfigured: _Row(-32007, -32004, 400, _EARLY),
    named.ExtensionRequired: _Row(-32008, -32603, 400, _EARLY),
    named.VersionNotSupported: _Row(-32009, -32009, 400, _EARLY),
    named.MediaTypeNotSupported: _Row(-32005, -32005, 415, _BAD, rpc_http=415),
    named.ContentCodingNotSupported: _Row(-32005, -32005, 415, _BAD, rpc_http=415),
    named.BodyTooLarge: _Row(-32600, -32600, 413, _BAD, 413),
    named.BodyTooSlow: _Row(-32600, -32600, 408, "DEADLINE_EXCEEDED", 408),
    named.HeadersTooLarge: _Row(-32600, -32600, 431, _BAD, 431),
    named.HeadersTooSlow: _Row(-32600, -32600, 408, "DEADLINE_EXCEEDED", 408),
    named.Unauthenticated: _Row(-32000, -32000, 401, "UNAUTHENTICATED", 401),
    named.NotAllowed: _Row(-32000, -32000, 403, "PERMISSION_DENIED", 403),
    named.InsufficientScope: _Row(-32000, -32000, 403, "PERMISSION_DENIED", 403),
    named.QuotaExceeded: _Row(-32602, -32602, 429, _FULL, 429),
    named.Overloaded: _Row(-32000, -32000, 429, _FULL, 429),
    named.TooManyAttempts: _Row(-32000, -32000, 429, _FULL, 429),
    named.Draining: _Row(-32000, -32000, 503, _GONE, 503),
    named.IssuerUnavailable: _Row(-32000, -32000, 503, _GONE, 503),
    named.TooManyConnections: _Row(-32000, -32000, 503, _GONE, 503),
    named.RouteNotFound: _Row(-32601, -32601, 404, "NOT_FOUND"),
    named.MethodNotAllowed: _Row(-32601, -32601, 405, "UNIMPLEMENTED"),
    named.AccountNotRunning: _Row(-32000, -32000, 503, _GONE, 503),
    named.AgentError: _Row(-32603, -32603, 500, "INTERNAL"),
    named.AgentUnavailable: _Row(-32603, -32603, 503, _GONE),
    named.AgentFailed: _Row(-32603, -32603, 500, "INTERNAL"),
    named.GatewayFault: _Row(-32603, -32603, 500, "INTERNAL"),
    named.StoreUnavailable: _Row(-32603, -32603, 503, _GONE),
    named.Conflict: _Row(-32603, -32603, 500, "INTERNAL"),
    named.LeaseLost: _Row(-32603, -32603, 500, "INTERNAL"),
    named.IllegalTransition: _Row(-32603, -32603, 500, "INTERNAL"),
    named.AlreadyExists: _Row(-32603, -32603, 500, "INTERNAL"),
    named.TaskDeleted: _Row(-32603, -32603, 500, "INTERNAL"),
    named.CorruptRecord: _Row(-32603, -32603, 500, "INTERNAL"),
    named.SchemaTooNew: _Row(-32603, -32603, 500, "INTERNAL"),
    named.StoreLocked: _Row(-32603, -32603, 500, "INTERNAL"),
    named.PortTaken: _Row(-32603, -32603, 500, "INTERNAL"),
    named.SettingsInvalid: _Row(-32603, -32603, 500, "INTERNAL"),
}


def codes_of(error: GatewayError) -> ErrorCodes:
    """The row of the error, or of its nearest parent that has one."""
    return next(ERROR_TABLE[kind] for kind in type(error).__mro__ if kind in ERROR_TABLE)


def rpc_error(error: GatewayError, version: ProtocolVersion, *, strict03: bool = False) -> bytes:
    """The error object of a JSON-RPC response; `strict03`: with the protocol's codes in 0.3.

    An unsupported version is always reported in the 1.0 format.
    """
    names = codes_of(error)
    body: JsonObject
    if version is ProtocolVersion.V1 or isinstance(error, VersionNotSupported):
        body = {"code": names.v1, "message": public_message(error), "data": _details(error, names)}
    else:
        code = names.strict03 if strict03 and names.strict03 is not None else names.v03
        body = {"code": code, "message": public_message(error)}
        if data := _plain_details(error, names):
            body["data"] = data
    return _encode(body)


def rest_error(error: GatewayError) -> tuple[int, bytes]:
    """The status and the body of an HTTP+JSON response."""
    names = codes_of(error)
    status: JsonObject = {
        "code": names.http,
        "status": names.grpc,
        "message": public_message(error),
        "details": _details(error, names),
    }
    return names.http, _encode({"error": status})


def http_status(error: GatewayError, *, for_rpc: bool) -> int:
    """The HTTP status of the response, for JSON-RPC or for HTTP+JSON."""
    names = codes_of(error)
    return names.rpc_http if for_rpc else names.http


def public_message(error: GatewayError) -> str:
    """The message that a peer gets."""
    if isinstance(error, StoreUnavailable):
        return STORE_MESSAGE
    return FAULT_MESSAGE if isinstance(error, GatewayFault) else error.message


def _details(error: GatewayError, names: ErrorCodes) -> list[JsonObject]:
    metadata = {} if isinstance(error, GatewayFault) else _own_details(error, names)
    details: list[JsonObject] = [
        {
            "@type": _ERROR_INFO,
            "reason": names.reason(error.code),
            "domain": names.domain,
            "metadata": {"code": error.code} | {k: _as_text(v) for k, v in metadata.items()},
        }
    ]
    if isinstance(error, InvalidParams) and error.problems:
        violations = [
            {"field": problem.path, "description": problem.message} for problem in error.problems
        ]
        details.append({"@type": _BAD_REQUEST, "fieldViolations": violations})
    return details


def _plain_details(error: GatewayError, names: ErrorCodes) -> JsonObject:
    if isinstance(error, GatewayFault):
        return {}
    if isinstance(error, InvalidParams) and error.problems:
        return {**error.details, "problems": error.problems}
    return _own_details(error, names)


def _own_details(error: GatewayError, names: ErrorCodes) -> JsonObject:
    return error.details if names.legacy is None else {"legacyCode": names.legacy, **error.details}


def _as_text(value: Json) -> str:
    """ErrorInfo allows strings only: lists of strings are joined, other values are JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in cast(list[Json], value)):
        return ", ".join(cast(list[str], value))
    return _encode(value).decode()
