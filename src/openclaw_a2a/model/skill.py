"""Skills that agents declare for calls between agents, and name patterns of settings."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from openclaw_a2a.model.ids import Json, JsonObject

PING, LIST_SKILLS = "ping", "list_skills"
BUILT_IN_SKILLS = (PING, LIST_SKILLS)
"""Skills that every agent has without declaring them."""

SKILL_NAME = r"[a-zA-Z0-9_-]{1,128}"

_MOST = 2**31 - 1
Kind = Literal["string", "number", "integer", "boolean", "object", "array", "null"]
Length = Annotated[int, Meta(ge=0, le=_MOST)]
Mode = Literal["execute", "critique"]


class Declared(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """Base of declarations: frozen, camelCase in settings, no unknown keys."""


class Parameter(Declared, frozen=True):
    """One parameter of a skill."""

    type: Kind
    description: str | None = None
    required: bool = False
    enum: tuple[Json, ...] | None = None
    default: Json | msgspec.UnsetType = msgspec.UNSET
    properties: "dict[str, Parameter] | None" = None
    items: "Parameter | None" = None
    minimum: float | None = None
    maximum: float | None = None
    min_length: Length | None = None
    max_length: Length | None = None
    pattern: str | None = None

    def schema(self) -> JsonObject:
        """As JSON Schema."""
        plain: JsonObject = {
            "type": self.type,
            "enum": None if self.enum is None else list(self.enum),
            "items": None if self.items is None else self.items.schema(),
            "minimum": self.minimum,
            "maximum": self.maximum,
            "minLength": self.min_length,
            "maxLength": self.max_length,
            "pattern": self.pattern,
        }
        schema = {key: value for key, value in plain.items() if value is not None}
        return {**schema, **_members(self.properties)} if self.properties else schema


class Skill(Declared, frozen=True):
    """A skill that an agent declares."""

    name: str
    description: str = ""
    input: dict[str, Parameter] = {}
    output: dict[str, Parameter] = {}
    timeout_seconds: Annotated[float, Meta(ge=0, le=_MOST)] | None = None
    side_effects: Json = None
    modes: tuple[Mode, ...] = ()
    examples: tuple[Json, ...] = ()

    def input_schema(self) -> JsonObject:
        """The JSON Schema of the input; additional parameters are allowed."""
        return {"type": "object", **_members(self.input)}


def _members(parameters: Mapping[str, Parameter] | None) -> JsonObject:
    known = parameters or {}
    required = [name for name, parameter in known.items() if parameter.required]
    schema: JsonObject = {"properties": {name: one.schema() for name, one in known.items()}}
    return {**schema, "required": required} if required else schema


def matches_any(patterns: tuple[str, ...], name: str) -> bool:
    """True when a name matches one of the patterns; case does not matter."""
    lowered = name.lower()
    return any(_pattern(one.strip().lower()).fullmatch(lowered) for one in patterns)


@lru_cache(maxsize=256)
def _pattern(glob: str) -> re.Pattern[str]:
    """Only `*` is special, unlike in fnmatch."""
    return re.compile(".*".join(map(re.escape, glob.split("*"))), re.DOTALL)
