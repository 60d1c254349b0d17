"""The options of an agent, checked: every problem is found at once, with its path."""

import inspect
import typing
from typing import TypeVar

import jsonschema_rs
import msgspec

from openclaw_a2a.agents.adapter import AgentAdapter
from openclaw_a2a.model.errors import GatewayError, Problem, SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import join_path, unknown_key_message

_Options = TypeVar("_Options", bound=msgspec.Struct)


def read_options(kind: type[_Options], options: JsonObject, *, path: str) -> _Options:
    """The options as a struct. Raises: SettingsInvalid; paths of problems start with `path`."""
    try:
        return msgspec.convert(options, kind)
    except msgspec.ValidationError as error:
        problems = _problems(kind, options, path) or (Problem(path, str(error)),)
    raise invalid_options(problems)


def invalid_options(problems: tuple[Problem, ...]) -> SettingsInvalid:
    """The error that lists every problem of an agent's options."""
    sentences = "; ".join(f"{problem.path}: {problem.message}" for problem in problems)
    return SettingsInvalid(f"The agent's options are wrong. {sentences}", problems=problems)


def _problems(kind: type[msgspec.Struct], options: JsonObject, path: str) -> tuple[Problem, ...]:
    fields = msgspec.structs.fields(kind)
    known = [field.encode_name for field in fields]
    unknown = [
        Problem(join_path(path, key), unknown_key_message(key, known), "unknown-key")
        for key in options
        if key not in known
    ]
    missing = [
        Problem(join_path(path, field.encode_name), "is missing; set it", "required")
        for field in fields
        if field.required and field.encode_name not in options
    ]
    return (*unknown, *missing, *_wrong_values(kind, options, path))


def _wrong_values(kind: type[msgspec.Struct], options: JsonObject, path: str) -> list[Problem]:
    # The value is never quoted: it may be a secret.
    validator = jsonschema_rs.validator_for(msgspec.json.schema(kind), mask="the value")
    return [
        Problem(_place(path, error.instance_path), _sentence(error), error.kind.name)
        for error in validator.iter_errors(options)
        if error.instance_path
    ]


def _sentence(error: jsonschema_rs.ValidationError) -> str:
    if error.kind.name == "type" and getattr(error.kind, "types", None) == ["array"]:
        return 'must be a list of strings, for example ["rev"]'
    return error.message


def _place(path: str, steps: list[Json]) -> str:
    for step in steps:
        path = f"{path}[{step}]" if isinstance(step, int) else join_path(path, step)
    return path


def build_adapter(kind: type[AgentAdapter], options: JsonObject, *, path: str) -> AgentAdapter:
    """The adapter for an entry of the settings.

    An option is spelled as the argument is (`working_dir`) or as settings are (`workingDir`).

    Raises: SettingsInvalid with every problem found; paths of problems start with `path`.
    """
    arguments = _Arguments(kind, path)
    given = {arguments.name_of(key): value for key, value in options.items()}
    problems = [*arguments.unknown(options), *arguments.missing(given), *arguments.wrong(given)]
    if problems:
        raise invalid_options(tuple(problems))
    try:
        return kind(**{name: arguments.converted(name, value) for name, value in given.items()})
    except (TypeError, ValueError, ImportError, GatewayError) as error:
        raise invalid_options(
            (Problem(path, str(error) or type(error).__name__, "value"),)
        ) from error


class _Arguments:
    """What a constructor takes by keyword."""

    def __init__(self, kind: type[AgentAdapter], path: str) -> None:
        parameters = inspect.signature(kind).parameters.values()
        by_keyword = [one for one in parameters if one.kind in _BY_KEYWORD]
        self._path = path
        self._takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
        self._required = [one.name for one in by_keyword if one.default is one.empty]
        self._types = _types(kind)
        self._names = {_setting(one.name): one.name for one in by_keyword}
        self._names.update({one.name: one.name for one in by_keyword})

    def name_of(self, key: str) -> str:
        return self._names.get(key, key)

    def unknown(self, options: JsonObject) -> list[Problem]:
        known = sorted({_setting(name) for name in self._names.values()})
        strange = [] if self._takes_any else [key for key in options if key not in self._names]
        return [
            Problem(join_path(self._path, key), unknown_key_message(key, known), "unknown-key")
            for key in strange
        ]

    def missing(self, given: JsonObject) -> list[Problem]:
        return [
            Problem(join_path(self._path, _setting(name)), "is missing; set it", "required")
            for name in self._required
            if name not in given
        ]

    def wrong(self, given: JsonObject) -> list[Problem]:
        problems: list[Problem] = []
        for name, value in given.items():
            try:
                self.converted(name, value)
            except msgspec.ValidationError as error:
                sentence = f"has the wrong kind of value: {error}"
                problems.append(Problem(join_path(self._path, _setting(name)), sentence, "type"))
        return problems

    def converted(self, name: str, value: Json) -> Json:
        """The value as its annotation wants it. Raises: msgspec.ValidationError."""
        if name not in self._types:
            return value
        try:
            return msgspec.convert(value, self._types[name], dec_hook=_not_checked)
        except msgspec.ValidationError:
            raise
        except (TypeError, _NotJsonError):  # the constructor may know better
            return value


class _NotJsonError(Exception):
    """An argument is annotated with what no JSON value is."""


def _not_checked(kind: type, value: Json) -> Json:
    raise _NotJsonError


_BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _setting(name: str) -> str:
    """The name of an argument as settings spell it."""
    first, *others = name.split("_")
    return first + "".join(word.title() for word in others)


def _types(kind: type[AgentAdapter]) -> dict[str, Json]:
    try:
        return typing.get_type_hints(kind.__init__)
    except (NameError, TypeError):  # annotations that only a type checker understands
        return {}
