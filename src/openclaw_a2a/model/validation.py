"""Collects everything wrong with the settings, so that all of it is said at once."""

import difflib
from collections.abc import Iterable
from enum import Enum
from typing import TypeGuard

from openclaw_a2a.model.errors import Problem
from openclaw_a2a.model.ids import Json, JsonObject

_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "a boolean"),
    ((int, float), "a number"),
    (str, "a string"),
    ((list, tuple), "a list"),
    (dict, "an object"),
)


class ProblemCollector:
    """The problems and warnings found so far."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def problem(self, path: str, message: str, keyword: str | None = None) -> None:
        """Note something that keeps the gateway from starting."""
        self.problems.append(Problem(path, message, keyword))

    def warning(self, path: str, message: str, keyword: str | None = None) -> None:
        """Note something that was put right or is not in force."""
        self.warnings.append(Problem(path, message, keyword))

    def unknown_keys(self, path: str, values: JsonObject, known: Iterable[str]) -> None:
        """Note each key that is not known, with the nearest name that is."""
        names = list(known)
        for key in values:
            if key not in names:
                self.problem(join_path(path, key), unknown_key_message(key, names), "unknown-key")

    def as_object(self, path: str, value: Json) -> JsonObject:
        """The value when it is an object; anything else is a problem and reads as empty."""
        if is_object(value):
            return value
        self.problem(path, f"must be an object, not {json_kind(value)}", "type")
        return {}


def is_object(value: Json) -> TypeGuard[JsonObject]:
    """True for a JSON object."""
    return isinstance(value, dict)


def is_list(value: Json) -> TypeGuard[list[Json]]:
    """True for a JSON list."""
    return isinstance(value, list)


def join_path(path: str, key: str) -> str:
    """The path of a member."""
    return f"{path}.{key}" if path else key


def unknown_key_message(key: str, known: list[str]) -> str:
    """The sentence for a key we do not know."""
    return f"is not a setting; {suggest_name(key, known)}"


def suggest_name(key: str, known: list[str]) -> str:
    """Which name was meant, or which there are."""
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]}?"
    return f"known here: {', '.join(sorted(known))}" if known else "there are none here"


def json_kind(value: Json) -> str:
    """The JSON kind of a value in words; never the value, which may be a secret."""
    return next((words for kind, words in _KINDS if isinstance(value, kind)), "null")


def one_of(values: Iterable[str]) -> str:
    """The sentence that lists the values a setting can have."""
    return f"must be one of {', '.join(values)}"


def values_of(kind: type[Enum]) -> list[str]:
    """The values of an enumeration, as the file spells them."""
    return [str(member.value) for member in kind]
