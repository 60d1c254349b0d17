"""The failures of the tool `remote_agent`, with the codes that callers can rely on."""

from enum import Enum

from openclaw_a2a.model.ids import Json, JsonObject


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
    """A request that failed. The tool turns it into a failure envelope."""

    def __init__(self, code: ErrorCode, message: str, details: JsonObject | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details: JsonObject = details or {}

    @classmethod
    def peer(cls, name: str, message: str, hint: str, **details: Json) -> "RemoteFailure":
        """A failure of the peer, or on the way to it, with a hint for the caller."""
        return cls(ErrorCode.PEER, message, {"errorName": name, **details, "hint": hint})

    @classmethod
    def from_bug(cls, error: Exception) -> "RemoteFailure":
        """The failure for an error that nothing expected."""
        name = type(error).__name__
        hint = "the gateway's log says where"
        return cls(ErrorCode.INTERNAL, f"the tool broke: {name}", {"errorName": name, "hint": hint})

    def as_object(self) -> JsonObject:
        """The `error` member of the envelope."""
        error: JsonObject = {"code": self.code.value, "message": self.message}
        if self.details:
            error["details"] = self.details
        return error
