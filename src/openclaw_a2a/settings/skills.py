"""The skills that agents declare: read strictly, because callers are held to them."""

import math
import re
from collections.abc import Mapping

import msgspec

from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.skill import BUILT_IN, SKILL_NAME, Parameter, Skill
from openclaw_a2a.settings.report import Report, join
from openclaw_a2a.settings.strict import read_list


def read_skills(path: str, value: Json, *, report: Report) -> tuple[Skill, ...]:
    """The skills that can be used; what is wrong with any of them is a problem."""
    skills: dict[str, Skill] = {}
    for place, found in read_list(Skill, path, value=value, report=report):
        skill = msgspec.structs.replace(found, name=found.name.strip())
        _check_parameters(join(place, "input"), skill.input, report)
        _check_parameters(join(place, "output"), skill.output, report)
        if skill.name in BUILT_IN:
            message = f"{skill.name} is answered by the gateway itself; this one is never asked"
            report.warning(place, f"{message}, remove it", "name")
        elif _is_name(join(place, "name"), skill.name, skills, report):
            skills[skill.name] = skill
    return tuple(skills.values())


def _is_name(path: str, name: str, others: Mapping[str, Skill], report: Report) -> bool:
    if not re.fullmatch(SKILL_NAME, name):
        message = "a skill's name is 1 to 128 of a-z A-Z 0-9 _ -; call it something else"
        report.problem(path, message, "name")
    elif name in others:
        report.problem(path, f"{name} is declared twice; remove one or rename it", "name")
    else:
        return True
    return False


def _check_parameters(
    path: str, parameters: Mapping[str, Parameter] | None, report: Report
) -> None:
    for name, parameter in (parameters or {}).items():
        _check_parameter(join(path, name), parameter, report)


def _check_parameter(path: str, parameter: Parameter, report: Report) -> None:
    """What the types do not tell by themselves, also of what is inside."""
    for key, bound in (("minimum", parameter.minimum), ("maximum", parameter.maximum)):
        if bound is not None and not math.isfinite(bound):
            report.problem(join(path, key), "must be a number; leave it out for none", "type")
    if parameter.enum == ():
        report.problem(join(path, "enum"), "allows nothing; name a value or leave it out", "enum")
    if parameter.pattern is not None:
        _check_pattern(join(path, "pattern"), parameter.pattern, report)
    if parameter.items is not None:
        _check_parameter(join(path, "items"), parameter.items, report)
    _check_parameters(join(path, "properties"), parameter.properties, report)


def _check_pattern(path: str, pattern: str, report: Report) -> None:
    # Inputs are checked by this library, so its word counts; few settings need it loaded.
    import jsonschema_rs

    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern})
    except jsonschema_rs.ValidationError:
        message = "is no regular expression; correct it, as in ^[a-z]+$"
        report.problem(path, message, "pattern")
