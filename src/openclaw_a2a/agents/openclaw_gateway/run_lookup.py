"""What a session's history in OpenClaw says about a run of ours."""

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

import msgspec
from msgspec import Raw

from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.history import read_full_content
from openclaw_a2a.agents.openclaw_gateway.protocol import RunOutcome, ToolStep, Wire, decode_as
from openclaw_a2a.agents.openclaw_gateway.run_registry import may_be_recovery
from openclaw_a2a.model.ids import JsonObject

_MOST_ENTRIES: Final = 400
_ASK_S: Final = 60.0
_NULL: Final = Raw(b"null")
_RECOVERY: Final = "main_session_restart_recovery"
_NO_ANSWER: Final = frozenset({"aborted", "error"})
"""How messages end that broke off: the run was stopped, or tries its model again."""


class _Marks(Wire, frozen=True):
    id: str = ""
    run_id: str | None = None
    truncated: bool = False


class _Provenance(Wire, frozen=True):
    source_tool: str | None = None


class _Block(Wire, frozen=True):
    """A piece of an entry: text, or the call of a tool."""

    type: str = ""
    text: str = ""
    id: str = ""
    name: str = ""
    arguments: Raw = _NULL


class _Entry(Wire, frozen=True):
    role: str = ""
    content: Raw = _NULL
    idempotency_key: str = ""
    stop_reason: str | None = None
    tool_call_id: str = ""
    tool_name: str = ""
    is_error: bool = False
    provenance: _Provenance = _Provenance()
    marks: _Marks = msgspec.field(name="__openclaw", default=_Marks())

    @property
    def blocks(self) -> list[_Block]:
        plain = decode_as(str, self.content)
        if plain is not None:
            return [_Block("text", text=plain)]
        found = [decode_as(_Block, one) for one in decode_as(list[Raw], self.content) or []]
        return [block for block in found if block is not None]

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.blocks if block.type == "text")

    @property
    def calls_tool(self) -> bool:
        return any(block.type == "toolCall" for block in self.blocks)


class _SessionState(Wire, frozen=True):
    has_active_run: bool = False
    active_run_ids: tuple[str, ...] | None = None


class _Pending(Wire, frozen=True):
    run_id: str | None = None
    state: str = ""


class _PendingInputs(Wire, frozen=True):
    items: tuple[_Pending, ...] = ()


class _Answer(Wire, frozen=True):
    messages: tuple[Raw, ...] = ()
    pending_inputs: _PendingInputs = _PendingInputs()
    session_info: _SessionState = _SessionState()


class RunHistory:
    """A session's newest entries, oldest first, and which runs are under way in it."""

    def __init__(self, answer: _Answer) -> None:
        read = [decode_as(_Entry, raw) for raw in answer.messages]
        self._entries = [entry for entry in read if entry is not None]
        self._state = answer.session_info
        self._pending = answer.pending_inputs.items

    def is_live(self, run_id: str) -> bool:
        """True when the run is under way, or waits for its turn."""
        active = self._state.active_run_ids
        if active is not None and run_id in active:
            return True
        return any(one.run_id == run_id and one.state == "queued" for one in self._pending)

    def is_dropped(self, run_id: str) -> bool:
        """True when the run's message waited and was lost: OpenClaw takes it under another id."""
        dropped = {one.run_id for one in self._pending if one.state != "queued"}
        return run_id in dropped and not self.is_live(run_id)

    @property
    def is_vague(self) -> bool:
        """True when something is under way and the gateway does not say what."""
        return self._state.has_active_run and self._state.active_run_ids is None

    def is_taken(self, run_id: str) -> bool:
        """True when the run's message is in the transcript: it must not be sent again.

        Of a long run the message itself may not be among the newest entries any more.
        """
        is_shown = any(entry.idempotency_key == f"{run_id}:user" for entry in self._entries)
        return is_shown or bool(self._entries_of(run_id))

    def has_answer(self, run_id: str) -> bool:
        """True when the run's last message is there."""
        last = [one for one in self._entries_of(run_id) if one.role == "assistant"][-1:]
        return any(not one.calls_tool and one.stop_reason not in _NO_ANSWER for one in last)

    def failure_of(self, run_id: str) -> str | None:
        """Why the run failed, when it left that in the transcript."""
        key = f"{run_id}:terminal-error"
        found = [entry for entry in self._entries if entry.idempotency_key == key]
        return (found[-1].text or "it gave no reason") if found else None

    def recovery_of(self, run_id: str) -> str | None:
        """The run under which a restarted gateway goes on with this one, when it does already."""
        for other in self._state.active_run_ids or ():
            if may_be_recovery(other):
                return other
        is_recovered = False
        for entry in self._after(run_id):
            is_recovered = is_recovered or entry.provenance.source_tool == _RECOVERY
            other = entry.marks.run_id or ""
            is_said = is_recovered and entry.role == "assistant"
            if is_said and other != run_id and may_be_recovery(other):
                return other
        return None

    def texts_of(self, run_id: str) -> list[str]:
        """The run's messages that say something, in their order."""
        texts = [one.text for one in self._entries_of(run_id) if one.role == "assistant"]
        return [text for text in texts if text.strip()]

    def steps_of(self, run_id: str) -> Iterator[str | ToolStep]:
        """What the run did, in order: its messages, and the steps of its tool calls."""
        for entry in self._entries_of(run_id):
            if entry.role == "toolResult":
                yield _result_step(entry)
                continue
            if entry.text.strip():
                yield entry.text
            for block in entry.blocks:
                if block.type == "toolCall":
                    yield ToolStep("start", block.name, block.id, args=block.arguments)

    def _entries_of(self, run_id: str) -> list[_Entry]:
        return [
            entry
            for entry in self._entries
            if entry.marks.run_id == run_id and entry.role in {"assistant", "toolResult"}
        ]

    def _after(self, run_id: str) -> list[_Entry]:
        for number, entry in enumerate(self._entries):
            if entry.idempotency_key == f"{run_id}:user" or entry.marks.run_id == run_id:
                return self._entries[number + 1 :]
        return []

    async def complete(self, link: GatewayConnection, session_key: str, run_id: str) -> None:
        """Have the run's long messages whole, which a history shows cut off.

        Raises: AgentUnavailable.
        """
        for number, entry in enumerate(self._entries):
            if entry.marks.run_id == run_id and entry.role == "assistant" and entry.marks.truncated:
                content = await read_full_content(link, session_key, entry.marks.id)
                if content is not None:
                    self._entries[number] = msgspec.structs.replace(entry, content=content)


