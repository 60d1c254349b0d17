"""`targets`: what people do with the remote agents of their settings."""

import json
import shlex
import socket
import subprocess
from pathlib import Path

import pyjson5
import pytest
from tests.cli.conftest import Terminal

NOBODY = "http://127.0.0.1:1"
TOKEN = "a-token-for-the-tests-of-targets"


@pytest.fixture
def settings(tmp_path: Path):
    """Write the settings file of the working directory; without targets, say where it is."""
    path = tmp_path / "openclaw-a2a.json5"

    def write(*targets: object, **more: object) -> Path:
        path.write_text(json.dumps({"outbound": {"targets": targets, **more}}), encoding="utf-8")
        return path

    return write


def target(alias: str, url: str, **more: object) -> dict[str, object]:
    return {"alias": alias, "baseUrl": url, **more}


def test_empty_target_list_says_how_to_add_one(command) -> None:
    shown = command("targets", "list")
    assert (shown.code, shown.out) == (0, "")
    assert "openclaw-a2a targets add" in shown.err


def test_target_list_shows_why_a_target_is_unreachable(command, settings, asker) -> None:
    settings(target("asker", asker, default=True), target("down", NOBODY))
    shown = command("targets", "list")
    heading, first, second = shown.out.splitlines()
    assert heading.split() == ["ALIAS", "REACHABLE", "STREAMS", "NAME", "ADDRESS", "SKILLS"]
    assert first.split() == ["asker", "*", "yes", "yes", "Asker", f"{asker}/", "Chat"]
    assert second.split()[:3] == ["down", "no", "-"]
    assert "down: " in shown.err


@pytest.mark.requirement("remote.tool.command")
def test_targets_list_with_json_prints_the_tool_envelope(command, settings, asker) -> None:
    settings(target("asker", asker), target("down", NOBODY))
    envelope = command("targets", "list", "--json").json
    assert (envelope["ok"], envelope["operation"]) == (True, "remote_agent")
    entries = envelope["summary"]["targets"]
    assert [entry["target_alias"] for entry in entries] == ["asker", "down"]
    assert "last_refresh_error" in entries[1]


def test_added_target_is_written_to_a_new_file_and_can_be_used_at_once(
    command, tmp_path: Path, asker
) -> None:
    added = command("targets", "add", "asker", asker, "--default", "--tag", "a", "--tag", "b")
    assert added.code == 0
    assert "openclaw-a2a targets check asker" in added.err
    path = tmp_path / ".config" / "openclaw-a2a" / "openclaw-a2a.json5"
    wanted = {"alias": "asker", "baseUrl": asker, "tags": ["a", "b"], "default": True}
    assert pyjson5.decode(path.read_text())["outbound"]["targets"] == [wanted]
    assert command("remote", "send", "count").out == "one two three\n"


def test_adding_and_removing_targets_keeps_the_rest_of_the_file(command, tmp_path: Path) -> None:
    path = tmp_path / "openclaw-a2a.json5"
    before = "{\n  // mine\n  outbound: {\n    targets: [\n    ], // none yet\n  },\n}\n"
    path.write_text(before, encoding="utf-8")
    assert command("targets", "add", "ops", "https://ops.example").code == 0
    assert "// mine" in path.read_text()
    removed = command("targets", "remove", "ops", "--yes", "--json")
    assert (removed.code, removed.json["removed"]) == (0, "ops")
    assert path.read_text() == before


def test_credentials_are_written_as_variable_names_only(command, tmp_path: Path) -> None:
    command("targets", "add", "a", "https://a.example", "--bearer-env", "A_TOKEN")
    command("targets", "add", "b", "https://b.example", "--api-key-env", "B_KEY")
    path = tmp_path / ".config" / "openclaw-a2a" / "openclaw-a2a.json5"
    first, second = pyjson5.decode(path.read_text())["outbound"]["targets"]
    assert first["auth"] == {"type": "bearer", "token": "${A_TOKEN}"}
    assert second["auth"] == {"type": "apiKey", "token": "${B_KEY}"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["ops", "https://elsewhere.example"], "duplicate alias"),
        (["new", "https://new.example", "--default"], "multiple default"),
        (["new", "ftp://new.example"], "http"),
        (["", "https://new.example"], "alias"),
        (["new", "https://n.example", "--bearer-env", "A", "--api-key-env", "B"], "not both"),
    ],
)
def test_invalid_target_is_rejected_before_writing(
    command, settings, arguments: list[str], reason: str
) -> None:
    path = settings(target("ops", "https://ops.example", default=True))
    before = path.read_text()
    shown = command("targets", "add", *arguments)
    assert shown.code == 2
    assert shown.err.startswith("error usage: ")
    assert reason in shown.err
    assert path.read_text() == before


