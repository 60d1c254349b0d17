"""Reads text and JSON objects out of what an agent answered."""

import json
import math
import re
from collections.abc import Iterator

import msgspec

from openclaw_a2a.engine.transcript.assistant_message import OUTPUT_PREFIX
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.task import Task


def last_agent_text(task: Task) -> str:
    """The last text of the agent; structured data counts as its JSON."""
    messages = [one for one in task.artifacts if one.artifact_id.startswith(OUTPUT_PREFIX)]
    return next((text for one in reversed(messages) if (text := parts_text(one.parts))), "")


def status_text(task: Task) -> str:
    """The text of the task's status message."""
    message = task.status.message
    return "" if message is None else parts_text(message.parts).strip()


def parts_text(parts: tuple[Part, ...]) -> str:
    """The joined text of parts; the last structured data when there is no text."""
    texts = [part.text for part in parts if part.text]
    if "".join(texts).strip():
        return "".join(texts)
    data: list[Json] = [part.data for part in parts if part.data is not msgspec.UNSET]
    return json.dumps(data[-1], ensure_ascii=False) if data else ""


def find_json_objects(text: str) -> Iterator[JsonObject]:
    """The JSON objects in a text, from left to right; fences and prose around them do not matter.

    What stands inside an object that is broken, or cut off, is a part of it and not found.
    """
    place = text.find("{")
    for _ in range(_MAX_OBJECTS):
        if place < 0:
            return
        try:
            value, end = _decoder.raw_decode(text, place)
            yield value if "\\u" not in text else _without_surrogates(value)
        except (ValueError, RecursionError):
            end = _end_of_broken(text, place)
        place = text.find("{", end)


def _reject_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def _parse_float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _reject_constant(text)


_decoder = json.JSONDecoder(parse_constant=_reject_constant, parse_float=_parse_float)
_MAX_OBJECTS = 1000
_MEMBER = re.compile(r'\{\s*"')
_STRING_OR_BRACE = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)


def _end_of_broken(text: str, place: int) -> int:
    """The end of the broken object at `place`; right behind the brace if it begins no object."""
    if not _MEMBER.match(text, place):
        return place + 1
    depth = 0
    for found in _STRING_OR_BRACE.finditer(text, place):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if not depth:
            return found.end()
    return len(text)


def _without_surrogates(value: JsonObject) -> JsonObject:
    """The value with lone surrogates replaced: they cannot be encoded as UTF-8.

    They come from escapes only, since the text itself was UTF-8.
    """
    text = json.dumps(value, ensure_ascii=False)
    encoded = text.encode("utf-8", "replace")
    is_whole = text.isascii() or encoded == text.encode("utf-8", "surrogatepass")
    return value if is_whole else json.loads(encoded)