async def read_run_history(
    link: GatewayConnection, session_key: str, run_id: str = ""
) -> RunHistory:
    """The session's history, with the run's messages whole when one is named.

    Raises: AgentUnavailable, AgentFailed.
    """
    params: JsonObject = {"sessionKey": session_key, "limit": _MOST_ENTRIES}
    history = RunHistory(await link.read(_Answer, "chat.history", params, timeout_s=_ASK_S))
    if run_id:
        await history.complete(link, session_key, run_id)
    return history


def _result_step(entry: _Entry) -> ToolStep:
    result = Raw(b'{"content":' + bytes(entry.content) + b"}")
    return ToolStep(
        "result", entry.tool_name, entry.tool_call_id, is_error=entry.is_error, result=result
    )


_WAIT_REPLY_S: Final = 30.0


class RunStatus(Enum):
    """How a run stands."""

    LIVE = auto()
    """Under way, or waiting for its turn."""
    ENDED = auto()
    FAILED = auto()
    ELSEWHERE = auto()
    """OpenClaw was restarted and goes on with it under another run id."""
    INTERRUPTED = auto()
    """Not to be seen: OpenClaw was restarted and has not gone on with it yet, or it is between
    two of its steps."""
    UNKNOWN = auto()
    """Its message was never taken: sending it does nothing twice."""


class FoundRun(msgspec.Struct, frozen=True):
    """How a run stands, and what is known of it."""

    status: RunStatus
    history: RunHistory
    outcome: RunOutcome = RunOutcome()
    reason: str = ""
    run_id: str = ""


async def find_run(link: GatewayConnection, session_key: str, run_id: str) -> FoundRun:
    """How the run stands now. Raises: AgentUnavailable, AgentFailed."""
    params: JsonObject = {"runId": run_id, "timeoutMs": 1}
    outcome = await link.read(RunOutcome, "agent.wait", params, timeout_s=_WAIT_REPLY_S)
    history = await read_run_history(link, session_key, run_id)
    if outcome.status == "ok":
        return FoundRun(RunStatus.ENDED, history, outcome)
    if outcome.status == "error":
        reason = failure_of(outcome) if outcome.is_stopped or outcome.error else ""
        reason = reason or history.failure_of(run_id) or failure_of(outcome)
        return FoundRun(RunStatus.FAILED, history, outcome, reason)
    # From here on it runs, or OpenClaw has forgotten it: after ten minutes, or a restart.
    return _by_history(history, run_id)


def _by_history(history: RunHistory, run_id: str) -> FoundRun:
    if history.is_live(run_id):
        return FoundRun(RunStatus.LIVE, history)
    reason = history.failure_of(run_id)
    if reason is not None:
        return FoundRun(RunStatus.FAILED, history, reason=reason)
    if history.has_answer(run_id):
        return FoundRun(RunStatus.ENDED, history)
    if not history.is_taken(run_id):
        return FoundRun(RunStatus.UNKNOWN, history)
    other = history.recovery_of(run_id)
    if other is not None:
        return FoundRun(RunStatus.ELSEWHERE, history, run_id=other)
    return FoundRun(RunStatus.INTERRUPTED, history)


def failure_of(outcome: RunOutcome) -> str:
    """Why a run did not end well, in words."""
    if outcome.is_stopped:
        return "The run was stopped inside OpenClaw; send the message again to have it done."
    if outcome.timeout_phase or outcome.status == "timeout":
        said = " ".join(one.text for one in outcome.result.payloads if one.text)
        return said or "OpenClaw gave the run up because it took too long; ask for less at once."
    return outcome.error or outcome.summary or "OpenClaw ended the run and gave no reason."
