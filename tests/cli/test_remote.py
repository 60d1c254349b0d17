"""`remote`: people send work to remote agents, and go on with it later."""

import io
import json
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def remote(command, tmp_path: Path, asker: str, shared_gateway: str):
    """Run `remote ...` with the targets asker (the default), echo, direct and down."""
    urls = {
        "asker": asker,
        "echo": shared_gateway,
        "direct": f"{shared_gateway}/agents/direct",
        "down": NOBODY,
    }
    targets = [{"alias": name, "baseUrl": url} for name, url in urls.items()]
    targets[0]["default"] = True
    settings = {"data": "data", "outbound": {"targets": targets}}
    (tmp_path / "openclaw-a2a.json5").write_text(json.dumps(settings), encoding="utf-8")
    return lambda *arguments: command("remote", *arguments)


def talk(shown) -> list[str]:
    return [line for line in shown.err.splitlines() if not line.startswith("task ")]


def test_answer_goes_to_standard_output_and_states_to_standard_error(remote) -> None:
    shown = remote("send", "count")
    assert (shown.code, shown.out) == (0, "one two three\n")
    assert talk(shown)[-1] == "completed"
    assert "\x1b" not in shown.out + shown.err


def test_direct_answer_is_shown_without_a_task(remote) -> None:
    shown = remote("send", "hello", "--target", "direct")
    assert (shown.code, shown.out, shown.err) == (0, "echo: hello\n", "")


def test_waiting_task_is_answered_with_the_stored_continuation(remote) -> None:
    asked = remote("send", "erase", "everything")
    assert asked.code == 0
    assert "input-required: Really?" in asked.err
    hint = asked.err.splitlines()[-1]
    assert hint.startswith("Answer with: openclaw-a2a remote send --task ")
    task = hint.split()[-2]
    answered = remote("send", "--task", task, "yes")
    assert answered.out == "erase everything: yes\n"


def test_continue_uses_the_last_task_and_after_its_end_its_context(remote) -> None:
    first = remote("send", "--json", "erase").json
    second = remote("send", "--json", "--continue", "yes").json
    third = remote("send", "--json", "--continue", "again").json
    tasks = [one["summary"]["continuation"]["task"]["task_id"] for one in (first, second, third)]
    contexts = [
        one["summary"]["continuation"]["conversation"]["context_id"]
        for one in (first, second, third)
    ]
    assert tasks[0] == tasks[1] != tasks[2]
    assert len(set(contexts)) == 1


@pytest.mark.requirement("remote.tool.command")
def test_send_with_json_prints_the_envelope_and_with_follow_also_the_updates(remote) -> None:
    whole = remote("send", "--json", "count")
    assert (whole.code, whole.err) == (0, "")
    assert whole.json["summary"]["message_text"] == "one two three"
    *updates, last = remote("send", "--json", "--follow", "count").lines
    assert {one["phase"] for one in updates} == {"update"}
    assert "phase" not in last
    assert last["raw"]["finalEvent"] == updates[-1]["raw"]
    assert last["summary"]["message_text"] == "one two three"


def test_task_continues_without_a_listener_and_can_be_watched_again(remote) -> None:
    late = remote("send", "hold", "--timeout", "10")
    assert (late.code, late.out) == (1, "holding\n")
    assert "error A2A_SDK_ERROR: asker: request timed out" in late.err
    assert "--timeout" in late.err
    follow = next(line for line in late.err.splitlines() if "Follow it: " in line)
    task = follow.split()[-1]
    assert "state    working" in remote("status", task).out
    assert remote("status", "--json").json["summary"]["continuation"]["task"]["status"] == "working"
    stopped = remote("cancel", task)
    assert (stopped.code, "state    canceled" in stopped.out) == (0, True)
    again = remote("watch", task)
    assert (again.code, again.out) == (1, "holding\n")
    assert "canceled" in again.err


def test_watching_a_finished_task_shows_it_once(remote) -> None:
    remote("send", "count")
    shown = remote("watch")
    assert (shown.code, shown.out) == (0, "one two three\n")
    assert remote("watch", "--json").lines[-1]["ok"] is True


def test_task_is_found_by_handle_or_by_id_and_target(remote, tmp_path: Path) -> None:
    sent = remote("send", "--json", "count").json["summary"]["continuation"]["task"]
    assert remote("status", sent["task_handle"]).code == 0
    for file in (tmp_path / "data" / "remote" / "handles").iterdir():
        file.unlink()
    assert remote("status", sent["task_id"], "--target", "asker").code == 0
    unknown = remote("status", sent["task_handle"])
    assert unknown.code == 1
    assert unknown.err.startswith("error UNKNOWN_TASK_HANDLE: ")
    assert "--target" in unknown.err


def test_any_url_works_and_the_only_target_is_the_default(
    command, shared_gateway: str, tmp_path: Path
) -> None:
    assert command("remote", "send", "x", "--url", shared_gateway).out == "echo: x\n"
    command("targets", "add", "one", shared_gateway)
    assert command("remote", "send", "y").out == "echo: y\n"


