"""Asks a gateway about objectives, and tells people what to set when it has none."""

from contextlib import AbstractContextManager

from openclaw_a2a.cli.feature import (
    MOST,
    Feature,
    check_prefix,
    connect_feature,
    fetch,
    list_query,
)
from openclaw_a2a.cli.objectives_shown import ObjectiveList, ShownObjective
from openclaw_a2a.cli.operator import Operator, OwnGateway, complete

SEE = "See the objectives there are: openclaw-a2a objectives list"
_TURN_ON = "Set opt.enabled to true, then start the gateway again."
_PREFIX = "obj-"


_OBJECTIVES = Feature(
    noun="objectives",
    off="objectives-off",
    turn_on=_TURN_ON,
    missing="plan-item-not-found",
    see=SEE,
)


def connect_objectives(own: OwnGateway) -> AbstractContextManager[Operator]:
    """A client for the objectives of a gateway; as `connect_feature`."""
    return connect_feature(own, _OBJECTIVES)


def list_objectives(operator: Operator, query: dict[str, str]) -> tuple[ObjectiveList, bytes]:
    """Some objectives, read and as they were sent. Raises: AgentUnavailable, AgentFailed."""
    return fetch(operator, ObjectiveList, "objectives", query=query)


def show_objective(operator: Operator, objective_id: str) -> tuple[ShownObjective, bytes]:
    """One objective, read and as it was sent. Raises: AgentUnavailable, AgentFailed."""
    return fetch(operator, ShownObjective, "objectives", objective_id)


def find_objective(operator: Operator, prefix: str) -> str:
    """The id of the objective that is or begins with this, with or without `obj-`.

    Raises: InvalidRequest, AgentFailed.
    """
    check_prefix(prefix, _OBJECTIVES, "an objective")
    listed, _ = list_objectives(operator, list_query(MOST))
    is_cut = bool(prefix) and not _PREFIX.startswith(prefix[: len(_PREFIX)])
    wanted = f"{_PREFIX}{prefix}" if is_cut else prefix
    return complete(wanted, [one.id for one in listed.objectives], noun="objective", see=SEE)
