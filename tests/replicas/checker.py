"""Checks a history of clients and agents against the guarantees of the gateway.

Each rule gets the whole history and yields one sentence for each violation. The rules know nothing
of stores, leases and fences: a run on a replica that was paused or cut off may overlap with the run
that replaced it, but only for as long as the fault and one lease after it (`is_excused`), and
nothing that it says afterwards may be seen.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.replicas.history import (
    CANCELED,
    COMPLETED,
    FAILED,
    PAUSED,
    TERMINAL,
    Delivered,
    FaultKind,
    Final,
    History,
    Json,
    Read,
    Run,
    state_of,
    status_of,
    text_of,
)

TASK_NOT_FOUND, NOT_CANCELABLE, TASK_TERMINAL = -32001, -32002, -32004
MOST_ATTEMPTS = 3
"""A run that was interrupted so often is given up, also one that may be repeated."""
_OUTCOME = ("status", "output", "error")
_ENDING = (FaultKind.KILL, FaultKind.STOP)
"""Faults after which nothing of the process goes on."""
_TOKEN = re.compile(r"\b(r[0-9a-f]{8})\.\d+")


@dataclass(frozen=True)
class Violation:
    """A broken guarantee."""

    rule: str
    text: str


Rule = Callable[[History], Iterator[str]]


def check_history(history: History) -> list[Violation]:
    """Everything that should not have been seen."""
    return [Violation(name, text) for name, rule in RULES.items() for text in rule(history)]


# ---------------------------------------------------------------- messages and their outcomes


def check_outcomes(history: History) -> Iterator[str]:
    """G1, G4: every accepted message has one outcome, and is in its task once."""
    yield from history.problems
    for task_id, sent in history.accepted_tasks().items():
        final = history.finals.get(task_id)
        if final is None:
            yield f"task {task_id} of message {sent.key.id} was accepted and is gone"
            continue
        states = [state_of(event) for event in final.journal]
        ends = [state for state in states if state in TERMINAL]
        if final.state not in (*TERMINAL, PAUSED):
            yield f"task {task_id} never ended: it is {final.state}"
        elif ends != ([] if final.state == PAUSED else [final.state]):
            yield f"task {task_id} is {final.state}, its ends are {ends}"
    yield from _check_message_counts(history)


def _check_message_counts(history: History) -> Iterator[str]:
    for sent in history.sent:
        final = history.finals.get(sent.accepted_task or "")
        if final is None:
            continue
        count = sum(one.get("messageId") == sent.key.id for one in final.task.get("history", ()))
        if count != 1:
            yield f"message {sent.key.id} is {count} times in task {sent.accepted_task}"


def check_duplicates(history: History) -> Iterator[str]:
    """G5: all answers to one message are the same, and it is not refused once it was accepted."""
    tries = defaultdict(list)
    for sent in history.sent:
        tries[sent.key].append(sent)
    for key, all_sent in tries.items():
        answers = [_identity(sent.outcome) for sent in all_sent if sent.is_accepted]
        if any(answer != answers[0] for answer in answers):
            yield f"message {key.id} of {key.caller} was answered with {answers}"
        ends = [
            sent.outcome["task"]["status"]
            for sent in all_sent
            if sent.accepted_task and state_of(sent.outcome) in TERMINAL
        ]
        if any(end != ends[0] for end in ends):
            yield f"message {key.id} of {key.caller} ended in several ways: {ends}"
        known_at = min((sent.ended for sent in all_sent if sent.is_accepted), default=None)
        for sent in all_sent:
            if known_at is not None and "error" in sent.outcome and sent.began > known_at:
                yield f"message {key.id} was accepted and refused later: {sent.outcome['error']}"


def _identity(outcome: Json) -> Json:
    return outcome["task"]["id"] if "task" in outcome else outcome["message"]


def check_refusals(history: History) -> Iterator[str]:
    """Nothing is refused that should be accepted; a known task is always found."""
    for sent in history.sent:
        code = sent.outcome.get("error", {}).get("code")
        if code is not None and not (sent.task_id is not None and code == TASK_TERMINAL):
            yield f"message {sent.key.id} was refused: {sent.outcome['error']}"
    known = history.accepted_tasks()
    going_on: dict[str, float] = {}
    for task_id, began, _, status in history.statuses():
        if status["state"] not in TERMINAL:
            going_on[task_id] = max(going_on.get(task_id, began), began)
    for got in history.got:
        code = got.outcome.get("error", {}).get("code")
        is_own = got.task_id in known and known[got.task_id].key.caller == got.caller
        if code is None or (code == TASK_NOT_FOUND and not is_own):
            continue
        # Rightly refused when the task has ended; wrongly, when somebody saw later that it had not.
        is_over = going_on.get(got.task_id, 0.0) <= got.ended or _is_stopping(got.ended, history)
        if not (got.is_cancel and code == NOT_CANCELABLE and is_over):
            yield f"task {got.task_id}: {got.outcome['error']}"


def _is_stopping(at: float, history: History) -> bool:
    """Whether a gateway was told to stop then. It ends its streams, and knows no runs any more."""
    return any(
        fault.kind is FaultKind.STOP and fault.began <= at <= fault.ended
        for fault in history.faults
    )


def check_failures(history: History) -> Iterator[str]:
    """G4: a task fails because its agent says so, or because of a fault, and tells the reason."""
    runs = _by_task(history.runs)
    accepted = history.accepted_tasks()
    for task_id, final in history.finals.items():
        if final.state != FAILED:
            continue
        own = runs[task_id]
        status = final.task["status"]
        if not text_of(status.get("message", {}).get("parts", [])):
            yield f"task {task_id} failed without a reason"
        if any(run.how == "failed" for run in own):
            continue
        # A first try may have been accepted, and broken off before its sender knew.
        known = accepted[task_id].began if task_id in accepted else 0.0
        began = min([known, *[run.began for run in own]])
        if not any(fault.ended >= began for fault in history.faults):
            yield f"task {task_id} failed without a cause: {status}"
        elif own and own[0].is_repeatable and len(own) < MOST_ATTEMPTS:
            # An attempt counts before the agent is asked, so a gateway that was ended or lost its
            # work in between has counted one that no agent saw.
            ended = sum(
                (fault.gone is not None or fault.kind is FaultKind.LOST) and fault.ended >= began
                for fault in history.faults
            )
            if ended < MOST_ATTEMPTS:
                yield f"task {task_id} failed after {len(own)} runs, and may be repeated: {status}"


# ---------------------------------------------------------------- streams


def check_order(history: History) -> Iterator[str]:
    """G1, G2: every reader sees the events of the journal, and the journal stays as it is."""
    for task_id, final in history.finals.items():
        if final.journal != final.other_journal:
            yield f"task {task_id} has two journals: {final.journal} and {final.other_journal}"
        if _fold(final.journal) != (final.task["status"], _artifact_texts(final.task)):
            yield f"task {task_id} is not what its events say: {final.task}"
    for read in history.reads:
        final = history.finals.get(read.task_id)
        for frame in read.frames if final else ():
            assert final is not None
            if "task" in frame.event:
                shown = frame.event["task"]
                folded = _fold(final.journal[: frame.sequence])
                is_same = (folded[0] or shown["status"], folded[1]) == (
                    shown["status"],
                    _artifact_texts(shown),
                )
            else:
                stored = final.journal[frame.sequence - 1 : frame.sequence]
                is_same = stored == [frame.event]
            if not is_same:
                yield f"task {read.task_id}: event {frame.sequence} was seen as {frame.event}"


def _fold(journal: Sequence[Json]) -> tuple[Json, dict[str, str]]:
    """What a reader of these events knows: the status (None: none yet), the artifacts' texts."""
    status: Json = None
    texts: dict[str, str] = {}
    for event in journal:
        status = status_of(event) or status
        if "artifactUpdate" in event:
            update = event["artifactUpdate"]
            name, text = update["artifact"]["artifactId"], text_of(update["artifact"]["parts"])
            texts[name] = texts.get(name, "") + text if update.get("append") else text
    return status, texts