def test_file_that_cannot_be_edited_safely_is_kept_and_the_lines_are_printed(
    command, tmp_path: Path
) -> None:
    path = tmp_path / "openclaw-a2a.json5"
    path.write_text("{ outb\\u006fund: { enabled: true } }", encoding="utf-8")
    shown = command("targets", "add", "ops", "https://ops.example")
    assert shown.code == 2
    assert shown.err.startswith("error settings-by-hand: ")
    assert '{ alias: "ops", baseUrl: "https://ops.example" }' in shown.err
    assert "ops" not in path.read_text()


def test_targets_set_by_the_environment_cannot_be_changed_in_a_file(command, monkeypatch) -> None:
    monkeypatch.setenv("OPENCLAW_A2A_OUTBOUND__TARGETS", "[{alias: 'a', baseUrl: 'http://a'}]")
    for arguments in (["add", "b", "http://b"], ["remove", "a", "--yes"]):
        shown = command("targets", *arguments)
        assert shown.code == 2
        assert "OUTBOUND__TARGETS" in shown.err


def test_remove_asks_first_and_rejects_unknown_aliases(command, settings) -> None:
    path = settings(target("ops", "https://ops.example"))
    asked = command("targets", "remove", "ops")
    assert asked.code == 2
    assert "--yes" in asked.err
    unknown = command("targets", "remove", "nobody", "--yes")
    assert unknown.code == 2
    assert "openclaw-a2a targets list" in unknown.err
    assert "ops" in path.read_text()


def test_check_shows_transport_and_protocol_version(command, settings, asker) -> None:
    settings(target("asker", asker, preferredTransports=["HTTP+JSON"]))
    for name in ("asker", asker):
        shown = command("targets", "check", name)
        assert shown.code == 0
        assert "Asker" in shown.out
        assert "lets us in yes" in shown.out
    facts = command("targets", "check", "asker", "--json").json
    assert (facts["ok"], facts["transport"], facts["protocol_version"]) == (
        True,
        "HTTP+JSON",
        "1.0",
    )


def test_check_shows_whether_credentials_are_required_and_accepted(
    command, settings, start_gateway, monkeypatch
) -> None:
    peers = {"alice": {"tokens": ["env:ALICE"]}}
    gateway = start_gateway(
        {"channels": {"a2a": {"security": {"peers": peers}}}}, env={"ALICE": TOKEN}
    )
    settings(target("ours", gateway.url, auth={"type": "bearer", "token": "${OUR_TOKEN}"}))
    unset = command("targets", "check", "ours")
    assert unset.code == 2
    assert "Set OUR_TOKEN" in unset.err
    monkeypatch.setenv("OUR_TOKEN", "a-wrong-token-for-the-tests")
    wrong = command("targets", "check", "ours")
    assert wrong.code == 1
    assert "wants      bearer token" in wrong.out
    assert "lets us in no" in wrong.out
    monkeypatch.setenv("OUR_TOKEN", TOKEN)
    right = command("targets", "check", "ours", "--json")
    assert (right.code, right.json["is_let_in"], right.json["auth_given"]) == (0, True, "bearer")
    assert TOKEN not in right.out


def test_checking_an_unknown_target_is_reported(command, settings) -> None:
    settings(target("down", NOBODY))
    shown = command("targets", "check", "down")
    assert shown.code == 3
    assert shown.err.startswith("error A2A_SDK_ERROR: down: ")
    assert command("targets", "check", "down", "--json").json["ok"] is False
    assert command("targets", "check", "nowhere").code == 2


def test_invalid_outbound_settings_are_reported_with_their_path(command, settings) -> None:
    settings({"alias": "a"})
    for arguments in (["list"], ["add", "b", "http://b"]):
        shown = command("targets", *arguments)
        assert shown.code == 2
        assert "baseUrl" in shown.err


def test_targets_help_loads_no_a2a_client(program) -> None:
    for words in (["targets", "--help"], ["remote", "send", "--help"]):
        code = (
            f"import sys; from openclaw_a2a.cli import run; run({words});"
            "print(sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
        )
        done = subprocess.run([program[0], "-c", code], capture_output=True, text=True, check=True)
        for name in ("a2a", "httpx", "google", "jsonschema_rs"):
            assert f"'{name}'" not in done.stderr


