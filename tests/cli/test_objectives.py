"""`objectives`: seen, carried out, paused, given up and moved from the command line."""

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from rich.cells import cell_len
from tests.cli.conftest import COMMAND, Finished, Terminal, free_port, served

AGENT = Path(__file__).with_name("planning_agent.py")
TIMEOUT_S = 240.0
Json = Any


class Gateway:
    """A gateway with objectives."""

    def __init__(self, address: str, home: Path) -> None:
        self.address = address
        self.home = home

    @property
    def where(self) -> tuple[str, ...]:
        return ("--url", self.address, "--data", str(self.home))

    def tool(self, name: str, arguments: Json) -> Json:
        token = (self.home / "operator.token").read_text("ascii").strip()
        answer = httpx2.post(
            f"{self.address}/tools/{name}",
            json=arguments,
            headers={"authorization": f"Bearer {token}"},
            trust_env=False,
            timeout=TIMEOUT_S,
        )
        return answer.json()

    def make(self, name: str, **plans: Json) -> str:
        """The id of an objective whose plans have these steps, each after the one before."""
        objective_id = self.tool("objective_create", {"name": name})["objective"]["id"]
        for plan, steps in plans.items():
            tasks = [
                {"name": step, "dependencies": [f"task-{place - 1}"] if place else []}
                for place, step in enumerate(steps)
            ]
            asked = {"objectiveId": objective_id, "name": plan, "tasks": tasks}
            assert self.tool("plan_create", asked)["status"] == "ok"
        return objective_id


@pytest.fixture(scope="session")
def start_planning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Gateway]]:
    """Start a gateway: `start_planning("on")`."""
    running = ExitStack()

    def start(*more: str) -> Gateway:
        home, port = tmp_path_factory.mktemp("planning"), free_port()
        command = [sys.executable, str(AGENT), str(port), str(home), *more]
        return Gateway(running.enter_context(served(command, home, port)), home)

    with running:
        yield start


@pytest.fixture(scope="session")
def planning(start_planning: Callable[..., Gateway]) -> Gateway:
    """A gateway with objectives."""
    return start_planning("on")


@pytest.fixture
def run(command: Callable[..., Finished], planning: Gateway) -> Callable[..., Finished]:
    """Run a command against that gateway."""
    return lambda *arguments: command("objectives", *arguments, *planning.where)


def until(ask: Callable[[], Json], is_so: Callable[[Json], bool]) -> Json:
    """What is shown once something is so."""
    late = threading.Event()
    watchdog = threading.Timer(TIMEOUT_S, late.set)
    watchdog.start()
    try:
        while not is_so(shown := ask()):
            assert not late.is_set(), shown
    finally:
        watchdog.cancel()
    return shown


# ------------------------------------------------------------------ list and show


@pytest.mark.requirement("opt.command.list")
def test_objective_list_is_newest_first_with_progress(run, planning) -> None:
    older = planning.make("Garden party", Venue=["List venues", "Book one"])
    newer = planning.make("Nothing yet")
    done = run("list")
    heading, first, second, *_ = done.out.splitlines()
    assert heading.split() == [
        *("OBJECTIVE", "STATUS", "PROGRESS", "DONE", "CHANGED", "OWNER", "NAME", "NOTE")
    ]
    assert first.startswith(f"{newer}  submitted  ░░░░░░░░░░  - ")
    assert first.endswith("operator  Nothing yet   waits for a plan")
    assert second.startswith(f"{older}  planning   ░░░░░░░░░░  0/2")
    assert second.endswith("Garden party  waits for somebody to run it")


def test_list_applies_filters_and_limit(run, planning) -> None:
    planning.make("One")
    planning.make("Two")
    done = run("list", "--status", "submitted", "--limit", "1")
    assert len(done.out.splitlines()) == 2
    assert "more with --limit" in done.err
    shown = run("list", "--status", "submitted", "--json").json
    assert {one["status"] for one in shown["objectives"]} == {"submitted"}
    assert shown["totalSize"] >= 2
    assert run("list", "--status", "happy").code == 2
    assert run("list", "--limit", "0").code == 2


