"""`openclaw-a2a approvals` against a gateway process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Finished, free_port, wait_until_ready

from openclaw_a2a.cli import run


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("operated")


@pytest.fixture(scope="module")
def config(home: Path) -> Iterator[Path]:
    """The settings of a running gateway."""
    port, config, root = free_port(), home / "gateway.json5", Path(__file__).parents[3]
    settings = {
        "server": {"port": port, "publicBaseUrl": "https://agents.example", "stopSeconds": 0},
        "data": str(home / "data"),
        "store": {"kind": "memory"},
        "agents": {"main": {"adapter": "echo"}, "down": {"adapter": "echo"}},
        "channels": {"a2a": {"security": {"peers": {"alice": {"tokens": ["env:ALICE_TOKEN"]}}}}},
    }
    config.write_text(json.dumps(settings), encoding="utf-8")
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.server.admin.asking_gateway", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=root,
            env={**os.environ, "HOME": str(home), "ALICE_TOKEN": "a-long-token-of-alice"},
        )
    try:
        wait_until_ready(f"http://127.0.0.1:{port}", process, home / "log")
        yield config
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(240)


Command = Callable[..., Finished]


@pytest.fixture
def approvals(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Run `approvals ...` in this process. The peers' tokens are not in its environment."""
    for name in [name for name in os.environ if name.startswith("OPENCLAW_A2A_")]:
        monkeypatch.delenv(name)

    def execute(*words: str, settings: Path = config) -> Finished:
        capsys.readouterr()
        code = run(["approvals", *words, "--config", str(settings)])
        printed = capsys.readouterr()
        return Finished(code, printed.out, printed.err)

    return execute


def test_the_list_shows_whole_commands_with_control_characters_escaped(approvals: Command) -> None:
    done = approvals("list")
    lines = done.out.splitlines()
    assert done.code == 0
    assert lines[0].split() == ["ID", "AGENT", "TASK", "EXPIRES", "IN", "FOLDER"]
    [at] = [number for number, line in enumerate(lines) if line.startswith("aaaa-2222")]
    assert "main" in lines[at]
    assert "/srv/project" in lines[at]
    assert lines[at + 1 : at + 3] == ["  $ rm -rf /", "  > \\x1b[2Jecho harmless \\u202e"]
    assert "agent down could not be asked: it is switched off" in done.err


def test_the_list_as_json_has_everything(approvals: Command) -> None:
    listed = approvals("list", "--json").json
    assert {"id", "agent", "command", "cwd", "taskId", "askedAt", "expiresAt"} <= set(
        listed["approvals"][0]
    )
    assert listed["troubles"] == [{"agent": "down", "reason": "it is switched off"}]


def test_a_unique_beginning_of_the_id_is_enough(approvals: Command) -> None:
    assert approvals("allow", "bb").out == "bbbb-3333  allowed\n"
    again = approvals("deny", "bbbb-3333")
    assert (again.code, again.err.split(":")[0]) == (1, "error approval-over")


def test_an_ambiguous_beginning_decides_nothing(approvals: Command) -> None:
    done = approvals("allow", "aaaa")
    assert (done.code, done.err.split(":")[0]) == (2, "error approval-ambiguous")
    assert {one["id"] for one in approvals("list", "--json").json["approvals"]} >= {
        "aaaa-1111",
        "aaaa-2222",
    }


def test_a_denial_is_printed_as_json(approvals: Command) -> None:
    denied = approvals("deny", "cccc-4", "--json").json
    assert denied == {"id": "cccc-4444", "agent": "main", "allowed": False}


def test_a_wrong_data_folder_is_an_error_with_a_hint(approvals: Command, tmp_path: Path) -> None:
    done = approvals("list", "--data", str(tmp_path))
    assert (done.code, done.err.split(":")[0]) == (2, "error operator-token")
    assert str(tmp_path) in done.err
    assert "--data" in done.err


def test_the_token_of_another_gateway_is_an_error_of_its_own(
    approvals: Command, tmp_path: Path
) -> None:
    (tmp_path / "operator.token").write_text("x" * 43, encoding="ascii")
    done = approvals("list", "--data", str(tmp_path))
    assert (done.code, done.err.split(":")[0]) == (2, "error operator-token")
    assert "x" * 43 not in done.err + done.out


def test_the_token_is_never_sent_to_another_machine(approvals: Command) -> None:
    done = approvals("list", "--url", "http://agents.example")
    assert (done.code, done.err.split(":")[0]) == (2, "error usage")


def test_no_running_gateway_is_an_error_of_its_own(approvals: Command) -> None:
    done = approvals("list", "--url", f"http://127.0.0.1:{free_port()}")
    assert (done.code, done.err.split(":")[0]) == (3, "error gateway-unreachable")


def test_the_token_is_in_no_output(approvals: Command, home: Path) -> None:
    token = (home / "data" / "operator.token").read_text(encoding="ascii").strip()
    done = approvals("list", "--json")
    printed = done.out + done.err + (home / "log").read_text(encoding="utf-8")
    assert token not in printed
