"""Calls and debates: what the admin endpoint sends, and how a terminal shows it."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from operator import itemgetter
from typing import cast

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from openclaw_a2a.cli.render.terminal import (
    build_table,
    format_age,
    format_duration,
    one_line,
    pad,
    styled_text,
    truncate,
)
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import JsonStruct

PENDING = "pending"
COMPLETED = "completed"
_STATES = (
    ("discarded", "discarded"),
    ("seen", "seen"),
    ("delivered", "delivered"),
    ("timed_out", "timed out"),
    ("answered", "answered"),
    ("running", "running"),
    ("accepted", "accepted"),
)
"""States of a call, the last one first: the field of its time, and the word for it."""

_TIMES = (*reversed(_STATES), ("deadline", "deadline"))

_SESSION_ROUTE = "session"
_MAX_NOTE = 60


class CallTimes(JsonStruct, frozen=True):
    """When a call reached each state."""

    accepted: datetime | None = None
    running: datetime | None = None
    answered: datetime | None = None
    timed_out: datetime | None = None
    delivered: datetime | None = None
    seen: datetime | None = None
    discarded: datetime | None = None
    deadline: datetime | None = None


class FailedDelivery(JsonStruct, frozen=True):
    """Why an outcome was not delivered; without `next_at` there are no more attempts."""

    attempts: int = 0
    reason: str | None = None
    next_at: datetime | None = None


class CallView(JsonStruct, frozen=True):
    """A call as the admin endpoint sends it; `parts` are the calls of a debate."""

    correlation_id: str
    task_id: str = ""
    caller: str = ""
    agent: str = ""
    skill: str = ""
    mode: str = "execute"
    status: str = PENDING
    route: str = ""
    timeout_ms: int = 0
    chain: tuple[str, ...] = ()
    times: CallTimes = CallTimes()
    reason: str = ""
    delivery: FailedDelivery | None = None
    output: Json = msgspec.UNSET
    confidence: float | None = None
    assumptions: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    error: str = ""
    parts: tuple["CallView", ...] = ()

    @property
    def state(self) -> str:
        """The latest state."""
        return self._last[0]

    @property
    def since(self) -> datetime | None:
        """When it reached that state."""
        return self._last[1]

    @property
    def is_over(self) -> bool:
        """True when nothing more will happen."""
        if self.status == PENDING:
            return self.times.answered is not None and self.route == "none"
        times = self.times
        is_delivered = bool(times.delivered or times.seen or times.discarded)
        return is_delivered or self.route != _SESSION_ROUTE

    @property
    def result(self) -> JsonObject:
        """Its output as an object; empty when it is something else."""
        return cast("JsonObject", self.output) if isinstance(self.output, dict) else {}

    @property
    def is_debate(self) -> bool:
        """True when other calls are parts of it."""
        return bool(self.parts)

    @property
    def _last(self) -> tuple[str, datetime | None]:
        moments = ((word, getattr(self.times, name)) for name, word in _STATES)
        return next(((word, moment) for word, moment in moments if moment), ("accepted", None))


class CallList(JsonStruct, frozen=True):
    """The newest calls, the newest first, and how many there are."""

    calls: tuple[CallView, ...] = ()
    total_size: int = 0


def call_note(call: CallView, now: datetime) -> str:
    """The most important fact about a call, on one short line."""
    return truncate(one_line(_note(call, now)), _MAX_NOTE)


def _note(call: CallView, now: datetime) -> str:
    deadline = call.times.deadline
    if call.status == PENDING:
        return (
            "" if deadline is None else f"{format_duration((deadline - now).total_seconds())} left"
        )
    if call.delivery is not None:
        return f"not delivered: {call.delivery.reason}"
    if call.status == "timeout":
        late = "; an answer came later" if call.times.answered else ""
        return f"no answer in {format_duration(call.timeout_ms / 1000)}{late}"
    if call.status == COMPLETED:
        return "" if call.confidence is None else f"confidence {call.confidence:.2f}"
    return call.reason or call.error


CALL_COLOURS = {
    "completed": "green",
    "error": "red",
    "timeout": "yellow",
    "discarded": "dim",
}
CALL_HEADING = ("CALL", "FROM", "AGENT", "SKILL", "STATUS", "STATE", "SINCE", "NOTE")
_SIGNS = {"completed": "✓", "error": "✗", "timeout": "!", "discarded": "∅", "pending": "…"}
_SHORT_ID = 8
_BAR = 10
_AGENT_WIDTH = 28
_REFINE = "refine"
_CRITIQUE = "critique"


def call_row(call: CallView, now: datetime, *, is_short: bool) -> tuple[str, ...]:
    """A call as a row of a table."""
    return (
        call.correlation_id[:_SHORT_ID] if is_short else call.correlation_id,
        call.caller or "-",
        call.agent,
        call.skill,
        call.status,
        call.state,
        format_age(call.since, now),
        call_note(call, now),
    )


def call_table(calls: Sequence[CallView], now: datetime, *, is_short: bool) -> Table:
    """Calls as a table; the colour of a row is that of its status."""
    rows = [CALL_HEADING, *(call_row(call, now, is_short=is_short) for call in calls)]
    styles = ["", *(CALL_COLOURS.get(call.status, "") for call in calls)]
    return build_table(rows, row_styles=styles)


def call_summary(call: CallView, now: datetime) -> str:
    """A call on one line."""
    note = call_note(call, now)
    words = [f"{call.caller} → {call.agent}", call.skill, call.status, call.state, note]
    return f"{call.correlation_id[:_SHORT_ID]}  {' · '.join(filter(None, words))}"


def call_head(call: CallView, now: datetime) -> Iterator[Text]:
    """Caller, callee, skill, status, and why the outcome was not delivered."""
    mode = "" if call.mode == "execute" else f" ({call.mode})"
    note = call_note(call, now)
    yield styled_text(f"call     {call.correlation_id}")
    yield styled_text(f"task     {call.task_id}")
    yield styled_text(f"agent    {call.agent} · {call.skill}{mode}")
    if call.chain:
        yield styled_text(f"chain    {' → '.join((*call.chain, call.agent))}")
    status = " · ".join(filter(None, (call.status, call.state, note)))
    yield styled_text(f"status   {status}", CALL_COLOURS.get(call.status, ""))
    if call.reason and call.reason != note:
        yield styled_text(f"reason   {call.reason}")
    if call.delivery is not None:
        yield styled_text(f"delivery {_failed_delivery(call.delivery, now)}", "yellow")


def call_times(call: CallView) -> Iterator[Text]:
    """When it reached each state: the first as a time of day, the others relative to it."""
    known = [(getattr(call.times, name), word) for name, word in _TIMES]
    moments = sorted(((at, word) for at, word in known if at is not None), key=itemgetter(0))
    for number, (moment, word) in enumerate(moments):
        if not number:
            yield styled_text(f"times    {word:<10} {moment.astimezone():%Y-%m-%d %H:%M:%S}")
        else:
            after = (moment - moments[0][0]).total_seconds()
            yield styled_text(f"{' ' * 8} {word:<10} +{after:.2f} s")


def call_answer(call: CallView) -> Iterator[Text]:
    """The answer with its assumptions and caveats, or the error."""
    if call.error:
        yield styled_text(f"\nerror:\n{_indented(call.error)}", "red")
    elif call.is_debate and call.result:
        yield from _debate_result(call.result)
    elif call.output is not msgspec.UNSET:
        yield styled_text(f"\noutput:\n{_indented(format_output(call.output))}")
    for name, texts in (("assumptions", call.assumptions), ("caveats", call.caveats)):
        if texts:
            listed = "\n".join(f"  - {text}" for text in texts)
            yield styled_text(f"\n{name}:\n{listed}", "yellow" if name == "caveats" else "")


def call_page(call: CallView, now: datetime) -> list[RenderableType]:
    """The head of a call, and the rounds of a debate."""
    head: list[RenderableType] = [*call_head(call, now)]
    return [*head, Text(), *debate_tree(call, now)] if call.is_debate else head


def debate_tree(debate: CallView, now: datetime) -> Iterator[RenderableType]:
    """A debate as a tree: proposal, critiques, refinements, resolution, each with confidence."""
    tree = Tree("", hide_root=True)
    for name, parts in _rounds(debate.parts):
        if len(parts) == 1 and not name.startswith("round"):
            tree.add(_part_line(f"{name:<16}", parts[0], now))
            continue
        branch = tree.add(Text(name))
        for part in parts:
            role = _CRITIQUE if part.mode == _CRITIQUE else "refined"
            branch.add(_part_line(f"{role:<12}", part, now))
    if debate.status == PENDING:
        tree.add(styled_text("…", "dim"))
    yield tree
    history = [one.confidence for one in debate.parts if one.mode != _CRITIQUE]
    values = [f"{one:.2f}" for one in history if one is not None]
    if values:
        yield styled_text(f"confidence  {' → '.join(values)}")


def format_output(output: Json) -> str:
    """An answer as text: a string as it is, anything else as JSON."""
    if isinstance(output, str):
        return output
    return msgspec.json.format(msgspec.json.encode(output), indent=2).decode()


def _debate_result(result: JsonObject) -> Iterator[Text]:
    """The conclusion of a debate; its rounds are in the tree."""
    conclusion = result.get("conclusion")
    if isinstance(conclusion, dict) and result.get("dissent"):  # which is printed by itself
        members = cast("JsonObject", conclusion)
        conclusion = {key: value for key, value in members.items() if key != "dissent"}
    yield styled_text(f"\n{result.get('status')}:\n{_indented(format_output(conclusion))}")
    for name in ("dissent", "error"):
        if result.get(name):
            yield styled_text(f"\n{name}:\n{_indented(str(result[name]))}", "yellow")


def _part_line(role: str, part: CallView, now: datetime) -> Text:
    if part.status == COMPLETED and part.confidence is not None:
        filled = round(part.confidence * _BAR)
        note = f"{'█' * filled}{'░' * (_BAR - filled)} {part.confidence:.2f}"
    else:
        age = format_age(part.since, now)
        note = " · ".join(filter(None, (part.state, age, call_note(part, now))))
    sign = _SIGNS.get(part.status, "…")
    who = pad(f"{part.agent} · {part.skill}", _AGENT_WIDTH)
    return styled_text(f"{role} {sign} {who} {note}", CALL_COLOURS.get(part.status, ""))


def _rounds(parts: Sequence[CallView]) -> list[tuple[str, list[CallView]]]:
    """The calls of a debate in groups: the proposal, each round, the resolution."""
    groups: list[tuple[str, list[CallView]]] = []
    count = 0
    for part in parts:
        is_in_round = bool(groups) and groups[-1][0].startswith("round")
        is_refined = bool(groups) and groups[-1][1][-1].mode != _CRITIQUE
        if part.mode == _CRITIQUE and is_in_round and not is_refined:
            groups[-1][1].append(part)
        elif part.mode == _CRITIQUE:
            count += 1
            groups.append((f"round {count}", [part]))
        elif is_in_round and not is_refined and part.skill == _REFINE:
            groups[-1][1].append(part)
        else:
            groups.append(("proposal" if not groups else "resolution", [part]))
    return groups


def _failed_delivery(delivery: FailedDelivery, now: datetime) -> str:
    tries = "1 try" if delivery.attempts == 1 else f"{delivery.attempts} tries"
    left = None if delivery.next_at is None else (delivery.next_at - now).total_seconds()
    further = "given up" if left is None else f"next in {format_duration(left)}"
    return f"{tries} failed: {delivery.reason}; {further}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
