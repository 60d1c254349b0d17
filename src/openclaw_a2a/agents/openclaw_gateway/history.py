"""A session's history in OpenClaw (`chat.history`), and what became of a run in it.

After a lost connection or a restart of either side `find_run` asks `agent.wait` first and the
history second. It sends nothing again; its result only says when sending again is safe.
"""

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Final

import msgspec
from msgspec import Raw

from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.media import split_media
from openclaw_a2a.agents.openclaw_gateway.protocol import (
    STOPPED,
    RunOutcome,
    ToolStep,
    Wire,
    decode_as,
)
from openclaw_a2a.agents.openclaw_gateway.runs import may_be_recovery
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import Json, JsonObject

RECOVERY: Final = "main_session_restart_recovery"
"""The source of the message with which OpenClaw resumes an interrupted turn."""

# A run must be found from its message on, also after a turn with many tool calls.
_MAX_ENTRIES: Final = 400
_TIMEOUT_S: Final = 60.0
_WAIT_TIMEOUT_S: Final = 30.0
_NULL: Final = Raw(b"null")
_INCOMPLETE: Final = frozenset({"aborted", "error"})
"""Stop reasons of messages that broke off: the run was stopped, or retries its model."""
_TOOL_CALLS: Final = frozenset({"toolCall", "tool_call", "toolUse", "tool_use"})


# -------------------------------------------------------------------- entries


class _Marks(Wire, frozen=True):
    id: str = ""
    run_id: str | None = None
    record_timestamp_ms: Json = None
    truncated: bool = False


class _Provenance(Wire, frozen=True):
    source_tool: str | None = None


class _Delivery(Wire, frozen=True):
    audio_as_voice: bool = False
    reply_to_id: str = ""
    channel_data: JsonObject | None = None


class _Attachment(Wire, frozen=True):
    url: str = ""
    label: str = ""


class _Block(Wire, frozen=True):
    """One block of an entry's content: text, a file, or a tool call."""

    type: str = ""
    text: str = ""
    url: str = ""
    attachment: _Attachment = _Attachment()
    id: str = ""
    name: str = ""
    arguments: Raw = _NULL


class HistoryEntry(Wire, frozen=True):
    """One message of the transcript."""

    role: str = ""
    content: Raw = _NULL
    timestamp: Json = None
    stop_reason: str | None = None
    provider: Json = None
    idempotency_key: str | None = None
    tool_call_id: str = ""
    tool_name: str = ""
    is_error: bool = False
    provenance: _Provenance | None = None
    marks: _Marks = msgspec.field(name="__openclaw", default=_Marks())
    delivery_data: Raw = msgspec.field(name="openclawDelivery", default=_NULL)
    abort: Json = msgspec.field(name="openclawAbort", default=None)

    @property
    def id(self) -> str:
        """The message id."""
        return self.marks.id

    @property
    def recorded_at_ms(self) -> float:
        """When it was written, in milliseconds; 0 when that is unknown."""
        known = (self.marks.record_timestamp_ms, self.timestamp)
        return next((float(one) for one in known if isinstance(one, int | float) and one), 0.0)

    @property
    def delivery(self) -> _Delivery:
        """How the message was to be delivered to a chat channel."""
        return decode_as(_Delivery, self.delivery_data) or _Delivery()

    @property
    def is_input(self) -> bool:
        """True for what the agent was asked, False for what it said."""
        # Input of a cron job or another session has the role of the assistant.
        is_keyed = (self.idempotency_key or "").endswith(":user")
        return self.role == "user" or is_keyed or self.provenance is not None

    @property
    def is_recovery(self) -> bool:
        """True for the message with which OpenClaw resumes an interrupted turn."""
        return self.provenance is not None and self.provenance.source_tool == RECOVERY

    @property
    def is_foreign_reply(self) -> bool:
        """True for a complete message with content, no matter whose run it belongs to."""
        if self.is_input or not self.id or self.role != "assistant":
            return False
        if self.stop_reason == "toolUse" or self.abort is not None or self.calls_tool:
            return False
        text, media_urls = self.text_and_media
        return bool(text or media_urls or self.lost_files or self.delivery.channel_data)

    @property
    def blocks(self) -> list[_Block]:
        """The content; blocks that cannot be decoded are left out."""
        plain = decode_as(str, self.content)
        if plain is not None:
            return [_Block("text", text=plain)]
        blocks = (decode_as(_Block, one) for one in decode_as(list[Raw], self.content) or ())
        return [block for block in blocks if block is not None]

    @property
    def calls_tool(self) -> bool:
        """True when the message contains a tool call."""
        return any(block.type in _TOOL_CALLS for block in self.blocks)

    @property
    def text(self) -> str:
        """The text, with its media lines."""
        return "".join(block.text for block in self.blocks if block.type == "text")

    @property
    def text_and_media(self) -> tuple[str, tuple[str, ...]]:
        """The text without its media lines, and the references to files."""
        blocks = self.blocks
        joined = "\n\n".join(one.text for one in blocks if one.type == "text")
        text, references = split_media(joined)
        attached = (one.url or one.attachment.url for one in blocks if one.type != "text")
        return text.strip(), (*references, *filter(None, attached))

    @property
    def lost_files(self) -> tuple[str, ...]:
        """Names of files that OpenClaw could not deliver."""
        failed = (one for one in self.blocks if one.type == "attachment_error")
        return tuple(filter(None, (one.attachment.label for one in failed)))