def _artifact_texts(task: Json) -> dict[str, str]:
    return {one["artifactId"]: text_of(one["parts"]) for one in task.get("artifacts", ())}


def check_gaps(history: History) -> Iterator[str]:
    """G3: a stream begins where it was asked to, leaves nothing out, and ends with the task."""
    for read in history.reads:
        numbers = [frame.sequence for frame in read.frames]
        if read.after is not None:
            numbers = [read.after, *numbers]
        if any(second != first + 1 for first, second in pairwise(numbers)):
            yield f"the stream of task {read.task_id} has gaps: {numbers}"
        has_snapshot = bool(read.frames) and "task" in read.frames[0].event
        if read.frames and has_snapshot != (read.after is None):
            yield f"the stream of task {read.task_id} after {read.after} began with the wrong frame"
        if any("task" in frame.event for frame in read.frames[1:]):
            yield f"the stream of task {read.task_id} has a second snapshot"
        if read.ended is None or _is_at_rest(read, history.finals.get(read.task_id)):
            continue
        if not _is_stopping(read.ended, history):
            yield f"the stream of task {read.task_id} ended before the task did, at {numbers[-1:]}"


def _is_at_rest(read: Read, final: Final | None) -> bool:
    states = [state for frame in read.frames if (state := state_of(frame.event))]
    if states:
        return states[-1] in (*TERMINAL, PAUSED)
    last = read.frames[-1].sequence if read.frames else read.after
    return final is not None and last == len(final.journal)