def test_show_objective_accepts_an_id_prefix_and_prints_a_tree(run, planning) -> None:
    objective_id = planning.make("Party", Venue=["List venues", "Book one"], Food=["Cook"])
    for wanted in (objective_id, objective_id[:-2], objective_id.removeprefix("obj-")):
        done = run("show", wanted)
        assert done.code == 0
        lines = done.out.splitlines()[-6:]
        ids = [re.search("  ([0-9a-f]{8})(?: |$)", line) for line in lines]
        assert [
            line.replace(f"  {found[1]}", "").rstrip() if found else line
            for line, found in zip(lines, ids, strict=True)
        ] == [
            "",
            "○ Venue            ░░░░░░░░░░ 0/2  pending",
            "├── ○ List venues",
            "└── ○ Book one     after List venues",
            "○ Food             ░░░░░░░░░░ 0/1  pending",
            "└── ○ Cook",
        ]
    shown = run("show", objective_id, "--json").json
    whole = [one["id"] for plan in shown["plans"] for one in (plan, *plan["tasks"])]
    assert [found[1] for found in ids if found] == [one.split("-")[1][:8] for one in whole]
    assert shown["id"] == objective_id
    assert [len(plan["tasks"]) for plan in shown["plans"]] == [2, 1]


@pytest.mark.parametrize("wanted", ["zz", "obj-00000000"])
def test_unknown_objective_is_reported_as_not_found(run, wanted: str) -> None:
    for verb in ("show", "watch", "run", "pause", "resume", "cancel", "export"):
        done = run(verb, wanted)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith("error plan-item-not-found: ")
        assert "openclaw-a2a objectives list" in done.err


@pytest.mark.parametrize("wanted", ["", "a/b", "?x", "..", "\u0000"])
def test_invalid_id_is_a_usage_error(run, wanted: str) -> None:
    done = run("show", wanted)
    assert (done.code, done.out) == (2, "")
    assert "openclaw-a2a objectives list" in done.err


# ------------------------------------------------------------------ run, watch, pause, cancel


@pytest.mark.requirement("opt.command.watch", "opt.command.act")
def test_objective_is_run_and_watched_until_completed(run, planning) -> None:
    objective_id = planning.make("Post", Work=["Research", "Write", "Review"])
    done = run("run", objective_id, "--follow")
    assert done.code == 0
    assert done.out.splitlines()[-1] == f"{objective_id}  Post · completed"
    assert f"{objective_id}  Work / Review · completed" in done.out.splitlines()
    shown = run("show", objective_id).out
    assert "100 % · 3 of 3 steps" in shown
    assert "✓ Review" in shown


def test_run_with_follow_ends_when_all_that_is_left_waits_for_a_failed_plan(run, planning) -> None:
    objective_id = planning.make("house", ground=["fail"])
    [plan] = planning.tool("objective_status", {"id": objective_id})["objective"]["plans"]
    waits = {"objectiveId": objective_id, "name": "walls", "tasks": [{"name": "build"}]}
    planning.tool("plan_create", {**waits, "dependencies": [plan["id"]]})
    done = run("run", objective_id, "--follow")
    assert done.code == 1
    shown = run("show", objective_id)
    assert "'ground' failed at the step 'fail'" in " ".join(shown.out.split())


def test_run_with_follow_and_json_prints_one_line_per_change(run, planning, tmp_path: Path) -> None:
    objective_id = planning.make("Slow", Work=[f"until {tmp_path / 'now'}", "Last"])
    begun = run("run", objective_id)
    assert begun.code == 0
    assert begun.out.startswith(objective_id)
    assert f"objectives watch {objective_id} --url {planning.address}" in begun.err
    words = ["objectives", "watch", objective_id, "--json", *planning.where]
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        first = watching.stdout.readline()
        (tmp_path / "now").touch()
        rest, _ = watching.communicate(timeout=240)
    assert watching.returncode == 0
    lines = [json.loads(line) for line in [first, *rest.splitlines()]]
    assert lines[0]["status"] == "working"
    assert lines[-1]["status"] == "completed"
    assert all(line["id"] == objective_id for line in lines)


