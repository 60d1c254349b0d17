"""What waits for what within an objective, and the check that nothing waits for itself."""

from collections.abc import Iterator

from openclaw_a2a.model.errors import DependencyNotValid
from openclaw_a2a.planning.model import PlanId, PlanTaskId
from openclaw_a2a.planning.state import ObjectiveState


def check_acyclic(state: ObjectiveState) -> None:
    """Make sure that everything can end.

    A task waits for the tasks it depends on and for the plans its plan depends on; a plan is at
    its end when its tasks and the plans it depends on are. So a circle may lead through both.

    Raises:
        DependencyNotValid: there is a circle; it is named.
    """
    clean: set[str] = set()
    for start in (*state.plans, *state.tasks):
        if start not in clean:
            _walk(state, start, clean)


def _walk(state: ObjectiveState, start: str, clean: set[str]) -> None:
    """Go deeper and deeper from here; what leads nowhere bad is clean. (No recursion: hundreds of
    tasks may stand in one row.)"""
    way: dict[str, Iterator[str]] = {start: _waits_for(state, start)}
    while way:
        here, following = next(reversed(way.items()))
        onward = next((one for one in following if one not in clean), None)
        if onward is None:
            clean.add(here)
            del way[here]
        elif onward in way:
            steps = list(way)
            raise _circle([*steps[steps.index(onward) :], onward])
        else:
            way[onward] = _waits_for(state, onward)


def _waits_for(state: ObjectiveState, node: str) -> Iterator[str]:
    if node in state.plans:
        yield from state.task_ids[PlanId(node)]
        yield from state.plans[PlanId(node)].dependencies
    elif node in state.tasks:
        task = state.tasks[PlanTaskId(node)]
        yield from task.dependencies
        yield from state.plans[task.plan_id].dependencies


def _circle(way: list[str]) -> DependencyNotValid:
    shown = " -> ".join(way if len(way) <= 8 else [*way[:4], "...", *way[-3:]])
    return DependencyNotValid(
        f"The dependencies lead in a circle: {shown}. Leave one of them out.",
        details={"circle": way},
    )
