"""`connect openclaw` shows and does what is needed, and touches nothing a person wrote."""

import json
import os
from pathlib import Path

import pyjson5
import pytest
from tests.cli.scripted_openclaw import scripted_openclaw
from tests.ports import free_port

from openclaw_a2a.settings.settings_file import plan_openclaw_section

USER_FILE = Path(".config/openclaw-a2a/openclaw-a2a.json5")
MINE = """// my gateway
{
  server: { port: 9911 }, // not the usual one
  /* agents come later */
}
"""


@pytest.fixture(autouse=True)
def away(command, tmp_path: Path, monkeypatch) -> None:
    """Nothing of this machine's OpenClaw."""
    del command
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in [name for name in os.environ if name.startswith("OPENCLAW_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def gateway():
    with scripted_openclaw() as running:
        yield running


def openclaw(home: Path, port: int, *, token: str | None = "the-right-token") -> Path:
    path = home / ".openclaw" / "openclaw.json"
    path.parent.mkdir(exist_ok=True)
    auth = {"mode": "token"} | ({} if token is None else {"token": token})
    path.write_text(json.dumps({"gateway": {"port": port, "auth": auth}}), "utf-8")
    return path


def steps_of(finished) -> dict[str, bool]:
    return {one["name"]: one["isDone"] for one in finished.json["steps"]}


def test_missing_openclaw_is_reported_with_install_commands(command, tmp_path: Path) -> None:
    finished = command("connect", "openclaw")
    assert finished.code == 1
    assert "npm install -g openclaw" in finished.out
    assert "openclaw onboard" in finished.out
    assert not (tmp_path / USER_FILE).exists()


@pytest.mark.parametrize("flags", [(), ("--dry-run",)])
def test_unreadable_openclaw_config_blocks_the_setup(
    command, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    openclaw(tmp_path, 1).write_text("{ gateway: ", "utf-8")
    finished = command("connect", "openclaw", *flags)
    assert finished.code == 1
    assert finished.out.count("is not JSON5") == 1
    assert "openclaw doctor --fix" in finished.out
    assert not (tmp_path / USER_FILE).exists()


def test_dry_run_prints_all_steps_and_changes_nothing(command, tmp_path: Path, gateway) -> None:
    config = openclaw(tmp_path, gateway.port)
    before = config.read_text("utf-8")
    finished = command("connect", "openclaw", "--dry-run")
    assert finished.code == 0
    assert f'configPath: "{config}"' in finished.out
    assert "Nothing was changed" in finished.out
    assert "the-right-token" not in finished.out + finished.err
    assert config.read_text("utf-8") == before
    assert not (tmp_path / USER_FILE).exists()


def test_connect_writes_a_settings_file_that_serves_the_agents(
    command, tmp_path: Path, gateway
) -> None:
    config = openclaw(tmp_path, gateway.port)
    finished = command("connect", "openclaw", "--json")
    assert finished.code == 0
    assert finished.json["ok"] is True
    written = tmp_path / USER_FILE
    assert pyjson5.decode(written.read_text("utf-8")) == {
        "openclaw": {"configPath": str(config), "expose": "all"}
    }
    assert written.stat().st_mode & 0o777 == 0o600
    shown = command("config", "show", "--json").json
    assert shown["agents"]["main"]["token"] == f"openclaw-config:{config}"
    again = command("connect", "openclaw", "--json")
    assert all(steps_of(again).values())
    assert again.json["done"] == []


def test_existing_settings_file_only_gets_the_section(command, tmp_path: Path, gateway) -> None:
    openclaw(tmp_path, gateway.port)
    mine = tmp_path / "openclaw-a2a.json5"
    mine.write_text(MINE, "utf-8")
    mine.chmod(0o640)
    assert command("connect", "openclaw").code == 0
    text = mine.read_text("utf-8")
    added = [line for line in text.splitlines() if line not in MINE.splitlines()]
    assert [line for line in text.splitlines() if line not in added] == MINE.splitlines()
    assert len(added) == 5
    assert pyjson5.decode(text)["server"] == {"port": 9911}
    assert mine.stat().st_mode & 0o777 == 0o640


def test_config_flag_names_the_file_to_write(command, tmp_path, gateway) -> None:
    openclaw(tmp_path, gateway.port)
    mine = tmp_path / "elsewhere.json5"
    mine.write_text("{}", "utf-8")
    assert command("connect", "openclaw", "--config", str(mine)).code == 0
    assert "openclaw" in pyjson5.decode(mine.read_text("utf-8"))


def test_unreachable_gateway_is_reported_and_the_other_steps_are_taken(
    command, tmp_path: Path
) -> None:
    openclaw(tmp_path, free_port())
    finished = command("connect", "openclaw")
    assert finished.code == 0
    assert "openclaw gateway run" in finished.out
    assert (tmp_path / USER_FILE).exists()


def test_wrong_token_is_reported(command, tmp_path: Path, gateway) -> None:
    openclaw(tmp_path, gateway.port, token="another-token")
    finished = command("connect", "openclaw", "--dry-run", "--json")
    gateway = next(one for one in finished.json["steps"] if one["name"] == "gateway")
    assert gateway["isDone"] is False
    assert "does not accept the token" in gateway["what"]
    assert "another-token" not in finished.out


def test_missing_token_is_created_by_openclaws_own_command(command, tmp_path: Path) -> None:
    openclaw(tmp_path, free_port(), token=None)
    log_file = tmp_path / "log_file"
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "openclaw"
    script.write_text(
        f'#!/bin/sh\necho "$@" >> "{log_file}"\n[ "$2" != patch ] || /bin/cat >> "{log_file}"\n',
        "utf-8",
    )
    script.chmod(0o755)
    dry = command("connect", "openclaw", "--dry-run")
    assert "openclaw doctor --generate-gateway-token" in dry.out
    assert "patch" not in log_file.read_text("utf-8")
    finished = command("connect", "openclaw")
    assert finished.code == 0
    log = log_file.read_text("utf-8")
    assert "config patch --stdin" in log
    made = json.loads(log[log.index("{") : log.rindex("}") + 1])["gateway"]["auth"]
    assert made["mode"] == "token"
    assert len(made["token"]) == 48
    assert made["token"] not in finished.out + finished.err
    assert "restart" in finished.out


def test_failing_openclaw_command_is_reported_with_the_next_step(command, tmp_path: Path) -> None:
    openclaw(tmp_path, free_port(), token=None)
    finished = command("connect", "openclaw")
    assert finished.code == 1
    assert "openclaw doctor --generate-gateway-token" in finished.err


def test_invalid_settings_are_reported_first(command, tmp_path: Path, gateway) -> None:
    openclaw(tmp_path, gateway.port)
    (tmp_path / "openclaw-a2a.json5").write_text("{server: 5}", "utf-8")
    finished = command("connect", "openclaw")
    assert finished.code == 2
    assert "server" in finished.err


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{a: 1}",
        '// {"openclaw": 1}\n{ /* x */ }',
        "/* {\n */ {b: [1, 2],}\n// end",
        "\ufeff{a: '{'}",
        "{\r\n  a: 1,\r\n}\r\n",
    ],
)
def test_openclaw_section_fits_into_any_settings_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file.json5"
    file.write_bytes(text.encode())
    addition = plan_openclaw_section(file, Path("/x/openclaw.json"))
    assert addition.is_possible
    addition.write()
    after = pyjson5.decode(file.read_bytes().decode("utf-8-sig"))
    before = pyjson5.decode(text.lstrip("\ufeff"))
    assert after == {**before, "openclaw": {"configPath": "/x/openclaw.json", "expose": "all"}}
    assert plan_openclaw_section(file, Path("/x/openclaw.json")).text == ""


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "{a: 1"])
def test_unparsable_settings_file_is_not_changed(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file.json5"
    file.write_text(text, "utf-8")
    addition = plan_openclaw_section(file, Path("/x/openclaw.json"))
    assert not addition.is_possible
    assert "openclaw:" in addition.text


def test_symbolic_link_is_kept_when_the_file_is_written(tmp_path: Path) -> None:
    real = tmp_path / "real.json5"
    real.write_text("{}", "utf-8")
    link = tmp_path / "link.json5"
    link.symlink_to(real)
    plan_openclaw_section(link, Path("/x")).write()
    assert link.is_symlink()
    assert "openclaw" in real.read_text("utf-8")
