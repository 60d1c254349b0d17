"""Results of the tool `remote_agent`: failures with their codes, and structs for Python code."""

from enum import Enum

import msgspec

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import is_object, object_at

TERMINAL_STATES = frozenset({"completed", "failed", "canceled", "rejected"})
PAUSED_STATES = frozenset({"input-required", "auth-required"})
LAST_STATES = TERMINAL_STATES | {"input-required"}
"""A stream is read up to these."""


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


class RemoteTask(msgspec.Struct, frozen=True):
    """A task at a remote agent. `handle` stands for the task and its target."""

    id: str
    handle: str | None = None
    state: str | None = None

    @property
    def is_over(self) -> bool:
        """True when the task has ended, in whatever state."""
        return self.state in TERMINAL_STATES

    @property
    def is_waiting(self) -> bool:
        """True when the task waits for input from its caller."""
        return self.state in PAUSED_STATES


class RemoteResult(msgspec.Struct, frozen=True):
    """The answer of a remote agent, or as much of it as there is by now.

    Pass `continuation` back unchanged to continue. `raw` has the objects of the agent, `envelope`
    the whole result of the tool. When `ok` is false, `code`, `message` and `details` say why.
    """

    ok: bool
    envelope: JsonObject
    text: str = ""
    task: RemoteTask | None = None
    context_id: str | None = None
    artifacts: tuple[JsonObject, ...] = ()
    continuation: JsonObject | None = None
    raw: Json = None

    @classmethod
    def from_envelope(cls, envelope: JsonObject) -> "RemoteResult":
        """The result in an envelope of the tool."""
        summary = object_at(envelope, "summary")
        known = object_at(summary, "continuation")
        task = object_at(known, "task")
        return cls(
            ok=envelope.get("ok") is True,
            envelope=envelope,
            text=summary.get("message_text", ""),
            task=RemoteTask(task["task_id"], task.get("task_handle"), task.get("status"))
            if "task_id" in task
            else None,
            context_id=object_at(known, "conversation").get("context_id"),
            artifacts=tuple(summary.get("artifacts", ())),
            continuation=summary.get("continuation"),
            raw=envelope.get("raw"),
        )

    @property
    def code(self) -> str:
        """The error code; empty when the request succeeded."""
        return object_at(self.envelope, "error").get("code", "")

    @property
    def message(self) -> str:
        """The reason of a failure in a sentence; empty when the request succeeded."""
        return object_at(self.envelope, "error").get("message", "")

    @property
    def details(self) -> JsonObject:
        """The details of a failure."""
        return object_at(self.envelope, "error", "details")

    @property
    def problems(self) -> tuple[str, ...]:
        """Everything that is wrong with an invalid request, a sentence each."""
        found: list[str] = []
        for error in self.details.get("errors", ()):
            path = str(error.get("instancePath", "")).strip("/").replace("/", ".")
            found.append(f"{path}: {error['message']}" if path else str(error["message"]))
        return tuple(found)


class RemoteAgentFailed(Exception):
    """A request to a remote agent failed; `code` and `details` say why.

    `continuation` is set when a task is known that may go on.
    """

    def __init__(self, result: RemoteResult) -> None:
        reasons = "; ".join(result.problems)
        why = f"{result.message} ({reasons})" if reasons else result.message
        super().__init__(f"{result.code}: {why}")
        self.result = result
        self.code = result.code
        self.message = result.message
        self.details = result.details

    @property
    def continuation(self) -> JsonObject | None:
        """How to continue the work that was done before the failure."""
        return continuation_of_failure(self.details)


TASK_NOT_FOUND_CODE = -32001
"""The JSON-RPC code of peers that do not know a task."""

CIRCUIT_OPEN = "CircuitOpen"
"""The `errorName` of a request that was not made, because the circuit of the peer is open."""

_STREAMING_REFUSED = frozenset({-32004, -32601})
"""JSON-RPC codes of peers that cannot stream: unsupported operation, unknown method."""


def is_streaming_refused(details: JsonObject) -> bool:
    """True when a streamed send failed before anything was accepted: the peer cannot stream."""
    is_refused = details.get("rpcCode") in _STREAMING_REFUSED
    return is_refused and not {"task_id", "partial_event_count"} & details.keys()


def continuation_of_failure(details: JsonObject) -> JsonObject | None:
    """The continuation of the work that was done before a failure, if there was any."""
    known = object_at(details, "latest_event_summary").get("continuation")
    return known if is_object(known) else details.get("continuation")


class RemoteTarget(msgspec.Struct, frozen=True):
    """A configured target. `trouble` says why its card could not be read; it is empty otherwise."""

    alias: str
    url: str
    is_default: bool
    name: str = ""
    description: str = ""
    skills: tuple[str, ...] = ()
    is_streaming: bool | None = None
    trouble: str = ""
    entry: JsonObject = {}

    @classmethod
    def from_entry(cls, entry: JsonObject) -> "RemoteTarget":
        """The target in an entry of `list_targets`."""
        skills = object_at(entry, "peer_card").get("skills", [])
        return cls(
            alias=entry["target_alias"],
            url=entry["target_url"],
            is_default=entry["default"],
            name=entry.get("target_name", ""),
            description=entry.get("description", ""),
            skills=tuple(skill["name"] for skill in skills),
            is_streaming=entry.get("streaming_supported"),
            trouble=object_at(entry, "last_refresh_error").get("message", ""),
            entry=entry,
        )
