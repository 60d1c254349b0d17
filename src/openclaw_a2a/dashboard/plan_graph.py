"""The steps of an objective as a graph, placed here so that the page only has to draw it.

A step is in the column after the last of those that it waits for. A plan that waits for another
plan waits with its first steps for the last steps of that plan.
"""

from collections.abc import Mapping, Sequence

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.validation import is_object

_NODE_WIDTH = 216
_NODE_HEIGHT = 32
_COLUMN_GAP = 44
_ROW_GAP = 12
_MARGIN = 2
_LABEL_CHARS = 24
_MAX_STEPS = 200
"""A larger graph is unreadable; the page lists the steps as well."""


class GraphNode(JsonStruct, frozen=True, omit_defaults=False):
    """A step: the place of its upper left corner. `task` is the A2A task that works on it."""

    id: str
    label: str
    name: str
    status: str
    task: str
    x: int
    y: int


class GraphEdge(JsonStruct, frozen=True, omit_defaults=False):
    """A step that waits for another: `path` is the line from that one to it."""

    start: str
    end: str
    path: str


class StepGraph(JsonStruct, frozen=True, omit_defaults=False):
    """The graph, its size, and that of its nodes."""

    width: int
    height: int
    node_width: int
    node_height: int
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]


def make_graph(plans: Sequence[JsonObject]) -> StepGraph | None:
    """The graph of all plans; None when no step waits for another, or there are too many."""
    steps = {str(step["id"]): step for plan in plans for step in list_steps(plan)}
    needs = _find_needs(plans, steps)
    if len(steps) > _MAX_STEPS or not any(needs.values()):
        return None
    rows: dict[int, int] = {}
    places: dict[str, tuple[int, int]] = {}
    for step_id, column in _find_columns(needs).items():
        row = rows.get(column, 0)
        rows[column] = row + 1
        x = _MARGIN + column * (_NODE_WIDTH + _COLUMN_GAP)
        places[step_id] = (x, _MARGIN + row * (_NODE_HEIGHT + _ROW_GAP))
    numbers = number_steps(plans)
    nodes = [_make_node(steps[one], numbers[one], place) for one, place in places.items()]
    edges = [
        GraphEdge(start, end, _draw_line(places[start], places[end]))
        for end, wanted in needs.items()
        for start in wanted
    ]
    return StepGraph(
        width=max(x for x, _ in places.values()) + _NODE_WIDTH + _MARGIN,
        height=max(y for _, y in places.values()) + _NODE_HEIGHT + _MARGIN,
        node_width=_NODE_WIDTH,
        node_height=_NODE_HEIGHT,
        nodes=tuple(nodes),
        edges=tuple(edges),
    )


def list_steps(plan: JsonObject) -> list[JsonObject]:
    """The steps of a plan."""
    return [step for step in plan.get("tasks") or () if is_object(step)]


def _dependencies(item: JsonObject) -> Sequence[str]:
    return item.get("dependencies") or ()


def _find_needs(
    plans: Sequence[JsonObject], steps: Mapping[str, JsonObject]
) -> dict[str, list[str]]:
    """The steps that each step waits for, as far as they exist."""
    last = {str(plan["id"]): _find_last(plan) for plan in plans}
    needs: dict[str, list[str]] = {}
    for plan in plans:
        before = [one for name in _dependencies(plan) for one in last.get(name, ())]
        for step in list_steps(plan):
            wanted = [str(one) for one in _dependencies(step) if one in steps]
            own = {str(one["id"]) for one in list_steps(plan)}
            if own.isdisjoint(wanted):
                wanted += before
            needs[str(step["id"])] = list(dict.fromkeys(wanted))
    return needs


def _find_last(plan: JsonObject) -> list[str]:
    steps = list_steps(plan)
    wanted = {one for step in steps for one in _dependencies(step)}
    return [str(step["id"]) for step in steps if step["id"] not in wanted]


def _find_columns(needs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    columns: dict[str, int] = {}
    left = list(needs)
    while left:
        ready = [one for one in left if all(wanted in columns for wanted in needs[one])]
        # None is ready in a circle, which only a log of another program can have.
        for one in ready or left:
            before = [columns[wanted] for wanted in needs[one] if wanted in columns]
            columns[one] = max(before, default=-1) + 1
        left = [one for one in left if one not in columns]
    return columns


def number_steps(plans: Sequence[JsonObject]) -> dict[str, str]:
    """The numbers of the steps; with several plans after the number of the plan."""
    return {
        str(step["id"]): f"{number}.{step['taskIndex'] + 1}"
        if len(plans) > 1
        else f"{step['taskIndex'] + 1}"
        for number, plan in enumerate(plans, 1)
        for step in list_steps(plan)
    }


def _make_node(step: JsonObject, number: str, place: tuple[int, int]) -> GraphNode:
    name, (x, y) = str(step["name"]), place
    label = f"{number} {name}"
    if len(label) > _LABEL_CHARS:
        label = f"{label[: _LABEL_CHARS - 1]}…"
    task = str(step.get("a2aTaskId") or "")
    return GraphNode(str(step["id"]), label, name, str(step["status"]), task, x, y)


def _draw_line(start: tuple[int, int], end: tuple[int, int]) -> str:
    half = _NODE_HEIGHT // 2
    x1, y1, x2, y2 = start[0] + _NODE_WIDTH, start[1] + half, end[0], end[1] + half
    middle = (x1 + x2) // 2
    return f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"
