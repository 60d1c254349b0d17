"""The checker accepts a good history, and each rule notices a history that breaks it."""

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.replicas.checker import RULES, check_history
from tests.replicas.history import (
    CANCELED,
    COMPLETED,
    FAILED,
    PAUSED,
    Call,
    Delivered,
    Fault,
    FaultKind,
    Final,
    Frame,
    Got,
    History,
    Json,
    Listed,
    MessageKey,
    Objective,
    Read,
    Run,
    Sent,
    read_losses,
    read_runs,
)

WORKING, SUBMITTED = "TASK_STATE_WORKING", "TASK_STATE_SUBMITTED"
LEASE_S = 3.0


def status(state: str, second: int, text: str = "") -> Json:
    message = {"message": {"parts": [{"text": text}]}} if text else {}
    return {"state": state, "timestamp": f"2026-01-01T00:00:{second:02}Z", **message}


def changed(state: str, second: int, text: str = "") -> Json:
    return {"statusUpdate": {"status": status(state, second, text)}}


def chunk(text: str, *, append: bool = True) -> Json:
    artifact = {"artifactId": "a", "parts": [{"text": text}]}
    return {"artifactUpdate": {"artifact": artifact, "append": append}}


def task_of(task_id: str, last: Json, text: str, *messages: str) -> Json:
    artifacts = [{"artifactId": "a", "parts": [{"text": text}]}] if text else []
    history = [{"messageId": one} for one in messages]
    return {"id": task_id, "status": last, "artifacts": artifacts, "history": history}


def new_task(task_id: str) -> Json:
    return {"task": task_of(task_id, status(SUBMITTED, 0), "")}


class Builder:
    """Adds whole tasks to a history, each at a time of its own."""

    def __init__(self) -> None:
        self.history = History(lease_s=LEASE_S)

    def add_task(
        self,
        task_id: str,
        journal: list[Json],
        *,
        at: float,
        account: str = "default",
        caller: str = "alice",
        how: str = "done",
    ) -> None:
        """A task that was sent at a time, run by one run, and read as it went on.

        Its message is `m-TASK`, its session `s-TASK`, its run begins half a second later and ends
        after two.
        """
        key = MessageKey(caller, account, f"m-{task_id}")
        first = {**new_task(task_id)}
        self.history.sent.append(Sent(key, f"c-{task_id}", at, at + 0.1, outcome=first))
        frames = [Frame(at + 0.1, 0, first)]
        frames += [Frame(at + 3 + n / 10, n, one) for n, one in enumerate(journal, 1)]
        self.history.reads.append(Read(task_id, at, None, frames, ended=at + 4))
        self.add_run(f"r{task_id:0>8}", task_id, at=at + 0.5, key=key, how=how)
        last = journal[-1]["statusUpdate"]["status"]
        pieces = [one["artifactUpdate"] for one in journal if "artifactUpdate" in one]
        text = "".join(one["artifact"]["parts"][0]["text"] for one in pieces)
        task = task_of(task_id, last, text, key.id)
        self.history.finals[task_id] = Final(caller, account, task, journal, copy.deepcopy(journal))
        got = Got(caller, account, task_id, at + 8, at + 8.1, {"task": task})
        self.history.got.append(got)

    def add_run(
        self, token: str, task_id: str, *, at: float, key: MessageKey, how: str = "done"
    ) -> None:
        run = Run(
            token=token,
            replica="replica-0",
            pid=10,
            agent=key.account,
            is_repeatable=key.account == "default",
            session=f"s-{task_id}",
            key=key,
            task_id=task_id,
            text="hello",
            began=at,
            ended=at + 2,
            how=how,
        )
        self.history.runs.append(run)


