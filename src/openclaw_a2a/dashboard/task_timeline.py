"""The timeline of a task: queue, run and wait, with the tools and calls of each, and deliveries."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from openclaw_a2a.dashboard.task_relations import RelatedCall
from openclaw_a2a.engine.outbox.delivery_view import webhook_host
from openclaw_a2a.model.delivery import Delivery, DeliveryState
from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.records import Entry, TaskHead
from openclaw_a2a.model.task import TERMINAL, Artifact, Event, StatusUpdate, TaskState

_MIN_WIDTH = 0.004
_MAX_NESTED = 150
"""So many tools and calls have a bar, the longest ones."""
_PHASES = {TaskState.SUBMITTED: ("queue", "queued"), TaskState.WORKING: ("run", "running")}


class Bar(JsonStruct, frozen=True, omit_defaults=False):
    """A bar of the timeline. `start` and `width` are parts of the whole, from 0 to 1.

    `kind` is task, queue, run, wait, tool, call or delivery. A bar of `depth` 2 belongs to the
    bar of depth 1 before it. `task` is the page to which it leads.
    """

    kind: str
    label: str
    began_at: datetime
    ended_at: datetime | None
    seconds: float
    start: float
    width: float
    task: TaskId | None = None
    depth: int = 0
    has_failed: bool = False


class _Span(msgspec.Struct):
    kind: str
    label: str
    began_at: datetime
    ended_at: datetime | None = None
    task: TaskId | None = None
    depth: int = 1
    has_failed: bool = False


def make_timeline(
    head: TaskHead,
    entries: Sequence[Entry],
    calls: Sequence[RelatedCall],
    deliveries: Sequence[Delivery],
    now: datetime,
    asked_at: datetime | None = None,
) -> tuple[Bar, ...]:
    """The bars, in the order in which they are shown. `asked_at`: of the approval it waits for."""
    end = head.status_at if head.state in TERMINAL else None
    spans = [_Span("task", "whole task", head.created_at, end, depth=0)]
    nested = [*_tools(entries, end), *_calls(calls)]
    if asked_at is not None and head.state is TaskState.WORKING:
        nested.append(_Span("wait", "waits: approval", asked_at, depth=2))
    spans += _nest(_phases(head, entries), nested)
    spans += _deliveries(calls, deliveries)
    first = min(span.began_at for span in spans)
    last = max([span.ended_at or now for span in spans])
    whole = max((last - first).total_seconds(), 1e-6)
    return tuple([_place(span, first, last, whole) for span in spans])


def _place(span: _Span, first: datetime, last: datetime, whole: float) -> Bar:
    seconds = max(((span.ended_at or last) - span.began_at).total_seconds(), 0.0)
    width = max(seconds / whole, _MIN_WIDTH)
    start = min((span.began_at - first).total_seconds() / whole, 1 - width)
    return Bar(
        span.kind,
        span.label,
        span.began_at,
        span.ended_at,
        round(seconds, 6),
        round(start, 4),
        round(width, 4),
        span.task,
        span.depth,
        span.has_failed,
    )


def _nest(phases: list[_Span], nested: list[_Span]) -> Iterator[_Span]:
    """Each phase, followed by what began in it."""
    longest = {id(one) for one in sorted(nested, key=_seconds, reverse=True)[:_MAX_NESTED]}
    shown = [one for one in nested if id(one) in longest]
    waiting = sorted(shown, key=lambda one: one.began_at)
    # Times on the wire have milliseconds: what began with a phase seems to be before it.
    begins = [one.began_at - timedelta(milliseconds=1) for one in phases]
    for phase, end in zip(phases, [*begins[1:], None], strict=True):
        yield phase
        while waiting and (end is None or waiting[0].began_at <= end):
            yield waiting.pop(0)


def _seconds(span: _Span) -> float:
    # One that has not ended is the longest of all.
    return (
        float("inf") if span.ended_at is None else (span.ended_at - span.began_at).total_seconds()
    )


def _phases(head: TaskHead, entries: Sequence[Entry]) -> list[_Span]:
    phases = [_Span("queue", "queued", head.created_at)]
    for entry in entries:
        if entry.state is None or not isinstance(event := entry.event, StatusUpdate):
            continue
        state, at = event.status.state, event.status.timestamp
        if at is None:
            continue
        if state in TERMINAL:
            phases[-1].ended_at = at
            break
        kind, label = _PHASES.get(state, ("wait", f"waits: {state.label.replace('-', ' ')}"))
        if kind != phases[-1].kind:
            phases[-1].ended_at = at
            phases.append(_Span(kind, label, at))
    return phases


def _tools(entries: Sequence[Entry], end: datetime | None) -> list[_Span]:
    """The tool calls whose beginning is among the entries and has a time.

    One without a result ended with its task: its agent was stopped, or did not say.
    """
    found: list[_Span] = []
    running: dict[str, _Span] = {}
    for entry in entries:
        if entry.state is not None:
            continue
        try:
            event = entry.event
        except CorruptRecord:
            continue
        at = event_time(event)
        if at is None or isinstance(event, StatusUpdate) or not is_tool_artifact(event.artifact):
            continue
        metadata = event.artifact.metadata or {}
        span = running.get(event.artifact.artifact_id)
        if span is None:
            span = _Span("tool", str(metadata.get("toolName") or "tool"), at, depth=2)
            running[event.artifact.artifact_id] = span
            found.append(span)
        if event.last_chunk:
            del running[event.artifact.artifact_id]
            span.ended_at = at
            span.has_failed = bool(event.artifact.parts) and (
                event.artifact.parts[0].text or ""
            ).startswith("Failed:")
    for span in running.values():
        span.ended_at = end
    return found


def is_tool_artifact(artifact: Artifact) -> bool:
    """True for the progress of a tool call."""
    return artifact.metadata is not None and artifact.metadata.get("source") == "tool"


def event_time(event: Event) -> datetime | None:
    """When the event was made: of a status, and of the progress of a tool; else not known."""
    if isinstance(event, StatusUpdate):
        return event.status.timestamp
    try:
        at = datetime.fromisoformat(str((event.metadata or {}).get("timestamp")))
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def whole_seconds(bars: Sequence[Bar], now: datetime) -> float:
    """How long the timeline is."""
    first = min(bar.began_at for bar in bars)
    return round(max([(bar.ended_at or now) - first for bar in bars]).total_seconds(), 6)


def _calls(calls: Sequence[RelatedCall]) -> Iterator[_Span]:
    for call in calls:
        if call.direction == "out":
            yield _Span(
                "call",
                f"call to {call.callee}",
                call.accepted_at,
                call.settled_at,
                call.task,
                depth=2,
                has_failed=call.status in ("error", "timeout"),
            )


def _deliveries(calls: Sequence[RelatedCall], deliveries: Sequence[Delivery]) -> Iterator[_Span]:
    """Webhooks, and the way of the outcome into the session of a caller."""
    for call in calls:
        if call.direction == "in" and call.settled_at and (call.delivered_at or call.seen_at):
            label = f"outcome to {call.caller}"
            yield _Span("delivery", label, call.settled_at, call.seen_at or call.delivered_at)
    for one in deliveries:
        end = one.updated_at if one.state is not DeliveryState.WAITING else None
        host = webhook_host(one)
        label = f"{one.kind} to {host}" if host else f"{one.kind} delivery"
        failed = one.state in (DeliveryState.DEAD, DeliveryState.SKIPPED)
        yield _Span("delivery", label, one.created_at, end, has_failed=failed)
