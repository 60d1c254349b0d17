"""What a finished run of the command said: the answer, or why there is none."""

from collections.abc import Iterator, Sequence
from typing import cast

import msgspec

from openclaw_a2a.agents.openclaw_cli.document import as_object, find_document, payload_holder
from openclaw_a2a.agents.openclaw_cli.media import media_parts
from openclaw_a2a.agents.program_limits import exit_words
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import Part
from openclaw_a2a.runtime.output import clean_text

NO_OUTPUT = "OpenClaw finished without visible output."
_WRONG_STATES = ("error", "timeout", "in_flight")
_KEPT_OF_ERRORS = 2000


class Finished(msgspec.Struct, frozen=True):
    """What is left of a run: how the command ended and what it wrote."""

    exit_code: int
    output: bytes
    errors: bytes


class CliAnswer(msgspec.Struct, frozen=True):
    """An answer. Without parts, `remark` says what there is to say instead."""

    parts: tuple[Part, ...]
    remark: str = NO_OUTPUT
    facts: JsonObject = {}


def read_document(finished: Finished) -> JsonObject:
    """The document in what the command wrote; `answer_of` reads it.

    Raises: AgentFailed with the reason that OpenClaw gave, or that nothing can be read.
    """
    if finished.exit_code != 0:
        raise AgentFailed(failure_text(finished))
    output = finished.output if finished.output.strip() else finished.errors
    if not output.strip():
        raise AgentFailed("OpenClaw ended without any output; run `openclaw doctor` to see why.")
    return find_document(output)


def answer_of(document: JsonObject) -> CliAnswer:
    """The answer in a document. Raises: AgentFailed when the document tells of a failure."""
    reason = _failure(document)
    if reason is not None:
        raise AgentFailed(reason)
    holder = payload_holder(document) or document
    payloads = _payloads(holder)
    meta = as_object(holder.get("meta"))
    parts = tuple(part for payload in payloads for part in _parts(payload))
    if parts and all(payload.get("isError") is True for payload in payloads if _says(payload)):
        raise AgentFailed(_texts(payloads))
    remark = _text(meta.get("stopReason")) or _text(meta.get("warning")) or NO_OUTPUT
    return CliAnswer(parts, remark, _facts(meta))


def failure_text(finished: Finished) -> str:
    """Why a run with another exit code than 0 failed, in OpenClaw's own words where it has any."""
    try:
        document = find_document(finished.output)
    except AgentFailed:
        document = {}
    holder = payload_holder(document) or document
    reason = _failure(document) or _texts(_payloads(holder))
    return reason or _exit_sentence(finished)


def _exit_sentence(finished: Finished) -> str:
    ended = exit_words(finished.exit_code)
    errors = _decode(finished.errors).strip()[-_KEPT_OF_ERRORS:]
    return f"OpenClaw {ended}: {errors}" if errors else f"OpenClaw {ended} and gave no reason."


def _failure(document: JsonObject) -> str | None:
    error, meta = document.get("error"), as_object(document.get("meta"))
    told: tuple[Json, ...] = (
        error,
        as_object(error).get("message"),
        document.get("error_message"),
        document.get("message"),
        *_meta_errors(meta),
        *_meta_errors(as_object(as_object(document.get("result")).get("meta"))),
    )
    reason = next((text for text in map(_text, told) if text), None)
    if reason is None and (document.get("ok") is False or document.get("status") in _WRONG_STATES):
        reason = _wrong_state(document)
    return reason


def _meta_errors(meta: JsonObject) -> tuple[Json, ...]:
    error = meta.get("error")
    return (error, as_object(error).get("message"), meta.get("error_message"))


def _wrong_state(document: JsonObject) -> str:
    holder = payload_holder(document) or {}
    state = _text(document.get("status")) or "failed"
    summary = _texts(_payloads(holder)) or _text(document.get("summary"))
    return f"OpenClaw's run ended as {state}: {summary or 'it gave no reason'}"


def _payloads(holder: JsonObject) -> list[JsonObject]:
    payloads = holder.get("payloads")
    listed = cast("list[Json]", payloads) if isinstance(payloads, list) else []
    return [as_object(one) for one in listed]


def _parts(payload: JsonObject) -> Iterator[Part]:
    text = payload.get("text")
    if isinstance(text, str) and text:
        yield Part(text=clean_text(text))
    yield from media_parts(payload)


def _says(payload: JsonObject) -> bool:
    return any(True for _ in _parts(payload))


def _texts(payloads: Sequence[JsonObject]) -> str:
    return "\n\n".join(text for text in (_text(one.get("text")) for one in payloads) if text)


def _facts(meta: JsonObject) -> JsonObject:
    """What is worth keeping with the task: who answered, at what cost, how long it took."""
    agent = as_object(meta.get("agentMeta"))
    known = {name: agent.get(name) for name in ("provider", "model", "usage", "sessionId")}
    known |= {name: meta.get(name) for name in ("durationMs", "stopReason")}
    return {name: value for name, value in known.items() if value is not None}


def _text(value: Json) -> str:
    return clean_text(value).strip() if isinstance(value, str) else ""


def _decode(content: bytes) -> str:
    return content.decode("utf-8", "replace")