def good_history() -> History:
    """Tasks: completed (1), canceled (2), failed by a kill (3), answered (4), sent twice (5)."""
    build = Builder()
    history = build.history
    said = "r00000001.0 r00000001.1 "
    build.add_task(
        "1",
        [
            changed(WORKING, 1),
            chunk("r00000001.0 ", append=False),
            chunk("r00000001.1 "),
            changed(COMPLETED, 2, said),
        ],
        at=10,
    )
    frames = [copy.deepcopy(one) for one in history.reads[0].frames[3:]]
    history.reads.append(Read("1", 11.0, 2, frames, ended=14.0))
    build.add_task(
        "2", [changed(WORKING, 1), changed(CANCELED, 2)], at=20, caller="bob", how="stopped"
    )
    build.add_task(
        "3", [changed(WORKING, 1), changed(FAILED, 2, "stopped")], at=30, account="fragile"
    )
    history.runs[-1].ended, history.runs[-1].how = None, ""
    history.faults.append(Fault(FaultKind.KILL, "replica-0", 10, 31.0, 33.0, gone=31.1))
    _add_answered(build)
    build.add_task("5", [changed(WORKING, 1), changed(COMPLETED, 2)], at=50)
    twin = copy.deepcopy(next(one for one in history.sent if one.accepted_task == "5"))
    twin.outcome = {"task": history.finals["5"].task}
    twin.ended = 58.0
    history.sent.append(twin)
    history.got.append(
        Got("bob", "default", "1", 60.0, 60.1, {"error": {"code": -32001}}),
    )
    history.listed.append(Listed("alice", "default", "c-1", 60.0, ["1"]))
    history.calls.append(Call("k-1"))
    history.delivered.append(Delivered("k-1", {"status": "completed"}, 65.0))
    _add_objective(build)
    return history


def _add_answered(build: Builder) -> None:
    """Task 4 asks, gets an answer, and is completed."""
    asked, answered = [changed(WORKING, 1), changed(PAUSED, 2, "which?")], "m-4-answer"
    build.add_task("4", asked, at=40, how="asked")
    rest = [changed(WORKING, 3), changed(COMPLETED, 4)]
    history, key = build.history, MessageKey("alice", "default", answered)
    outcome = {"task": task_of("4", status(PAUSED, 2, "which?"), "", "m-4", answered)}
    history.sent.append(Sent(key, "c-4", 44.0, 44.5, task_id="4", outcome=outcome))
    build.add_run("r0000004b", "4", at=45, key=key)
    final = history.finals["4"]
    for journal in (final.journal, final.other_journal):
        journal += copy.deepcopy(rest)
    final.task = task_of("4", status(COMPLETED, 4), "", "m-4", answered)
    history.got[-1].outcome = {"task": final.task}


def _add_objective(build: Builder) -> None:
    history = build.history
    for place, name in enumerate(("dig", "wall")):
        key = MessageKey("alice", "default", f"m-{name}")
        build.add_run(f"r000000f{place}", name, at=70 + 3 * place, key=key)
        history.runs[-1].text = name
    history.objectives.append(Objective("o-1", COMPLETED, {"dig": [], "wall": ["dig"]}))


def run_of(history: History, task_id: str) -> Run:
    return next(run for run in history.runs if run.task_id == task_id)


def sent_of(history: History, message_id: str) -> Sent:
    return next(sent for sent in history.sent if sent.key.id == message_id)


def rules_broken(history: History) -> set[str]:
    return {violation.rule for violation in check_history(history)}


# ---------------------------------------------------------------- histories that break a rule

BREAKS: list[tuple[str, Callable[[History], object]]] = []


def breaks(rule: str) -> Callable[[Callable[[History], None]], Callable[[History], None]]:
    """The function changes a good history so that it breaks the rule."""

    def add(change: Callable[[History], None]) -> Callable[[History], None]:
        BREAKS.append((rule, change))
        return change

    return add


@breaks("outcomes")
def a_task_is_gone(history: History) -> None:
    del history.finals["1"]


@breaks("outcomes")
def a_task_never_ends(history: History) -> None:
    final = history.finals["1"]
    final.task["status"] = status(WORKING, 1)


@breaks("outcomes")
def a_task_ends_twice(history: History) -> None:
    history.finals["1"].journal.append(changed(FAILED, 3))


@breaks("outcomes")
def a_message_is_twice_in_its_task(history: History) -> None:
    history.finals["1"].task["history"] *= 2


@breaks("outcomes")
def a_message_is_not_in_its_task(history: History) -> None:
    history.finals["4"].task["history"].pop()


@breaks("outcomes")
def a_client_waits_in_vain(history: History) -> None:
    history.problems.append("client 1 waited in vain")


