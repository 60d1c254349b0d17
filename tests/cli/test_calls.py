"""`call` and `calls`: an agent is called, and what became of it is seen."""

import io
import json
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
from tests.cli.conftest import COMMAND, Finished, free_port, served

AGENT = """
import json, pathlib, sys, time
asked = json.loads(sys.stdin.read())
skill, given = asked["skill"], asked["input"]
if skill == "fail":
    sys.exit("no luck today")
if skill == "until":
    deadline = time.monotonic() + 240
    while not pathlib.Path(given["file"]).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
answers = {
    "propose": {"output": "a picnic", "confidence": 0.6},
    "critique": {"output": {"flaws": ["rain"]}, "confidence": 0.4},
    "refine": {"output": "a picnic under a roof", "confidence": 0.9},
    "resolve": {"output": {"plan": "picnic", "dissent": "too dear"}, "confidence": 0.95},
    "prose": None,
}
usual = {"output": given, "confidence": 0.75, "assumptions": ["sun"], "caveats": ["measured once"]}
answer = answers.get(skill, usual)
print("Only words." if answer is None else json.dumps(answer))
"""
DECLARED = [{"name": "research", "input": {"q": {"type": "string", "required": True}}}]
TIMEOUT_S = 240.0


class Calling:
    """A gateway whose agents may be called."""

    def __init__(self, address: str, home: Path) -> None:
        self.address = address
        self.home = home

    def tool(self, name: str, arguments: Any) -> Any:
        token = (self.home / "operator.token").read_text("ascii").strip()
        answer = httpx2.post(
            f"{self.address}/tools/{name}",
            json=arguments,
            headers={"authorization": f"Bearer {token}"},
            trust_env=False,
            timeout=TIMEOUT_S,
        )
        return answer.json()


@pytest.fixture(scope="session")
def start_calling(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Calling]]:
    """Start a gateway: `start_calling(enabled=True, allow=["*"])`."""
    running = ExitStack()

    def start(**between: Any) -> Calling:
        home = tmp_path_factory.mktemp("calling")
        port = free_port()
        agent = {"adapter": "command", "command": [sys.executable, "-c", AGENT], "input": "stdin"}
        agents = {"a": agent, "b": agent, "c": agent, "main": {"adapter": "echo"}}
        agents["skilled"] = {**agent, "skills": DECLARED}
        settings = {
            "data": str(home),
            "server": {"port": port, "stopSeconds": 0},
            "agents": agents,
            "tools": {"agentToAgent": between},
        }
        config = home / "gateway.json5"
        config.write_text(json.dumps(settings), encoding="utf-8")
        command = [*COMMAND, "up", "--config", str(config)]
        address = running.enter_context(served(command, home, port))
        return Calling(address, home)

    with running:
        yield start


@pytest.fixture(scope="session")
def calling(start_calling: Callable[..., Calling]) -> Calling:
    """A gateway whose agents a, b, c and skilled may be called."""
    return start_calling(enabled=True, allow=["a", "b", "c", "skilled"])


@pytest.fixture
def run(command: Callable[..., Finished], calling: Calling) -> Callable[..., Finished]:
    """Run a command against that gateway."""
    where = ("--url", calling.address, "--data", str(calling.home))
    return lambda *arguments: command(*arguments, *where)


def called(run: Callable[..., Finished], *arguments: str) -> str:
    """The id of a call that was made without waiting."""
    return run("call", *arguments, "--json").json["correlationId"]


# ------------------------------------------------------------------ call


def test_call_returns_its_id_without_waiting(run, calling: Calling) -> None:
    done = run("call", "a", "think", '{"x": 1}')
    assert done.code == 0
    call_id, status = done.out.split()
    assert status == "pending"
    assert f"openclaw-a2a calls show {call_id[:8]} --url {calling.address}" in done.err


@pytest.mark.requirement("calls.doors.commands")
def test_call_with_wait_prints_the_answer(run) -> None:
    done = run("call", "a", "think", '{"x": 1}', "--wait")
    assert (done.code, done.json) == (0, {"x": 1})
    assert "completed · confidence 0.75" in done.err
    assert "assumption: sun" in done.err
    assert "caveat: measured once" in done.err