@pytest.fixture
def two_files(command, tmp_path: Path) -> tuple[Path, Path]:
    """The settings file of the working folder, and that of the user, which it hides."""
    used = tmp_path / "openclaw-a2a.json5"
    hidden = tmp_path / ".config" / "openclaw-a2a" / "openclaw-a2a.json5"
    hidden.parent.mkdir(parents=True)
    for path in (used, hidden):
        path.write_text("{}", "utf-8")
    return used, hidden


def test_a_settings_file_that_hides_no_other_is_not_mentioned(command, two_files) -> None:
    used, hidden = two_files
    other = used.with_name("other.json5")
    used.rename(other)
    for words in (["targets", "list"], ["config", "check"], ["config", "show"], ["token", "list"]):
        for more in ([], ["--config", str(hidden)], ["--config", str(other)]):
            assert "not read" not in command(*words, *more).err.lower()


@pytest.mark.parametrize(
    "words",
    [
        ("targets", "add", "there", NOBODY),
        ("targets", "list"),
        ("targets", "check", "there"),
        ("targets", "remove", "there", "--yes"),
        ("config", "show"),
        ("token", "list"),
        ("db", "upgrade", "--plan"),
        ("remote", "send", "hello"),
        ("calls", "list"),
        ("objectives", "list"),
        ("audit",),
        ("audit", "verify"),
        ("tasks", "list"),
        ("send", "hello"),
        ("card",),
        ("approvals", "list"),
    ],
)
def test_which_settings_file_is_used_and_which_is_hidden_is_said_once(
    command, two_files, monkeypatch, words: tuple[str, ...]
) -> None:
    used, hidden = two_files
    monkeypatch.setenv("OPENCLAW_A2A_SERVER__PORT", "1")
    shown = command(*words)
    assert shown.err.splitlines().count(f"Used: {used}. Not read: {hidden}") == 1
    assert shown.err.count(str(hidden)) == 1
    assert str(hidden) not in shown.out
    # A program gets JSON only; a person who reads the rest on a terminal gets the note, too.
    as_json = command(*words, "--json")
    assert str(hidden) not in as_json.out + as_json.err
    assert "not read" not in command(*words, "--config", str(hidden)).err.lower()


def test_hidden_settings_file_is_said_to_the_reader_of_a_terminal_while_json_goes_elsewhere(
    two_files, program: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = shlex.join([*program, "config", "show", "--json"])
    terminal = Terminal(["sh", "-c", f"{arguments} > out"], tmp_path, columns=1000, rows=24)
    assert "Used: {}. Not read: {}".format(*two_files) in terminal.finish()
    assert json.loads(out.read_text())["server"]["port"] == 9900


@pytest.mark.parametrize("words", [("config", "check"), ("connect", "openclaw"), ("doctor",)])
def test_commands_that_list_every_warning_say_once_which_settings_file_is_hidden(
    command, two_files, words: tuple[str, ...]
) -> None:
    used, hidden = two_files
    shown = command(*words)
    text = " ".join((shown.out + shown.err).split())
    assert text.count(f"{hidden}: is not read, because {used} is used here") == 1
    assert text.count(str(hidden)) == 1


@pytest.mark.parametrize("words", [("config", "check"), ("connect", "openclaw"), ("up",)])
def test_commands_that_refuse_the_settings_say_which_settings_file_is_hidden(
    command, two_files, words: tuple[str, ...]
) -> None:
    """It may be the hidden file that somebody has corrected."""
    used, hidden = two_files
    used.write_text("{server: {port: true}}", "utf-8")
    shown = command(*words)
    text = " ".join((shown.out + shown.err).split())
    assert "server.port" in text
    assert text.count(str(hidden)) == 1


def test_json_of_doctor_and_config_check_has_the_hidden_settings_file(command, two_files) -> None:
    _, hidden = two_files
    findings = command("doctor", "--json").json["findings"]
    assert [one["verdict"] for one in findings if str(hidden) in one["detail"]] == ["note"]
    warnings = command("config", "check", "--json").json["warnings"]
    assert [one["keyword"] for one in warnings if one["path"] == str(hidden)] == ["hidden-file"]


def test_up_logs_once_which_settings_file_is_hidden(command, two_files) -> None:
    used, hidden = two_files
    with socket.create_server(("127.0.0.1", 0)) as taken:  # so that it ends by itself
        shown = command("up", "--port", str(taken.getsockname()[1]))
    lines = [json.loads(line) for line in shown.err.splitlines()]
    assert lines[-1]["code"] == "port-taken"
    [warning] = [one for one in lines if str(hidden) in json.dumps(one)]
    assert (warning["event"], warning["level"]) == ("settings.warning", "warning")
    assert warning["path"] == str(hidden)
    assert warning["reason"].startswith(f"is not read, because {used} is used here")
