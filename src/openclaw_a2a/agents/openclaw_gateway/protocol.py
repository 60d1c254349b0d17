"""What travels over a connection to an OpenClaw gateway, read without trusting it.

Frames are read once, into structs that name only what is used; what a frame carries beyond that
is skipped, and a frame that cannot be read is None, never an error.
"""

from typing import Final, TypeVar

import msgspec
from msgspec import Raw

from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable
from openclaw_a2a.model.ids import Json, JsonObject

_Shape = TypeVar("_Shape")

_NULL = Raw(b"null")


class Wire(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Root of what is read from the gateway: camelCase, unknown members are skipped."""


class ErrorPayload(Wire, frozen=True):
    """Why the gateway would not do something."""

    code: str = ""
    message: str = ""
    details: Raw = _NULL
    retryable: bool = False
    retry_after_ms: float | None = None

    @property
    def is_temporary(self) -> bool:
        """True when the gateway asks to come again."""
        return self.retryable and self.code == "UNAVAILABLE"

    @property
    def detail_code(self) -> str:
        """The finer code inside the details, under either of its names; empty: none."""
        details = decode_object(self.details)
        code = details.get("code") or details.get("reason")
        return code if isinstance(code, str) else ""


class Frame(Wire, frozen=True):
    """One frame of the gateway: an event, or an answer to a request of ours."""

    type: str
    event: str = ""
    id: str = ""
    ok: bool = False
    payload: Raw = _NULL
    error: ErrorPayload | None = None


class RunRef(Wire, frozen=True):
    """A run and its session, as far as they are named."""

    run_id: str | None = None
    session_key: str | None = None


class Origin(Wire, frozen=True):
    """Whose an event is, by which listeners choose; for `agent` events all but what it says."""

    run_id: str | None = None
    session_key: str | None = None
    request: RunRef | None = None
    """Approvals name theirs one level deeper."""
    stream: str = ""
    data: Raw = _NULL

    @property
    def run(self) -> str | None:
        """The run it belongs to."""
        return self.run_id or (self.request.run_id if self.request else None)

    @property
    def session(self) -> str | None:
        """The session it belongs to."""
        return self.session_key or (self.request.session_key if self.request else None)


NO_ORIGIN: Final = Origin()
"""The origin of an event that names neither run nor session."""

_frames = msgspec.json.Decoder(Frame)
_origins = msgspec.json.Decoder(Origin)
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)


def decode_frame(raw: bytes | str) -> Frame | None:
    """The frame; None for what is none."""
    try:
        return _frames.decode(raw)
    except _UNREADABLE:
        return None


def decode_origin(payload: Raw) -> Origin:
    """Whose an event is; nobody's, when that cannot be read."""
    try:
        return _origins.decode(payload)
    except _UNREADABLE:
        return NO_ORIGIN


def decode_as(shape: type[_Shape], payload: Raw | bytes) -> _Shape | None:
    """The payload as this shape; None when it is something else."""
    try:
        return msgspec.json.decode(payload, type=shape)
    except _UNREADABLE:
        return None


def decode_object(payload: Raw | bytes) -> JsonObject:
    """The payload as a plain object; empty when it is something else."""
    return decode_as(dict[str, Json], payload) or {}


def encode_request(request_id: str, method: str, params: JsonObject) -> bytes:
    """A request as a frame. Raises: AgentFailed when it holds what JSON cannot."""
    request = {"type": "req", "id": request_id, "method": method, "params": params}
    try:
        return msgspec.json.encode(request)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise AgentFailed(
            f"A message for OpenClaw cannot be written as JSON ({error}); send plain text and JSON."
        ) from error


def request_error(method: str, refusal: ErrorPayload) -> AgentFailed | AgentUnavailable:
    """The error of a refused request; `refusal_code` reads its code back.

    AgentUnavailable when the gateway says that it only cannot do it now.
    """
    said = refusal.message or refusal.code or "no reason given"
    if refusal.is_temporary:
        return AgentUnavailable(f"OpenClaw cannot do {method} now: {said}; try again.")
    details: JsonObject = {"code": refusal.code, "detailCode": refusal.detail_code}
    return AgentFailed(f"OpenClaw refused {method}: {said}", details=details)


def error_code(error: AgentFailed) -> str:
    """The code of a refused request, the finer one when there is one; empty for other errors."""
    return error.details.get("detailCode") or error.details.get("code") or ""


_ABSENT: Final = Raw(b"null")

RUN_EVENTS: Final = frozenset(
    {"agent", "question.requested", "exec.approval.requested", "exec.approval.resolved"}
)
"""The events that a turn listens to in its session."""


class TextChunk(Wire, frozen=True):
    """Assistant text: `delta` is what is new, `text` the message `item_id` so far."""

    item_id: str = ""
    delta: str = ""
    text: Raw = _ABSENT
    replace: bool = False
    media_urls: tuple[str, ...] = ()

    @property
    def full_text(self) -> str | None:
        """The message so far; None when the event does not say."""
        return decode_as(str, self.text)


class Lifecycle(Wire, frozen=True):
    """How far a run is. A run that is stopped has ended when `execution_settled` is true."""

    phase: str = ""
    execution_settled: bool = False


class ToolStep(Wire, frozen=True):
    """One step of a tool call."""

    phase: str = ""
    name: str = ""
    tool_call_id: str = ""
    is_error: bool = False
    args: Raw = _ABSENT
    partial_result: Raw = _ABSENT
    result: Raw = _ABSENT


class Item(Wire, frozen=True):
    """What every connection hears of a step; a tool's content only reaches who began the run.

    A `preamble` is the message before a tool call: a short one comes in no other way.
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
    """A sentence about the run, such as the next attempt at a provider that fails."""

    phase: str = ""
    message: str = ""


class ResultPayload(Wire, frozen=True):
    """One piece of a run's result."""

    text: str | None = None
    media_url: str | None = None
    media_urls: tuple[str, ...] = ()
    is_error: bool = False

    @property
    def references(self) -> tuple[str, ...]:
        """The files it refers to."""
        return self.media_urls or ((self.media_url,) if self.media_url else ())


class AgentMeta(Wire, frozen=True):
    """Which model answered, and what it used."""

    provider: str | None = None
    model: str | None = None
    usage: Json = None


class RunMeta(Wire, frozen=True):
    """Facts about a finished run."""

    duration_ms: float | None = None
    stop_reason: str | None = None
    agent_meta: AgentMeta = AgentMeta()


class RunResult(Wire, frozen=True):
    """What a finished run left; its payloads are its last message only."""

    payloads: tuple[ResultPayload, ...] = ()
    meta: RunMeta = RunMeta()


class TerminalReply(Wire, frozen=True):
    """The last message of a run as `agent.wait` tells it: raw, with its media lines."""

    text: str = ""


class RunOutcome(Wire, frozen=True):
    """An answer to `agent` or `agent.wait`."""

    status: str = ""
    summary: str = ""
    stop_reason: str | None = None
    timeout_phase: str | None = None
    error: str | None = None
    result: RunResult = RunResult()
    terminal_reply: TerminalReply = TerminalReply()

    @property
    def is_stopped(self) -> bool:
        """True when somebody stopped the run."""
        return self.stop_reason in {"rpc", "aborted"} or self.error == "aborted"


def run_metadata(run_id: str, meta: RunMeta) -> JsonObject:
    """What a task's metadata says about the run."""
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
