"""The tree of errors: drawn completely, every code by itself, every sentence for people."""

import re
from collections.abc import Iterator

import pytest

from openclaw_a2a.model import errors
from openclaw_a2a.model.errors import (
    AgentError,
    AgentFailed,
    CallerError,
    Draining,
    GatewayError,
    GatewayFault,
    InvalidParams,
    InvalidRequest,
    Overloaded,
    Problem,
    SettingsInvalid,
)

ROOTS = {GatewayError, CallerError, AgentError, GatewayFault}
"""Kinds of error; what is raised is one of their members."""


def below(root: type[GatewayError]) -> Iterator[type[GatewayError]]:
    """The error and everything under it that the model defines."""
    if root.__module__ == errors.__name__:
        yield root
    for child in root.__subclasses__():
        yield from below(child)


ALL = sorted(below(GatewayError), key=lambda error: error.__name__)


def drawn() -> dict[str, str]:
    """The errors in the docstring's tree, each with the kind that it stands below."""
    found, kind = {"GatewayError": "GatewayError"}, "GatewayError"
    for line in (errors.__doc__ or "").splitlines()[3:]:
        indent = len(line) - len(line.lstrip())
        names = line.split()[:1] if indent == 2 else line.split()
        kind = names[0] if indent == 2 else kind
        found.update(dict.fromkeys(names, kind))
    return found


def test_docstring_lists_every_error_and_nothing_else() -> None:
    assert set(drawn()) == {error.__name__ for error in ALL}


def test_docstring_lists_every_error_below_its_base_class() -> None:
    for name, kind in drawn().items():
        assert issubclass(getattr(errors, name), getattr(errors, kind)), name


def test_codes_are_kebab_case() -> None:
    assert [error.code for error in ALL if not re.fullmatch(r"[a-z]+(-[a-z]+)*", error.code)] == []


def test_no_two_errors_that_are_raised_share_a_code() -> None:
    raised = [error for error in ALL if error not in ROOTS]
    assert len({error.code for error in raised}) == len(raised)


@pytest.mark.parametrize(
    ("kind", "usual"), [(CallerError, InvalidRequest), (AgentError, AgentFailed)]
)
def test_base_class_of_errors_has_the_code_of_its_most_general_error(
    kind: type[GatewayError], usual: type[GatewayError]
) -> None:
    assert kind.code == usual.code


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.__name__)
def test_error_keeps_its_sentence_and_has_details(error: type[GatewayError]) -> None:
    raised = error("task t-1 is gone; start a new one")
    assert str(raised) == raised.message == "task t-1 is gone; start a new one"
    assert isinstance(raised.details, dict)


def test_overload_has_a_retry_delay() -> None:
    assert Overloaded("full", retry_after_s=7).details == {"retryAfterSeconds": 7}
    assert isinstance(Draining("stopping", retry_after_s=5), Overloaded)


@pytest.mark.parametrize("error", [InvalidParams, SettingsInvalid])
def test_invalid_input_lists_every_problem(
    error: type[InvalidParams] | type[SettingsInvalid],
) -> None:
    problems = (Problem("a", "is missing"), Problem("b.c", "is no number", "type"))
    assert error("two problems", problems=problems).problems == problems