# -------------------------------------------------------------------- the history of a session


class _SessionState(Wire, frozen=True):
    has_active_run: bool = False
    active_run_ids: tuple[str, ...] | None = None


class _PendingInput(Wire, frozen=True):
    run_id: str | None = None
    state: str = ""


class _PendingInputs(Wire, frozen=True):
    items: tuple[_PendingInput, ...] = ()


class HistoryResponse(Wire, frozen=True):
    """The response to `chat.history`."""

    messages: tuple[Raw, ...] = ()
    pending_inputs: _PendingInputs = _PendingInputs()
    session_info: _SessionState = _SessionState()


class SessionHistory:
    """The newest entries of a session, oldest first, and the runs that are active in it."""

    def __init__(self, response: HistoryResponse) -> None:
        decoded = (decode_as(HistoryEntry, raw) for raw in response.messages)
        self.entries = [entry for entry in decoded if entry is not None]
        self.has_active_run = response.session_info.has_active_run
        self._active_runs = response.session_info.active_run_ids
        self._pending = response.pending_inputs.items

    def is_live(self, run_id: str) -> bool:
        """True when the run is active or queued."""
        if run_id in (self._active_runs or ()):
            return True
        return any(one.run_id == run_id and one.state == "queued" for one in self._pending)

    def is_canceled(self, run_ids: Sequence[str]) -> bool:
        """True when the queued message of a run with one of these ids was aborted."""
        return any(one.run_id in run_ids and one.state == "cancelled" for one in self._pending)

    def find_attempt(self, run_ids: Sequence[str]) -> tuple[str, bool]:
        """The id under which a message is in the session (True), or is to be sent (False).

        `run_ids` are the ids of a message in order: OpenClaw refuses the id of a message that it
        lost, so that each loss takes the next one.
        """
        # The last accepted one counts: earlier ids belong to attempts that were lost.
        for run_id in reversed(run_ids):
            if self.is_accepted(run_id) or self.is_live(run_id):
                return run_id, True
        # A message that was queued and is not any more was lost: its id is used up.
        lost = {one.run_id for one in self._pending if one.state != "queued"}
        return next((run_id for run_id in run_ids if run_id not in lost), run_ids[-1]), False

    @property
    def active_run(self) -> str:
        """The id of an active run; empty when there is none, or the gateway does not say which."""
        return next(iter(self._active_runs or ()), "")

    @property
    def has_unnamed_run(self) -> bool:
        """True when a run is active and the gateway does not say which."""
        return self.has_active_run and self._active_runs is None

    def is_accepted(self, run_id: str) -> bool:
        """True when the run's message, or at least its output, is shown: never send it again."""
        is_shown = any(entry.idempotency_key == f"{run_id}:user" for entry in self.entries)
        return is_shown or bool(self._entries_of(run_id))

    def has_answer(self, run_id: str) -> bool:
        """True when the run's last message is complete."""
        last = [one for one in self._entries_of(run_id) if one.role == "assistant"][-1:]
        return any(not one.calls_tool and one.stop_reason not in _INCOMPLETE for one in last)

    def failure_reason(self, run_id: str) -> str | None:
        """Why the run failed, when the transcript says that it did."""
        key = f"{run_id}:terminal-error"
        found = [entry for entry in self.entries if entry.idempotency_key == key]
        return (found[-1].text or "it gave no reason") if found else None

    def find_recovery(self, run_id: str) -> str | None:
        """The run under which a restarted gateway resumes this one; None when it has not yet."""
        for other in self._active_runs or ():
            if may_be_recovery(other):
                return other
        is_shown = is_resumed = False
        for entry in self.entries:
            other = entry.marks.run_id or ""
            if not is_shown:  # what stands before the run in the transcript cannot resume it
                is_shown = other == run_id or entry.idempotency_key == f"{run_id}:user"
                continue
            is_resumed = is_resumed or entry.is_recovery
            is_said = is_resumed and entry.role == "assistant"
            if is_said and other != run_id and may_be_recovery(other):
                return other
        return None

    def list_steps(self, run_id: str) -> Iterator[str | ToolStep]:
        """What the run did, in order: the text of its messages, and the steps of its tools."""
        for entry in self._entries_of(run_id):
            if entry.role == "toolResult":
                result = Raw(b'{"content":' + bytes(entry.content) + b"}")
                name, call_id, is_error = entry.tool_name, entry.tool_call_id, entry.is_error
                yield ToolStep("result", name, call_id, is_error=is_error, result=result)
                continue
            if entry.text.strip():
                yield entry.text
            for block in entry.blocks:
                if block.type == "toolCall":
                    yield ToolStep("start", block.name, block.id, args=block.arguments)

    def _entries_of(self, run_id: str) -> list[HistoryEntry]:
        return [
            entry
            for entry in self.entries
            if entry.marks.run_id == run_id and entry.role in {"assistant", "toolResult"}
        ]


