"""Objectives from elsewhere: what must be true of them, and what becomes of their steps."""

from collections.abc import Sequence

from openclaw_a2a.model.errors import StatusChangeNotAllowed
from openclaw_a2a.planning.draft import Change, Draft, Occasion
from openclaw_a2a.planning.journal import TaskUpdated
from openclaw_a2a.planning.objects import (
    OBJECTIVE_PREFIX,
    ObjectiveId,
    PlanTaskId,
    PlanTaskStatus,
    is_own_id,
)
from openclaw_a2a.planning.rollup import settle
from openclaw_a2a.planning.state import ObjectiveState


def check_id(objective_id: ObjectiveId) -> None:
    """Make sure that files and sessions can be named for an objective.

    Raises: StatusChangeNotAllowed.
    """
    if not (objective_id.startswith(OBJECTIVE_PREFIX) and is_own_id(objective_id)):
        raise StatusChangeNotAllowed(
            f"The id {objective_id[:80]!r} cannot be used: it must be {OBJECTIVE_PREFIX} and "
            "small letters and digits, with single hyphens between."
        )


def begin_again(state: ObjectiveState, steps: Sequence[PlanTaskId], occasion: Occasion) -> Change:
    """What follows from nobody doing these steps any more, which were under way."""
    draft = Draft.of(state, occasion.now)
    for step in steps:
        draft.record(TaskUpdated(step, status=PlanTaskStatus.CANCELED))
        draft.record(TaskUpdated(step, status=PlanTaskStatus.PENDING))
    if steps:
        settle(draft)
    return draft.done()
