"""How objectives look: their states in words, their tables and their trees."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from openclaw_a2a.cli.render.objectives import (
    OBJECTIVE_TABLE,
    ObjectiveRow,
    bar,
    describe_waiting,
    describe_working,
    objective_changes,
    objective_head,
    objective_page,
    objective_tree,
)
from openclaw_a2a.cli.render.terminal import build_table, plain_lines

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
Json = Any


def at(seconds_ago: float) -> str:
    return (NOON - timedelta(seconds=seconds_ago)).isoformat()


def task(name: str, status: str = "pending", *after: str, **more: Json) -> Json:
    return {"id": name, "name": name, "status": status, "dependencies": list(after), **more}


def plan(name: str, status: str, *tasks: Json, **more: Json) -> Json:
    return {"id": f"plan-{name}", "name": name, "status": status, "tasks": list(tasks), **more}


def objective(*plans: Json, **more: Json) -> ObjectiveRow:
    tasks = [one for each in plans for one in each["tasks"]]
    done = sum(one["status"] == "completed" for one in tasks)
    progress = {"done": done, "total": len(tasks), "percent": 100 * done // max(1, len(tasks))}
    whole = {
        "id": "obj-1",
        "name": "Trip",
        "status": "working",
        "principal": "local",
        "account": "default",
        "updatedAt": at(3),
        **more,
        "progress": {**progress, "current": [], **more.get("progress", {})},
        "plans": list(plans),
    }
    return msgspec.convert(whole, ObjectiveRow)


def step(name: str, status: str, seconds_ago: float) -> Json:
    return {"taskId": name, "planId": "p", "name": name, "status": status, "since": at(seconds_ago)}


def table(*objectives: ObjectiveRow) -> list[str]:
    return plain_lines(build_table(OBJECTIVE_TABLE.rows(objectives, NOON, is_short=True)))


def text(page: Any) -> list[str]:
    return plain_lines(*page)


TRIP = objective(
    plan(
        "Flight",
        "blocked",
        task("Search", "completed", metadata={"agent": "travel"}, a2aTaskId="6a0e1111-2222"),
        task(
            "Choose", "input-required", "Search", a2aTaskId="7b0e1111-2222", said="Window?\nAisle?"
        ),
        task("Book", "pending", "Choose"),
    ),
    plan(
        "Talk", "working", task("Write", "working", a2aTaskId="8c0e1111"), metadata={"agent": "w"}
    ),
    plan("Hotel", "blocked", task("Reserve"), dependencies=["plan-Flight", "plan-gone"]),
    plan("Visa", "skipped", task("Ask", "canceled")),
    plan("Train", "failed", task("Buy", "failed", said="sold out"), task("Sit", "pending", "Buy")),
    progress={
        "current": [step("Write", "working", 12)],
        "oldestWaiting": step("Choose", "input-required", 180),
    },
)


def test_objective_tree_shows_statuses_progress_agents_and_dependencies() -> None:
    assert text(objective_page(TRIP, NOON)) == [
        "objective  obj-1  Trip",
        "owner      local at default",
        "status     working · changed 3 s ago",
        "progress   ███░░░░░░░░░░░░░░░░░░░░░ 12 % · 1 of 8 steps",
        "works on   Write (w), for 12 s",
        "waits for  an answer to Choose, for 3 min: Window? Aisle?",
        "",
        "‖ Flight       ███░░░░░░░ 1/3  blocked",
        "├── ✓ Search   travel · task 6a0e1111",
        "├── ? Choose   waits for an answer · 3 min · task 7b0e1111 · Window? Aisle?",
        "└── ○ Book     after Choose",
        "● Talk         ░░░░░░░░░░ 0/1  working",
        "└── ● Write    w · working · 12 s · task 8c0e1111",
        "‖ Hotel        ░░░░░░░░░░ 0/1  blocked · after Flight, plan-gone",
        "└── ○ Reserve",
        "∅ Visa         ░░░░░░░░░░ 0/1  skipped",
        "└── ∅ Ask      canceled",
        "✗ Train        ░░░░░░░░░░ 0/2  failed",
        "├── ✗ Buy      failed · sold out",
        "└── ○ Sit      after Buy",
    ]


def test_every_line_has_the_colour_of_its_status() -> None:
    plans = objective_tree(TRIP, NOON).children
    assert [str(plan.label.style) for plan in plans] == ["yellow", "", "yellow", "dim", "red"]
    steps = {step.label.plain.split()[1]: str(step.label.style) for step in plans[0].children}
    assert steps == {"Search": "green", "Choose": "yellow", "Book": "dim"}


def test_active_steps_are_marked_by_the_spinner() -> None:
    shown = text(objective_page(TRIP, NOON, moving="⠋"))
    assert [line for line in shown if "⠋" in line] == [
        line.replace("●", "⠋") for line in text(objective_page(TRIP, NOON)) if "●" in line
    ]


def test_folded_tree_shows_only_active_and_waiting_steps() -> None:
    whole = text(objective_page(TRIP, NOON))
    assert text(objective_page(TRIP, NOON, max_lines=len(whole))) == whole
    assert text(objective_page(TRIP, NOON, max_lines=len(whole) - 1))[7:] == [
        "‖ Flight       ███░░░░░░░ 1/3  blocked",
        "└── ? Choose   waits for an answer · 3 min · task 7b0e1111 · Window? Aisle?",
        "● Talk         ░░░░░░░░░░ 0/1  working",
        "└── ● Write    w · working · 12 s · task 8c0e1111",
        "‖ Hotel        ░░░░░░░░░░ 0/1  blocked · after Flight, plan-gone",
        "∅ Visa         ░░░░░░░░░░ 0/1  skipped",
        "✗ Train        ░░░░░░░░░░ 0/2  failed",
    ]


def test_objective_table_has_status_progress_and_note() -> None:
    objectives = [
        TRIP,
        objective(name="Old", id="obj-123456789abc", status="completed", principal=""),
        objective(plan("A", "pending", task("B")), execution="paused"),
    ]
    assert table(*objectives) == [
        "OBJECTIVE     STATUS     PROGRESS    DONE  CHANGED  OWNER  NAME  NOTE",
        "obj-1         working    █░░░░░░░░░  1/8   3 s      local  Trip  "
        "waits for an answer to Choose, for 3 min: Window? Aisle?",
        "obj-12345678  completed  ░░░░░░░░░░  -     3 s      -      Old",
        "obj-1         paused     ░░░░░░░░░░  0/1   3 s      local  Trip  "
        "waits for somebody to resume it",
    ]
    colours = [OBJECTIVE_TABLE.colours.get(one.status) for one in objectives]
    assert colours == [None, "green", None]


def test_wide_characters_keep_the_columns_aligned() -> None:
    objectives = [objective(name=name, execution="paused") for name in ("旅行の計画", "Trip")]
    heading, *rows = table(*objectives)
    assert {cell_len(row[: row.index("waits")]) for row in rows} == {heading.index("NOTE")}
    steps = objective(plan("計画", "working", task("調べる", "working"), task("Pay", "working")))
    lines = text(objective_page(steps, NOON))[-2:]
    assert len({cell_len(line.rpartition("working")[0]) for line in lines}) == 1


@pytest.mark.parametrize(
    ("facts_", "words"),
    [
        ({"status": "submitted"}, "a plan"),
        ({"status": "submitted", "execution": "running"}, ""),
        ({"status": "planning", "progress": {"total": 3}}, "somebody to run it"),
        ({"status": "working", "execution": "paused"}, "somebody to resume it"),
        ({"status": "completed", "execution": "paused"}, ""),
        (
            {"status": "blocked", "reason": "no JSON in the answer"},
            "no JSON in the answer",
        ),
        ({"status": "failed", "reason": "it is shown as the reason"}, ""),
        (
            {"progress": {"oldestWaiting": step("Pay", "auth-required", 60)}},
            "a sign-in to Pay, for 1 min",
        ),
        ({"status": "failed"}, ""),
    ],
)
def test_waiting_note_names_the_most_important_reason(facts_: Json, words: str) -> None:
    assert describe_waiting(objective(**facts_), NOON) == words


def test_all_active_steps_are_listed() -> None:
    current = [step("A", "working", 5), step("B", "submitted", 1)]
    assert describe_working(objective(progress={"current": current}), NOON) == (
        "A, for 5 s; B, for 1 s"
    )


def test_empty_objective_is_drawn() -> None:
    bare = msgspec.convert({"id": "obj-1"}, ObjectiveRow)
    assert text(objective_page(bare, NOON)) == [
        "objective  obj-1",
        "status     submitted · changed - ago",
        "progress   ░░░░░░░░░░░░░░░░░░░░░░░░ 0 % · no steps",
        "waits for  a plan",
    ]


def test_changes_are_listed_from_steps_to_objective() -> None:
    seen = objective(plan("A", "working", task("B", "working", metadata={"agent": "x"}), task("C")))
    assert list(objective_changes(seen, NOON)) == [
        ("B", "working · x", "obj-1  A / B · working · x"),
        ("C", "pending", "obj-1  A / C · pending"),
        ("plan-A", "working", "obj-1  A · working"),
        ("obj-1", "working", "obj-1  Trip · working"),
    ]


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(1, 60))
def test_progress_bar_has_the_given_width_and_is_full_only_at_100_percent(
    done: int, more: int, width: int
) -> None:
    drawn = bar(done, done + more, width)
    assert len(drawn) == width
    assert ("░" not in drawn) == (more == 0 and done > 0)


WORDS = st.text(max_size=60)
STATES = st.sampled_from(["pending", "working", "completed", "failed", "input-required", "new one"])


@given(
    st.lists(st.tuples(WORDS, STATES, st.lists(st.tuples(WORDS, STATES), max_size=4)), max_size=4),
    WORDS,
)
def test_every_plan_and_step_is_drawn_on_one_line(plans: Json, name: str) -> None:
    made = [
        plan(title, state, *(task(one, status, one) for one, status in tasks))
        for title, state, tasks in plans
    ]
    seen = objective(*made, name=name)
    head = list(objective_head(seen, NOON))
    tree = text(objective_page(seen, NOON))[len(head) :]
    assert len(tree) == (1 if plans else 0) + sum(1 + len(tasks) for *_, tasks in plans)
    assert all(len(line.splitlines()) == 1 for line in text(head) + [one for one in tree if one])
    assert len(table(seen)) == 2
