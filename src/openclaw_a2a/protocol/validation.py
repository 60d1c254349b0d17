"""Decodes parameters into types: fast when they are valid, with every problem when they are not."""

import re
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar, cast

import msgspec

from openclaw_a2a.model.errors import InvalidParams, Problem
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import SchemaValidator, invalid_params
from openclaw_a2a.protocol.common_fields import PATTERN_MESSAGES
from openclaw_a2a.protocol.strict_json import parse_json

T = TypeVar("T")

Rules = Callable[[JsonObject], Iterable[Problem]]
"""Rules that a type cannot express; they must cope with members of any type."""


class ParamsDecoder(Generic[T]):
    """Decodes parameters of one type."""

    def __init__(self, params_type: type[T], rules: Rules | None = None) -> None:
        self._rules = rules
        self._decoder = msgspec.json.Decoder(params_type)
        self._validator = SchemaValidator(params_type, pattern_messages=PATTERN_MESSAGES)

    def decode(self, params: bytes) -> T:
        """The parameters as the type; the rules are not checked.

        Raises:
            InvalidParams: they are of another type.
            ParseFailed: they are not JSON.
        """
        try:
            return self._decoder.decode(params)
        except (ValueError, RecursionError) as failure:
            reason = str(failure)
        raise self.error(params, reason)

    def error(self, params: bytes, reason: str = "something is not valid") -> InvalidParams:
        """The error with every problem; `reason` is the problem when none is found.

        Raises:
            ParseFailed: they are not JSON.
        """
        tree = parse_json(params)
        return invalid_params(self.problems(tree) or [_problem_from_msgspec(reason)])

    def problems(self, tree: Json) -> list[Problem]:
        """Every problem of a JSON value, of its type and of the rules."""
        found = self._validator.problems(tree)
        if self._rules is not None and isinstance(tree, dict):
            found.extend(self._rules(cast(JsonObject, tree)))
        return found


def _problem_from_msgspec(reason: str) -> Problem:
    """An error text such as "Expected `int` - at `$.pageSize`" as a problem."""
    sentence, _, place = reason.partition(" - at `$")
    path = re.sub(r"^\.", "", place.rstrip("`"))
    return Problem(path or "params", f"is not valid: {sentence}")
