"""What a command line leaves behind when something is wrong: one sentence, never a traceback."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import COMMAND, free_port

WAIT_S = 240.0


def finished(
    *arguments: str | bytes, home: Path, given: bytes = b"", **environment: str | bytes
) -> subprocess.CompletedProcess[bytes]:
    """Run the command as a process of its own, with bytes that need not be text."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("OPENCLAW_A2A_")
    }
    return subprocess.run(
        [*COMMAND, *arguments],
        input=given,
        capture_output=True,
        cwd=home,
        env={**inherited, "HOME": str(home), "XDG_CONFIG_HOME": str(home), **environment},
        timeout=WAIT_S,
        check=False,
    )


# ------------------------------------------------------------------ bytes that are no text


@pytest.mark.parametrize(
    "arguments",
    [
        ("send", b"caf\xe9"),
        ("send", "x", "--context", b"caf\xe9"),
        ("send", "x", "--file", b"caf\xe9.txt"),
        ("send", "x", "--token", b"caf\xe9"),
        ("tasks", "show", b"\xff\xfe"),
        ("objectives", "answer", "obj-1", b"\xff"),
        ("targets", "add", b"caf\xe9", "http://127.0.0.1:1"),
        ("remote", "send", b"caf\xe9", "--url", "http://127.0.0.1:1"),
        (b"caf\xe9",),
    ],
)
def test_argument_that_is_not_utf8_is_a_usage_error(arguments, tmp_path: Path) -> None:
    done = finished(*arguments, home=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"error usage: the argument ")
    assert b"is not UTF-8" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@pytest.mark.parametrize(
    "arguments",
    [("send", "-"), ("call", "a", "ping", "-"), ("debate", "-"), ("remote", "send", "-")],
)
def test_standard_input_that_is_not_utf8_is_a_usage_error(
    arguments, locale: str, shared_gateway: str, tmp_path: Path
) -> None:
    if arguments[0] == "send":
        arguments = (*arguments, "--url", shared_gateway)
    done = finished(*arguments, home=tmp_path, given=b'{"a": "caf\xe9"}', LC_ALL=locale)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"error usage: standard input is not UTF-8 text")


def test_token_that_no_header_can_carry_is_a_usage_error(
    command, shared_gateway: str, monkeypatch
) -> None:
    for token in ("é", "a\nb", "\udcff"):
        monkeypatch.setenv("OPENCLAW_A2A_TOKEN", token)
        done = command("send", "x", "--url", shared_gateway)
        assert (done.code, done.out) == (2, "")
        assert "OPENCLAW_A2A_TOKEN" in done.err
        assert token not in done.err


def test_terminal_without_unicode_gets_escapes_and_json_stays_json(
    shared_gateway: str, tmp_path: Path
) -> None:
    words = ("send", "héllo ✓ 🦞", "--url", shared_gateway)
    plain = finished(*words, home=tmp_path, PYTHONIOENCODING="ascii")
    assert (plain.returncode, b"h\\u00e9llo \\u2713" in plain.stdout) == (0, True)
    as_json = finished(*words, "--json", "--no-stream", home=tmp_path, PYTHONIOENCODING="ascii")
    assert "héllo ✓ 🦞" in json.loads(as_json.stdout)["task"]["artifacts"][0]["parts"][0]["text"]