@breaks("duplicates")
def a_message_makes_two_tasks(history: History) -> None:
    history.sent[-1].outcome = copy.deepcopy(sent_of(history, "m-1").outcome)


@breaks("duplicates")
def a_direct_answer_changes(history: History) -> None:
    key = MessageKey("alice", "hybrid", "m-direct")
    for text in ("a", "b"):
        outcome = {"message": {"parts": [{"text": text}]}}
        history.sent.append(Sent(key, "c", 80.0, 81.0, outcome=outcome))


@breaks("duplicates")
def an_accepted_message_is_refused_later(history: History) -> None:
    again = copy.deepcopy(sent_of(history, "m-4-answer"))
    again.began, again.outcome = 59.0, {"error": {"code": -32004}}
    history.sent.append(again)


@breaks("duplicates")
def two_senders_of_a_message_see_different_ends(history: History) -> None:
    other = copy.deepcopy(history.sent[-1])
    other.outcome["task"]["status"] = status(FAILED, 9)
    history.sent.append(other)


@breaks("refusals")
def a_new_message_is_refused(history: History) -> None:
    key = MessageKey("alice", "default", "m-new")
    history.sent.append(Sent(key, "c", 80.0, 81.0, outcome={"error": {"code": -32602}}))


@breaks("refusals")
def an_own_task_is_not_found(history: History) -> None:
    history.got.append(Got("alice", "default", "1", 60.0, 60.1, {"error": {"code": -32001}}))


@breaks("refusals")
def a_task_that_goes_on_is_not_cancelable(history: History) -> None:
    refused = {"error": {"code": -32002}}
    history.got.append(Got("alice", "default", "4", 40.1, 40.2, refused, is_cancel=True))
    going_on = {"task": task_of("4", status(PAUSED, 2, "which?"), "")}
    history.got.append(Got("alice", "default", "4", 43.5, 43.6, going_on))


@breaks("failures")
def a_task_fails_without_a_cause(history: History) -> None:
    history.faults.clear()


@breaks("failures")
def a_task_fails_without_a_reason(history: History) -> None:
    del history.finals["3"].task["status"]["message"]


@breaks("failures")
def a_run_that_may_be_repeated_is_not(history: History) -> None:
    run_of(history, "3").is_repeatable = True


@breaks("order")
def an_event_that_was_seen_is_taken_back(history: History) -> None:
    for journal in (history.finals["1"].journal, history.finals["1"].other_journal):
        del journal[2]


@breaks("order")
def two_replicas_tell_different_journals(history: History) -> None:
    history.finals["1"].other_journal[2] = chunk("something else")


@breaks("order")
def a_reader_sees_another_event(history: History) -> None:
    history.reads[0].frames[2].event = chunk("something else")


@breaks("order")
def a_snapshot_is_ahead_of_its_number(history: History) -> None:
    snapshot = Frame(19.0, 2, {"task": history.finals["1"].task})
    history.reads.append(Read("1", 18.0, None, [snapshot]))


@breaks("gaps")
def an_event_is_left_out(history: History) -> None:
    del history.reads[0].frames[2]


@breaks("gaps")
def an_event_is_sent_twice(history: History) -> None:
    history.reads[0].frames.insert(2, history.reads[0].frames[2])


@breaks("gaps")
def a_resumed_stream_begins_too_late(history: History) -> None:
    del history.reads[1].frames[0]


@breaks("gaps")
def a_resumed_stream_begins_with_a_snapshot(history: History) -> None:
    history.reads[1].frames[0].event = {"task": history.finals["1"].task}


@breaks("gaps")
def a_stream_ends_before_its_task(history: History) -> None:
    del history.reads[0].frames[-2:]


@breaks("ends")
def an_event_follows_the_end_in_the_journal(history: History) -> None:
    history.finals["1"].journal.append(chunk("late"))


@breaks("ends")
def an_event_follows_the_end_in_a_stream(history: History) -> None:
    history.reads[0].frames.append(Frame(20.0, 5, chunk("late")))


@breaks("timestamps")
def a_status_is_older_than_the_one_before(history: History) -> None:
    history.finals["1"].journal[0] = changed(WORKING, 9)


