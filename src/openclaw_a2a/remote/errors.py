"""Why a `remote_agent` request did not succeed: the codes callers can rely on."""

from enum import Enum

from openclaw_a2a.model.ids import JsonObject


class ErrorCode(Enum):
    """The codes of failure envelopes."""

    VALIDATION = "VALIDATION_ERROR"
    TARGET_RESOLUTION = "TARGET_RESOLUTION_ERROR"
    UNKNOWN_HANDLE = "UNKNOWN_TASK_HANDLE"
    EXPIRED_HANDLE = "EXPIRED_TASK_HANDLE"
    TASK_REQUIRED = "TASK_REQUIRED_BUT_MESSAGE_RETURNED"
    PEER = "A2A_SDK_ERROR"
    WAIT_TIMEOUT = "WAIT_TIMEOUT"
    INTERNAL = "INTERNAL_ERROR"


class RemoteFailure(Exception):
    """A request that did not succeed; it becomes a failure envelope and is never raised further."""

    def __init__(self, code: ErrorCode, message: str, details: JsonObject | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details: JsonObject = details or {}

    def with_details(self, more: JsonObject) -> "RemoteFailure":
        """The same failure with more details; what is known already stays."""
        return RemoteFailure(self.code, self.message, {**more, **self.details})

    @classmethod
    def of_bug(cls, error: Exception) -> "RemoteFailure":
        """The failure for what should not have happened."""
        return cls(
            ErrorCode.INTERNAL,
            f"the tool broke: {type(error).__name__}",
            {"errorName": type(error).__name__, "hint": "the gateway's log says where"},
        )

    def as_object(self) -> JsonObject:
        """The `error` member of the envelope."""
        error: JsonObject = {"code": self.code.value, "message": self.message}
        if self.details:
            error["details"] = self.details
        return error