def test_text_answer_is_printed_as_text(run) -> None:
    assert run("call", "a", "prose", "--wait").out == "Only words.\n"


def test_every_agent_answers_ping(run) -> None:
    done = run("call", "b", "ping", "--wait", "--json")
    assert (done.code, done.json["status"], done.json["output"]["status"]) == (
        0,
        "completed",
        "pong",
    )
    assert set(done.json) >= {"correlationId", "taskId", "confidence", "times"}


def test_the_input_is_read_from_standard_input(run, monkeypatch) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO('{"from": "stdin"}'))
    assert run("call", "a", "think", "-", "--wait").json == {"from": "stdin"}


def test_mode_timeout_and_session_are_passed_to_the_call(run, calling: Calling) -> None:
    flags = ("--mode", "critique", "--timeout", "7", "--main")
    call_id = called(run, "a", "think", *flags)
    shown = run("calls", "show", call_id, "--json").json
    assert (shown["mode"], shown["timeoutMs"]) == ("critique", 7000)


@pytest.mark.parametrize("text", ["", "x", "[]", "3", '"x"', "{", "null", '{"a": NaN}', "[" * 5000])
def test_input_that_is_not_a_json_object_is_rejected_locally(run, text: str) -> None:
    done = run("call", "a", "think", text)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error usage: the input is no JSON object")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("main", "think"), "forbidden", "Change tools.agentToAgent.allow"),
        (("skilled", "nothing"), "call-refused", "research"),
        (("skilled", "research"), "call-refused", '"q"'),
        (("no agent", "think"), "call-refused", "agent"),
        (("a", "../x"), "call-refused", "skill"),
        (("a", "think", "--timeout", "-1"), "call-refused", "timeout"),
    ],
)
def test_rejected_call_prints_the_reason_and_exits_with_2(run, arguments, code, words) -> None:
    done = run("call", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error {code}: ")
    assert words in done.err
    as_json = run("call", *arguments, "--json")
    assert (as_json.code, as_json.err) == (2, "")
    assert as_json.json["status"] == ("forbidden" if code == "forbidden" else "error")
    assert as_json.json["error"]["code"] == code
    assert done.err.splitlines()[1:] == [*filter(None, [as_json.json["error"]["hint"]])]


def test_failed_call_is_reported_with_its_reason(run) -> None:
    done = run("call", "a", "fail", "--wait")
    assert (done.code, done.out) == (1, "")
    assert "error call-failed: a · fail: " in done.err
    assert "no luck today" in done.err
    assert "calls show" in done.err
    failed = run("call", "a", "fail", "--wait", "--json")
    assert (failed.code, failed.json["status"]) == (1, "error")
    assert failed.json["error"]["code"] == "call-failed"
    assert "no luck today" in failed.json["error"]["message"]


def test_call_timeout_is_reported(run, tmp_path: Path) -> None:
    wait = json.dumps({"file": str(tmp_path / "now")})
    done = run("call", "a", "until", wait, "--wait", "--timeout", "0.3")
    (tmp_path / "now").touch()
    assert (done.code, done.out) == (1, "")
    assert "error call-timeout: a · until" in done.err
    assert "--timeout SECONDS" in done.err


def test_call_without_deadline_waits_for_the_answer(run) -> None:
    done = run("call", "a", "think", '{"x": 2}', "--wait", "--timeout", "0")
    assert (done.code, done.json) == (0, {"x": 2})


def test_interrupting_a_wait_prints_how_to_look_later(run, calling, tmp_path) -> None:
    wait = json.dumps({"file": str(tmp_path / "now")})
    where = ["--url", calling.address, "--data", str(calling.home)]
    process = subprocess.Popen(
        [*COMMAND, "call", "b", "until", wait, "--wait", *where],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not run("calls", "list", "--agent", "b", "--status", "pending", "--json").json["calls"]:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)
    (tmp_path / "now").touch()
    assert (process.returncode, out) == (130, "")
    assert "call goes on" in err  # it may have been accepted before the command knew
    assert "openclaw-a2a calls" in err


def test_unreachable_gateway_is_reported_with_the_start_command(command, calling) -> None:
    where = ("--url", f"http://127.0.0.1:{free_port()}", "--data", str(calling.home))
    for words in (("call", "a", "ping"), ("calls", "list"), ("calls", "watch")):
        done = command(*words, *where)
        assert (done.code, done.out) == (3, "")
        assert "openclaw-a2a up" in done.err


def test_disabled_calls_error_names_the_setting(command, start_calling) -> None:
    off = start_calling()
    done = command("call", "a", "ping", "--url", off.address, "--data", str(off.home))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error calls-off: ")
    assert "tools.agentToAgent.enabled" in done.err


# ------------------------------------------------------------------ calls


@pytest.mark.requirement("calls.doors.commands", "calls.times.shown")
def test_call_list_shows_status_and_state(run) -> None:
    call_id = called(run, "c", "think")
    run("calls", "watch", call_id)
    done = run("calls", "list", "--agent", "c")
    heading, *rows = done.out.splitlines()
    assert heading.split() == [
        *("CALL", "FROM", "AGENT", "SKILL", "STATUS", "STATE", "SINCE", "NOTE")
    ]
    [row] = [row for row in rows if row.startswith(call_id)]
    assert row.split()[1:6] == ["operator", "c", "think", "completed", "delivered"]
    assert row.endswith("confidence 0.75")


def test_list_applies_filters_and_limit(run) -> None:
    for _ in range(2):
        called(run, "c", "fail")
    done = run("calls", "list", "--agent", "c", "--limit", "1")
    assert len(done.out.splitlines()) == 2
    assert "more with --limit" in done.err
    assert run("calls", "list", "--agent", "nobody").err == "No calls from or to nobody.\n"
    assert run("calls", "list", "--status", "discarded").err == "No calls with status discarded.\n"
    assert run("calls", "list", "--limit", "0").code == 2
    assert run("calls", "list", "--status", "happy").code == 2


@pytest.mark.requirement("calls.doors.commands", "calls.times.shown")
def test_show_call_accepts_an_id_prefix_and_prints_times_and_answer(run) -> None:
    call_id = called(run, "a", "think", '{"deep": [1]}')
    run("calls", "watch", call_id)
    done = run("calls", "show", call_id[:13])
    assert done.code == 0
    for words in (call_id, "a · think", "operator → a", "accepted", "answered", '"deep"', "- sun"):
        assert words in done.out
    shown = run("calls", "show", call_id, "--json").json
    assert shown["correlationId"] == call_id
    assert set(shown["times"]) >= {"accepted", "running", "answered"}


@pytest.mark.parametrize("call_id", ["zz", "00000000-0000-0000-0000-000000000000"])
def test_unknown_call_is_reported_as_not_found(run, call_id: str) -> None:
    for verb in ("show", "watch"):
        done = run("calls", verb, call_id)
        assert done.code == 1
        assert done.err.startswith("error call-not-found: ")
        assert "openclaw-a2a calls list" in done.err


@pytest.mark.parametrize("call_id", ["", "a/b", "?x", "..", "\u0000"])
def test_invalid_id_is_a_usage_error(run, call_id: str) -> None:
    done = run("calls", "show", call_id)
    assert (done.code, done.out) == (2, "")
    assert "openclaw-a2a calls list" in done.err


@pytest.mark.requirement("calls.doors.commands")
def test_watch_call_ends_when_the_answer_is_delivered(
    run, calling: Calling, tmp_path: Path
) -> None:
    # Without a deadline: the call must not time out before the command has started.
    asked = json.dumps({"file": str(tmp_path / "now")})
    call_id = called(run, "a", "until", asked, "--timeout", "0")
    words = ["calls", "watch", call_id, "--json", "--url", calling.address]
    words += ["--data", str(calling.home)]
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        first = watching.stdout.readline()
        (tmp_path / "now").touch()
        rest, _ = watching.communicate(timeout=TIMEOUT_S)
    assert watching.returncode == 0
    lines = [json.loads(line) for line in [first, *rest.splitlines()]]
    assert lines[0]["status"] == "pending"
    assert lines[-1]["status"] == "completed"
    assert {line["correlationId"] for line in lines} == {call_id}


def test_watching_a_failed_call_exits_with_1(run) -> None:
    done = run("calls", "watch", called(run, "a", "fail"))
    assert done.code == 1
    assert "no luck today" in done.out


SUNDAY = {
    "topic": "Sunday",
    "proposer": {"agent": "a", "skill": "propose"},
    "critics": [{"agent": "b"}, {"agent": "c"}],
    "resolver": {"agent": "b", "skill": "resolve"},
    "input": {},
}


@pytest.mark.requirement("calls.doors.debates")
def test_watching_a_debate_shows_rounds_and_conclusion(run, calling: Calling) -> None:
    debate = calling.tool("debate_call", {**SUNDAY, "wait": False})["correlationId"]
    watched = run("calls", "watch", debate)
    assert watched.code == 0
    lines = watched.out.splitlines()
    places = [
        next(number for number, line in enumerate(lines) if words in line)
        for words in ("a · propose", "b · critique", "a · refine", "b · resolve", "resolved:")
    ]
    assert places == sorted(places)
    assert "operator → debate · debate" in watched.out
    shown = run("calls", "show", debate).out
    assert "operator → debate\n" in shown
    listed = run("calls", "list", "--agent", "debate", "--json").json["calls"]
    assert debate in [one["correlationId"] for one in listed]
    for words in ("proposal", "round 1", "refined", "resolution", "0.60 → 0.90 → 0.95"):
        assert words in shown
    assert "resolved:" in shown
    assert "too dear" in shown


@pytest.mark.parametrize("is_piped", [False, True])
def test_debate_command_runs_a_debate_and_prints_its_result(
    run, monkeypatch, tmp_path, is_piped: bool
) -> None:
    file = tmp_path / "sunday.json"
    file.write_text(json.dumps({**SUNDAY, "wait": True}), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.StringIO(file.read_text("utf-8")))
    done = run("debate", "-" if is_piped else str(file))
    assert done.code == 0
    assert "a · propose" in done.out
    assert "resolved:" in done.out
    assert "too dear" in done.out


def test_debate_with_json_prints_only_the_result(run, tmp_path) -> None:
    file = tmp_path / "sunday.json"
    file.write_text(json.dumps(SUNDAY), encoding="utf-8")
    result = run("debate", str(file), "--json").json
    assert (result["status"], result["confidenceHistory"]) == ("resolved", [0.6, 0.9, 0.95])
    assert result["correlationId"]


def test_failed_debate_exits_with_1(run, tmp_path) -> None:
    file = tmp_path / "sunday.json"
    broken = {**SUNDAY, "proposer": {"agent": "a", "skill": "fail"}}
    file.write_text(json.dumps(broken), encoding="utf-8")
    done = run("debate", str(file))
    assert done.code == 1
    assert "no luck today" in done.out
    assert run("debate", str(file), "--json").code == 1


@pytest.mark.parametrize("content", [None, "[]", "{", '{"topic": 1}', "\udcff"])
def test_unreadable_debate_file_is_a_usage_error(run, tmp_path, content: str | None) -> None:
    file = tmp_path / "sunday.json"
    if content is not None:
        file.write_bytes(content.encode("utf-8", "surrogateescape"))
    done = run("debate", str(file))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error ")


def test_call_input_has_one_name_in_help(run) -> None:
    page = run("call", "--help").out
    assert "INPUT_JSON" not in page
    assert "INPUT " in page


def test_watching_all_calls_without_a_terminal_prints_one_line_per_change(
    run, calling: Calling
) -> None:
    call_id = called(run, "a", "think")
    where = ["--url", calling.address, "--data", str(calling.home)]
    process = subprocess.Popen(
        [*COMMAND, "calls", "watch", *where], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    watchdog = threading.Timer(TIMEOUT_S, process.kill)
    watchdog.start()
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(call_id[:8]) and "delivered" in line:
            break
    process.send_signal(signal.SIGINT)
    assert process.wait(TIMEOUT_S) == 130
    watchdog.cancel()
    process.stdout.close()
    assert lines[-1].startswith(f"{call_id[:8]}  operator → a · think · completed")