def test_active_step_is_shown_with_its_dependents(run, planning, tmp_path: Path) -> None:
    objective_id = planning.make("Slow", Work=[f"until {tmp_path / 'now'}", "Last"])
    run("run", objective_id)
    shown = until(lambda: run("show", objective_id).out, lambda out: "  working · " in out)
    (tmp_path / "now").touch()
    run("watch", objective_id)
    assert "works on   until " in shown
    assert "● until" in shown
    assert "after until" in shown


def test_failed_step_ends_the_watch_with_exit_code_1_and_the_reason(run, planning) -> None:
    objective_id = planning.make("Bad", Work=["fail at once", "Never"])
    done = run("run", objective_id, "--follow")
    assert done.code == 1
    assert done.out.splitlines()[-1] == f"{objective_id}  Bad · failed"
    shown = run("show", objective_id).out
    assert "✗ fail at once" in shown
    assert "no luck today" in shown


@pytest.mark.requirement("opt.command.list")
def test_waiting_step_is_shown_with_its_question(run, planning) -> None:
    objective_id = planning.make("Trip", Flight=["ask about seats", "Book"])
    run("run", objective_id)
    shown = until(lambda: run("show", objective_id).out, lambda out: "Window or aisle?" in out)
    assert "waits for  an answer to ask about seats, for " in shown
    assert re.search("[?] ask about seats  [0-9a-f]{8}  waits for an answer · ", shown)
    listed = run("list", "--json").json["objectives"]
    [found] = [one for one in listed if one["id"] == objective_id]
    assert found["progress"]["oldestWaiting"]["status"] == "input-required"
    assert f"objectives answer {objective_id} TEXT" in run("show", objective_id).err


def test_answer_command_continues_a_waiting_step(run, planning) -> None:
    objective_id = planning.make("Trip", Flight=["ask about seats", "Book"], Hotel=["ask first"])
    early = run("answer", objective_id, "Aisle, please")
    assert early.code == 1
    assert "no step of" in early.err
    run("run", objective_id)
    until(lambda: run("show", objective_id).out, lambda out: out.count("Window or aisle?") >= 2)
    several = run("answer", objective_id, "Aisle, please")
    assert several.code == 1
    shown = run("show", objective_id, "--json").json
    steps = [plan["tasks"][0] for plan in shown["plans"]]
    for step in steps:
        assert f"{step['id']} ({step['name']})" in several.err
    answered = run("answer", objective_id, "Aisle, please", "--step", steps[1]["id"])
    assert answered.code == 0
    assert "objectives watch" in answered.err
    until(lambda: run("show", objective_id).out, lambda out: out.count("Window or aisle?") == 2)
    assert run("answer", objective_id, "Aisle", "--step", "task-nobody").code == 1
    assert run("answer", objective_id, "Aisle", "--step", steps[1]["id"]).code == 1
    last = run("answer", objective_id, "Window", "--json")
    assert last.json["id"] == objective_id
    assert run("watch", objective_id).code == 0
    empty = run("answer", objective_id, "  ")
    assert (empty.code, "text" in empty.err) == (1, True)


def test_retried_step_shows_time_and_reason(run, planning) -> None:
    objective_id = planning.tool("objective_create", {"name": "Stubborn"})["objective"]["id"]
    step = {"name": "fail at first", "metadata": {"retries": 3, "backoffSeconds": 3600}}
    planning.tool("plan_create", {"objectiveId": objective_id, "name": "Try", "tasks": [step]})
    run("run", objective_id)
    shown = until(lambda: run("show", objective_id).out, lambda out: "again in" in out)
    assert "failed once, again in " in shown
    assert "waits for  another try of fail at first, in " in shown
    assert "no luck today" in shown
    [retry] = run("show", objective_id, "--json").json["progress"]["retrying"]
    assert (retry["name"], retry["attempts"]) == ("fail at first", 1)
    run("cancel", objective_id)


