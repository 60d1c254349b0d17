"""`tasks` against a running gateway."""

import subprocess
import time
from pathlib import Path

import pytest


@pytest.fixture
def task_id(echo) -> str:
    """A task that has ended."""
    (answer,) = echo("send", "--json", "--no-stream", "something to keep").lines
    return answer["task"]["id"]


@pytest.fixture
def held_id(slow, program, shared_gateway: str):
    """A task that goes on until it is canceled."""
    arguments = ["send", "hold", "--json", "--url", f"{shared_gateway}/agents/slow"]
    sender = subprocess.Popen([*program, *arguments], stdout=subprocess.PIPE, text=True)
    assert sender.stdout is not None
    first = sender.stdout.readline()
    (task,) = [
        one
        for one in slow("tasks", "list", "--json", "--limit", "1").json["tasks"]
        if one["id"] in first
    ]
    yield task["id"]
    slow("tasks", "cancel", task["id"])
    sender.stdout.read()
    sender.stdout.close()
    sender.wait(240)


def test_task_list_is_newest_first_with_the_last_message(echo, task_id: str) -> None:
    shown = echo("tasks", "list")
    header, first, *_ = shown.out.splitlines()
    assert header.split() == ["TASK", "STATE", "SINCE", "LAST", "MESSAGE"]
    assert first.startswith(f"{task_id}  completed  ")
    assert first.endswith("echo: something to keep")


def test_task_list_json_has_tasks_and_total_size(echo, task_id: str) -> None:
    shown = echo("task", "list", "--json", "--limit", "1").json
    assert [task["id"] for task in shown["tasks"]] == [task_id]
    assert shown["totalSize"] >= 1
    assert set(shown) == {"tasks", "totalSize"}


def test_task_list_filters_by_state_and_context(echo) -> None:
    echo("send", "--context", "narrow", "x")
    tasks = echo("tasks", "list", "--json", "--context", "narrow", "--state", "completed").json
    assert [task["contextId"] for task in tasks["tasks"]] == ["narrow"]
    none = echo("tasks", "list", "--context", "narrow", "--state", "input-required")
    assert (none.code, none.out) == (0, "")
    assert none.err == "No tasks in state input-required of context narrow.\n"


@pytest.mark.parametrize("limit", ["0", "-1"])
def test_limit_below_1_is_a_usage_error(echo, limit: str) -> None:
    shown = echo("tasks", "list", "--limit", limit)
    assert shown.code == 2
    assert "--limit must be at least 1" in shown.err


