"""Which of a function's parameters are given the message's text, and which the turn."""

import functools
import inspect
from collections.abc import Callable

import msgspec

from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.turn import Turn


class Arguments(msgspec.Struct, frozen=True):
    """What to call a function with; True stands for the turn, False for the text."""

    positional: tuple[bool, ...]
    keywords: dict[str, bool]

    def bind(self, function: Callable[..., Json], turn: Turn) -> Callable[[], Json]:
        """The function, ready to be called for this turn."""
        positional = (turn if is_turn else turn.body for is_turn in self.positional)
        keywords = {name: turn if is_turn else turn.body for name, is_turn in self.keywords.items()}
        return functools.partial(function, *positional, **keywords)


def plan_arguments(function: Callable[..., Json]) -> Arguments:
    """How to call the function: with the text, with the turn, or with both.

    The turn goes to the parameter that is annotated `Turn` or named `turn`, else to the second
    one. A parameter with a default keeps it, unless it asks for the turn.

    Raises: SettingsInvalid when the function wants something else.
    """
    try:
        parameters = tuple(inspect.signature(function).parameters.values())
    except ValueError:
        return Arguments((False,), {})  # built in, without a signature
    required = [one for one in parameters if _is_required(one)]
    if not required and any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return Arguments((False,), {})
    wants = {one.name: _wants_turn(one) for one in required}
    if len(required) == 2 and not any(wants.values()):
        wants[required[1].name] = True
    if len(set(wants.values())) < len(wants):
        raise _wrong_parameters(function, required)
    by_position = [one.name for one in required if one.kind is not one.KEYWORD_ONLY]
    keywords = {name: is_turn for name, is_turn in wants.items() if name not in by_position}
    if True not in wants.values():
        keywords |= {one.name: True for one in parameters if _offers_turn(one)}
    return Arguments(tuple(wants[name] for name in by_position), keywords)


def _is_required(parameter: inspect.Parameter) -> bool:
    is_many = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not is_many


def _wants_turn(parameter: inspect.Parameter) -> bool:
    return parameter.name == "turn" or parameter.annotation in (Turn, "Turn")


def _offers_turn(parameter: inspect.Parameter) -> bool:
    by_name = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    return by_name and not _is_required(parameter) and _wants_turn(parameter)


def _wrong_parameters(
    function: Callable[..., Json], required: list[inspect.Parameter]
) -> SettingsInvalid:
    name = getattr(function, "__name__", type(function).__name__)
    names = ", ".join(one.name for one in required)
    return SettingsInvalid(
        f"The function {name} needs {names}; an agent's function is given the text, the turn,"
        " or both, so give every other parameter a default."
    )