@breaks("reads")
def another_replica_shows_an_older_status(history: History) -> None:
    old = task_of("1", status(WORKING, 1), "")
    history.got.append(Got("alice", "default", "1", 19.0, 19.1, {"task": old}))


@breaks("reads")
def another_replica_begins_a_stream_with_an_older_snapshot(history: History) -> None:
    old = {"task": task_of("1", status(WORKING, 1), "")}
    history.reads.append(Read("1", 19.0, None, [Frame(19.1, 1, old)]))


@breaks("reads")
def a_status_is_shown_that_no_event_had(history: History) -> None:
    odd = task_of("1", status(WORKING, 5), "")
    history.got.append(Got("alice", "default", "1", 10.5, 10.6, {"task": odd}))


@breaks("lists")
def a_list_leaves_a_task_out(history: History) -> None:
    history.listed[0].task_ids.clear()


@breaks("lists")
def a_list_shows_a_task_of_somebody_else(history: History) -> None:
    history.listed[0].task_ids.append("2")


@breaks("isolation")
def somebody_else_gets_a_task(history: History) -> None:
    history.got.append(Got("bob", "default", "1", 60.0, 60.1, {"task": history.finals["1"].task}))


@breaks("isolation")
def two_callers_share_a_session(history: History) -> None:
    run_of(history, "2").session = "s-1"


@breaks("repeats")
def a_run_that_may_not_be_repeated_is(history: History) -> None:
    again = copy.deepcopy(run_of(history, "3"))
    again.token, again.began, again.pid = "r0000003b", 35.0, 11
    again.ended = 36.0
    history.runs.append(again)


@breaks("sessions")
def a_session_has_two_runs_at_once(history: History) -> None:
    run_of(history, "5").session = "s-1"
    run_of(history, "5").began = 11.0


@breaks("sessions")
def a_replaced_run_goes_on_long_after_its_replica_came_back(history: History) -> None:
    pause_with_successor(history, resumed_at=16.0, ended=16.0 + LEASE_S + 1)


@breaks("arrival")
def a_later_message_is_run_first(history: History) -> None:
    first, second = run_of(history, "1"), run_of(history, "5")
    second.session = first.session
    second.began, second.ended = 5.0, 6.0


@breaks("cancels")
def a_canceled_run_goes_on(history: History) -> None:
    run_of(history, "2").ended = 29.0


@breaks("cancels")
def a_canceled_task_is_run_afterwards(history: History) -> None:
    later = copy.deepcopy(run_of(history, "2"))
    later.began, later.ended = 50.0, 51.0
    history.runs.append(later)


@breaks("texts")
def a_replaced_run_is_heard_again(history: History) -> None:
    journal = history.finals["1"].journal
    journal[3:3] = [chunk("r0000001b.0 "), chunk("r00000001.2 ")]


@breaks("texts")
def the_result_is_of_a_run_that_did_not_end(history: History) -> None:
    run_of(history, "1").how = "stopped"


@breaks("calls")
def a_call_has_no_outcome(history: History) -> None:
    history.delivered.clear()


@breaks("calls")
def a_call_is_told_otherwise_than_when_asked_for(history: History) -> None:
    history.calls[0].polled = {"status": "timeout"}


@breaks("calls")
def a_call_has_two_outcomes(history: History) -> None:
    history.delivered *= 2


@breaks("calls")
def a_call_that_its_caller_does_not_know_of_has_two_outcomes(history: History) -> None:
    history.delivered += 2 * [Delivered("k-2", {"status": "completed"}, 66.0)]


@breaks("calls")
def a_paused_replica_delivers_another_outcome(history: History) -> None:
    deliver_again_after_pause(history, "timeout")


@breaks("plans")
def a_plan_fails(history: History) -> None:
    history.objectives[0].status = FAILED


@breaks("plans")
def a_step_is_never_done(history: History) -> None:
    run_of(history, "wall").how = "stopped"


@breaks("plans")
def a_step_begins_before_the_one_it_depends_on_is_done(history: History) -> None:
    run_of(history, "wall").began = 71.0


