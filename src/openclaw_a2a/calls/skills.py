"""Skills that agents declare, and whether an input fits them."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import jsonschema_rs
import msgspec
from msgspec import Meta

from openclaw_a2a.model.ids import Json, JsonObject

Kind = Literal["string", "number", "integer", "boolean", "object", "array", "null"]
PING, LIST_SKILLS = "ping", "list_skills"
BUILT_IN = (PING, LIST_SKILLS)
PING_S = 5.0


class Parameter(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
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
    min_length: Annotated[int, Meta(ge=0)] | None = None
    max_length: Annotated[int, Meta(ge=0)] | None = None
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


class Skill(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Something an agent says it can be called for."""

    name: str
    description: str = ""
    input: dict[str, Parameter] = {}
    output: dict[str, Parameter] = {}
    timeout_seconds: Annotated[float, Meta(ge=0)] | None = None
    side_effects: Json = None
    modes: tuple[str, ...] = ()
    examples: tuple[Json, ...] = ()

    def problems(self, given: JsonObject) -> list[str]:
        """Everything that keeps an input from fitting, in one list."""
        schema: JsonObject = {"type": "object", **_members(self.input)}
        errors = jsonschema_rs.Draft202012Validator(schema).iter_errors(given)
        return list(_told(errors))


def _members(parameters: Mapping[str, Parameter] | None) -> JsonObject:
    known = parameters or {}
    required = [name for name, parameter in known.items() if parameter.required]
    schema: JsonObject = {"properties": {name: one.schema() for name, one in known.items()}}
    return {**schema, "required": required} if required else schema


def _told(errors: Iterator[jsonschema_rs.ValidationError]) -> Iterator[str]:
    for error in errors:
        place = ".".join(map(str, error.instance_path))
        yield f"{place}: {error.message}" if place else error.message


def find_skill(skills: tuple[Skill, ...], name: str) -> Skill | None:
    """The declared skill with this name."""
    return next((skill for skill in skills if skill.name == name), None)


def describe_skills(skills: tuple[Skill, ...]) -> JsonObject:
    """The answer of `list_skills`."""
    declared = [{"name": one.name, "description": one.description} for one in skills]
    built_in = [
        {"name": PING, "description": "Answers at once: is somebody there?"},
        {"name": LIST_SKILLS, "description": "Names and descriptions of the skills."},
    ]
    return {"skills": [*declared, *built_in]}
