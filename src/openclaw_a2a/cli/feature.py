"""Asks a gateway about something it may not have, and tells people what to set then."""

from collections.abc import Generator
from contextlib import contextmanager

import msgspec

from openclaw_a2a.cli.failure import code_of
from openclaw_a2a.cli.operator import Operator, OwnGateway, connect_operator
from openclaw_a2a.model.errors import AgentFailed, NotAllowed

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


def next_step(code: str, step: str) -> dict[str, str]:
    """The details of an error that says what to do."""
    return {"code": code, "nextStep": step}
