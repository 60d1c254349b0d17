"""Read model of calls between agents: who called whom, as a tree, and how far each outcome came."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from openclaw_a2a.model.call import Call, CallId, CallStatus
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.message import JsonStruct


class CallNode(JsonStruct, frozen=True, omit_defaults=False):
    """A call, and how deep it is in the tree. `parent` is the call in which it was made."""

    id: CallId
    parent: CallId | None
    depth: int
    caller: str
    callee: str
    skill: str
    mode: str
    status: str
    route: str
    task: TaskId
    accepted_at: datetime
    settled_at: datetime | None
    delivered_at: datetime | None
    seen_at: datetime | None
    deadline: datetime | None
    reason: str


class CallsPage(JsonStruct, frozen=True, omit_defaults=False):
    """The newest calls, each followed by those that it led to. `is_enabled`: agents may call."""

    is_enabled: bool
    calls: tuple[CallNode, ...]
    counts: dict[str, int]


def make_calls_page(calls: Sequence[Call], *, is_enabled: bool) -> CallsPage:
    """The page of these calls."""
    counts = {one.value: sum(call.status is one for call in calls) for one in CallStatus}
    return CallsPage(is_enabled, tuple(_tree(calls)), counts)


def _tree(calls: Sequence[Call]) -> Iterator[CallNode]:
    """Roots newest first; below each call those that it led to, oldest first."""
    known = {call.id for call in calls}
    # The callee of a call works in a session of that call: what is called from there belongs to it.
    by_session = {call.session_key: call.id for call in calls}
    parents: dict[CallId, CallId | None] = {}
    for call in calls:
        parent = call.parent or by_session.get(call.caller.session_key or call.return_to)
        parents[call.id] = parent if parent in known and parent != call.id else None
    children: dict[CallId | None, list[Call]] = {}
    for call in sorted(calls, key=lambda one: (one.accepted_at, one.id)):
        children.setdefault(parents[call.id], []).append(call)
    waiting = [(call, 0) for call in children.get(None, [])]
    seen: set[CallId] = set()
    while waiting:
        call, depth = waiting.pop()
        if call.id not in seen:
            seen.add(call.id)
            yield _node(call, parents[call.id], depth)
            # Taken from the end: the oldest comes first.
            waiting += [(one, depth + 1) for one in reversed(children.get(call.id, []))]
    for call in calls:
        if call.id not in seen:  # two sessions that call back and forth have no root
            yield _node(call, parents[call.id], 0)


def _node(call: Call, parent: CallId | None, depth: int) -> CallNode:
    return CallNode(
        id=call.id,
        parent=parent,
        depth=depth,
        caller=call.caller.agent_id,
        callee=call.callee_name,
        skill=call.skill,
        mode=call.mode,
        status=call.status.value,
        route=call.route.value,
        task=call.task_id,
        accepted_at=call.accepted_at,
        settled_at=call.settled_at,
        delivered_at=call.delivered_at,
        seen_at=call.seen_at,
        deadline=call.deadline,
        reason=call.reason or "",
    )
