"""The words a program can say when it answers in JSON lines.

"text" or {"delta": "text"}                   more text of the current assistant message
{"messageEnd": true}                          the current assistant message is over
{"reply": "text"}                             the current assistant message, whole
{"reply": {"parts": [...]}}                   the same, with A2A 1.0 parts
{"tool": {"phase", "name", "callId", ...}}    a tool call started, moved on or ended
{"note": "text"}                              what is going on
{"inputRequired": "prompt", "resume": ...}    wait for the caller; the program must end now
{"error": "text"}                             give up; the program must end now
{"report": {...}}                             facts about the run
"""

import base64
from collections.abc import Callable
from typing import Literal, cast

import msgspec
from msgspec import UNSET, UnsetType

from openclaw_a2a.model.agent_event import (
    AgentEvent,
    Failed,
    InputRequired,
    MessageEnd,
    Note,
    Reply,
    Report,
    TextDelta,
    ToolPhase,
    ToolProgress,
)
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import Part

_QUOTED = 200


class ToolLine(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a program says about a tool call."""

    phase: ToolPhase
    name: str
    call_id: str
    payload: Json = None
    is_error: bool = False


class ReplyLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reply that is more than one text."""

    parts: tuple[Part, ...]


class OutputLine(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One line: exactly one of these (`resume` goes with `inputRequired`)."""

    delta: str | UnsetType = UNSET
    message_end: Literal[True] | UnsetType = UNSET
    reply: str | ReplyLine | UnsetType = UNSET
    tool: ToolLine | UnsetType = UNSET
    note: str | UnsetType = UNSET
    input_required: str | UnsetType = UNSET
    resume: Json | UnsetType = UNSET
    error: str | UnsetType = UNSET
    report: JsonObject | UnsetType = UNSET


def parse_line(line: str) -> AgentEvent:
    """What the line says. Raises: AgentFailed, quoting the line, when that is nothing we know."""
    try:
        words = _DECODER.decode(line)
        return TextDelta(words) if isinstance(words, str) else _read_row(words)
    except (ValueError, RecursionError) as error:
        raise AgentFailed(
            f"The program wrote a line that cannot be read ({str(error)[:_QUOTED]}):"
            f" {line.strip()[:_QUOTED]}"
        ) from error


_DECODER = msgspec.json.Decoder(str | OutputLine)


def _read_row(row: OutputLine) -> AgentEvent:
    said = [field.name for field in _FIELDS if getattr(row, field.name) is not UNSET]
    words = [name for name in said if name != "resume"]
    if len(words) != 1:
        known = ", ".join(field.encode_name for field in _FIELDS)
        raise ValueError(f"it must hold exactly one of {known}")
    if "resume" in said and words[0] != "input_required":
        raise ValueError("resume goes with inputRequired only")
    return _EVENTS[words[0]](row)


def _read_reply(row: OutputLine) -> Reply:
    if not isinstance(row.reply, ReplyLine):
        return Reply.of_text(str(row.reply))
    for part in row.reply.parts:
        _check_part(part)
    return Reply(row.reply.parts)


def _check_part(part: Part) -> None:
    contents = (part.text, part.raw, part.url)
    held = sum(content is not None for content in contents) + (part.data is not UNSET)
    if held != 1:
        raise ValueError("a part must hold exactly one of text, raw, url and data")
    if part.raw is not None:
        base64.b64decode(part.raw, validate=True)


def _read_tool(row: OutputLine) -> ToolProgress:
    tool = cast("ToolLine", row.tool)
    return ToolProgress(tool.phase, tool.name, tool.call_id, tool.payload, tool.is_error)


def _read_input_required(row: OutputLine) -> InputRequired:
    resume = None if row.resume is UNSET else row.resume
    return InputRequired(str(row.input_required), resume)


_FIELDS = msgspec.structs.fields(OutputLine)

_EVENTS: dict[str, Callable[[OutputLine], AgentEvent]] = {
    "delta": lambda row: TextDelta(str(row.delta)),
    "message_end": lambda _row: MessageEnd(),
    "reply": _read_reply,
    "tool": _read_tool,
    "note": lambda row: Note(str(row.note)),
    "input_required": _read_input_required,
    "error": lambda row: Failed(str(row.error)),
    "report": lambda row: Report(cast("JsonObject", row.report)),
}
