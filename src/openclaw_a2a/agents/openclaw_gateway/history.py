"""A session's transcript as OpenClaw shows it, and which of its entries are late replies.

An entry belongs to the run that it names, or that its idempotency key begins with. After a crash
OpenClaw goes on with the interrupted turn in a run of its own name: that run is whose the
interrupted one was.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypedDict

import msgspec
from msgspec import Raw

from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.media import split_media
from openclaw_a2a.agents.openclaw_gateway.protocol import Wire
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import Json, JsonObject

RECOVERY: Final = "main_session_restart_recovery"
"""The source of the message with which OpenClaw goes on with an interrupted turn."""

_INJECTED: Final = "inject-"
"""Events of a message that was put into the session name this and the message's id as their run."""


class HistoryEntry(msgspec.Struct, frozen=True):
    """One message of a transcript, as far as it matters here."""

    id: str
    is_question: bool
    """True for what was asked, False for what was said, whoever it was."""
    run_id: str
    at_ms: float
    text: str = ""
    media_urls: tuple[str, ...] = ()
    lost_files: tuple[str, ...] = ()
    """Names of files that OpenClaw could not deliver."""
    is_error: bool = False
    is_recovery: bool = False
    is_cut: bool = False
    """True when it is shown shortened; see `retold`."""
    is_step: bool = False
    """True for what is no reply: tools and their results, and what was stopped."""
    audio_as_voice: bool = False
    reply_to_id: str = ""
    channel_data: JsonObject | None = None

    @property
    def is_reply(self) -> bool:
        """True when somebody would want to read it."""
        has_content = bool(self.text or self.media_urls or self.channel_data or self.lost_files)
        return not self.is_question and not self.is_step and has_content and bool(self.id)


def read_history(answer: Json) -> tuple[HistoryEntry, ...]:
    """The entries of an answer to `chat.history`, oldest first; the unreadable are left out."""
    try:
        messages = msgspec.convert(answer, _History).messages
    except msgspec.ValidationError:
        return ()
    entries: list[HistoryEntry] = []
    asked_by = ""
    for message in messages:
        entry = _read_entry(message, asked_by)
        if entry is not None:
            entries.append(entry)
            asked_by = entry.run_id if entry.is_question else asked_by
    return tuple(entries)


def with_full_content(entry: HistoryEntry, content: Json) -> HistoryEntry:
    """The entry with all that it says."""
    return msgspec.structs.replace(entry, **_said(_blocks(content)))


class ForeignReplies(msgspec.Struct, frozen=True):
    """The replies of a transcript that are no answers to us.

    `later` are those after the last entry of ours; None when the transcript shows none of ours.
    """

    all: tuple[HistoryEntry, ...]
    later: tuple[HistoryEntry, ...] | None

    def of_run(self, run_id: str) -> tuple[HistoryEntry, ...]:
        """The replies of one run, by the name that its events have."""
        injected = run_id.removeprefix(_INJECTED)
        return tuple(entry for entry in self.all if run_id == entry.run_id or injected == entry.id)


def foreign_replies(
    entries: Sequence[HistoryEntry], is_ours: Callable[[str], bool]
) -> ForeignReplies:
    """The replies of runs that are not ours."""
    recovered = _own_recoveries(entries, is_ours)
    replies: list[HistoryEntry] = []
    later: list[HistoryEntry] | None = None
    for entry in entries:
        if is_ours(entry.run_id) or entry.run_id in recovered:
            later = []
        elif entry.is_reply:
            replies.append(entry)
            if later is not None:
                later.append(entry)
    return ForeignReplies(tuple(replies), None if later is None else tuple(later))


def _own_recoveries(entries: Sequence[HistoryEntry], is_ours: Callable[[str], bool]) -> set[str]:
    """The runs in which OpenClaw went on with one of ours."""
    recovered: set[str] = set()
    # What the first entry goes on with is not shown; it may well be ours.
    was_ours = True
    for entry in entries:
        if not entry.is_question:
            continue
        if not entry.is_recovery:
            was_ours = is_ours(entry.run_id)
        elif was_ours:
            recovered.add(entry.run_id)
    return recovered


class _Mark(Wire, frozen=True):
    id: str = ""
    run_id: str = ""
    record_timestamp_ms: float = 0
    truncated: bool = False


class _Provenance(Wire, frozen=True):
    source_tool: str = ""


