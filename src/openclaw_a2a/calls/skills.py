"""Whether an input fits a skill that was declared, and what skills an agent has."""

from collections.abc import Iterator

import jsonschema_rs

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.skill import LIST_SKILLS, PING, Skill

PING_S = 5.0


def input_problems(skill: Skill, given: JsonObject) -> list[str]:
    """Everything that keeps an input from fitting, in one list."""
    errors = jsonschema_rs.Draft202012Validator(skill.input_schema()).iter_errors(given)
    return list(_told(errors))


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
