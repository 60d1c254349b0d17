"""The dependency graph of plans and tasks, and the check that it has no cycle."""

from collections.abc import Iterator

from openclaw_a2a.model.errors import DependencyNotValid
from openclaw_a2a.planning.model import PlanId, PlanTaskId
from openclaw_a2a.planning.state import ObjectiveState


def check_acyclic(state: ObjectiveState) -> None:
    """Check that every plan and task can be completed.

    A task waits for the tasks it depends on and for the plans its plan depends on; a plan waits
    for its tasks and for the plans it depends on. So a cycle may lead through both.

    Raises:
        DependencyNotValid: there is a cycle; the message names it.
    """
    checked: set[str] = set()
    for start in (*state.plans, *state.tasks):
        if start not in checked:
            _search(state, start, checked)


def _search(state: ObjectiveState, start: str, checked: set[str]) -> None:
    """Depth-first search, without recursion: hundreds of tasks may depend on each other."""
    path: dict[str, Iterator[str]] = {start: _dependencies(state, start)}
    while path:
        node, remaining = next(reversed(path.items()))
        following = next((one for one in remaining if one not in checked), None)
        if following is None:
            checked.add(node)
            del path[node]
        elif following in path:
            nodes = list(path)
            raise _cycle([*nodes[nodes.index(following) :], following])
        else:
            path[following] = _dependencies(state, following)


def _dependencies(state: ObjectiveState, node: str) -> Iterator[str]:
    if node in state.plans:
        yield from state.task_ids[PlanId(node)]
        yield from state.plans[PlanId(node)].dependencies
    elif node in state.tasks:
        task = state.tasks[PlanTaskId(node)]
        yield from task.dependencies
        yield from state.plans[task.plan_id].dependencies


def _cycle(nodes: list[str]) -> DependencyNotValid:
    shown = " -> ".join(nodes if len(nodes) <= 8 else [*nodes[:4], "...", *nodes[-3:]])
    return DependencyNotValid(
        f"The dependencies lead in a circle: {shown}. Leave one of them out.",
        details={"circle": nodes},
    )