async def read_history(
    connection: GatewayConnection, session_key: str, *, full_run: str = "", limit: int = 0
) -> SessionHistory:
    """The session's history, `full_run` in full. Raises: AgentUnavailable, AgentFailed."""
    params: JsonObject = {"sessionKey": session_key, "limit": limit or _MAX_ENTRIES}
    response = await connection.read(HistoryResponse, "chat.history", params, timeout_s=_TIMEOUT_S)
    history = SessionHistory(response)
    for number, entry in enumerate(history.entries):
        if full_run and entry.marks.run_id == full_run and entry.role == "assistant":
            history.entries[number] = await with_full_content(connection, session_key, entry)
    return history


class _FullMessage(Wire, frozen=True):
    content: Raw = _NULL


class _MessageResponse(Wire, frozen=True):
    message: _FullMessage | None = None


async def with_full_content(
    connection: GatewayConnection, session_key: str, entry: HistoryEntry
) -> HistoryEntry:
    """The entry with its full content, if the history shows it shortened.

    As it is when the gateway does not give it out. Raises: AgentUnavailable.
    """
    if not entry.marks.truncated:
        return entry
    params: JsonObject = {"sessionKey": session_key, "messageId": entry.id}
    try:
        response = await connection.read(
            _MessageResponse, "chat.message.get", params, timeout_s=_TIMEOUT_S
        )
    except AgentFailed:
        return entry
    if response.message is None:
        return entry
    return msgspec.structs.replace(entry, content=response.message.content)


# -------------------------------------------------------------------- what became of a run


class RunStatus(Enum):
    """The status of a run inside OpenClaw."""

    LIVE = auto()  # active or queued
    ENDED = auto()
    FAILED = auto()
    RESUMED = auto()  # OpenClaw was restarted and resumed it under another run id
    HIDDEN = auto()
    """Accepted but not shown as active: OpenClaw was restarted and has not resumed it yet, or the
    run is between two of its steps."""
    NOT_ACCEPTED = auto()
    """OpenClaw never accepted its message, or lost it before the run began: sending it, under the
    id that was found, cannot execute anything twice."""


class FoundRun(msgspec.Struct, frozen=True):
    """The status of a run, and what is known of it.

    `run_id` is the resumed run's, if it was resumed, else the id under which the message of the run
    is in the session, or has to be sent.
    """

    status: RunStatus
    history: SessionHistory
    outcome: RunOutcome = RunOutcome()
    reason: str = ""
    run_id: str = ""


async def find_run(
    connection: GatewayConnection, session_key: str, run_ids: Sequence[str]
) -> FoundRun:
    """The status now of a run that has these ids, in order. Raises: AgentUnavailable, AgentFailed.

    It is looked for under the first id, and under another one where the history shows it.
    """
    run_id = run_ids[0]
    # It does not wait: an ended run answers at once, any other with `timeout`.
    params: JsonObject = {"runId": run_id, "timeoutMs": 1}
    outcome = await connection.read(RunOutcome, "agent.wait", params, timeout_s=_WAIT_TIMEOUT_S)
    # After the outcome: a run that ends in between is seen as ended, never as not accepted.
    history = await read_history(connection, session_key, full_run=run_id)
    latest, is_accepted = history.find_attempt(run_ids)
    if is_accepted and latest != run_id:
        return await find_run(connection, session_key, (latest,))
    if outcome.status == "ok":
        return FoundRun(RunStatus.ENDED, history, outcome, run_id=run_id)
    reason = history.failure_reason(run_id)
    if outcome.status == "error":
        is_told = outcome.is_stopped or bool(outcome.error)
        said = outcome.failure_reason
        why = (said if is_told else reason) or said
        return FoundRun(RunStatus.FAILED, history, outcome, why, run_id)
    # Still running, or forgotten: OpenClaw forgets runs after ten minutes and with a restart.
    if history.is_live(run_id):
        return FoundRun(RunStatus.LIVE, history, run_id=run_id)
    if reason is not None:
        return FoundRun(RunStatus.FAILED, history, reason=reason, run_id=run_id)
    if history.has_answer(run_id):
        return FoundRun(RunStatus.ENDED, history, run_id=run_id)
    if history.is_canceled(run_ids):
        return FoundRun(RunStatus.FAILED, history, reason=STOPPED, run_id=run_id)
    # After every sign of life: only what left no trace anywhere, or was lost, may be sent again.
    if not is_accepted:
        return FoundRun(RunStatus.NOT_ACCEPTED, history, run_id=latest)
    other = history.find_recovery(run_id)
    status = RunStatus.HIDDEN if other is None else RunStatus.RESUMED
    return FoundRun(status, history, run_id=other or run_id)
