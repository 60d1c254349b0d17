"""What an agent answered to a call: output, confidence, assumptions and caveats."""

import json
import math
from typing import cast

import msgspec

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.runtime.found_json import json_objects

PLAIN = 0.5
"""The confidence of an answer that tells none."""

BROKEN = 0.3
"""The confidence of an answer that looks like JSON and is none."""


class Reading(msgspec.Struct, frozen=True):
    """An answer, taken apart."""

    output: Json
    confidence: float = PLAIN
    assumptions: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()


def read_answer(text: str) -> Reading | None:
    """The answer in an agent's last text; None when there is none."""
    if not text.strip():
        return None
    found = next(json_objects(text), None)
    if found is None:
        return Reading(text, BROKEN if "{" in text else PLAIN)
    output = _output(found)
    return Reading(
        output=output,
        confidence=clamp_confidence(_fact(found, output, "confidence")),
        assumptions=_texts(_fact(found, output, "assumptions")),
        caveats=_texts(_fact(found, output, "caveats")),
    )


def clamp_confidence(value: Json) -> float:
    """The value within 0 and 1; what is no number is undecided."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and not math.isfinite(value)):
        return PLAIN
    return float(min(1, max(0, value)))


def _output(found: JsonObject) -> Json:
    for key in ("output", "result"):
        if key in found:
            return found[key]
    return found


def _fact(found: JsonObject, output: Json, key: str) -> Json:
    if key in found:
        return found[key]
    return cast("JsonObject", output).get(key) if isinstance(output, dict) else None


def _texts(value: Json) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    items = cast("list[Json]", value) if isinstance(value, list) else []
    return tuple(item if isinstance(item, str) else json.dumps(item) for item in items)
