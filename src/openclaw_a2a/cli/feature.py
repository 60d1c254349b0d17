"""Asks a gateway about something it may not have, and tells people what to set then."""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from openclaw_a2a.cli.failure import code_of
from openclaw_a2a.cli.operator import Operator, OwnGateway, connect_operator
from openclaw_a2a.cli.output import say, show_table
from openclaw_a2a.cli.target import decode
from openclaw_a2a.model.errors import AgentFailed, InvalidRequest, NotAllowed

MOST = 1000
"""How many are listed at most."""

_Kind = TypeVar("_Kind", bound=msgspec.Struct)
_OFF = frozenset({"route-not-found", "unsupported-operation", "http-404"})


class Feature(msgspec.Struct, frozen=True):
    """What it is called, and what people read when it is off or when one of it is not there."""

    noun: str
    off: str
    turn_on: str
    missing: str
    see: str


@contextmanager
def connect_feature(own: OwnGateway, feature: Feature) -> Generator[Operator]:
    """A client for a feature of a gateway.

    Raises: as `connect_operator`, and NotAllowed when the gateway does not have it.
    """
    with connect_operator(own) as operator:
        try:
            yield operator
        except AgentFailed as error:
            if code_of(error) in _OFF:
                message = f"{feature.noun} are off at {operator.address}"
                details = next_step(feature.off, feature.turn_on)
                raise NotAllowed(message, details=details) from None
            if code_of(error) == feature.missing:
                error.details.setdefault("nextStep", feature.see)
            raise


def fetch(
    operator: Operator, kind: type[_Kind], *path: str, query: dict[str, str] | None = None
) -> tuple[_Kind, bytes]:
    """What the gateway tells, read and as it was sent. Raises: AgentUnavailable, AgentFailed."""
    body = operator.get(*path, query=query)
    return decode(body, kind), body


def list_query(limit: int, **filters: str | None) -> dict[str, str]:
    """What to list, as the gateway takes it. Raises: InvalidRequest."""
    if not 1 <= limit <= MOST:
        raise misused(f"--limit must be from 1 to {MOST}, not {limit}")
    given = {**filters, "limit": str(limit)}
    return {key: value for key, value in given.items() if value}


def show_list(
    rows: Sequence[tuple[str, ...]], heading: tuple[str, ...], *, style: dict[str, str], total: int
) -> None:
    """Data: a table, and how many more there are."""
    show_table([heading, *rows], style=style)
    if total > len(rows):
        say(f"{len(rows)} of {total}; more with --limit", "dim")


def check_prefix(prefix: str, feature: Feature, noun: str) -> None:
    """Make sure that this can be the beginning of an id. Raises: InvalidRequest."""
    if re.search(r"[^\w-]", prefix):
        message = f"{prefix} is no id of {noun}"
        raise InvalidRequest(message, details=next_step("usage", feature.see))


def misused(message: str) -> InvalidRequest:
    """The error for words that do not fit the command."""
    return InvalidRequest(message, details={"code": "usage"})


def next_step(code: str, step: str) -> dict[str, str]:
    """The details of an error that says what to do."""
    return {"code": code, "nextStep": step}
