"""Commands find the gateway that runs with their data folder, wherever it listens."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.conftest import COMMAND, served, wait_until_ready
from tests.ports import free_port

pytestmark = pytest.mark.slow


@pytest.fixture
def settings_port(tmp_path: Path) -> int:
    """The port in the settings file of the working folder; the gateway listens on another one."""
    port = free_port()
    settings = {"server": {"port": port, "stopSeconds": 0}, "agents": {"main": {"adapter": "echo"}}}
    (tmp_path / "openclaw-a2a.json5").write_text(json.dumps(settings), encoding="utf-8")
    return port


@contextmanager
def gateway(tmp_path: Path, *arguments: str) -> Iterator[str]:
    port = free_port()
    with served([*COMMAND, "up", "--port", str(port), *arguments], tmp_path, port) as address:
        yield address


@pytest.mark.usefixtures("settings_port")
def test_send_finds_the_gateway_that_was_started_on_another_port(command, tmp_path: Path) -> None:
    with gateway(tmp_path) as address:
        sent = command("send", "hello")
        assert (sent.code, sent.out) == (0, "echo: hello\n")
        assert address in command("card").out
        assert command("approvals", "list").err == "Nothing waits for a decision.\n"
    assert list((tmp_path / ".openclaw-a2a").glob("gateway-*")) == []


@pytest.mark.usefixtures("settings_port")
def test_send_finds_the_gateway_of_the_data_folder_that_is_named(command, tmp_path: Path) -> None:
    folder = str(tmp_path / "elsewhere")
    with gateway(tmp_path, "--data", folder):
        assert command("send", "hello", "--data", folder).out == "echo: hello\n"
        assert command("send", "hello").code == 3


def test_a_gateway_that_was_killed_is_not_found_any_more(
    command, tmp_path: Path, settings_port: int
) -> None:
    port = free_port()
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*COMMAND, "up", "--port", str(port)],
            stdout=output,
            stderr=output,
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path)},
        )
    wait_until_ready(f"http://127.0.0.1:{port}", process, log)
    process.send_signal(signal.SIGKILL)
    process.wait(240)
    sent = command("send", "hello")
    assert sent.code == 3
    assert f"nothing answers at http://127.0.0.1:{settings_port}" in sent.err
    # What the killed one left behind is removed by the next one.
    with gateway(tmp_path):
        left = [one.name for one in (tmp_path / ".openclaw-a2a").glob("gateway-*")]
        assert len(left) == 1
        assert f"gateway-{port}.json" not in left
        assert command("send", "hello").out == "echo: hello\n"


def test_an_address_of_the_environment_comes_before_the_data_folder(
    command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCLAW_A2A_URL", "http://127.0.0.1:1")
    with gateway(tmp_path):
        assert "http://127.0.0.1:1" in command("send", "hello").err


@pytest.mark.usefixtures("settings_port")
def test_up_says_that_the_gateway_of_the_folder_has_the_port(command, tmp_path: Path) -> None:
    with gateway(tmp_path) as address:
        again = command("up", "--port", address.rpartition(":")[2])
    assert again.code == 1
    assert '"code":"port-taken"' in again.err.replace(": ", ":")
    assert "The gateway of this data folder runs there (process" in again.err
