"""The events and answers of one OpenClaw run, in the shapes that following it needs."""

from typing import Final

from msgspec import Raw

from openclaw_a2a.agents.openclaw_gateway.frames import Wire, read_as
from openclaw_a2a.model.ids import Json, JsonObject

_NULL: Final = Raw(b"null")

FOLLOWED: Final = frozenset(
    {"agent", "question.requested", "exec.approval.requested", "exec.approval.resolved"}
)
"""The events that a turn listens to in its session."""


class Piece(Wire, frozen=True):
    """Assistant text: `delta` is what is new, `text` the message `item_id` so far."""

    item_id: str = ""
    delta: str = ""
    text: Raw = _NULL
    replace: bool = False
    media_urls: tuple[str, ...] = ()

    @property
    def whole(self) -> str | None:
        """The message so far; None when the event does not say."""
        return read_as(str, self.text)


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
    args: Raw = _NULL
    partial_result: Raw = _NULL
    result: Raw = _NULL


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


class RunStatus(Wire, frozen=True):
    """A sentence about the run, such as the next attempt at a provider that fails."""

    phase: str = ""
    message: str = ""


class Payload(Wire, frozen=True):
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


class Meta(Wire, frozen=True):
    """Facts about a finished run."""

    duration_ms: float | None = None
    stop_reason: str | None = None
    agent_meta: AgentMeta = AgentMeta()


class Result(Wire, frozen=True):
    """What a finished run left; its payloads are its last message only."""

    payloads: tuple[Payload, ...] = ()
    meta: Meta = Meta()


class TerminalReply(Wire, frozen=True):
    """The last message of a run as `agent.wait` tells it: raw, with its media lines."""

    text: str = ""


class Outcome(Wire, frozen=True):
    """An answer to `agent` or `agent.wait`."""

    status: str = ""
    summary: str = ""
    stop_reason: str | None = None
    timeout_phase: str | None = None
    error: str | None = None
    result: Result = Result()
    terminal_reply: TerminalReply = TerminalReply()

    @property
    def is_stopped(self) -> bool:
        """True when somebody stopped the run."""
        return self.stop_reason in {"rpc", "aborted"} or self.error == "aborted"


def facts_of(run_id: str, meta: Meta) -> JsonObject:
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
