"""Asks a gateway about objectives, and tells people what to set when it has none."""

import re
from collections.abc import Generator
from contextlib import contextmanager

from openclaw_a2a.cli.failure import code_of
from openclaw_a2a.cli.objectives_shown import ObjectiveList, ShownObjective
from openclaw_a2a.cli.operator import Operator, OwnGateway, complete, connect_operator
from openclaw_a2a.cli.target import decode
from openclaw_a2a.model.errors import AgentFailed, InvalidRequest, NotAllowed

SEE = "See the objectives there are: openclaw-a2a objectives list"
_MOST = 1000
_OFF = frozenset({"route-not-found", "unsupported-operation", "http-404"})
_TURN_ON = "Set opt.enabled to true, then start the gateway again."
_PREFIX = "obj-"


@contextmanager
def connect_objectives(own: OwnGateway) -> Generator[Operator]:
    """A client for the objectives of a gateway.

    Raises: as `connect_operator`, and NotAllowed when the gateway has no objectives.
    """
    with connect_operator(own) as operator:
        try:
            yield operator
        except AgentFailed as error:
            if code_of(error) in _OFF:
                message = f"objectives are off at {operator.address}"
                raise NotAllowed(message, details=_step("objectives-off", _TURN_ON)) from None
            if code_of(error) == "plan-item-not-found":
                error.details.setdefault("nextStep", SEE)
            raise


def list_objectives(operator: Operator, query: dict[str, str]) -> tuple[ObjectiveList, bytes]:
    """Some objectives, read and as they were sent. Raises: AgentUnavailable, AgentFailed."""
    body = operator.get("objectives", query=query)
    return decode(body, ObjectiveList), body


def show_objective(operator: Operator, objective_id: str) -> tuple[ShownObjective, bytes]:
    """One objective, read and as it was sent. Raises: AgentUnavailable, AgentFailed."""
    body = operator.get("objectives", objective_id)
    return decode(body, ShownObjective), body


def find_objective(operator: Operator, prefix: str) -> str:
    """The id of the objective that is or begins with this, with or without `obj-`.

    Raises: InvalidRequest, AgentFailed.
    """
    if re.search(r"[^\w-]", prefix):
        raise InvalidRequest(f"{prefix} is no id of an objective", details=_step("usage", SEE))
    listed, _ = list_objectives(operator, {"limit": str(_MOST)})
    is_cut = bool(prefix) and not _PREFIX.startswith(prefix[: len(_PREFIX)])
    wanted = f"{_PREFIX}{prefix}" if is_cut else prefix
    return complete(wanted, [one.id for one in listed.objectives], noun="objective", see=SEE)


def _step(code: str, step: str) -> dict[str, str]:
    return {"code": code, "nextStep": step}