@breaks("plans")
def a_step_is_repeated_without_a_fault(history: History) -> None:
    history.runs.append(copy.deepcopy(run_of(history, "wall")))


@breaks("delays")
def an_end_is_seen_late(history: History) -> None:
    history.most_delay_s = 6.0
    history.reads[0].frames[-1].at = 20.0


@breaks("delays")
def a_reader_leaves_because_nothing_came(history: History) -> None:
    history.most_delay_s = 6.0
    history.reads[0].frames = history.reads[0].frames[:2]
    history.reads[0].left = 30.0


@breaks("delays")
def a_sender_waits_long_for_a_task_that_has_ended(history: History) -> None:
    history.most_delay_s = 6.0
    history.sent[-1].ended = 70.0


@pytest.mark.parametrize(
    ("rule", "change"), BREAKS, ids=[f"{rule}-{change.__name__}" for rule, change in BREAKS]
)
def test_a_rule_notices_a_history_that_breaks_it(
    rule: str, change: Callable[[History], object]
) -> None:
    history = good_history()
    change(history)
    assert rule in rules_broken(history)


def test_every_rule_has_a_history_that_breaks_it() -> None:
    assert {rule for rule, _ in BREAKS} == set(RULES)


# ---------------------------------------------------------------- histories that break none


def test_a_good_history_breaks_no_rule() -> None:
    assert check_history(good_history()) == []


def pause_with_successor(history: History, *, resumed_at: float, ended: float) -> None:
    """Task 1 is run on a replica that is paused at 11; another one replaces the run at 15."""
    first = run_of(history, "1")
    first.replica, first.ended, first.how = "replica-1", ended, "stopped"
    history.faults.append(Fault(FaultKind.PAUSE, "replica-1", 12, 11.0, resumed_at))
    second = copy.deepcopy(first)
    second.token, second.replica, second.how = "r0000001b", "replica-2", "done"
    second.began, second.ended = 15.0, 15.5
    history.runs.append(second)


def test_a_paused_run_may_overlap_with_its_successor_until_it_notices() -> None:
    history = good_history()
    pause_with_successor(history, resumed_at=16.0, ended=16.2)
    assert "sessions" not in rules_broken(history)


def test_a_run_may_overlap_while_one_cut_follows_the_other() -> None:
    history = good_history()
    pause_with_successor(history, resumed_at=16.0, ended=22.2)
    history.faults.append(Fault(FaultKind.DROP, "replica-1", 12, 16.5, 22.0))
    history.faults[-1].replica = history.faults[-2].replica
    assert "sessions" not in rules_broken(history)


def deliver_again_after_pause(history: History, status: str) -> None:
    history.faults.append(Fault(FaultKind.PAUSE, "replica-1", 12, 64.0, 69.0))
    history.delivered.append(Delivered("k-1", {"status": status}, 69.1))


def test_a_paused_replica_may_deliver_an_outcome_that_is_there_already() -> None:
    history = good_history()
    deliver_again_after_pause(history, "completed")
    assert "calls" not in rules_broken(history)


def test_an_outcome_that_was_asked_for_need_not_be_delivered() -> None:
    history = good_history()
    history.delivered.clear()
    history.calls[0].polled = {"status": "completed"}
    assert check_history(history) == []


def test_an_answer_that_was_polled_after_the_deadline_says_nothing_of_the_outcome() -> None:
    """An earlier poll, whose answer was lost, may have had the timeout."""
    history = good_history()
    history.calls[0].polled, history.calls[0].is_late = {"status": "completed"}, True
    history.delivered.clear()
    assert check_history(history) == []
    history.delivered.append(Delivered(history.calls[0].id, {"status": "timeout"}, 66.0))
    assert check_history(history) == []


def test_a_replica_that_says_it_was_taken_for_dead_may_have_run_on_until_then() -> None:
    history = good_history()
    pause_with_successor(history, resumed_at=16.0, ended=16.2)
    taken, lost = history.faults[-1].began, history.faults[-1].ended
    del history.faults[-1]
    assert "sessions" in rules_broken(history)
    logs = {
        "replica-2": _log_line("replica.taken_over", taken, replica="x", label="replica-1"),
        "replica-1": _log_line("replica.lost", lost, replica="x") + '{"event":"replica.lost","re',
    }
    history.faults += read_losses(logs, LEASE_S, 0.0)
    assert [(one.kind, one.replica) for one in history.faults[-1:]] == [
        (FaultKind.LOST, "replica-1")
    ]
    assert "sessions" not in rules_broken(history)