def check_ends(history: History) -> Iterator[str]:
    """G2: nothing follows the terminal event."""
    readers = [(read.task_id, [one.event for one in read.frames]) for read in history.reads]
    journals = [(task_id, final.journal) for task_id, final in history.finals.items()]
    for task_id, events in (*readers, *journals):
        ends = [place for place, event in enumerate(events) if state_of(event) in TERMINAL]
        if ends and ends[0] != len(events) - 1:
            yield f"task {task_id}: {events[ends[0] + 1]} follows its end"


def check_timestamps(history: History) -> Iterator[str]:
    """G2: the timestamps of a task do not decrease."""
    for task_id, final in history.finals.items():
        statuses = [status for event in final.journal if (status := status_of(event))]
        times = [status["timestamp"] for status in statuses if "timestamp" in status]
        if times != sorted(times):
            yield f"the times of task {task_id} decrease: {times}"


def check_reads(history: History) -> Iterator[str]:
    """G2 across replicas: whoever asks after somebody saw an event sees that event or later ones.

    A status stands for the events up to the next one.
    """
    seen: dict[str, list[tuple[float, int]]] = defaultdict(list)
    shown: list[tuple[str, float, int]] = []
    for read in history.reads:
        for place, frame in enumerate(read.frames):
            seen[read.task_id].append((frame.at, frame.sequence))
            if place == 0 and "task" in frame.event:
                shown.append((read.task_id, read.began, frame.sequence))
    for task_id, began, ended, status in history.statuses():
        final = history.finals.get(task_id)
        if final is None:
            continue
        first, last = _span(final.journal, status)
        if first is None:
            yield f"task {task_id} was shown with a status that no event had: {status}"
            continue
        seen[task_id].append((ended, first))
        shown.append((task_id, began, last))
    for task_id, began, last in shown:
        known = max((number for at, number in seen[task_id] if at < began), default=0)
        if last < known:
            yield f"task {task_id} was shown as of event {last} after event {known} was seen"


def _span(journal: Sequence[Json], status: Json) -> tuple[int | None, int]:
    """The first and the last event after which a task has this status."""
    numbers = [number for number, event in enumerate(journal, 1) if status_of(event)]
    found = [number for number in numbers if status_of(journal[number - 1]) == status]
    if not found:
        # The status with which a task is created is no event.
        is_first = status["state"] == "TASK_STATE_SUBMITTED"
        return (0 if is_first else None), (numbers[0] - 1 if numbers else len(journal))
    after = [number for number in numbers if number > found[-1]]
    return found[0], (after[0] - 1 if after else len(journal))


def check_lists(history: History) -> Iterator[str]:
    """A list has every task of its context that was accepted before, and no other's (G8)."""
    contexts: dict[Json, list[tuple[str, float]]] = defaultdict(list)
    for task_id, sent in history.accepted_tasks().items():
        if sent.task_id is None:
            place = (sent.key.caller, sent.key.account, sent.context_id)
            contexts[place].append((task_id, sent.ended))
    for listed in history.listed:
        for task_id in listed.task_ids:
            final = history.finals.get(task_id)
            if final and (final.caller, final.account) != (listed.caller, listed.account):
                yield f"{listed.caller} was shown task {task_id} of {final.caller}"
        place = (listed.caller, listed.account, listed.context_id)
        for task_id, accepted_at in contexts[place]:
            if accepted_at < listed.began and task_id not in listed.task_ids:
                yield f"task {task_id} is not in a list of its context {listed.context_id}"


def check_isolation(history: History) -> Iterator[str]:
    """G8: nobody sees a task of another caller, and no session has two callers."""
    for got in history.got:
        final = history.finals.get(got.task_id)
        if final and final.caller != got.caller and "task" in got.outcome:
            yield f"{got.caller} was shown task {got.task_id} of {final.caller}"
    callers: dict[str, set[str]] = defaultdict(set)
    for run in history.runs:
        callers[run.session].add(run.key.caller)
    for session, names in callers.items():
        if len(names) > 1:
            yield f"session {session} belongs to {sorted(names)}"