class _Delivery(Wire, frozen=True):
    audio_as_voice: bool = False
    reply_to_id: str = ""
    channel_data: JsonObject | None = None


class _File(Wire, frozen=True):
    url: str = ""
    label: str = ""


class _Block(Wire, frozen=True):
    type: str = ""
    text: str = ""
    url: str = ""
    attachment: _File = _File()


class _Message(Wire, frozen=True):
    role: str
    content: Json = None
    timestamp: float = 0
    stop_reason: str | None = None
    provider: str | None = None
    idempotency_key: str | None = None
    provenance: _Provenance | None = None
    mark: _Mark = msgspec.field(default=_Mark(), name="__openclaw")
    delivery: _Delivery = msgspec.field(default=_Delivery(), name="openclawDelivery")
    abort: Json = msgspec.field(default=None, name="openclawAbort")

    @property
    def is_question(self) -> bool:
        # What a cron job or another session asks is shown as said by the assistant.
        key = self.idempotency_key or ""
        return self.role == "user" or key.endswith(":user") or self.provenance is not None

    @property
    def is_step(self) -> bool:
        is_stopped = self.stop_reason == "toolUse" or self.abort is not None
        return self.role not in {"user", "assistant"} or is_stopped


class _History(Wire, frozen=True):
    messages: tuple[Json, ...] = ()


_TOOL_CALLS: Final = frozenset({"toolCall", "tool_call", "toolUse", "tool_use"})


def _read_entry(value: Json, asked_by: str) -> HistoryEntry | None:
    try:
        message = msgspec.convert(value, _Message)
    except msgspec.ValidationError:
        return None
    blocks = _blocks(message.content)
    return HistoryEntry(
        id=message.mark.id,
        is_question=message.is_question,
        run_id=_run_of(message, asked_by),
        at_ms=message.mark.record_timestamp_ms or message.timestamp,
        is_error=message.stop_reason == "error",
        is_recovery=message.provenance is not None and message.provenance.source_tool == RECOVERY,
        is_cut=message.mark.truncated,
        is_step=message.is_step or any(one.type in _TOOL_CALLS for one in blocks),
        audio_as_voice=message.delivery.audio_as_voice,
        reply_to_id=message.delivery.reply_to_id,
        channel_data=message.delivery.channel_data,
        **_said(blocks),
    )


class _Words(TypedDict):
    text: str
    media_urls: tuple[str, ...]
    lost_files: tuple[str, ...]


def _said(blocks: Sequence[_Block]) -> _Words:
    text, references = split_media("\n\n".join(one.text for one in blocks if one.type == "text"))
    attached = (one.url or one.attachment.url for one in blocks if one.type != "text")
    lost = (one.attachment.label for one in blocks if one.type == "attachment_error")
    return {
        "text": text.strip(),
        "media_urls": (*references, *filter(None, attached)),
        "lost_files": tuple(filter(None, lost)),
    }


def _blocks(content: Json) -> tuple[_Block, ...]:
    if isinstance(content, str):
        return (_Block(type="text", text=content),)
    try:
        pieces = msgspec.convert(content, tuple[Json, ...])
    except msgspec.ValidationError:
        return ()
    read = (_read_block(piece) for piece in pieces)
    return tuple(block for block in read if block is not None)


def _read_block(piece: Json) -> _Block | None:
    try:
        return msgspec.convert(piece, _Block)
    except msgspec.ValidationError:
        return None


def _run_of(message: _Message, asked_by: str) -> str:
    key = message.idempotency_key or ""
    named = message.mark.run_id or key.rpartition(":")[0] or key
    # What OpenClaw itself says, such as an injected message, answers nobody.
    return named or ("" if message.provider == "openclaw" or message.is_question else asked_by)


_ASK_S: Final = 60.0


class _WholeMessage(Wire, frozen=True):
    content: Raw = Raw(b"null")


class _Answer(Wire, frozen=True):
    message: _WholeMessage | None = None


async def read_full_content(
    link: GatewayConnection, session_key: str, message_id: str
) -> Raw | None:
    """All that a message says; None when the gateway does not give it out.

    Raises: AgentUnavailable.
    """
    params: JsonObject = {"sessionKey": session_key, "messageId": message_id}
    try:
        answer = await link.read(_Answer, "chat.message.get", params, timeout_s=_ASK_S)
    except AgentFailed:
        return None
    return None if answer.message is None else answer.message.content