def test_folder_whose_name_is_not_utf8_can_be_used(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(bytes(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    (folder / "openclaw-a2a.json5").write_text("{}", "utf-8")
    done = finished("config", "check", "--json", home=folder)
    assert (done.returncode, json.loads(done.stdout)["ok"]) == (0, True)
    assert finished("config", "check", home=folder).returncode == 0


# ------------------------------------------------------------------ nobody reads on


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("tasks", "--help"), ("version",), ("--version",), ("config", "schema")],
)
def test_reader_that_leaves_early_gets_no_traceback(arguments, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as `| head` does when it has enough
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=writing,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    os.close(writing)
    _, err = process.communicate(timeout=WAIT_S)
    assert err == b""


@pytest.mark.parametrize("more", [(), ("--json", "--follow")])
def test_remote_request_ends_quietly_when_nobody_reads_it(more, shared_gateway, tmp_path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [*COMMAND, "remote", "send", "x", "--url", shared_gateway, *more],
        stdout=writing,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    os.close(writing)
    _, err = process.communicate(timeout=WAIT_S)
    assert b"Traceback" not in err
    assert b"error" not in err


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_tolerated(closed: str, tmp_path: Path) -> None:
    words = " ".join([COMMAND[0], "-c", f"'{COMMAND[2]}'", "version", closed])
    done = subprocess.run(
        ["/bin/sh", "-c", words], capture_output=True, cwd=tmp_path, timeout=WAIT_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


# ------------------------------------------------------------------ --json


@pytest.mark.parametrize(
    ("arguments", "code", "status"),
    [
        (("snd", "--json"), "usage", 2),
        (("tasks", "show", "--json"), "usage", 2),
        (("tasks", "list", "--limit", "many", "--json"), "usage", 2),
        (("send", "--json"), "usage", 2),
        (("send", "--json", "x", "--file", "nowhere"), "file-unreadable", 2),
        (("tasks", "delete", "x", "--json", "--url", "{gone}"), "gateway-unreachable", 3),
        (("tasks", "list", "--json", "--url", "{gone}"), "gateway-unreachable", 3),
        (("card", "{gone}", "--json"), "gateway-unreachable", 3),
        (("objectives", "list", "--json"), "operator-token", 2),
        (("objectives", "watch", "--json"), "operator-token", 2),
        (("approvals", "list", "--json"), "operator-token", 2),
        (("call", "a", "ping", "--json"), "operator-token", 2),
        (("debate", "nowhere", "--json"), "usage", 2),
        (("targets", "remove", "nobody", "--json"), "target-unknown", 2),
        (("targets", "check", "nobody", "--json"), "TARGET_RESOLUTION_ERROR", 2),
        (("remote", "send", "x", "--url", "{gone}", "--json"), "A2A_SDK_ERROR", 3),
        (("remote", "status", "--json"), "nothing-to-continue", 2),
        (("remote", "status", "x", "--json"), "VALIDATION_ERROR", 2),
        (("config", "show", "--json", "--config", "nowhere"), "settings-invalid", 2),
        (("config", "check", "--json", "--config", "nowhere"), "settings-invalid", 2),
        (("token", "revoke", "nobody", "--json"), "token-not-found", 2),
    ],
)
def test_failure_with_json_prints_code_message_and_hint(command, arguments, code, status) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    done = command(*(one.format(gone=gone) for one in arguments))
    assert (done.code, done.err) == (status, "")
    assert len(done.out.splitlines()) == 1 or code != "usage"
    error = done.json["error"]
    assert error["code"] == code
    assert {"code", "message", "hint"} <= set(error)
    assert error["message"]
    assert all(isinstance(error[name], str) for name in ("code", "message", "hint"))


def test_settings_failure_with_json_lists_every_problem(command, tmp_path: Path) -> None:
    (tmp_path / "bad.json5").write_text("{server: {port: 'x'}, nothing: 1}", "utf-8")
    error = command("config", "show", "--json", "--config", "bad.json5").json["error"]
    assert {one["path"] for one in error["problems"]} == {"server.port", "nothing"}
    assert "config check" in error["hint"]


def test_failure_while_lines_are_printed_is_one_more_line(command, shared_gateway: str) -> None:
    done = command("tasks", "watch", "no-such-task", "--json", "--url", shared_gateway)
    assert done.code == 1
    assert [one["error"]["code"] for one in done.lines] == ["task-not-found"]
    assert "tasks list" in done.lines[0]["error"]["hint"]


def test_text_after_two_dashes_does_not_ask_for_json(command) -> None:
    done = command("send", "--url", f"http://127.0.0.1:{free_port()}", "--", "--json")
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("error gateway-unreachable: ")


def test_interrupted_command_with_json_says_so(tmp_path: Path) -> None:
    # It waits for standard input, which never ends.
    process = subprocess.Popen(
        [*COMMAND, "call", "a", "ping", "-", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "PYTHONFAULTHANDLER": "0"},
    )
    assert process.stdin is not None
    # The only way to see from outside that it reads: the pipe is empty again.
    process.stdin.write(b" " * 65536)
    process.stdin.write(b" ")
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert json.loads(out)["error"]["code"] == "interrupted"


def test_fault_of_the_program_is_reported_with_its_traceback(command, monkeypatch) -> None:
    class Broken(io.StringIO):
        def read(self, size: int | None = -1) -> str:
            raise RuntimeError("a disk on fire")

    monkeypatch.setattr("sys.stdin", Broken())
    done = command("send", "-", "--json")
    assert done.code == 1
    assert done.json["error"]["code"] == "internal-error"
    assert "a disk on fire" in done.json["error"]["message"]
    assert "Traceback" in done.err


def test_next_steps_name_the_program_as_it_was_started(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("openclaw-a2a")
    elsewhere = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    words = [os.path.relpath(script, tmp_path), "tasks", "list", "--url", "http://127.0.0.1:1"]
    done = subprocess.run(
        words, cwd=tmp_path, env=elsewhere, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert f"{words[0]} up" in done.stderr
    done = subprocess.run(
        [*words, "--json"], cwd=tmp_path, env=elsewhere, capture_output=True, text=True, check=False
    )
    assert f"{words[0]} up" in json.loads(done.stdout)["error"]["hint"]


# ------------------------------------------------------------------ a gateway that does not start


BROKEN_MODULE = """
import logging, warnings
logging.getLogger("user").error("it is loaded")
warnings.warn("it is old")
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("up", "--prot", "1"), "usage"),
        (("up", "--port", "many"), "usage"),
        (("up", "more"), "usage"),
        (("up", b"caf\xe9"), "usage"),
        (("up", "--config", "nowhere.json5"), "settings-invalid"),
        (("up", "--config", "port.json5"), "settings-invalid"),
        (("up", "--data", "file"), "store-unavailable"),
    ],
)
def test_reason_not_to_start_is_a_line_of_json_for_programs(arguments, code, tmp_path) -> None:
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    (tmp_path / "port.json5").write_text("{server: {port: 'many'}}", encoding="utf-8")
    done = finished(*arguments, home=tmp_path)
    assert (done.returncode != 0, done.stdout) == (True, b"")
    *_, last = lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["event"] for line in lines].count("gateway.not_started") == 1
    assert (last["event"], last["level"], last["code"]) == ("gateway.not_started", "error", code)
    assert last["reason"]


@pytest.mark.parametrize("arguments", [("--prot", "1"), ("--config", "nowhere.json5")])
def test_reason_not_to_start_is_text_where_the_log_is_for_people(arguments, tmp_path) -> None:
    done = finished("up", *arguments, home=tmp_path, OPENCLAW_A2A_LOG__FORMAT="pretty")
    assert done.returncode == 2
    assert done.stderr.startswith(b"error ")


def test_what_a_function_reports_while_it_is_loaded_is_a_line_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(BROKEN_MODULE, encoding="utf-8")
    agents = {"main": {"adapter": "callable", "function": "user:missing"}}
    (tmp_path / "mine.json5").write_text(json.dumps({"agents": agents}), encoding="utf-8")
    done = finished("up", "--config", "mine.json5", home=tmp_path)
    loaded, warned, last = (json.loads(line) for line in done.stderr.splitlines())
    assert (loaded["event"], loaded["logger"]) == ("it is loaded", "user")
    assert ("it is old" in warned["event"], warned["logger"]) == (True, "py.warnings")
    assert (last["event"], last["code"]) == ("gateway.not_started", "settings-invalid")
