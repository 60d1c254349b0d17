"""How calls and debates look: their states in words, their tables and their trees."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from openclaw_a2a.cli.render.calls import (
    CALL_TABLE,
    CallTimes,
    CallView,
    call_answer,
    call_changes,
    call_head,
    call_note,
    call_times,
    debate_tree,
    format_output,
)
from openclaw_a2a.cli.render.terminal import (
    LiveView,
    WaitIndicator,
    format_age,
    format_duration,
    plain_lines,
    styled_text,
    truncate,
)

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
NAMES = ("accepted", "running", "answered", "timedOut", "delivered", "seen", "discarded")


def shown(**facts: Any) -> CallView:
    whole = {"correlationId": "6a0e1111-2222", "caller": "main", "agent": "b", "skill": "find"}
    return msgspec.convert({**whole, **facts}, CallView)


def times(*names: str, step_s: float = 1.0) -> dict[str, str]:
    return {
        name: (NOON + timedelta(seconds=step_s * number)).isoformat()
        for number, name in enumerate(names)
    }


def text(page: Any) -> str:
    return "\n".join(plain_lines(*page))


@pytest.mark.parametrize(
    ("reached", "state"),
    [
        ((), "accepted"),
        (("accepted",), "accepted"),
        (("accepted", "running"), "running"),
        (("accepted", "running", "answered"), "answered"),
        (("accepted", "timedOut"), "timed out"),
        (("accepted", "running", "answered", "delivered"), "delivered"),
        (("accepted", "running", "answered", "delivered", "seen"), "seen"),
        (("accepted", "running", "answered", "discarded"), "discarded"),
        (("accepted", "running", "timedOut", "delivered", "answered"), "delivered"),
    ],
)
def test_call_state_is_the_latest_state_reached(reached: tuple[str, ...], state: str) -> None:
    assert shown(times=times(*reached)).state == state


@pytest.mark.parametrize(
    ("facts", "is_over"),
    [
        ({"status": "pending", "times": times("accepted")}, False),
        ({"status": "completed", "route": "session", "times": times("answered")}, False),
        ({"status": "completed", "route": "session", "times": times("delivered")}, True),
        ({"status": "timeout", "route": "session", "times": times("discarded")}, True),
        ({"status": "completed", "route": "inbox", "times": times("answered")}, True),
        ({"status": "completed", "route": "waited"}, True),
        ({"status": "pending", "route": "none", "times": times("answered")}, True),
    ],
)
def test_call_is_over_when_its_outcome_needs_no_more_delivery(facts: Any, is_over: bool) -> None:
    assert shown(**facts).is_over is is_over


@pytest.mark.parametrize(
    ("facts", "note"),
    [
        ({"status": "pending"}, ""),
        (
            {"status": "pending", "times": {"deadline": "2026-11-15T12:01:00Z"}},
            "1 min left",
        ),
        ({"status": "pending", "times": {"deadline": "2026-11-15T11:59:00Z"}}, "0 s left"),
        ({"status": "completed", "confidence": 0.9}, "confidence 0.90"),
        ({"status": "completed"}, ""),
        ({"status": "timeout", "timeoutMs": 60_000}, "no answer in 1 min"),
        (
            {"status": "timeout", "timeoutMs": 5000, "times": times("answered")},
            "no answer in 5 s; an answer came later",
        ),
        ({"status": "error", "error": "it broke"}, "it broke"),
        (
            {"status": "discarded", "reason": "the session is gone", "error": "x"},
            "the session is gone",
        ),
    ],
)
def test_call_note_states_the_most_important_fact(facts: Any, note: str) -> None:
    assert call_note(shown(**facts), NOON) == note


def test_durations_are_printed_in_their_largest_unit() -> None:
    durations = [
        format_duration(one) for one in (-3, 0.4, 59.9, 60, 3599, 3600, 86_399, 86_400 * 3)
    ]
    assert durations == ["0 s", "0 s", "59 s", "1 min", "59 min", "1 h", "23 h", "3 d"]
    assert format_age(None, NOON) == "-"
    assert format_age(NOON - timedelta(minutes=5), NOON) == "5 min"


def test_call_table_has_separate_status_and_state_columns() -> None:
    calls = [
        shown(status="completed", confidence=0.9, times=times("accepted", "answered", "seen")),
        shown(status="error", error="no luck", times=times("accepted", "answered")),
    ]
    rows = CALL_TABLE.rows(calls, NOON + timedelta(seconds=12), is_short=True)
    assert [" ".join(row).split() for row in rows] == [
        ["CALL", "FROM", "AGENT", "SKILL", "STATUS", "STATE", "SINCE", "NOTE"],
        ["6a0e1111", "main", "b", "find", "completed", "seen", "10", "s", "confidence", "0.90"],
        ["6a0e1111", "main", "b", "find", "error", "answered", "11", "s", "no", "luck"],
    ]
    assert [CALL_TABLE.colours[call.status] for call in calls] == ["green", "red"]


def test_times_after_the_first_are_relative() -> None:
    call = shown(times=times("accepted", "running", "answered", "delivered", step_s=0.5))
    lines = [line.split() for line in plain_lines(*call_times(call))]
    assert [line[-3] for line in lines[1:]] == ["running", "answered", "delivered"]
    assert [line[-2:] for line in lines[1:]] == [["+0.50", "s"], ["+1.00", "s"], ["+1.50", "s"]]


def test_call_times_are_sorted_and_only_the_first_is_absolute() -> None:
    moments = {
        "accepted": NOON,
        "running": NOON,
        "answered": NOON + timedelta(seconds=9),
        "timedOut": NOON + timedelta(seconds=5.02),
        "delivered": NOON + timedelta(seconds=5.03),
        "deadline": NOON + timedelta(seconds=5),
    }
    call = shown(times={name: moment.isoformat() for name, moment in moments.items()})
    first, *others = [line.removeprefix("times").split() for line in plain_lines(*call_times(call))]
    assert (first[0], len(first[1])) == ("accepted", len("2026-11-15"))
    assert [" ".join(one) for one in others] == [
        "running +0.00 s",
        "deadline +5.00 s",
        "timed out +5.02 s",
        "delivered +5.03 s",
        "answered +9.00 s",
    ]


def test_note_is_truncated_to_one_short_line() -> None:
    note = call_note(shown(status="error", error="Traceback:\n  " + "x" * 200), NOON)
    assert note.startswith("Traceback: xxx")
    assert len(note) == 60


def test_undelivered_outcome_shows_the_reason() -> None:
    delivery = {"attempts": 3, "reason": "the host is away", "nextAt": "2026-11-15T12:00:30Z"}
    call = shown(status="completed", confidence=0.9, route="session", delivery=delivery)
    assert call_note(call, NOON) == "not delivered: the host is away"
    assert "delivery 3 tries failed: the host is away; next in 30 s" in text(call_head(call, NOON))
    given_up = shown(status="completed", delivery={**delivery, "nextAt": None})
    assert "the host is away; given up" in text(call_head(given_up, NOON))


def test_call_page_shows_callers_mode_and_answer() -> None:
    call = shown(
        mode="critique",
        status="completed",
        chain=["main", "a"],
        output={"x": 1},
        confidence=0.5,
        assumptions=["sunny"],
        caveats=["once"],
    )
    head = text(call_head(call, NOON))
    assert "b · find (critique)" in head
    assert "main → a → b" in head
    answer = text(call_answer(call))
    assert '"x": 1' in answer
    assert "- sunny" in answer
    assert "- once" in answer
    [(_, _, line)] = call_changes(call, NOON)
    assert line == "6a0e1111  main → b · find · completed · accepted · confidence 0.50"


def part(agent: str, skill: str, confidence: float | None, mode: str = "execute") -> dict[str, Any]:
    is_done = confidence is not None
    return {
        "correlationId": f"{agent}-{skill}",
        "agent": agent,
        "skill": skill,
        "mode": mode,
        "status": "completed" if is_done else "pending",
        "times": times("accepted", "running"),
        **({"confidence": confidence} if is_done else {}),
    }


ROUND = [part("b", "critique", 0.4, "critique"), part("c", "critique", 0.5, "critique")]


def test_debate_tree_shows_rounds_and_confidences() -> None:
    parts = [part("a", "propose", 0.62), *ROUND, part("a", "refine", 0.74), *ROUND]
    parts += [part("a", "refine", 0.88), part("o", "resolve", 0.91)]
    debate = shown(status="completed", output={"status": "resolved"}, parts=parts)
    drawn = text(debate_tree(debate, NOON))
    assert drawn.splitlines() == [
        "",
        "proposal         ✓ a · propose                  ██████░░░░ 0.62",
        "round 1",
        "├── critique     ✓ b · critique                 ████░░░░░░ 0.40",
        "├── critique     ✓ c · critique                 █████░░░░░ 0.50",
        "└── refined      ✓ a · refine                   ███████░░░ 0.74",
        "round 2",
        "├── critique     ✓ b · critique                 ████░░░░░░ 0.40",
        "├── critique     ✓ c · critique                 █████░░░░░ 0.50",
        "└── refined      ✓ a · refine                   █████████░ 0.88",
        "resolution       ✓ o · resolve                  █████████░ 0.91",
        "confidence  0.62 → 0.74 → 0.88 → 0.91",
    ]


def test_running_debate_shows_pending_calls() -> None:
    critics = [part("b", "critique", None, "critique"), part("c", "critique", None, "critique")]
    debate = shown(parts=[part("a", "propose", 0.62), *critics])
    *_, first, second, more, _ = text(debate_tree(debate, NOON + timedelta(seconds=8))).splitlines()
    assert first == "├── critique     … b · critique                 running · 7 s"
    assert second.startswith("└── critique     … c")
    assert more == "…"


def test_debate_without_critiques_has_no_round() -> None:
    parts = [part("a", "propose", 0.97), part("o", "resolve", 0.9)]
    debate = shown(status="completed", output={}, parts=parts)
    lines = text(debate_tree(debate, NOON)).splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["proposal", "resolution"]


def test_debate_result_is_printed_without_its_rounds() -> None:
    result = {
        "status": "unresolved",
        "conclusion": {"plan": "picnic"},
        "dissent": "too dear",
        "rounds": [{"secret": 1}],
    }
    debate = shown(status="completed", output=result, parts=[part("a", "propose", 0.5)])
    printed = text(call_answer(debate))
    assert "unresolved:" in printed
    assert "picnic" in printed
    assert "too dear" in printed
    assert "rounds" not in printed


def test_dissent_is_printed_once() -> None:
    conclusion = {"plan": "picnic", "dissent": "too dear"}
    result = {"status": "resolved", "conclusion": conclusion, "dissent": "too dear"}
    debate = shown(status="completed", output=result, parts=[part("a", "propose", 0.5)])
    assert text(call_answer(debate)).count("too dear") == 1


def test_string_output_is_printed_as_it_is_and_other_values_as_json() -> None:
    assert format_output("plain\nwords") == "plain\nwords"
    assert format_output(None) == "null"
    assert format_output([1]) == "[\n  1\n]"


@given(st.text(max_size=60), st.integers(1, 80))
def test_truncated_line_fits_the_width(line: str, cells: int) -> None:
    assert cell_len(truncate(line, cells)) <= cells


@given(
    st.lists(st.sampled_from(["propose", "refine", "critique", "resolve"]), max_size=12),
    st.sampled_from(["pending", "completed", "error"]),
)
def test_debate_calls_in_any_order_can_be_drawn(skills: list[str], status: str) -> None:
    modes = {"critique": "critique"}
    parts = [part("a", skill, 0.5, modes.get(skill, "execute")) for skill in skills]
    lines = text(debate_tree(shown(status=status, parts=parts), NOON)).splitlines()
    assert sum(" a · " in line for line in lines) == len(skills)


def test_call_without_times_prints_none() -> None:
    assert CallTimes().accepted is None
    assert list(call_times(shown())) == []


def test_live_page_replaces_the_previous_one_and_fits_the_terminal(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("LINES", "4")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    view = LiveView(as_json=False)
    view.show([styled_text("one"), styled_text("two")])
    view.show([styled_text(str(number)) for number in range(9)])
    drawn = capsys.readouterr().out
    assert drawn.startswith("\x1b[?1049h")
    assert re.findall(r"\x1b\[(\d);1H\x1b\[0m\x1b\[K([^\x1b]*)", drawn) == [
        *(("1", "one"), ("2", "two")),
        *(("1", "0"), ("2", "1"), ("3", "2"), ("4", "… 6 more lines")),
    ]
    view.show([styled_text(str(number)) for number in range(9)])
    assert capsys.readouterr().out == ""
    view.close()
    assert capsys.readouterr().out.endswith("\x1b[?1049l0\n1\n2\n3\n4\n5\n6\n7\n8\n")
    view.show([styled_text("below")])
    view.close()
    view.close()
    assert capsys.readouterr().out.count("below") == 2


def test_no_spinner_without_a_terminal(capsys) -> None:
    waiting = WaitIndicator("a · think")
    waiting.wait(0.0, "running")
    waiting.clear()
    assert capsys.readouterr().err == ""
