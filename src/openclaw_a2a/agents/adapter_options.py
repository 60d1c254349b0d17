"""The options of an agent in the settings, checked: every problem is reported, with its path."""

import inspect
import typing
from typing import TypeVar

import msgspec

from openclaw_a2a.agents.adapter import AgentAdapter
from openclaw_a2a.model.errors import GatewayError, Problem, SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import ProblemCollector, SchemaValidator, join_path

_Options = TypeVar("_Options", bound=msgspec.Struct)

_LIST_MESSAGE = 'must be a list of strings, for example ["rev"]'
_BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def read_options(kind: type[_Options], options: JsonObject, *, path: str) -> _Options:
    """The options as a struct. Raises: SettingsInvalid; paths of problems start with `path`."""
    try:
        return msgspec.convert(options, kind)
    except msgspec.ValidationError as error:
        collector = ProblemCollector()
        known = [field.encode_name for field in msgspec.structs.fields(kind)]
        collector.unknown_keys(path, options, known)
        for problem in SchemaValidator(kind).problems(options):
            if problem.keyword != "unknown":  # reported above, with the nearest name
                is_list = problem.message.startswith("must be an array")
                message = _LIST_MESSAGE if is_list else problem.message
                collector.problem(join_path(path, problem.path), message, problem.keyword)
        problems = collector.problems or [Problem(path, str(error))]
    raise _invalid_options(problems)


def build_adapter(kind: type[AgentAdapter], options: JsonObject, *, path: str) -> AgentAdapter:
    """The adapter for an entry of the settings; its options are arguments of its constructor.

    An option is spelled as the argument is (`working_dir`) or as settings are (`workingDir`).

    Raises: SettingsInvalid with every problem found; paths of problems start with `path`.
    """
    parameters = inspect.signature(kind).parameters.values()
    named = [one for one in parameters if one.kind in _BY_KEYWORD]
    spellings = {_camel_case(one.name): one.name for one in named} | {
        one.name: one.name for one in named
    }
    given = {spellings.get(key, key): value for key, value in options.items()}
    collector = ProblemCollector()
    if not any(one.kind is one.VAR_KEYWORD for one in parameters):
        strange = {key: value for key, value in options.items() if key not in spellings}
        collector.unknown_keys(path, strange, sorted(_camel_case(one.name) for one in named))
    for parameter in named:
        if parameter.default is parameter.empty and parameter.name not in given:
            place = join_path(path, _camel_case(parameter.name))
            collector.problem(place, "is missing; set it", "required")
    arguments = _convert(kind, given, path=path, collector=collector)
    if collector.problems:
        raise _invalid_options(collector.problems)
    try:
        return kind(**arguments)
    except (TypeError, ValueError, ImportError, GatewayError) as error:
        problem = Problem(path, str(error) or type(error).__name__, "value")
        raise _invalid_options([problem]) from error


def _invalid_options(problems: list[Problem]) -> SettingsInvalid:
    sentences = "; ".join(f"{problem.path}: {problem.message}" for problem in problems)
    return SettingsInvalid(f"The agent's options are wrong. {sentences}", problems=tuple(problems))


class _NotJsonError(Exception):
    """An argument is annotated with a type that no JSON value has."""


def _convert(
    kind: type[AgentAdapter], given: JsonObject, *, path: str, collector: ProblemCollector
) -> JsonObject:
    """The values as the annotations of the constructor say, as far as they can be checked."""
    try:
        types: dict[str, Json] = typing.get_type_hints(kind.__init__)
    except (NameError, TypeError):  # annotations that only a type checker understands
        types = {}
    converted = dict(given)
    for name, value in given.items():
        try:
            if name in types:
                converted[name] = msgspec.convert(value, types[name], dec_hook=_reject)
        except msgspec.ValidationError as error:
            message = f"has the wrong kind of value: {error}"
            collector.problem(join_path(path, _camel_case(name)), message, "type")
        except (TypeError, _NotJsonError):
            pass  # left to the constructor, which may know better
    return converted


def _reject(kind: type, value: Json) -> Json:
    raise _NotJsonError


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.title() for word in others)
