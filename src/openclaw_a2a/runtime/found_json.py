"""JSON that agents wrote somewhere in a text."""

import json
import math
from collections.abc import Iterator

from openclaw_a2a.model.ids import Json, JsonObject


def _no_json(name: str) -> Json:
    raise ValueError(f"{name} is no JSON")


def _number(text: str) -> float:
    """A number that can be written down again."""
    number = float(text)
    return number if math.isfinite(number) else _no_json(text)


_decoder = json.JSONDecoder(parse_constant=_no_json, parse_float=_number)
_MOST_STARTS = 1000


def json_objects(text: str) -> Iterator[JsonObject]:
    """The JSON objects in a text, from left to right; fences and prose do not matter."""
    place = text.find("{")
    for _ in range(_MOST_STARTS):
        if place < 0:
            return
        try:
            value, place = _decoder.raw_decode(text, place)
            yield _whole(value)
            place = text.find("{", place)
        except (ValueError, RecursionError):
            place = text.find("{", place + 1)


def _whole(value: JsonObject) -> JsonObject:
    """The value without half characters, which nobody else could write down."""
    text = json.dumps(value, ensure_ascii=False)
    if not text.isascii() and text.encode("utf-8", "replace") != text.encode(
        "utf-8", "surrogatepass"
    ):
        return json.loads(text.encode("utf-8", "replace"))
    return value