@pytest.mark.requirement("opt.command.act")
def test_paused_objective_starts_no_step_until_it_is_resumed(run, planning, tmp_path) -> None:
    objective_id = planning.make("Held", Work=[f"until {tmp_path / 'now'}", "Last"])
    run("run", objective_id)
    paused = run("pause", objective_id)
    assert paused.code == 0
    assert ", paused  Held" in paused.out
    assert "waits for  somebody to resume it" in run("show", objective_id).out
    (tmp_path / "now").touch()
    done = until(
        lambda: run("show", objective_id, "--json").json,
        lambda shown: shown["progress"]["done"] == 1,
    )
    assert done["plans"][0]["tasks"][1]["status"] == "pending"
    assert run("resume", objective_id, "--json").json["execution"] == "running"
    assert run("watch", objective_id).code == 0


@pytest.mark.requirement("opt.command.act")
def test_cancel_ends_the_objective_and_stops_running_steps(run, planning, tmp_path: Path) -> None:
    objective_id = planning.make("Dropped", Work=[f"until {tmp_path / 'never'}", "Last"])
    run("run", objective_id)
    until(lambda: run("show", objective_id).out, lambda out: "  working · " in out)
    done = run("cancel", objective_id)
    assert (done.code, done.out) == (0, f"{objective_id}  canceled  Dropped\n")
    shown = until(
        lambda: run("show", objective_id, "--json").json["plans"][0]["tasks"][0],
        lambda task: task["status"] != "working",
    )
    assert shown["status"] == "canceled"
    assert run("watch", objective_id).code == 1


