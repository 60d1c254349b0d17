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


class Refusal(Wire, frozen=True):
    """Why the gateway would not do something."""

    code: str = ""
    message: str = ""
    details: Raw = _NULL
    retryable: bool = False
    retry_after_ms: float | None = None

    @property
    def is_passing(self) -> bool:
        """True when the gateway asks to come again."""
        return self.retryable and self.code == "UNAVAILABLE"

    @property
    def detail_code(self) -> str:
        """The finer code inside the details, under either of its names; empty: none."""
        details = read_object(self.details)
        code = details.get("code") or details.get("reason")
        return code if isinstance(code, str) else ""


class Frame(Wire, frozen=True):
    """One frame of the gateway: an event, or an answer to a request of ours."""

    type: str
    event: str = ""
    id: str = ""
    ok: bool = False
    payload: Raw = _NULL
    error: Refusal | None = None


class Named(Wire, frozen=True):
    """A run and its session, as far as they are named."""

    run_id: str | None = None
    session_key: str | None = None


class Origin(Wire, frozen=True):
    """Whose an event is, by which listeners choose; for `agent` events all but what it says."""

    run_id: str | None = None
    session_key: str | None = None
    request: Named | None = None
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


NOBODY: Final = Origin()
"""The origin of an event that names neither run nor session."""

_frames = msgspec.json.Decoder(Frame)
_origins = msgspec.json.Decoder(Origin)
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)


def read_frame(raw: bytes | str) -> Frame | None:
    """The frame; None for what is none."""
    try:
        return _frames.decode(raw)
    except _UNREADABLE:
        return None


def read_origin(payload: Raw) -> Origin:
    """Whose an event is; nobody's, when that cannot be read."""
    try:
        return _origins.decode(payload)
    except _UNREADABLE:
        return NOBODY


def read_as(shape: type[_Shape], payload: Raw | bytes) -> _Shape | None:
    """The payload as this shape; None when it is something else."""
    try:
        return msgspec.json.decode(payload, type=shape)
    except _UNREADABLE:
        return None


def read_object(payload: Raw | bytes) -> JsonObject:
    """The payload as a plain object; empty when it is something else."""
    return read_as(dict[str, Json], payload) or {}


def encode_request(request_id: str, method: str, params: JsonObject) -> bytes:
    """A request as a frame. Raises: AgentFailed when it holds what JSON cannot."""
    request = {"type": "req", "id": request_id, "method": method, "params": params}
    try:
        return msgspec.json.encode(request)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise AgentFailed(
            f"A message for OpenClaw cannot be written as JSON ({error}); send plain text and JSON."
        ) from error


def refused(method: str, refusal: Refusal) -> AgentFailed | AgentUnavailable:
    """The error of a refused request; `refusal_code` reads its code back.

    AgentUnavailable when the gateway says that it only cannot do it now.
    """
    said = refusal.message or refusal.code or "no reason given"
    if refusal.is_passing:
        return AgentUnavailable(f"OpenClaw cannot do {method} now: {said}; try again.")
    details: JsonObject = {"code": refusal.code, "detailCode": refusal.detail_code}
    return AgentFailed(f"OpenClaw refused {method}: {said}", details=details)


def refusal_code(error: AgentFailed) -> str:
    """The code of a refused request, the finer one when there is one; empty for other errors."""
    return error.details.get("detailCode") or error.details.get("code") or ""
