"""What a task belongs to and led to: calls, its plan step, remote tasks, deliveries, its costs."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from openclaw_a2a.model.call import Call, CallId
from openclaw_a2a.model.ids import Json, JsonObject, TaskId
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.records import TaskHead
from openclaw_a2a.model.task import TERMINAL, StatusUpdate
from openclaw_a2a.model.validation import is_object
from openclaw_a2a.planning.steps import INDEX_KEY, OBJECTIVE_KEY

_Number = TypeVar("_Number", int, float)
_MAX_NODES = 100
_CALL_STATES = {
    "pending": "working",
    "completed": "completed",
    "error": "failed",
    "timeout": "failed",
    "discarded": "canceled",
}


class CallSummary(JsonStruct, frozen=True, omit_defaults=False):
    """What every page shows of a call: who called whom, and how far it came."""

    id: CallId
    caller: str
    callee: str
    skill: str
    status: str
    task: TaskId
    accepted_at: datetime
    settled_at: datetime | None
    delivered_at: datetime | None
    seen_at: datetime | None
    deadline: datetime | None


def summarize_call(call: Call) -> tuple[Any, ...]:
    """The fields of its summary, in their order."""
    ends = (call.settled_at, call.delivered_at, call.seen_at, call.deadline)
    names = (call.id, call.caller.agent_id, call.callee_name, call.skill)
    return (*names, call.status.value, call.task_id, call.accepted_at, *ends)


class RelatedCall(CallSummary, frozen=True, omit_defaults=False):
    """A call of one agent to another that made this task (`in`), or that this task made (`out`)."""

    direction: str


class RelatedNode(JsonStruct, frozen=True, omit_defaults=False):
    """A line of the tree around a task. `kind` is objective, caller, task, call or remote.

    `location` is the page that shows it; empty: there is none. `state` is that of a task.
    """

    kind: str
    label: str
    depth: int
    location: str = ""
    state: str = ""
    note: str = ""
    is_this: bool = False


class RelatedRemoteTask(JsonStruct, frozen=True, omit_defaults=False):
    """The task at a remote agent that a run of a task is."""

    target: str
    task_id: str
    state: str = ""


class RunUsage(JsonStruct, frozen=True, omit_defaults=False):
    """What the runs of a task took, as far as its agent reports it; all runs together."""

    model: str = ""
    provider: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    total_tokens: int | None = None
    cost_usd: float | None = None


def find_calls(calls: Sequence[Call], head: TaskHead) -> list[RelatedCall]:
    """The call that made the task, and those that were made from its session meanwhile."""
    session = None if head.binding is None else head.binding.session_key
    end = head.status_at if head.state in TERMINAL else None
    related: list[RelatedCall] = []
    for call in calls:
        is_in_time = call.accepted_at >= head.created_at and (
            end is None or call.accepted_at <= end
        )
        if call.task_id == head.id:
            related.append(RelatedCall(*summarize_call(call), direction="in"))
        elif session is not None and call.caller.session_key == session and is_in_time:
            related.append(RelatedCall(*summarize_call(call), direction="out"))
    return related


# -------------------------------------------------------------------- the tree


def make_tree(
    head: TaskHead,
    calls: Sequence[Call],
    metadata: Mapping[str, Json],
    remote: Sequence[RelatedRemoteTask],
    *,
    label: str,
    state: str,
    objective_name: str = "",
) -> tuple[RelatedNode, ...]:
    """What led to the task, the task, and what it led to; empty when there is nothing but it."""
    before = [*_plan_step(metadata, objective_name), *_callers(head, calls)]
    depth = len(before)
    above = [msgspec.structs.replace(one, depth=number) for number, one in enumerate(before)]
    below = [
        RelatedNode("remote", f"{one.target}: {one.task_id}", depth + 1, state=one.state)
        for one in remote
    ]
    for call in calls:
        if call.task_id != head.id and _is_from(head, call):
            below += _called(call, calls, depth + 1, seen=frozenset({head.id}))
    if not above and not below:
        return ()
    this = RelatedNode("task", label, depth, state=state, is_this=True)
    return tuple([*above, this, *below][:_MAX_NODES])


def find_objective(metadata: Mapping[str, Json]) -> str:
    """The objective that a task is a step of; empty: none."""
    objective = metadata.get(OBJECTIVE_KEY)
    return objective if isinstance(objective, str) else ""


def _plan_step(metadata: Mapping[str, Json], name: str) -> Iterator[RelatedNode]:
    if objective := find_objective(metadata):
        index = metadata.get(INDEX_KEY)
        step = f"step {index + 1}" if isinstance(index, int) else ""
        place = f"/dashboard/objectives/{objective}"
        yield RelatedNode("objective", name or f"objective {objective}", 0, place, note=step)


def _callers(head: TaskHead, calls: Sequence[Call]) -> list[RelatedNode]:
    """Who called, and who called that, the first one on top."""
    by_task = {call.task_id: call for call in calls}
    by_session = {call.session_key: call for call in calls}
    nodes: list[RelatedNode] = []
    seen: set[str] = set()
    call = by_task.get(head.id)
    while call is not None and call.id not in seen:
        seen.add(call.id)
        session = call.caller.session_key
        above = None if session is None else by_session.get(session)
        place = "" if above is None else f"/dashboard/tasks/{above.task_id}"
        note = "" if session is None or above is not None else f"in session {session}"
        nodes.insert(0, RelatedNode("caller", call.caller.agent_id, 0, place, note=note))
        call = above
    return nodes


def _is_from(head: TaskHead, call: Call) -> bool:
    return any(one.direction == "out" for one in find_calls([call], head))


def _called(
    call: Call, calls: Sequence[Call], depth: int, *, seen: frozenset[str]
) -> Iterator[RelatedNode]:
    if call.task_id in seen or depth > _MAX_NODES:
        return
    status = call.status.value
    yield RelatedNode(
        "call",
        f"{call.callee_name}: {call.skill}",
        depth,
        f"/dashboard/tasks/{call.task_id}",
        _CALL_STATES[status],
        note="" if status in ("pending", "completed") else status,
    )
    for one in calls:
        if one.caller.session_key == call.session_key:
            yield from _called(one, calls, depth + 1, seen=seen | {call.task_id})


# -------------------------------------------------------------------- what it cost


_INPUT = ("input", "inputTokens", "input_tokens", "promptTokens", "prompt_tokens")
_OUTPUT = ("output", "outputTokens", "output_tokens", "completionTokens", "completion_tokens")
_CACHED = ("cacheRead", "cachedTokens", "cached_tokens", "cache_read_input_tokens")
_TOTAL = ("total", "totalTokens", "total_tokens")
_COST = ("costUsd", "cost_usd", "totalCostUsd", "total_cost_usd")


def read_usage(statuses: Sequence[StatusUpdate]) -> RunUsage | None:
    """The model, tokens and costs that agents report at the end of runs, in whatever spelling.

    OpenClaw reports them under `openclaw`: `provider`, `model`, and `usage` with `input`, `output`,
    `cacheRead` and `total`; others use the names of their model's API.
    """
    reports = [update.metadata for update in statuses if update.metadata]
    found: list[RunUsage] = []
    for report in reports:
        facts = report.get("openclaw")
        usage = _read_report({**report, **facts} if is_object(facts) else report)
        if usage != RunUsage():
            found.append(usage)
    if not found:
        return None
    return RunUsage(
        model=", ".join(dict.fromkeys(one.model for one in found if one.model)),
        provider=", ".join(dict.fromkeys(one.provider for one in found if one.provider)),
        input_tokens=_sum([one.input_tokens for one in found]),
        output_tokens=_sum([one.output_tokens for one in found]),
        cached_tokens=_sum([one.cached_tokens for one in found]),
        total_tokens=_sum([one.total_tokens for one in found]),
        cost_usd=_sum([one.cost_usd for one in found]),
    )


def _read_report(report: JsonObject) -> RunUsage:
    given = report.get("usage")
    usage: JsonObject = given if is_object(given) else {}
    cost = usage.get("cost", report.get("cost"))
    total = cost.get("total") if is_object(cost) else cost
    model, provider = report.get("model"), report.get("provider")
    tokens_in, tokens_out = _find_count(usage, _INPUT), _find_count(usage, _OUTPUT)
    known = _find_count(usage, _TOTAL)
    if known is None and tokens_in is not None and tokens_out is not None:
        known = tokens_in + tokens_out
    return RunUsage(
        model=model if isinstance(model, str) else "",
        provider=provider if isinstance(provider, str) else "",
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        cached_tokens=_find_count(usage, _CACHED),
        total_tokens=known,
        cost_usd=_number(total) or _find_number({**usage, **report}, _COST),
    )


def _find_number(members: Mapping[str, Json], names: Sequence[str]) -> float | None:
    found = (_number(members.get(name)) for name in names)
    return next((one for one in found if one is not None), None)


def _find_count(members: Mapping[str, Json], names: Sequence[str]) -> int | None:
    number = _find_number(members, names)
    return None if number is None else int(number)


def _number(value: Json) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # An agent may report anything; what no page can show is left out.
    return value if is_number and 0 <= value < 1e15 else None


def _sum(numbers: Sequence[_Number | None]) -> _Number | None:
    known = [one for one in numbers if one is not None]
    return sum(known[1:], start=known[0]) if known else None
