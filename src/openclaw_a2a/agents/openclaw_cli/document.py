"""Finding the one JSON document in what a program wrote, whatever stands around it."""

import json
import re
from collections.abc import Iterator
from typing import cast

from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import Json, JsonObject

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b{}]*(?:\x07|\x1b\\))")
_QUOTED = 200
_OPENING = re.compile(r'\{\s*["}]')
_SPARE_WORK = 4_000_000
_WORK_PER_CHARACTER = 4
_COUNTED_AT_ONCE = 50
_TOO_DEEP = 50_000
"""What it costs to find out that objects are nested too deeply."""

_decoder = json.JSONDecoder(strict=False)


def find_document(output: bytes) -> JsonObject:
    """The answer's document: the whole text, else the first object with payloads, else the first.

    Raises: AgentFailed when there is none.
    """
    text = _ANSI.sub("", output.decode("utf-8-sig", "replace")).strip()
    whole = _decode_whole(text)
    if whole is not None:
        return whole
    first: JsonObject | None = None
    for found in _objects(text):
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


def as_object(value: Json) -> JsonObject:
    """The value when it is an object, else an empty one."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _decode_whole(text: str) -> JsonObject | None:
    try:
        value: Json = _decoder.decode(text)
    except (ValueError, RecursionError):
        return None
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _objects(text: str) -> Iterator[JsonObject]:
    """What decodes as an object, by where it begins.

    Inside an object that was cut off only one with payloads counts. The work is bounded: braces
    that open again and again and never close would else be read again and again to the end.
    """
    work = _SPARE_WORK + _WORK_PER_CHARACTER * len(text)
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
            work -= end - start + end // _COUNTED_AT_ONCE  # its line is counted from the start
        except (ValueError, RecursionError):
            work -= _TOO_DEEP
        else:
            work -= end - start
            if not is_cut_off or payload_holder(found) is not None:
                yield found