# ---------------------------------------------------------------- runs of agents


def check_repeats(history: History) -> Iterator[str]:
    """G4: an agent that is not declared repeatable gets each message once."""
    counts = Counter((run.key, run.task_id) for run in history.runs if not run.is_repeatable)
    for (key, task_id), count in counts.items():
        if count > 1:
            yield f"message {key.id} of task {task_id} was run {count} times"


def check_sessions(history: History) -> Iterator[str]:
    """G6: a session has one run at a time."""
    for session, runs in _by_session(history.runs).items():
        for place, first in enumerate(runs):
            for second in runs[place + 1 :]:
                if second.began >= _end_of(first, history):
                    break
                # Either may be the one that does not know: a run may begin there, too.
                ignorant = any(_is_excused(one, second.began, history) for one in (first, second))
                if not ignorant:
                    yield (
                        f"session {session}: {first.token} on {first.replica} had not ended when "
                        f"{second.token} began on {second.replica}"
                    )


def check_arrival(history: History) -> Iterator[str]:
    """G6: of two messages to a session, the one that was accepted first is run first."""
    accepted_at: dict[Json, float] = {}
    first_try: dict[Json, float] = {}
    for sent in history.sent:
        first_try[sent.key] = min(first_try.get(sent.key, sent.began), sent.began)
        if sent.is_accepted:
            accepted_at[sent.key] = min(accepted_at.get(sent.key, sent.ended), sent.ended)
    for session, runs in _by_session(history.runs).items():
        first_runs: dict[Json, Run] = {}
        for run in runs:
            first_runs.setdefault(run.key, run)
        order = [key for key in first_runs if key in accepted_at]
        for place, key in enumerate(order):
            for later in order[place + 1 :]:
                if accepted_at[later] < first_try[key]:
                    yield f"session {session}: {key.id} was run before {later.id}, sent earlier"


def check_cancels(history: History) -> Iterator[str]:
    """G9: when a task is seen as canceled, none of its runs is under way, and none begins."""
    seen_at: dict[str, float] = {}
    for task_id, _, ended, status in history.statuses():
        if status["state"] == CANCELED:
            seen_at[task_id] = min(seen_at.get(task_id, ended), ended)
    for read in history.reads:
        for frame in read.frames:
            if state_of(frame.event) == CANCELED:
                seen_at[read.task_id] = min(seen_at.get(read.task_id, frame.at), frame.at)
    for run in history.runs:
        at = seen_at.get(run.task_id)
        if at is not None and _end_of(run, history) > at and not _is_excused(run, at, history):
            yield f"task {run.task_id} was canceled while {run.token} ran on {run.replica}"


def check_texts(history: History) -> Iterator[str]:
    """Nothing that a replaced run says is stored, and the result is what one run said."""
    runs = {run.token: run for run in history.runs}
    for task_id, final in history.finals.items():
        order: list[str] = []
        for event in final.journal:
            parts = event.get("artifactUpdate", {}).get("artifact", {}).get("parts", [])
            order += _TOKEN.findall(text_of(parts))
        changes = [first for first, second in pairwise([*order, ""]) if first != second]
        if len(changes) != len(set(changes)):
            yield f"task {task_id} has pieces of replaced runs: {changes}"
        if final.state != COMPLETED:
            continue
        said = set(
            _TOKEN.findall(text_of(final.task["status"].get("message", {}).get("parts", [])))
        )
        if said and not (len(said) == 1 and runs[next(iter(said))].how == "done"):
            yield f"task {task_id} was completed with the text of {sorted(said)}"


