"""Draws calls and debates as lines of text."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from operator import itemgetter
from typing import cast

import msgspec

from openclaw_a2a.cli.call_shown import (
    COMPLETED,
    PENDING,
    FailedDelivery,
    ShownCall,
    age,
    duration,
    note_of,
)
from openclaw_a2a.cli.live import Line
from openclaw_a2a.model.ids import Json, JsonObject

COLOURS = {
    "completed": "green",
    "error": "red",
    "timeout": "yellow",
    "discarded": "dim",
}
HEADING = ("CALL", "FROM", "AGENT", "SKILL", "STATUS", "STATE", "SINCE", "NOTE")
_SIGNS = {"completed": "✓", "error": "✗", "timeout": "!", "discarded": "∅", "pending": "…"}
_TIMES = (
    ("accepted", "accepted"),
    ("running", "running"),
    ("answered", "answered"),
    ("timed out", "timed_out"),
    ("delivered", "delivered"),
    ("seen", "seen"),
    ("discarded", "discarded"),
    ("deadline", "deadline"),
)
_SHORT_ID = 8
_BAR = 10
_REFINE = "refine"
_CRITIQUE = "critique"


def table_row(call: ShownCall, now: datetime, *, is_short: bool) -> tuple[str, ...]:
    """A call as a row of a table."""
    return (
        call.correlation_id[:_SHORT_ID] if is_short else call.correlation_id,
        call.caller or "-",
        call.agent,
        call.skill,
        call.status,
        call.state,
        age(call.since, now),
        note_of(call, now),
    )


def table_lines(calls: Sequence[ShownCall], now: datetime, *, is_short: bool) -> list[Line]:
    """Calls as a table whose lines have the colour of their status."""
    rows = [HEADING, *(table_row(call, now, is_short=is_short) for call in calls)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    colours = [None, *(COLOURS.get(call.status) for call in calls)]
    return list(zip(lines, colours, strict=True))


def summary(call: ShownCall, now: datetime) -> str:
    """A call on one line."""
    note = note_of(call, now)
    words = [f"{call.caller} → {call.agent}", call.skill, call.status, call.state, note]
    return f"{call.correlation_id[:_SHORT_ID]}  {' · '.join(filter(None, words))}"


def head_lines(call: ShownCall, now: datetime) -> Iterator[Line]:
    """Who called whom for what, and what became of it."""
    mode = "" if call.mode == "execute" else f" ({call.mode})"
    note = note_of(call, now)
    yield f"call     {call.correlation_id}", None
    yield f"task     {call.task_id}", None
    yield f"agent    {call.agent} · {call.skill}{mode}", None
    if call.chain:
        yield f"chain    {' → '.join((*call.chain, call.agent))}", None
    status = " · ".join(filter(None, (call.status, call.state, note)))
    yield f"status   {status}", COLOURS.get(call.status)
    if call.reason and call.reason != note:
        yield f"reason   {call.reason}", None
    if call.delivery is not None:
        yield f"delivery {_failed(call.delivery, now)}", "yellow"


def time_lines(call: ShownCall) -> Iterator[Line]:
    """When it came to each state, in that order: the first by the clock, the others after it."""
    told = [(getattr(call.times, name), word) for word, name in _TIMES]
    moments = sorted(((at, word) for at, word in told if at is not None), key=itemgetter(0))
    for number, (moment, word) in enumerate(moments):
        if not number:
            yield f"times    {word:<10} {moment.astimezone():%Y-%m-%d %H:%M:%S}", None
        else:
            after = (moment - moments[0][0]).total_seconds()
            yield f"{' ' * 8} {word:<10} +{after:.2f} s", None


def answer_lines(call: ShownCall) -> Iterator[Line]:
    """What was answered, and under which reservations."""
    if call.error:
        yield f"\nerror:\n{_indented(call.error)}", "red"
    elif call.is_debate and call.result:
        yield from _result_lines(call.result)
    elif call.output is not msgspec.UNSET:
        yield f"\noutput:\n{_indented(output_text(call.output))}", None
    for name, texts in (("assumptions", call.assumptions), ("caveats", call.caveats)):
        if texts:
            listed = "\n".join(f"  - {text}" for text in texts)
            yield f"\n{name}:\n{listed}", "yellow" if name == "caveats" else None


def _result_lines(result: JsonObject) -> Iterator[Line]:
    """What a debate came to; its rounds are drawn, not told again."""
    conclusion = result.get("conclusion")
    if isinstance(conclusion, dict) and result.get(
        "dissent"
    ):  # what it says against itself is told below
        members = cast("JsonObject", conclusion)
        conclusion = {key: value for key, value in members.items() if key != "dissent"}
    yield f"\n{result.get('status')}:\n{_indented(output_text(conclusion))}", None
    for name in ("dissent", "error"):
        if result.get(name):
            yield f"\n{name}:\n{_indented(str(result[name]))}", "yellow"


def debate_lines(debate: ShownCall, now: datetime) -> Iterator[Line]:
    """A debate as a tree: who proposed, criticised, refined and resolved, and how sure each is."""
    groups = _rounds(debate.parts)
    for place, (name, parts) in enumerate(groups):
        is_last = place == len(groups) - 1 and debate.status != PENDING
        branch, below = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
        if len(parts) == 1 and not name.startswith("round"):
            yield _part_line(f"{branch}{name:<12}", parts[0], now)
            continue
        yield f"{branch}{name}", None
        for number, part in enumerate(parts, 1):
            twig = "└─ " if number == len(parts) else "├─ "
            role = _CRITIQUE if part.mode == _CRITIQUE else "refined"
            yield _part_line(f"{below}{twig}{role:<9}", part, now)
    if debate.status == PENDING:
        yield "└─ …", "dim"
    history = [one.confidence for one in debate.parts if one.mode != _CRITIQUE]
    told = [f"{one:.2f}" for one in history if one is not None]
    if told:
        yield f"confidence  {' → '.join(told)}", None


def output_text(output: Json) -> str:
    """An answer as text: a text as it is, anything else as JSON."""
    if isinstance(output, str):
        return output
    return msgspec.json.format(msgspec.json.encode(output), indent=2).decode()


def _part_line(branch: str, part: ShownCall, now: datetime) -> Line:
    who = f"{part.agent} · {part.skill}"
    if part.status == COMPLETED and part.confidence is not None:
        filled = round(part.confidence * _BAR)
        told = f"{'█' * filled}{'░' * (_BAR - filled)} {part.confidence:.2f}"
    else:
        told = " · ".join(filter(None, (part.state, age(part.since, now), note_of(part, now))))
    sign = _SIGNS.get(part.status, "…")
    return f"{branch} {sign} {who:<28} {told}", COLOURS.get(part.status)


def _rounds(parts: Sequence[ShownCall]) -> list[tuple[str, list[ShownCall]]]:
    """The calls of a debate in groups: the proposal, each round, the resolution."""
    groups: list[tuple[str, list[ShownCall]]] = []
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


def _failed(delivery: FailedDelivery, now: datetime) -> str:
    tries = "1 try" if delivery.attempts == 1 else f"{delivery.attempts} tries"
    left = None if delivery.next_at is None else (delivery.next_at - now).total_seconds()
    further = "given up" if left is None else f"next in {duration(left)}"
    return f"{tries} failed: {delivery.reason}; {further}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