def test_watching_all_objectives_without_a_terminal_prints_one_line_per_change(planning) -> None:
    objective_id = planning.make("Seen", Work=["One"])
    process = subprocess.Popen(
        [*COMMAND, "objectives", "watch", *planning.where], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    watchdog = threading.Timer(TIMEOUT_S, process.kill)
    watchdog.start()
    for line in process.stdout:
        if line == f"{objective_id}  Seen · planning\n":
            planning.tool("objective_update", {"id": objective_id, "action": "run"})
        if line == f"{objective_id}  Seen · completed\n":
            break
    process.send_signal(signal.SIGINT)
    assert process.wait(TIMEOUT_S) == 130  # as `watch ID` and `run --follow`
    watchdog.cancel()
    process.stdout.close()


def test_interrupting_a_watch_leaves_the_objective_running(run, planning, tmp_path: Path) -> None:
    objective_id = planning.make("Goes on", Work=[f"until {tmp_path / 'now'}"])
    process = subprocess.Popen(
        [*COMMAND, "objectives", "run", objective_id, "--follow", *planning.where],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: run("show", objective_id).out, lambda out: "working" in out)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert "The objective goes on." in err
    (tmp_path / "now").touch()
    assert run("watch", objective_id).code == 0


# ------------------------------------------------------------------ make, plan, retry, delete

PARTY = {
    "plans": [
        {
            "name": "Venue",
            "tasks": [{"name": "List"}, {"name": "Book", "dependencies": ["task-0"]}],
        },
        {"name": "Food", "dependencies": [0], "tasks": [{"name": "Cook"}]},
    ]
}


@pytest.mark.requirement("opt.command.act")
def test_objective_is_created_planned_from_a_file_and_run(run, planning, tmp_path: Path) -> None:
    made = run("create", "Party", "--description", "Twenty guests in June.")
    assert made.code == 0
    objective_id = made.out.split()[0]
    assert f"objectives plan {objective_id} FILE" in made.err
    (tmp_path / "party.json").write_text(json.dumps(PARTY), "utf-8")
    planned = run("plan", objective_id, "party.json")
    assert planned.code == 0
    assert "○ Venue" in planned.out
    assert "after Venue" in planned.out
    assert f"objectives run {objective_id}" in planned.err
    shown = run("show", objective_id, "--json").json
    assert (shown["principal"], shown["description"]) == ("operator", "Twenty guests in June.")
    assert "execution" not in shown
    assert run("run", objective_id, "--follow").code == 0


def test_planner_makes_the_plans_of_a_goal_and_nothing_is_executed(run, planning) -> None:
    done = run("plan", "--goal", "Find news", "--json")
    assert done.code == 0
    assert [plan["name"] for plan in done.json["plans"]] == ["Look"]
    assert done.json["execution"] == "planning"
    objective_id = done.json["id"]
    shown = run("show", objective_id)
    assert "waits for  somebody to run it" in shown.out
    assert "0 of 2 steps" in shown.out
    assert run("run", objective_id, "--follow").code == 0


def test_planner_that_gives_up_is_reported(run, planning) -> None:
    objective_id = run("create", "hopeless").out.split()[0]
    done = run("plan", objective_id)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error planner-failed: ")
    assert "objectives plan" in done.err
    again = run("plan", objective_id, "--json")
    assert (again.code, again.json["error"]["code"]) == (1, "planner-failed")


def test_plans_that_are_not_usable_are_refused_whole(run, planning, tmp_path: Path) -> None:
    objective_id = run("create", "Party").out.split()[0]
    for content, code, status in (
        ("[]", "usage", 2),
        ("mine", "usage", 2),
        ('{"plans": []}', "invalid-params", 1),
        ('{"plans": [{"name": "A"}, {"name": " "}]}', "invalid-params", 1),
        ('{"plans": [{"name": "A", "dependencies": [0]}]}', "invalid-params", 1),
        (
            '{"plans": [{"name": "A", "tasks": [{"name": "x", "dependencies": ["task-7"]}]}]}',
            "dependency-not-valid",
            1,
        ),
    ):
        (tmp_path / "odd.json").write_text(content, "utf-8")
        done = run("plan", objective_id, "odd.json", "--json")
        assert (done.code, done.json["error"]["code"]) == (status, code)
    assert run("show", objective_id, "--json").json["plans"] == []
    assert run("plan", objective_id, "nowhere.json").code == 2
    assert run("plan").code == 2
    assert run("plan", objective_id, "--goal", "x").code == 2


def test_one_failed_step_is_tried_again_by_its_name(run, planning, tmp_path: Path) -> None:
    objective_id = planning.make("Bad", Work=[f"fail {tmp_path / 'now'}", "Last"], Other=["fail z"])
    assert run("run", objective_id, "--follow").code == 1
    (tmp_path / "now").touch()
    assert run("retry", objective_id, "Last").code == 1  # it has not failed
    assert run("retry", objective_id, "nobody").code == 1
    assert run("retry", objective_id, "fail").code == 1  # two of them
    done = run("retry", objective_id, f"FAIL {tmp_path}")
    assert done.code == 0
    assert "objectives watch" in done.err
    shown = until(
        lambda: run("show", objective_id, "--json").json,
        lambda one: one["plans"][0]["status"] == "completed",
    )
    assert [plan["status"] for plan in shown["plans"]] == ["completed", "failed"]
    assert run("retry", objective_id, "Other", "--json").code == 0
    assert run("watch", objective_id).code == 1


def test_replan_stops_an_objective_for_other_plans(run, planning, tmp_path: Path) -> None:
    objective_id = planning.make("Held", Work=[f"until {tmp_path / 'now'}", "Last"])
    run("run", objective_id)
    until(lambda: run("show", objective_id).out, lambda out: "  working · " in out)
    assert run("replan", objective_id, "--json").json["status"] == "planning"
    (tmp_path / "party.json").write_text(json.dumps(PARTY), "utf-8")
    assert run("plan", objective_id, "party.json").code == 0
    (tmp_path / "now").touch()
    assert run("run", objective_id, "--follow").code == 0
    assert run("show", objective_id, "--json").json["progress"]["done"] == 5


def test_operator_deletes_an_objective(run, planning, tmp_path: Path) -> None:
    objective_id = planning.make("Gone", Work=[f"until {tmp_path / 'never'}"])
    run("run", objective_id)
    until(lambda: run("show", objective_id).out, lambda out: "  working · " in out)
    unasked = run("delete", objective_id)
    assert (unasked.code, "--yes" in unasked.err) == (2, True)
    busy = run("delete", objective_id, "--yes")
    assert busy.code == 1
    assert "running" in busy.err
    done = run("delete", objective_id, "--yes", "--cancel")
    assert (done.code, done.out) == (0, f"{objective_id}  deleted\n")
    assert run("show", objective_id).code == 1
    other = planning.make("Gone too")
    assert run("delete", other, "--yes", "--json").json == {"id": other, "deleted": True}


def test_waiting_step_is_answered_by_the_beginning_of_its_name(run, planning) -> None:
    objective_id = planning.make("Trip", Flight=["ask about seats"], Hotel=["ask first"])
    run("run", objective_id)
    until(lambda: run("show", objective_id).out, lambda out: out.count("Window or aisle?") >= 2)
    assert run("answer", objective_id, "Aisle", "--step", "ask").code == 1
    assert run("answer", objective_id, "Aisle", "--step", "ask AB").code == 0
    assert run("answer", objective_id, "Aisle").code == 0
    assert run("watch", objective_id).code == 0


# ------------------------------------------------------------------ on a terminal


@pytest.fixture(scope="session")
def roomy(start_planning: Callable[..., Gateway]) -> Gateway:
    """A gateway whose objectives have long names; lists of the other one stay narrow."""
    return start_planning("on")


STYLES = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_list_on_a_terminal_fits_and_says_what_waits(roomy, tmp_path: Path, columns: int) -> None:
    objective_id = roomy.make("Long names that nobody reads " * 4, Flight=["ask about seats"])
    roomy.tool("objective_update", {"id": objective_id, "action": "run"})
    until(
        lambda: roomy.tool("objective_status", {"id": objective_id})["objective"],
        lambda shown: shown["status"] == "blocked",
    )
    words = [*COMMAND, "objectives", "list", "--limit", "3", *roomy.where]
    shown = Terminal(words, tmp_path, columns=columns, rows=24).finish()
    heading, *rows = STYLES.sub("", shown).replace("\r", "").splitlines()
    assert {"OBJECTIVE", "STATUS", "NAME", "NOTE"} <= set(heading.split())
    [row] = [line for line in rows if line.startswith(objective_id[:12])]
    assert row.split()[1] == "blocked"
    assert row[heading.index("NOTE") :].startswith("waits for an ans")
    assert all(cell_len(line) <= columns for line in (heading, *rows))


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("word", ["Long name ", "長い名前の"])
def test_tree_on_a_terminal_fits_and_says_what_waits(
    roomy, tmp_path: Path, columns: int, word: str
) -> None:
    first = f"ask about seats {word * 12}"
    objective_id = roomy.make(
        f"{word * 20}end",
        **{f"Flight {word * 9}": [first, f"Then {word * 9}"], "Visa": ["until x"]},
    )
    roomy.tool("objective_update", {"id": objective_id, "action": "run"})
    until(
        lambda: roomy.tool("objective_status", {"id": objective_id})["objective"],
        lambda shown: shown["plans"][0]["status"] == "blocked",
    )
    words = [*COMMAND, "objectives", "show", objective_id, *roomy.where]
    shown = Terminal(words, tmp_path, columns=columns, rows=24).finish()
    lines = STYLES.sub("", shown).replace("\r", "").splitlines()
    assert all(cell_len(line) <= columns for line in lines)
    end = lines.index("")
    head, [flight, asks, then, visa, waits] = lines[:end], lines[end + 1 : end + 6]
    assert any(line.startswith("waits for  an answer to ask about") for line in head)
    assert (flight[:8], visa[:6]) == ("‖ Flight", "● Visa")
    assert asks.startswith("├── ? ask about")
    assert then.startswith("└── ○ Then")
    assert waits.startswith("└── ● until x")
    places = {
        cell_len(line[: line.index(note)])
        for line, note in ((asks, "waits for an answer"), (then, "after ask"), (waits, "working"))
    }
    assert len(places) == 1
    assert "0/2  blocked" in flight


def test_watch_in_a_low_terminal_scrolls_nothing_and_draws_what_changes(
    roomy, tmp_path: Path
) -> None:
    steps = {f"Plan {number}": [f"until {tmp_path / 'now'}", "Last"] for number in range(6)}
    objective_id = roomy.make("Tall", **steps)
    words = [*COMMAND, "objectives", "run", objective_id, "--follow", *roomy.where]
    terminal = Terminal(words, tmp_path, columns=80, rows=10)
    drawn = terminal.read_until(lambda seen: len(re.findall("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] Plan 0", seen)) > 9)
    (tmp_path / "now").touch()
    before, entered, screen = drawn.partition("\x1b[?1049h")
    assert (before, entered) == ("", "\x1b[?1049h")
    assert "\n" not in screen  # every line is drawn at its place
    assert screen.count("progress ") == 1  # which has not changed
    assert "more lines" in screen
    whole, left, after = terminal.finish().rpartition("\x1b[?1049l")
    assert left
    assert "\n" not in whole.partition("\x1b[?1049h")[2]
    assert "100 %" in after  # the last page stays on the terminal, all of it
    assert STYLES.sub("", after).count("✓ Last") == 6
    assert terminal.process.returncode == 0


def test_a_watch_that_is_terminated_gives_the_screen_back(roomy, tmp_path: Path) -> None:
    objective_id = roomy.make("Long", Work=[f"until {tmp_path / 'now'}"])
    words = [*COMMAND, "objectives", "run", objective_id, "--follow", *roomy.where]
    terminal = Terminal(words, tmp_path, columns=80, rows=10)
    terminal.read_until(lambda seen: "\x1b[?1049h" in seen and "Work" in seen)
    terminal.process.send_signal(signal.SIGTERM)
    assert "\x1b[?1049l" in terminal.finish()
    assert terminal.process.returncode == 128 + signal.SIGTERM
    (tmp_path / "now").touch()


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_direction_controls_of_a_name_do_not_reach_the_terminal(
    roomy, tmp_path: Path, more: tuple[str, ...]
) -> None:
    hostile = "abc \u202egnp.exe\u202c \u2066x\u2069 \u200f\u061c \x9b31m \x1b]0;title\x07 end"
    objective_id = roomy.make(hostile, **{hostile: [hostile]})
    words = [*COMMAND, "objectives", "show", objective_id, *more, *roomy.where]
    shown = Terminal(words, tmp_path, columns=80, rows=24).finish()
    assert "gnp.exe" in shown
    assert not set(shown) & set("\u202e\u202c\u2066\u2069\u200f\u061c\x9b\x07")
    assert "\x1b]" not in shown


# ------------------------------------------------------------------ export and import


@pytest.mark.requirement("opt.move.stores")
def test_export_and_import_move_an_objective_as_json_lines(run, planning, tmp_path: Path) -> None:
    objective_id = planning.make("Moves", Work=["One", "Two"])
    run("run", objective_id, "--follow")
    before = run("show", objective_id, "--json").json
    file = tmp_path / "kept.jsonl"
    exported = run("export", objective_id, str(file))
    assert exported.code == 0
    assert file.stat().st_mode & 0o077 == 0
    lines = file.read_text("utf-8").splitlines()
    assert exported.out == f"{objective_id}  {len(lines)} lines in {file}\n"
    assert json.loads(lines[0])["op"] == "objective.create"
    assert run("export", objective_id).out == file.read_text("utf-8")
    taken = run("import", str(file))
    assert (taken.code, taken.out) == (1, "")
    assert "already" in taken.err
    copy = file.read_text("utf-8").replace(objective_id, "obj-copy").replace("plan-", "plan-2-")
    (tmp_path / "copy.jsonl").write_text(copy, "utf-8")
    assert run("import", str(tmp_path / "copy.jsonl")).out == "obj-copy  completed  Moves\n"
    after = run("show", "obj-copy", "--json").json
    assert after["progress"] == before["progress"]


def test_export_never_overwrites_and_file_errors_are_reported(run, planning, tmp_path) -> None:
    objective_id = planning.make("Kept")
    (tmp_path / "mine").write_text("mine", "utf-8")
    done = run("export", objective_id, str(tmp_path / "mine"))
    assert (done.code, done.out) == (2, "")
    assert "name another file" in done.err
    assert (tmp_path / "mine").read_text("utf-8") == "mine"
    assert run("export", objective_id, str(tmp_path / "no" / "folder")).code == 2
    assert run("import", str(tmp_path / "nothing")).code == 2
    summary = run("export", objective_id, str(tmp_path / "new"), "--json").json
    assert summary == {"id": objective_id, "file": str(tmp_path / "new"), "lines": 1}


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"{}\n", b"mine", b"\xff\xfe\x00", b'{"v":1}\n' * 9]
)
def test_import_rejects_invalid_lines(run, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd").write_bytes(content)
    done = run("import", str(tmp_path / "odd"))
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error invalid-params: ")


def test_import_reads_standard_input(planning) -> None:
    line = {
        "v": 1,
        "seq": 1,
        "ts": "2026-11-15T12:00:00.000Z",
        "op": "objective.create",
        "data": {"id": "obj-piped", "name": "Piped", "metadata": {}},
    }
    done = subprocess.run(
        [*COMMAND, "objectives", "import", "-", *planning.where],
        input=json.dumps(line) + "\n",
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert done.stdout == "obj-piped  submitted  Piped\n"


# ------------------------------------------------------------------ no gateway, no objectives


def test_unreachable_gateway_is_reported_with_the_start_command(command, planning) -> None:
    where = ("--url", f"http://127.0.0.1:{free_port()}", "--data", str(planning.home))
    for words in (("list",), ("watch",), ("run", "obj-1")):
        done = command("objectives", *words, *where)
        assert (done.code, done.out) == (3, "")
        assert "openclaw-a2a up" in done.err


def test_without_a_planner_nothing_is_run_or_left_behind_that_has_no_plans(
    command, start_planning
) -> None:
    alone = start_planning("on", "alone")

    def run(*words: str) -> Finished:
        return command("objectives", *words, *alone.where)

    objective_id = run("create", "Party").out.split()[0]
    for words in (("run", objective_id), ("run", objective_id, "--follow"), ("plan", objective_id)):
        refused = run(*words)
        assert (refused.code, refused.out) == (1, "")
        assert objective_id in refused.err
        assert "opt.planner" in refused.err
    assert "opt.planner" in run("plan", "--goal", "Find news").err
    assert [one["id"] for one in run("list", "--json").json["objectives"]] == [objective_id]


def test_plans_for_a_running_objective_are_executed_and_that_is_said(
    run, planning, tmp_path: Path
) -> None:
    objective_id = planning.make("Long", Work=[f"until {tmp_path / 'go'}"])
    assert run("run", objective_id).code == 0
    (tmp_path / "party.json").write_text(json.dumps(PARTY), "utf-8")
    planned = run("plan", objective_id, "party.json")
    assert f"Watch it: openclaw-a2a objectives watch {objective_id}" in planned.err
    assert "Run it" not in planned.err
    (tmp_path / "go").touch()
    assert run("watch", objective_id).code == 0


def test_errors_about_objectives_are_in_the_words_of_the_command_line(
    run, planning, tmp_path: Path
) -> None:
    objective_id = planning.make("Long", Work=[f"until {tmp_path / 'go'}"])
    assert run("run", objective_id).code == 0
    shown = until(
        lambda: run("show", objective_id, "--json").json,
        lambda one: one["plans"][0]["tasks"][0]["status"] == "working",
    )
    refused = run("delete", objective_id, "--yes")
    assert refused.code == 1
    assert "cancel: true" not in refused.err
    assert "delete it with `cancel`" in refused.err
    step_id = shown["plans"][0]["tasks"][0]["id"]
    refused = run("retry", objective_id, step_id)
    assert f"The step {step_id} is working" in refused.err
    assert "objectives/" not in run("retry", objective_id, "nobody").err
    (tmp_path / "go").touch()
    assert run("watch", objective_id).code == 0


def test_disabled_objectives_error_names_the_setting(command, start_planning) -> None:
    off = start_planning()
    for words in (("list",), ("show", "obj-1"), ("watch",)):
        done = command("objectives", *words, *off.where)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("error objectives-off: ")
        assert "opt.enabled" in done.err
