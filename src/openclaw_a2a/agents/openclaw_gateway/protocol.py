"""OpenClaw's gateway protocol: frames, requests, and the events and results of a run.

Input from the gateway is untrusted. Structs name only the members that are used; other members are
skipped, and input that cannot be decoded is None, never an exception.
"""

from typing import Final, TypeVar

import msgspec
from msgspec import Raw

from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable
from openclaw_a2a.model.ids import Json, JsonObject

_T = TypeVar("_T")

_NULL: Final = Raw(b"null")
_DECODE_ERRORS: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)

RUN_EVENTS: Final = frozenset(
    {"agent", "question.requested", "exec.approval.requested", "exec.approval.resolved"}
)
"""The events that concern a run."""


class Wire(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Base of everything decoded from the gateway: camelCase, unknown members are skipped."""


# -------------------------------------------------------------------- frames


class ErrorPayload(Wire, frozen=True):
    """The error of a failed request."""

    code: str = ""
    message: str = ""
    details: Raw = _NULL
    retryable: bool = False

    @property
    def is_temporary(self) -> bool:
        """True when the same request may succeed later."""
        return self.retryable and self.code == "UNAVAILABLE"

    @property
    def detail_code(self) -> str:
        """The specific code inside `details`; empty when there is none."""
        details = decode_object(self.details)
        code = details.get("code") or details.get("reason")
        return code if isinstance(code, str) else ""


class Frame(Wire, frozen=True):
    """One frame from the gateway: an event, or the response to a request."""

    type: str
    event: str = ""
    id: str = ""
    ok: bool = False
    payload: Raw = _NULL
    error: ErrorPayload | None = None


class _RunRef(Wire, frozen=True):
    run_id: str | None = None
    session_key: str | None = None


class Origin(Wire, frozen=True):
    """The run and session of an event, used to route it; for `agent` events also the stream.

    An approval names its run and session inside `request`.
    """

    run_id: str | None = None
    session_key: str | None = None
    request: _RunRef | None = None
    stream: str = ""
    data: Raw = _NULL

    @property
    def run(self) -> str | None:
        """The id of the run that the event belongs to."""
        return self.run_id or (self.request.run_id if self.request else None)

    @property
    def session(self) -> str | None:
        """The key of the session that the event belongs to."""
        return self.session_key or (self.request.session_key if self.request else None)


NO_ORIGIN: Final = Origin()  # the origin of an event that names neither run nor session

_frames = msgspec.json.Decoder(Frame)
_origins = msgspec.json.Decoder(Origin)


def decode_frame(raw: bytes | str) -> Frame | None:
    """The frame; None when the bytes are not one."""
    try:
        return _frames.decode(raw)
    except _DECODE_ERRORS:
        return None


def decode_origin(payload: Raw) -> Origin:
    """The origin of an event; `NO_ORIGIN` when it cannot be decoded."""
    try:
        return _origins.decode(payload)
    except _DECODE_ERRORS:
        return NO_ORIGIN


def decode_as(kind: type[_T], payload: Raw | bytes) -> _T | None:
    """The payload as a value of this type; None when it does not fit."""
    try:
        return msgspec.json.decode(payload, type=kind)
    except _DECODE_ERRORS:
        return None


def decode_object(payload: Raw | bytes) -> JsonObject:
    """The payload as a JSON object; empty when it is not one."""
    return decode_as(dict[str, Json], payload) or {}


def encode_request(request_id: str, method: str, params: JsonObject) -> bytes:
    """A request frame. Raises: AgentFailed when the parameters cannot be encoded as JSON."""
    request = {"type": "req", "id": request_id, "method": method, "params": params}
    try:
        return msgspec.json.encode(request)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise AgentFailed(
            f"A message for OpenClaw cannot be encoded as JSON ({error}); send plain text and JSON."
        ) from None


def request_error(method: str, payload: ErrorPayload) -> AgentFailed | AgentUnavailable:
    """The exception for a failed request; `error_code` reads its code back.

    AgentUnavailable when the gateway says that the same request may succeed later.
    """
    reason = payload.message or payload.code or "no reason given"
    if payload.is_temporary:
        return AgentUnavailable(f"OpenClaw cannot do {method} now: {reason}; try again.")
    details: JsonObject = {"code": payload.code, "detailCode": payload.detail_code}
    return AgentFailed(f"OpenClaw refused {method}: {reason}", details=details)


def error_code(error: AgentFailed) -> str:
    """The most specific code of a failed request; empty for other errors."""
    return error.details.get("detailCode") or error.details.get("code") or ""


# -------------------------------------------------------------------- events of a run


class TextChunk(Wire, frozen=True):
    """Assistant text: `delta` is the new part, `text` the whole message `item_id` so far."""

    item_id: str = ""
    delta: str = ""
    text: Raw = _NULL
    replace: bool = False
    media_urls: tuple[str, ...] = ()

    @property
    def full_text(self) -> str | None:
        """The message so far; None when the event does not carry it."""
        return decode_as(str, self.text)


class Lifecycle(Wire, frozen=True):
    """A phase of the run. An aborted run has really ended when `execution_settled` is true."""

    execution_settled: bool = False


class ToolStep(Wire, frozen=True):
    """One step of a tool call."""

    phase: str = ""
    name: str = ""
    tool_call_id: str = ""
    is_error: bool = False
    args: Raw = _NULL
    partial_result: Raw = _NULL
    result: Raw = _NULL


class Item(Wire, frozen=True):
    """A step as every connection sees it; the content of a tool call reaches only its starter.

    A `preamble` is the message before a tool call: a short one is sent in no other event.
    """

    kind: str = ""
    phase: str = ""
    name: str = ""
    tool_call_id: str = ""
    status: str = ""
    title: str = ""
    error: str | None = None
    progress_text: str = ""


class StatusNotice(Wire, frozen=True):
    """A sentence about the run, such as the next attempt at a model provider that fails."""

    message: str = ""


# -------------------------------------------------------------------- results of a run


class ResultPayload(Wire, frozen=True):
    """One part of a run's result."""

    text: str | None = None
    media_url: str | None = None
    media_urls: tuple[str, ...] = ()
    is_error: bool = False

    @property
    def references(self) -> tuple[str, ...]:
        """The files it refers to."""
        return self.media_urls or ((self.media_url,) if self.media_url else ())


class _AgentMeta(Wire, frozen=True):
    provider: str | None = None
    model: str | None = None
    usage: Json = None


class RunMeta(Wire, frozen=True):
    """Facts about a finished run: its model, token usage and duration."""

    duration_ms: float | None = None
    stop_reason: str | None = None
    agent_meta: _AgentMeta = _AgentMeta()


class RunResult(Wire, frozen=True):
    """The result of a finished run; its payloads are the last message only."""

    payloads: tuple[ResultPayload, ...] = ()
    meta: RunMeta = RunMeta()


STOPPED: Final = "The run was stopped inside OpenClaw; send the message again to have it done."


class _TerminalReply(Wire, frozen=True):
    text: str = ""


class RunOutcome(Wire, frozen=True):
    """The response to `agent` or `agent.wait`."""

    status: str = ""
    summary: str = ""
    stop_reason: str | None = None
    timeout_phase: str | None = None
    error: str | None = None
    result: RunResult = RunResult()
    terminal_reply: _TerminalReply = _TerminalReply()
    """The last message of the run in `agent.wait`: unprocessed, with its media lines."""

    @property
    def is_stopped(self) -> bool:
        """True when the run was aborted."""
        return self.stop_reason in {"rpc", "aborted"} or self.error == "aborted"

    @property
    def failure_reason(self) -> str:
        """Why the run did not succeed."""
        if self.is_stopped:
            return STOPPED
        if self.timeout_phase or self.status == "timeout":
            said = " ".join(one.text for one in self.result.payloads if one.text)
            return said or "OpenClaw gave the run up because it took too long; ask for less."
        return self.error or self.summary or "OpenClaw ended the run and gave no reason."


def run_metadata(run_id: str, meta: RunMeta) -> JsonObject:
    """The task metadata about the run."""
    used = meta.agent_meta
    facts = {
        "runId": run_id,
        "provider": used.provider,
        "model": used.model,
        "usage": used.usage,
        "durationMs": meta.duration_ms,
        "stopReason": meta.stop_reason,
    }
    return {"openclaw": {name: value for name, value in facts.items() if value is not None}}
