"""The page that --help shows, and how command lines that make no sense are answered."""

import json
import subprocess
import sys
from itertools import pairwise

import pytest

from openclaw_a2a.cli.dispatch import build_commands
from openclaw_a2a.cli.overview import ALIASES, COMMANDS, overview


def test_overview_lists_every_command_with_its_summary() -> None:
    app = build_commands()
    page = overview()
    for name, (_, summary) in COMMANDS.items():
        assert f"  {name:<12}{summary}" in page
        assert app[name].help.splitlines()[0].startswith(summary.split(" (")[0].rstrip(".")), name
    for name, alias in ALIASES.items():
        assert app[alias].help == app[name].help


@pytest.mark.parametrize("width", [80, 60])
def test_overview_is_even_on_a_terminal_that_is_usual_or_narrow(width: int) -> None:
    assert overview(80) == overview()  # nothing is broken there
    lines = overview(width).splitlines()
    assert all(len(line) <= width for line in lines)
    # A paragraph is filled: no line in the middle of one has room for the word after it.
    for line, after in pairwise(lines):
        if line and after and not line.startswith(" ") and not after.startswith(" "):
            assert len(f"{line} {after.split()[0]}") > width - 8


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_overview_goes_to_standard_output(command, arguments: list[str]) -> None:
    shown = command(*arguments)
    assert (shown.code, shown.out.strip(), shown.err) == (0, overview(), "")


def test_overview_imports_no_slow_module() -> None:
    code = (
        "import sys; from openclaw_a2a.cli import run; run(['--help']);"
        "print(sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in ("cyclopts", "rich", "msgspec", "httpx2", "uvicorn", "asyncio", "pyjson5"):
        assert f"'{name}'" not in done.stderr


def test_commands_without_a_gateway_load_no_http_library() -> None:
    code = (
        "import sys; from openclaw_a2a.cli import run; run(['config', 'schema']);"
        "print(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in ("httpx2", "uvicorn", "openclaw_a2a.app", "jsonschema_rs"):
        assert f"'{name}'" not in done.stderr


@pytest.mark.parametrize("name", ["up", "send", "tasks", "task", "card", "config", "db", "version"])
def test_every_command_has_a_help_text(command, name: str) -> None:
    shown = command(name, "--help")
    assert shown.code == 0
    assert f"openclaw-a2a {name}" in shown.out


def test_help_names_the_text_to_send_and_every_exit_code(command) -> None:
    assert "send [OPTIONS] TEXT" in command("send", "--help").out
    assert all(f"{code} " in overview() for code in (0, 1, 2, 3, 130))


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["snd"], "send"),
        (["send", "--no-such-flag", "x"], "openclaw-a2a send --help"),
        (["tasks", "lst"], "list"),
        (["tasks", "show"], "openclaw-a2a tasks --help"),
        (["tasks", "list", "--state", "happy"], "completed"),
    ],
)
def test_usage_error_suggests_the_right_command(command, arguments, hint) -> None:
    shown = command(*arguments)
    assert shown.code == 2
    assert shown.out == ""
    assert shown.err.startswith("error usage: ")
    assert hint in shown.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["tasks", "list", "a", "b"], "too many arguments for tasks list: a b"),
        (["version", "now"], "too many arguments for version: now"),
        (["tasks", "list", "--limit", "1", "--limit", "2"], "--limit is given more than once"),
        (["tasks", "list", "--limit=1", "--limit=2"], "--limit is given more than once"),
        (["doctor", "--ask", "--ask"], "--ask is given more than once"),
        (["send", "--task"], "--task needs a value"),
        (["targets", "add", "a", "http://a", "--tag"], "--tag needs a value"),
        (["tasks", "list", "--all=maybe"], '--all is a switch and takes no value, not "maybe"'),
        (["tasks", "show"], "tasks show needs TASK"),
        (["targets", "add", "there"], "targets add needs ADDRESS"),
        (["tasks", "list", "--limit", "few"], '--limit must be a whole number, not "few"'),
        (["tasks", "list", "--limit="], '--limit must be a whole number, not ""'),
        (["demo", "--pace", "fast"], '--pace must be a number, not "fast"'),
        (["tasks", "list", "--state", "happy"], 'Invalid value "happy" for --state. Choose from:'),
        (["send", "--no-such-flag", "x"], "Unknown option: --no-such-flag."),
    ],
)
def test_usage_error_names_what_is_wrong_in_plain_words(command, arguments, reason) -> None:
    shown = command(*arguments)
    assert (shown.code, shown.out) == (2, "")
    said, hint = shown.err.splitlines()
    assert said.startswith(f"error usage: {reason}")
    assert hint == f"See: openclaw-a2a {arguments[0]} --help"
    for words in ("Unused Tokens", "Parameter", "parameter", "requires an argument", "convert"):
        assert words not in shown.err
    document = command(*arguments, "--json").json
    assert document["error"]["message"] == said.removeprefix("error usage: ")


def test_usage_error_of_up_names_the_repeated_option(command) -> None:
    shown = command("up", "--host", "a", "--host", "b")
    assert (shown.code, shown.out) == (2, "")
    assert json.loads(shown.err)["reason"] == "--host is given more than once"


def test_usage_error_of_up_off_a_terminal_is_a_line_of_its_log(command) -> None:
    shown = command("up", "--port", "many")
    assert (shown.code, shown.out) == (2, "")
    line = json.loads(shown.err)
    assert (line["event"], line["code"]) == ("gateway.not_started", "usage")
    assert "--port" in line["reason"]
    assert "openclaw-a2a up --help" in line["hint"]


def test_version_is_printed_short_and_with_its_environment(command) -> None:
    short = command("--version").out.strip()
    facts = command("version", "--json").json
    assert facts["openclaw-a2a"] == short
    assert {"python", "sqlite", "platform", "a2a"} <= set(facts)
    assert short in command("version").out
