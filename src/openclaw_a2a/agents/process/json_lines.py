"""The lines of a program that answers in JSON lines (`output: "jsonl"`).

"text" or {"delta": "text"}                   more text of the current assistant message
{"messageEnd": true}                          the current assistant message is over
{"reply": "text"}                             the current assistant message, whole
{"reply": {"parts": [...]}}                   the same, with A2A 1.0 parts
{"tool": {"phase", "name", "callId", ...}}    a tool call started, made progress or ended
{"note": "text"}                              progress, for the caller to see
{"inputRequired": "prompt", "resume": ...}    wait for the caller; the program must end now
{"error": "text"}                             the turn failed; the program must end now
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
    """The state of a tool call."""

    phase: ToolPhase
    name: str
    call_id: str
    payload: Json = None
    is_error: bool = False


class ReplyLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reply with parts."""

    parts: tuple[Part, ...]


class OutputLine(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One line: exactly one of these members (`resume` only with `inputRequired`)."""

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
    """The event of a line. Raises: AgentFailed, quoting the line, when it is invalid."""
    try:
        content = _DECODER.decode(line)
        return TextDelta(content) if isinstance(content, str) else _line_event(content)
    except (ValueError, RecursionError) as error:
        raise AgentFailed(
            f"The program wrote a line that cannot be read ({str(error)[:_QUOTED]}):"
            f" {line.strip()[:_QUOTED]}"
        ) from error


_DECODER = msgspec.json.Decoder(str | OutputLine)


def _line_event(line: OutputLine) -> AgentEvent:
    members = [field.name for field in _FIELDS if getattr(line, field.name) is not UNSET]
    kinds = [name for name in members if name != "resume"]
    if len(kinds) != 1:
        known = ", ".join(field.encode_name for field in _FIELDS)
        raise ValueError(f"it must hold exactly one of {known}")
    if "resume" in members and kinds[0] != "input_required":
        raise ValueError("resume goes with inputRequired only")
    return _EVENTS[kinds[0]](line)


def _reply_event(line: OutputLine) -> Reply:
    if not isinstance(line.reply, ReplyLine):
        return Reply.of_text(str(line.reply))
    for part in line.reply.parts:
        _check_part(part)
    return Reply(line.reply.parts)


def _check_part(part: Part) -> None:
    contents = (part.text, part.raw, part.url)
    held = sum(content is not None for content in contents) + (part.data is not UNSET)
    if held != 1:
        raise ValueError("a part must hold exactly one of text, raw, url and data")
    if part.raw is not None:
        base64.b64decode(part.raw, validate=True)


def _tool_event(line: OutputLine) -> ToolProgress:
    tool = cast("ToolLine", line.tool)
    return ToolProgress(tool.phase, tool.name, tool.call_id, tool.payload, tool.is_error)


def _input_required_event(line: OutputLine) -> InputRequired:
    resume = None if line.resume is UNSET else line.resume
    return InputRequired(str(line.input_required), resume)


_FIELDS = msgspec.structs.fields(OutputLine)

_EVENTS: dict[str, Callable[[OutputLine], AgentEvent]] = {
    "delta": lambda line: TextDelta(str(line.delta)),
    "message_end": lambda _line: MessageEnd(),
    "reply": _reply_event,
    "tool": _tool_event,
    "note": lambda line: Note(str(line.note)),
    "input_required": _input_required_event,
    "error": lambda line: Failed(str(line.error)),
    "report": lambda line: Report(cast("JsonObject", line.report)),
}