def _by_task(runs: Sequence[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        found[run.task_id].append(run)
    return found


def _by_session(runs: Sequence[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda one: one.began):
        found[run.session].append(run)
    return found


def _end_of(run: Run, history: History) -> float:
    """When it ended, by itself or with its process."""
    if run.ended is not None:
        return run.ended
    ends = (one.gone for one in history.faults if one.gone is not None and one.pid == run.pid)
    return min(ends, default=float("inf"))


def _is_excused(run: Run, at: float, history: History) -> bool:
    """Whether a run may not know at this time that it was replaced.

    Its replica was paused or cut off then, or a moment ago, and it ended soon afterwards. A fault
    that begins before the replica can have noticed the end of the one before goes on with that.
    """
    spans: list[list[float]] = []
    for fault in sorted(history.faults, key=lambda one: one.began):
        if fault.kind in _ENDING or fault.replica not in ("", run.replica):
            continue
        latest = fault.ended + history.lease_s
        if spans and fault.began <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], latest)
        else:
            spans.append([fault.began, latest])
    ended = _end_of(run, history)
    return any(began <= at <= latest and ended <= latest for began, latest in spans)


# ---------------------------------------------------------------- calls and plans


def check_calls(history: History) -> Iterator[str]:
    """G7: a call has one outcome in the session of its caller.

    A replica that is paused while it delivers an outcome goes on with that afterwards; only the
    host of the session can notice. The second delivery says the same then.
    """
    # The answer that accepted a call may have been lost; it has one outcome all the same.
    arrived: dict[str, list[Delivered]] = {call.id: [] for call in history.calls}
    for delivered in history.delivered:
        arrived.setdefault(delivered.call_id, []).append(delivered)
    silences = (FaultKind.PAUSE, FaultKind.LOST)
    pauses = [fault for fault in history.faults if fault.kind in silences]
    polled = {call.id for call in history.calls if call.polled is not None}
    for call in history.calls:
        for one in arrived[call.id] if call.polled is not None and not call.is_late else ():
            if call.polled["status"] != one.outcome["status"]:
                yield f"call {call.id} was {call.polled} when asked for, and told as {one.outcome}"
    for call_id, found in arrived.items():
        outcomes = [[one.outcome.get(name) for name in _OUTCOME] for one in found]
        # Whoever asks for an outcome has it in its session: it need not be delivered as well.
        is_missing = not found and call_id not in polled
        if is_missing or any(outcome != outcomes[0] for outcome in outcomes):
            yield f"call {call_id} has {len(found)} outcomes: {outcomes}"
        for late in found[1:]:
            if not any(one.began <= late.at <= one.ended + history.lease_s for one in pauses):
                yield f"call {call_id} has {len(found)} outcomes: {outcomes}"


def check_plans(history: History) -> Iterator[str]:
    """A plan is completed, its steps in order, and each of them once unless a fault came."""
    runs: dict[str, list[Run]] = defaultdict(list)
    for run in history.runs:
        runs[run.text].append(run)
    for objective in history.objectives:
        if objective.status != COMPLETED:
            yield f"objective {objective.id} is {objective.status}"
            continue
        for name, needed in objective.steps.items():
            done = [run for run in runs[name] if run.how == "done"]
            if not done:
                yield f"step {name} of objective {objective.id} was never done"
                continue
            for before in needed:
                ends = [run.ended for run in runs[before] if run.how == "done"]
                if not ends or min(ends) > runs[name][0].began:
                    yield f"step {name} of objective {objective.id} began before {before} was done"
            if len(runs[name]) > objective.plans and not any(
                fault.ended >= runs[name][0].began for fault in history.faults
            ):
                yield f"step {name} of objective {objective.id} was run {len(runs[name])} times"


# ---------------------------------------------------------------- delays


def check_delays(history: History) -> Iterator[str]:
    """Whoever waits for the end of a task sees it soon after its agent has ended."""
    most_s = history.most_delay_s
    if most_s is None:
        return
    last = {run.task_id: run for run in history.runs if run.ended is not None}
    waits: list[tuple[str, float, float]] = []
    for read in history.reads:
        ends = [one.at for one in read.frames if state_of(one.event) in (*TERMINAL, PAUSED)]
        waits.append((read.task_id, read.began, ends[-1] if ends else read.left))
    for sent in history.sent:
        if sent.accepted_task and state_of(sent.outcome) in (*TERMINAL, PAUSED):
            waits.append((sent.accepted_task, sent.began, sent.ended))
    for task_id, began, until in waits:
        run = last.get(task_id)
        if run is None or run.ended is None or began > run.ended or until <= run.ended + most_s:
            continue
        if not any(fault.began < until and fault.ended > run.ended for fault in history.faults):
            delay_s = until - run.ended
            yield f"the end of task {task_id} was not seen for {delay_s:.1f} s"


RULES: dict[str, Rule] = {
    "outcomes": check_outcomes,
    "duplicates": check_duplicates,
    "refusals": check_refusals,
    "failures": check_failures,
    "order": check_order,
    "gaps": check_gaps,
    "ends": check_ends,
    "timestamps": check_timestamps,
    "reads": check_reads,
    "lists": check_lists,
    "isolation": check_isolation,
    "repeats": check_repeats,
    "sessions": check_sessions,
    "arrival": check_arrival,
    "cancels": check_cancels,
    "texts": check_texts,
    "calls": check_calls,
    "plans": check_plans,
    "delays": check_delays,
}
