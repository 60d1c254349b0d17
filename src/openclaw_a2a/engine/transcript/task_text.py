"""What an agent said last in a task, as text."""

import json
import math
import re
from collections.abc import Iterator

import msgspec

from openclaw_a2a.engine.transcript.content import OUTPUT_PREFIX
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.task import Task


def last_agent_text(task: Task) -> str:
    """The last text of the agent; structured data counts as its JSON."""
    spoken = [one for one in task.artifacts if one.artifact_id.startswith(OUTPUT_PREFIX)]
    return next((text for one in reversed(spoken) if (text := parts_text(one.parts))), "")


def status_text(task: Task) -> str:
    """What the task's status says."""
    message = task.status.message
    return "" if message is None else parts_text(message.parts).strip()


def parts_text(parts: tuple[Part, ...]) -> str:
    """The text of parts that belong together; data only where there is no text."""
    texts = [part.text for part in parts if part.text]
    if "".join(texts).strip():
        return "".join(texts)
    data: list[Json] = [part.data for part in parts if part.data is not msgspec.UNSET]
    return json.dumps(data[-1], ensure_ascii=False) if data else ""


def _no_json(name: str) -> Json:
    raise ValueError(f"{name} is no JSON")


def _number(text: str) -> float:
    """A number that can be written down again."""
    number = float(text)
    return number if math.isfinite(number) else _no_json(text)


_decoder = json.JSONDecoder(parse_constant=_no_json, parse_float=_number)
_MOST_STARTS = 1000
_MEMBER = re.compile(r'\{\s*"')
_STRING_OR_BRACE = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)


def find_json_objects(text: str) -> Iterator[JsonObject]:
    """The JSON objects in a text, from left to right; fences and prose do not matter.

    What stands inside an object that is broken, or cut off, is a part of it and not found.
    """
    place = text.find("{")
    for _ in range(_MOST_STARTS):
        if place < 0:
            return
        try:
            value, end = _decoder.raw_decode(text, place)
            yield _whole(value)
        except (ValueError, RecursionError):
            end = _after_broken(text, place)
        place = text.find("{", end)


def _after_broken(text: str, place: int) -> int:
    """Where the object that begins here ends; right behind a brace that begins none."""
    if not _MEMBER.match(text, place):
        return place + 1
    depth = 0
    for found in _STRING_OR_BRACE.finditer(text, place):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if not depth:
            return found.end()
    return len(text)


def _whole(value: JsonObject) -> JsonObject:
    """The value without half characters, which nobody else could write down."""
    text = json.dumps(value, ensure_ascii=False)
    if not text.isascii() and text.encode("utf-8", "replace") != text.encode(
        "utf-8", "surrogatepass"
    ):
        return json.loads(text.encode("utf-8", "replace"))
    return value
