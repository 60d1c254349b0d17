"""Reads what a run of the command wrote: the answer, or why there is none."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import PurePosixPath

import msgspec

from openclaw_a2a.agents.process.child import describe_exit
from openclaw_a2a.engine.transcript.assistant_message import replace_lone_surrogates
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.validation import as_list, as_object, is_object

NO_OUTPUT = "OpenClaw finished without visible output."
_FAILED_STATES = ("error", "timeout", "in_flight")
_MAX_ERROR_CHARACTERS = 2000
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b{}]*(?:\x07|\x1b\\))")
_QUOTED = 200
_OPENING = re.compile(r'\{\s*["}]')
# Characters that may be scanned, at least: answers are found, hostile output costs bounded time.
_BASE_WORK = 4_000_000
_WORK_PER_CHARACTER = 4
_LINE_COUNT_SHARE = 50
_TOO_DEEP_WORK = 50_000  # the cost of an attempt that ends because objects are nested too deeply

_decoder = json.JSONDecoder(strict=False)


class CommandOutput(msgspec.Struct, frozen=True):
    """What is known of a finished run: how the command ended and what it wrote."""

    exit_code: int
    output: bytes
    errors: bytes


class CliAnswer(msgspec.Struct, frozen=True):
    """An answer. Without parts, `remark` is the text to show instead."""

    parts: tuple[Part, ...]
    remark: str = NO_OUTPUT
    facts: JsonObject = {}


def read_document(output: CommandOutput) -> JsonObject:
    """The JSON document in what the command wrote; `parse_answer` reads it.

    Raises: AgentFailed with the reason that OpenClaw gave, or because there is no document.
    """
    if output.exit_code != 0:
        raise AgentFailed(failure_reason(output))
    content = output.output if output.output.strip() else output.errors
    if not content.strip():
        raise AgentFailed("OpenClaw ended without any output; run `openclaw doctor` to see why.")
    return find_document(content)


def parse_answer(document: JsonObject) -> CliAnswer:
    """The answer in a document. Raises: AgentFailed when the document reports a failure."""
    reason = _failure(document)
    if reason is not None:
        raise AgentFailed(reason)
    holder = payload_holder(document) or document
    payloads = _payloads(holder)
    found = [(payload, part) for payload in payloads for part in _parts(payload)]
    if found and all(payload.get("isError") is True for payload, _ in found):
        raise AgentFailed(_texts(payloads))
    meta = as_object(holder.get("meta"))
    agent = as_object(meta.get("agentMeta"))
    # Kept with the task: which model answered, at what cost, in what time.
    facts = {name: agent.get(name) for name in ("provider", "model", "usage", "sessionId")}
    facts |= {name: meta.get(name) for name in ("durationMs", "stopReason")}
    return CliAnswer(
        parts=tuple(part for _, part in found),
        remark=_text(meta.get("stopReason")) or _text(meta.get("warning")) or NO_OUTPUT,
        facts={name: value for name, value in facts.items() if value is not None},
    )


def failure_reason(output: CommandOutput) -> str:
    """Why a run with an exit code other than 0 failed; OpenClaw's own message if it has one."""
    try:
        document = find_document(output.output)
    except AgentFailed:
        document = {}
    if reason := _failure(document) or _texts(_payloads(payload_holder(document) or document)):
        return reason
    ended = describe_exit(output.exit_code)
    errors = output.errors.decode("utf-8", "replace").strip()[-_MAX_ERROR_CHARACTERS:]
    return f"OpenClaw {ended}: {errors}" if errors else f"OpenClaw {ended} and gave no reason."


def _failure(document: JsonObject) -> str | None:
    result = as_object(document.get("result"))
    metas = (as_object(holder.get("meta")) for holder in (document, result))
    candidates: list[Json] = []
    for members in (document, *metas):
        error = members.get("error")
        candidates += [error, as_object(error).get("message"), members.get("error_message")]
    candidates.insert(3, document.get("message"))  # after the document's own errors
    reason = next((text for text in map(_text, candidates) if text), None)
    if reason is None and (document.get("ok") is False or document.get("status") in _FAILED_STATES):
        state = _text(document.get("status")) or "failed"
        summary = _texts(_payloads(payload_holder(document) or {}))
        summary = summary or _text(document.get("summary")) or "it gave no reason"
        return f"OpenClaw's run ended as {state}: {summary}"
    return reason


