"""Calls and debates: what the admin endpoint sends, and how a terminal shows it."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from operator import itemgetter
from typing import cast

import msgspec
from rich.console import RenderableType
from rich.text import Text
from rich.tree import Tree

from openclaw_a2a.cli.render.terminal import (
    Change,
    ItemTable,
    format_age,
    format_duration,
    indent,
    one_line,
    pad,
    styled_text,
    truncate,
)
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import JsonStruct

_PENDING = "pending"
_COMPLETED = "completed"
_MAX_NOTE = 60


class CallTimes(JsonStruct, frozen=True):
    """When a call reached each state; the fields are in the order of the states."""

    accepted: datetime | None = None
    running: datetime | None = None
    answered: datetime | None = None
    timed_out: datetime | None = None
    delivered: datetime | None = None
    seen: datetime | None = None
    discarded: datetime | None = None
    deadline: datetime | None = None


_STATES = tuple(name for name in CallTimes.__struct_fields__ if name != "deadline")
"""The states of a call in their order, which is that of the fields above."""


class FailedDelivery(JsonStruct, frozen=True):
    """Why an outcome was not delivered; without `next_at` there are no more attempts."""

    attempts: int = 0
    reason: str | None = None
    next_at: datetime | None = None


class CallView(JsonStruct, frozen=True):
    """A call as the admin endpoint sends it; `parts` are the calls of a debate."""

    id: str = msgspec.field(name="correlationId")
    task_id: str = ""
    caller: str = ""
    agent: str = ""
    skill: str = ""
    mode: str = "execute"
    status: str = _PENDING
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
        return self._last_change[0]

    @property
    def since(self) -> datetime | None:
        """When it reached that state."""
        return self._last_change[1]

    @property
    def is_over(self) -> bool:
        """True when nothing more will happen."""
        times = self.times
        if self.status == _PENDING:
            return times.answered is not None and self.route == "none"
        return self.route != "session" or bool(times.delivered or times.seen or times.discarded)

    @property
    def is_success(self) -> bool:
        """True when it was answered; a debate must also have come to a result."""
        is_failed = bool(self.parts) and self.result.get("status") == "error"
        return self.status == _COMPLETED and not is_failed

    @property
    def result(self) -> JsonObject:
        """Its output as an object; empty when it is something else."""
        return cast("JsonObject", self.output) if isinstance(self.output, dict) else {}

    @property
    def _last_change(self) -> tuple[str, datetime | None]:
        times = [(name.replace("_", " "), getattr(self.times, name)) for name in _STATES]
        return next(((word, at) for word, at in reversed(times) if at), ("accepted", None))


def call_note(call: CallView, now: datetime) -> str:
    """The most important fact about a call, on one short line."""
    note = call.reason or call.error
    if call.status == _PENDING:
        deadline = call.times.deadline
        left_s = 0.0 if deadline is None else (deadline - now).total_seconds()
        note = "" if deadline is None else f"{format_duration(left_s)} left"
    elif call.delivery is not None:
        note = f"not delivered: {call.delivery.reason}"
    elif call.status == "timeout":
        late = "; an answer came later" if call.times.answered else ""
        note = f"no answer in {format_duration(call.timeout_ms / 1000)}{late}"
    elif call.status == _COMPLETED:
        note = "" if call.confidence is None else f"confidence {call.confidence:.2f}"
    return truncate(one_line(note), _MAX_NOTE)


CALL_TABLE = ItemTable[CallView](
    {
        "CALL": lambda call, _: call.id,
        "FROM": lambda call, _: call.caller or "-",
        "AGENT": lambda call, _: call.agent,
        "SKILL": lambda call, _: call.skill,
        "STATUS": lambda call, _: call.status,
        "STATE": lambda call, _: call.state,
        "SINCE": lambda call, now: format_age(call.since, now),
        "NOTE": call_note,
    },
    colours={"completed": "green", "error": "red", "timeout": "yellow", "discarded": "dim"},
    short_id=8,
    optional=("SINCE", "STATE", "FROM"),
    min_cells={"FROM": 12, "AGENT": 12, "SKILL": 12, "NOTE": 24},
)
_SIGNS = {"completed": "✓", "error": "✗", "timeout": "!", "discarded": "∅", "pending": "…"}
_SHORT_ID = 8
_BAR = 10
_AGENT_WIDTH = 28
_CRITIQUE = "critique"


def call_changes(call: CallView, now: datetime) -> Iterator[Change]:
    """A line for each state of a call, and of the calls of a debate."""
    for one in (call, *call.parts) if call.status == _PENDING else (*call.parts, call):
        words = (f"{one.caller} → {one.agent}", one.skill, one.status, one.state)
        line = " · ".join(filter(None, (*words, call_note(one, now))))
        yield one.id, (one.status, one.state), f"{one.id[:_SHORT_ID]}  {line}"


def call_head(call: CallView, now: datetime) -> Iterator[Text]:
    """Caller, callee, skill, status, and why the outcome was not delivered."""
    mode = "" if call.mode == "execute" else f" ({call.mode})"
    note = call_note(call, now)
    yield styled_text(f"call     {call.id}")
    yield styled_text(f"task     {call.task_id}")
    yield styled_text(f"agent    {call.agent} · {call.skill}{mode}")
    if call.chain:
        yield styled_text(f"chain    {' → '.join((*call.chain, call.agent))}")
    status = " · ".join(filter(None, (call.status, call.state, note)))
    yield styled_text(f"status   {status}", CALL_TABLE.colours.get(call.status, ""))
    if call.reason and call.reason != note:
        yield styled_text(f"reason   {call.reason}")
    if delivery := call.delivery:
        tries = "1 try" if delivery.attempts == 1 else f"{delivery.attempts} tries"
        left_s = (delivery.next_at - now).total_seconds() if delivery.next_at else 0.0
        further = f"next in {format_duration(left_s)}" if delivery.next_at else "given up"
        line = f"delivery {tries} failed: {delivery.reason}; {further}"
        yield styled_text(line, "yellow")


def call_times(call: CallView) -> Iterator[Text]:
    """When it reached each state: the first as a time of day, the others relative to it."""
    times = msgspec.structs.asdict(call.times)
    known = [(at, name.replace("_", " ")) for name, at in times.items() if at is not None]
    moments = sorted(known, key=itemgetter(0))
    for number, (moment, word) in enumerate(moments):
        if not number:
            yield styled_text(f"times    {word:<10} {moment.astimezone():%Y-%m-%d %H:%M:%S}")
        else:
            after = (moment - moments[0][0]).total_seconds()
            yield styled_text(f"{' ' * 8} {word:<10} +{after:.2f} s")


def call_answer(call: CallView) -> Iterator[Text]:
    """The answer with its assumptions and caveats, or the error."""
    if call.error:
        yield styled_text(f"\nerror:\n{indent(call.error)}", "red")
    elif call.parts and call.result:
        yield from _debate_result(call.result)
    elif call.output is not msgspec.UNSET:
        yield styled_text(f"\noutput:\n{indent(format_output(call.output))}")
    for name, texts in (("assumptions", call.assumptions), ("caveats", call.caveats)):
        if texts:
            listed = "\n".join(f"  - {text}" for text in texts)
            yield styled_text(f"\n{name}:\n{listed}", "yellow" if name == "caveats" else "")


def call_page(call: CallView, now: datetime) -> list[RenderableType]:
    """A call while it is watched: its head, and the rounds of a debate."""
    return [*call_head(call, now), *debate_tree(call, now)]


def whole_call_page(call: CallView, now: datetime) -> list[RenderableType]:
    """A call with everything that is known of it."""
    return [*call_head(call, now), *call_times(call), *debate_tree(call, now), *call_answer(call)]


def debate_tree(debate: CallView, now: datetime) -> Iterator[RenderableType]:
    """A debate as a tree: proposal, critiques, refinements, resolution, each with confidence."""
    if not debate.parts:
        return
    yield Text()
    tree = Tree("", hide_root=True)
    for name, parts in _rounds(debate.parts):
        if len(parts) == 1 and not name.startswith("round"):
            tree.add(_part_line(f"{name:<16}", parts[0], now))
            continue
        branch = tree.add(Text(name))
        for part in parts:
            role = _CRITIQUE if part.mode == _CRITIQUE else "refined"
            branch.add(_part_line(f"{role:<12}", part, now))
    if debate.status == _PENDING:
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
    yield styled_text(f"\n{result.get('status')}:\n{indent(format_output(conclusion))}")
    for name in ("dissent", "error"):
        if result.get(name):
            yield styled_text(f"\n{name}:\n{indent(str(result[name]))}", "yellow")


def _part_line(role: str, part: CallView, now: datetime) -> Text:
    if part.status == _COMPLETED and part.confidence is not None:
        filled = round(part.confidence * _BAR)
        note = f"{'█' * filled}{'░' * (_BAR - filled)} {part.confidence:.2f}"
    else:
        age = format_age(part.since, now)
        note = " · ".join(filter(None, (part.state, age, call_note(part, now))))
    sign = _SIGNS.get(part.status, "…")
    who = pad(f"{part.agent} · {part.skill}", _AGENT_WIDTH)
    return styled_text(f"{role} {sign} {who} {note}", CALL_TABLE.colours.get(part.status, ""))


def _rounds(parts: Sequence[CallView]) -> list[tuple[str, list[CallView]]]:
    """The calls of a debate in groups: the proposal, each round, the resolution."""
    groups: list[tuple[str, list[CallView]]] = []
    count = 0
    for part in parts:
        name, members = groups[-1] if groups else ("", [part])
        is_open = name.startswith("round") and members[-1].mode == _CRITIQUE
        if is_open and (part.mode == _CRITIQUE or part.skill == "refine"):
            members.append(part)
        elif part.mode == _CRITIQUE:
            count += 1
            groups.append((f"round {count}", [part]))
        else:
            groups.append(("resolution" if groups else "proposal", [part]))
    return groups