def test_ids_are_short_on_a_narrow_terminal(echo, task_id: str, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    for columns, shown_id in (("119", task_id[:8]), ("120", task_id)):
        monkeypatch.setenv("COLUMNS", columns)
        assert echo("tasks", "list").out.splitlines()[1].startswith(f"{shown_id}  completed")
    monkeypatch.setenv("COLUMNS", "80")
    assert echo("tasks", "list", "--json").json["tasks"][0]["id"] == task_id


@pytest.mark.parametrize("words", [["show"], ["watch"], ["cancel"], ["delete", "--yes"]])
def test_empty_id_is_a_usage_error(echo, words: list[str]) -> None:
    shown = echo("tasks", *words, "")
    assert shown.code == 2
    assert shown.err.startswith("error usage: the task's id is empty\n")


def test_list_continues_beyond_one_page(echo) -> None:
    for number in range(3):
        echo("send", "--context", "many", f"{number}")
    listed = echo("tasks", "list", "--json", "--context", "many", "--limit", "2").json
    assert (len(listed["tasks"]), listed["totalSize"]) == (2, 3)


def test_show_task_prints_history_and_artifacts(echo, task_id: str) -> None:
    shown = echo("tasks", "show", task_id).out
    assert f"task     {task_id}" in shown
    assert "state    completed" in shown
    assert "user:\n  something to keep" in shown
    assert "  echo: something to keep" in shown
    assert echo("tasks", "show", "--json", task_id).json["id"] == task_id


def test_unique_id_prefix_names_the_task(echo, task_id: str) -> None:
    assert echo("tasks", "show", "--json", task_id[:9]).json["id"] == task_id


def test_ambiguous_id_prefix_is_rejected(echo) -> None:
    # Seventeen ids, sixteen first digits.
    for _ in range(17):
        echo("send", "--context", "several", "x")
    tasks = echo("tasks", "list", "--json", "--context", "several").json["tasks"]
    digits = [task["id"][0] for task in tasks]
    shown = echo("tasks", "show", max(digits, key=digits.count))
    assert shown.code == 2
    assert shown.err.startswith("error task-ambiguous: ")


def test_unknown_task_is_reported_as_not_found(echo) -> None:
    shown = echo("tasks", "show", "no-such-task")
    assert shown.code == 1
    assert shown.err.startswith("error task-not-found: ")
    assert "openclaw-a2a tasks list --url http://127.0.0.1:" in shown.err


def test_watching_a_finished_task_prints_it_once(echo, task_id: str) -> None:
    shown = echo("tasks", "watch", task_id[:9])
    assert (shown.code, shown.out) == (0, "echo: something to keep\n")
    (event,) = echo("tasks", "watch", "--json", task_id).lines
    assert event["task"]["id"] == task_id


def test_cancel_returns_after_the_task_stopped(slow, held_id: str) -> None:
    shown = slow("tasks", "cancel", held_id[:9])
    assert (shown.code, shown.out) == (0, f"{held_id}  canceled\n")
    again = slow("tasks", "cancel", held_id)
    assert again.code == 1
    assert again.err.startswith("error task-not-cancelable: ")


def test_watch_ends_when_the_task_ends(slow, held_id: str, program, shared_gateway: str) -> None:
    arguments = ["tasks", "watch", held_id, "--url", f"{shared_gateway}/agents/slow"]
    watcher = subprocess.Popen([*program, *arguments], stderr=subprocess.PIPE, text=True)
    assert watcher.stderr is not None
    assert held_id in watcher.stderr.readline()
    slow("tasks", "cancel", held_id)
    _, talk = watcher.communicate(timeout=240)
    assert watcher.returncode == 1
    assert talk.splitlines()[-1].startswith("canceled")


def test_delete_asks_first_and_removes_the_task(echo, task_id: str) -> None:
    refused = echo("tasks", "delete", task_id)
    assert refused.code == 2
    assert "--yes" in refused.err
    assert echo("tasks", "delete", "--yes", "--json", task_id[:9]).json == {"deleted": task_id}
    assert echo("tasks", "show", task_id).code == 1


@pytest.mark.slow
def test_watch_continues_after_the_gateway_is_killed_and_restarted(
    start_gateway, slow_agent, program, command
) -> None:
    accounts = {"default": {"agentStyle": "task-generating"}}
    settings = {"agents": {"main": slow_agent}, "channels": {"a2a": {"accounts": accounts}}}
    gateway = start_gateway(settings)
    sender = subprocess.Popen(
        [*program, "send", "hold", "--url", gateway.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert sender.stdout is not None
    assert sender.stdout.read(len("holding")) == "holding"
    gateway.kill()
    gateway.start()
    rest, talk = sender.communicate(timeout=240)
    assert sender.returncode == 1
    assert rest.strip() == ""
    assert "trying again" in talk
    assert talk.splitlines().count("working") == 1
    assert talk.splitlines()[-1].startswith("failed")


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--no-stream"]])
def test_direct_answer_arrives_after_a_gateway_restart(
    start_gateway, program, tmp_path: Path, more: list[str]
) -> None:
    """The first run waits for ever; the one after the restart finds the file and answers."""
    begun, answer = tmp_path / "begun", tmp_path / "answer"
    text = f"touch {begun}; while [ ! -e {answer} ]; do sleep 0.05; done; echo here it is"
    agent = {"adapter": "command", "command": ["sh", "-c", text], "repeatable": True}
    accounts = {"default": {"agentStyle": "hybrid"}}
    gateway = start_gateway(
        {"agents": {"main": agent}, "channels": {"a2a": {"accounts": accounts}}}
    )
    sender = subprocess.Popen(
        [*program, "send", "x", *more, "--url", gateway.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 240
    while not begun.exists() and time.monotonic() < deadline:
        time.sleep(0.02)  # another process has to do it; nothing here can be awaited
    gateway.kill()
    answer.touch()
    gateway.start()
    shown, talk = sender.communicate(timeout=240)
    assert (sender.returncode, shown) == (0, "here it is\n")
    assert talk.count("trying again") == 1


def test_the_operator_lists_tasks_of_every_caller_with_whose_they_are(
    operator, echo, task_id: str, held_id: str
) -> None:
    listed = operator("tasks", "list", "--all", "--limit", "1000")
    header, *rows = [line.split() for line in listed.out.splitlines()]
    assert header == ["TASK", "STATE", "SINCE", "CALLER", "AGENT", "ACCOUNT"]
    found = {row[0]: [row[1], *row[-3:]] for row in rows}
    assert found[held_id] == ["working", "local", "slow", "slow"]
    assert found[task_id] == ["completed", "local", "main", "default"]
    assert held_id not in echo("tasks", "list", "--limit", "1000").out
    chosen = ("--state", "working", "--caller", "local", "--account", "slow")
    document = operator("tasks", "list", "--all", "--json", *chosen).json
    assert [one["id"] for one in document["tasks"]] == [held_id]
    none = operator("tasks", "list", "--all", "--caller", "nobody")
    assert (none.out, none.err) == ("", "No tasks of caller nobody.\n")


def test_the_operator_shows_and_cancels_a_task_of_another_caller(
    operator, echo, held_id: str
) -> None:
    assert echo("tasks", "show", held_id).err.startswith("error task-not-found: ")
    shown = operator("tasks", "show", "--all", held_id[:12])
    assert shown.out.startswith("caller   local\naccount  slow\nagent    slow\n")
    assert f"task     {held_id}" in shown.out
    assert operator("tasks", "show", "--all", "--json", held_id).json["task"]["id"] == held_id
    canceled = operator("tasks", "cancel", "--all", held_id)
    assert (canceled.code, canceled.out) == (0, f"{held_id}  canceled\n")


def test_the_operator_watches_a_task_of_another_caller_until_it_ends(
    operator, held_id: str, program, shared_gateway: str, shared_home: Path
) -> None:
    place = ["--url", shared_gateway, "--data", str(shared_home), "--json"]
    watcher = subprocess.Popen(
        [*program, "tasks", "watch", "--all", held_id, *place], stdout=subprocess.PIPE, text=True
    )
    assert watcher.stdout is not None
    first = watcher.stdout.readline()
    operator("tasks", "cancel", "--all", held_id)
    rest = watcher.stdout.read()
    watcher.stdout.close()
    assert f'"id":"{held_id}"' in first
    assert "TASK_STATE_CANCELED" in rest.splitlines()[-1]
    assert watcher.wait(240) == 1


def test_a_task_that_ended_is_watched_as_it_is(operator, task_id: str) -> None:
    shown = operator("tasks", "watch", "--all", task_id)
    assert (shown.code, shown.out) == (0, "echo: something to keep\n")


@pytest.mark.parametrize(
    "words", [["--context", "c", "--all"], ["--caller", "local"], ["--account", "slow"]]
)
def test_filters_of_one_caller_and_of_all_do_not_mix(operator, words: list[str]) -> None:
    shown = operator("tasks", "list", *words)
    assert shown.code == 2
    assert shown.err.startswith("error usage: ")


def test_an_unknown_task_of_the_operator_names_the_list_of_all(operator) -> None:
    shown = operator("tasks", "cancel", "--all", "no-such-task")
    assert (shown.code, shown.err.partition(":")[0]) == (1, "error task-not-found")
    assert "openclaw-a2a tasks list --all" in shown.err