def _payloads(holder: JsonObject) -> list[JsonObject]:
    return [as_object(one) for one in as_list(holder.get("payloads"))]


def _parts(payload: JsonObject) -> Iterator[Part]:
    """The text, then a file for each of `mediaUrls` and `mediaUrl`; one address counts once."""
    text = payload.get("text")
    if isinstance(text, str) and text:
        yield Part(text=replace_lone_surrogates(text))
    urls: list[Json] = [*as_list(payload.get("mediaUrls")), payload.get("mediaUrl")]
    for url in dict.fromkeys(one for one in urls if isinstance(one, str) and one.strip()):
        safe = replace_lone_surrogates(url)
        yield Part.of_url(safe, media_type=media_type_of(safe))


def _texts(payloads: Sequence[JsonObject]) -> str:
    return "\n\n".join(filter(None, (_text(one.get("text")) for one in payloads)))


def _text(value: Json) -> str:
    return replace_lone_surrogates(value).strip() if isinstance(value, str) else ""


# -------------------------------------------------------------------- the JSON document


def find_document(output: bytes) -> JsonObject:
    """The answer's document: the whole text, else the first object with payloads, else the first.

    Raises: AgentFailed when there is none.
    """
    text = _ANSI.sub("", output.decode("utf-8-sig", "replace")).strip()
    with suppress(ValueError, RecursionError):
        whole: Json = _decoder.decode(text)
        if is_object(whole):
            return whole
    first: JsonObject | None = None
    for found in _find_objects(text):
        if payload_holder(found) is not None:
            return found
        first = first or found
    if first is None:
        raise AgentFailed(f"OpenClaw's output could not be read as JSON: {text[:_QUOTED]!r}")
    return first


def payload_holder(document: JsonObject) -> JsonObject | None:
    """The object with `payloads`: the document, or its `result` when a gateway ran the turn."""
    if "payloads" in document:
        return document
    result = as_object(document.get("result"))
    return result if result and "payloads" in result else None


def _find_objects(text: str) -> Iterator[JsonObject]:
    """The objects in the text, in the order in which they begin.

    Inside an object that was cut off only one with payloads counts. The work is bounded: many
    braces that open and never close would each be read to the end of the text.
    """
    work = _BASE_WORK + _WORK_PER_CHARACTER * len(text)
    is_cut_off = False
    for opening in _OPENING.finditer(text):
        start = opening.start()
        if work <= 0:
            break
        try:
            found, end = _decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            is_unfinished = error.pos >= len(text) or error.msg.startswith("Unterminated string")
            is_cut_off = is_cut_off or is_unfinished
            end = len(text) if is_unfinished else error.pos
            work -= end - start + end // _LINE_COUNT_SHARE  # the decoder counts lines, too
        except (ValueError, RecursionError):
            work -= _TOO_DEEP_WORK
        else:
            work -= end - start
            if not is_cut_off or payload_holder(found) is not None:
                yield found


# -------------------------------------------------------------------- media


_BY_EXTENSION = {
    "gif": "image/gif",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "pdf": "application/pdf",
    "png": "image/png",
    "svg": "image/svg+xml",
    "wav": "audio/wav",
    "webm": "video/webm",
    "webp": "image/webp",
}
_UNKNOWN_TYPE = "application/octet-stream"


def media_type_of(url: str) -> str:
    """The media type by the extension of the address, whatever its case, query or fragment."""
    bare = url.partition("#")[0].partition("?")[0]
    return _BY_EXTENSION.get(PurePosixPath(bare).suffix[1:].lower(), _UNKNOWN_TYPE)