def test_text_files_and_data_are_sent_together(remote, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}', encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe\n"))
    shown = remote(
        *("send", "--target", "echo", "--json", "--file", "a.json", "--data", '{"b": 2}', "-")
    )
    sent = shown.json["raw"]["history"][0]["parts"]
    assert [part["kind"] for part in sent] == ["text", "file", "data"]
    assert sent[0]["text"] == "from a pipe"
    assert (sent[1]["file"]["name"], sent[2]["data"]) == ("a.json", {"b": 2})


def test_send_continues_a_context_and_can_require_a_task(remote) -> None:
    shown = remote("send", "--target", "echo", "--json", "--context", "my-context", "x")
    continuation = shown.json["summary"]["continuation"]
    assert continuation["conversation"]["context_id"] == "my-context"
    required = remote("send", "--target", "direct", "--json", "--require-task", "x").json
    assert "task" in required["summary"]["continuation"]


def test_failed_task_exits_with_1(remote) -> None:
    for more in ([], ["--no-follow"], ["--json"]):
        assert remote("send", "fail", *more).code == 1
    assert "failed: no luck today" in remote("send", "fail").err


def test_unreachable_target_exits_with_3(remote) -> None:
    shown = remote("send", "x", "--target", "down")
    assert (shown.code, shown.out) == (3, "")
    assert shown.err.startswith("error A2A_SDK_ERROR: down: ")
    envelope = remote("send", "x", "--target", "down", "--json")
    assert (envelope.code, envelope.json["ok"]) == (3, False)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["send"], 'openclaw-a2a remote send "hello"'),
        (["send", "x", "--target", "nobody"], "openclaw-a2a targets list"),
        (["send", "x", "--target", "echo", "--url", NOBODY], "Leave out one"),
        (["send", "x", "--continue"], "Send something first"),
        (["send", "x", "--continue", "--target", "echo"], "Leave out --continue"),
        (["send", "x", "--data", "[1]"], "--data"),
        (["send", "x", "--file", "nowhere.txt"], "nowhere.txt"),
        (["send", "x", "--timeout", "0"], "--timeout"),
        (["status"], "Send something first"),
        (["watch", "--target", "echo"], "Give its id"),
    ],
)
def test_usage_error_prints_the_next_step(remote, arguments, hint) -> None:
    shown = remote(*arguments)
    assert (shown.code, shown.out) == (2, "")
    assert hint in shown.err


def test_direct_answer_leaves_no_task_to_query(remote) -> None:
    remote("send", "x", "--target", "direct")
    shown = remote("status")
    assert shown.code == 2
    assert "no task" in shown.err


def test_ambiguous_task_prefix_is_a_usage_error(remote) -> None:
    remote("send", "count")
    remote("send", "count")
    shown = remote("status", "rah_")
    assert shown.code == 2
    assert "several tasks" in shown.err


def test_two_handles_of_one_task_are_not_ambiguous(remote, tmp_path: Path) -> None:
    sent = remote("send", "--json", "count").json["summary"]["continuation"]["task"]
    folder = tmp_path / "data" / "remote" / "handles"
    [first] = folder.iterdir()
    kept, _ = first.read_bytes(), first.unlink()
    assert remote("status", sent["task_id"]).code == 0
    first.write_bytes(kept)
    assert len(list(folder.iterdir())) == 2
    assert remote("status", sent["task_id"][:8]).code == 0


def test_stored_files_are_readable_by_the_owner_only(remote, tmp_path: Path) -> None:
    remote("send", "count")
    kept = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert kept
    assert {path.stat().st_mode & 0o077 for path in kept} == {0}


def test_unwritable_data_folder_does_not_stop_the_request(remote, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a folder", encoding="utf-8")
    assert remote("send", "count").out == "one two three\n"


def on_terminal(words: list[str], home: Path, *, until: bytes) -> tuple[int, bytes]:
    """Run a program on a terminal and interrupt it at a word; its exit status and its screen."""
    outside, inside = pty.openpty()
    process = subprocess.Popen(
        words, stdin=inside, stdout=inside, stderr=inside, cwd=home, env={**os.environ}
    )
    os.close(inside)
    seen = b""
    while until not in seen:
        seen += os.read(outside, 4096)
    process.send_signal(signal.SIGINT)
    try:
        while chunk := os.read(outside, 4096):
            seen += chunk
    except OSError:  # the other end is closed
        pass
    os.close(outside)
    return process.wait(240), seen


def test_terminal_shows_a_spinner_and_an_interrupt_leaves_the_task_running(
    remote, program, tmp_path: Path
) -> None:
    code, screen = on_terminal(
        [*program, "remote", "send", "--no-follow", "hold"], tmp_path, until=b"asker"
    )
    assert code == 130
    assert "asker · asking · " in screen.decode()
    assert b"may still be working" in screen
    code, screen = on_terminal([*program, "remote", "send", "hold"], tmp_path, until=b"holding")
    assert code == 130
    assert b"Follow it: openclaw-a2a remote watch " in screen
    assert remote("cancel").code == 0