def test_a_replica_that_was_taken_over_and_says_nothing_is_not_excused() -> None:
    line = _log_line("replica.taken_over", 10.0, replica="x", label="replica-0")
    assert read_losses({"replica-1": line}, LEASE_S, 0.0) == []


def _log_line(event: str, at: float, **fields: str) -> str:
    timestamp = datetime.fromtimestamp(at, UTC).isoformat()
    return (
        json.dumps({"event": event, **fields, "timestamp": timestamp}, separators=(",", ":")) + "\n"
    )


def test_a_pause_of_another_replica_excuses_no_overlap() -> None:
    history = good_history()
    pause_with_successor(history, resumed_at=16.0, ended=16.2)
    history.faults[-1].replica = "replica-3"
    assert "sessions" in rules_broken(history)


def test_a_run_that_begins_when_its_replica_comes_back_may_overlap_until_it_notices() -> None:
    """Its agent was about to be asked when it was paused; another replica has it by now."""
    history = good_history()
    pause_with_successor(history, resumed_at=14.9, ended=15.3)
    run_of(history, "1").began = 14.95
    history.runs[-1].began, history.runs[-1].ended = 14.93, 15.5
    assert "sessions" not in rules_broken(history)
    run_of(history, "1").ended = 14.9 + LEASE_S + 1
    history.runs[-1].ended = 14.9 + LEASE_S + 2
    assert "sessions" in rules_broken(history)


def test_the_end_of_a_task_may_be_late_while_something_fails() -> None:
    history = good_history()
    an_end_is_seen_late(history)
    history.faults.append(Fault(FaultKind.DATABASE, "", 0, 11.0, 13.0))
    assert "delays" not in rules_broken(history)


def test_who_asks_for_a_task_that_has_ended_was_not_kept_waiting() -> None:
    history = good_history()
    an_end_is_seen_late(history)
    for read in history.reads:
        read.began += 10
    assert "delays" not in rules_broken(history)


def test_a_task_that_has_ended_is_not_cancelable() -> None:
    history = good_history()
    refused = {"error": {"code": -32002}}
    history.got.append(Got("alice", "default", "1", 60.1, 60.2, refused, is_cancel=True))
    assert check_history(history) == []


def test_a_gateway_that_stops_may_end_its_streams_early() -> None:
    history = good_history()
    a_stream_ends_before_its_task(history)
    history.faults.append(Fault(FaultKind.STOP, "replica-0", 10, 13.5, 15.0, gone=14.5))
    assert "gaps" not in rules_broken(history)


def test_a_run_that_was_killed_ended_with_its_process() -> None:
    history = good_history()
    again = copy.deepcopy(run_of(history, "1"))
    again.token, again.pid = "r0000001b", 11
    first = run_of(history, "1")
    first.ended, first.how, first.pid = None, "", 12
    again.began, again.ended = 11.5, 12.0
    history.runs.append(again)
    history.faults.append(Fault(FaultKind.KILL, "replica-0", 12, 11.0, 14.0, gone=11.1))
    assert "sessions" not in rules_broken(history)


def test_the_journal_of_agents_is_read_as_runs(tmp_path: Path) -> None:
    key = {"caller": "alice", "account": "default", "id": "m-1"}
    began = {
        "token": "r00000001",
        "replica": "replica-0",
        "pid": 1,
        "agent": "main",
        "is_repeatable": True,
        "session": "s",
        "key": key,
        "task_id": "1",
        "text": "hello",
        "began": 1.0,
    }
    lines = [
        began,
        {**began, "token": "r00000002", "began": 0.5},
        {"token": "r00000001", "how": "done", "at": 2.0},
    ]
    path = tmp_path / "agents.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    second, first = read_runs(path)
    assert (first.token, first.ended, first.how) == ("r00000001", 2.0, "done")
    assert (second.token, second.ended, second.how) == ("r00000002", None, "")
