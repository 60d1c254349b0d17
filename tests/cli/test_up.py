"""What `up` says when it is ready and when it stops."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TASKS = {"agentStyle": "task-generating"}


def line(gateway, beginning: str) -> str:
    [found] = [one for one in gateway.output().splitlines() if one.startswith(beginning)]
    return found


def test_the_first_command_can_be_pasted(start_gateway, tmp_path: Path) -> None:
    bare = start_gateway(env={"PATH": os.defpath})
    command = line(bare, "Try it:  ").removeprefix("Try it:  ")
    sent = subprocess.run(
        command, shell=True, capture_output=True, env={"PATH": os.defpath}, check=True, text=True
    )
    assert sent.stdout == "echo: hello\n"
    # On the path, the name is enough.
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "openclaw-a2a"
    script.write_text("#!/bin/sh\n", encoding="utf-8")
    script.chmod(0o755)
    known = start_gateway(env={"PATH": str(folder)})
    assert line(known, "Try it:  ") == f'Try it:  openclaw-a2a send --url {known.url} "hello"'


def test_the_command_in_the_working_folder_is_named_from_there(tmp_path: Path) -> None:
    """As in a checkout that has its environment in `.venv`."""
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "openclaw-a2a").write_text("", encoding="utf-8")
    code = (
        "import sys; sys.executable = sys.argv[1]\n"
        "from openclaw_a2a.app.banner import program; print(program())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder / "python")],
        cwd=tmp_path,
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ".venv/bin/openclaw-a2a\n"


def test_with_peers_the_first_command_has_a_place_for_the_token(start_gateway) -> None:
    peers = {"alice": {"tokens": ["env:ALICE"]}}
    settings = {"channels": {"a2a": {"security": {"peers": peers}}}}
    gateway = start_gateway(settings, env={"ALICE": "a-token-that-is-long-enough"})
    assert line(gateway, "Try it:  ").startswith("Try it:  OPENCLAW_A2A_TOKEN=<token> ")


def test_the_default_account_is_first_and_a_public_address_is_not_all(start_gateway) -> None:
    accounts = {"aardvark": TASKS, "default": TASKS}
    peers = {"alice": {"tokens": ["sha256:" + "0" * 64]}}
    gateway = start_gateway(
        {
            "server": {"publicBaseUrl": "https://agents.example.org"},
            "channels": {"a2a": {"accounts": accounts, "security": {"peers": peers}}},
        }
    )
    lines = gateway.output().splitlines()
    assert lines[:2] == [
        "openclaw-a2a is ready at https://agents.example.org",
        f"listening on 127.0.0.1:{gateway.port}",
    ]
    labels = [one.split()[0] for one in lines if " agent main " in one]
    assert labels == ["default", "aardvark"]


def test_without_a_default_account_the_first_command_asks_another(start_gateway) -> None:
    gateway = start_gateway({"channels": {"a2a": {"accounts": {"other": TASKS}}}})
    assert f" --url {gateway.url}/agents/other " in line(gateway, "Try it:  ")


@pytest.fixture
def held(start_gateway, slow_agent, program):
    """A gateway with a run that does not end, and what it says when it is stopped."""

    def stop(log_format: str) -> list[str]:
        gateway = start_gateway(
            {
                "server": {"stopSeconds": 0.1},
                "log": {"format": log_format},
                "agents": {"main": slow_agent},
                "channels": {"a2a": {"accounts": {"default": TASKS}}},
            }
        )
        sender = subprocess.Popen(
            [*program, "send", "hold", "--url", gateway.url],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert sender.stdout is not None
        sender.stdout.read(len("holding"))
        gateway.stop()
        sender.kill()
        sender.wait()
        sender.stdout.close()
        return gateway.output().partition("Stop it: Ctrl-C\n")[2].splitlines()

    return stop


def test_a_stop_tells_people_what_is_left(held) -> None:
    assert held("pretty") == [
        "Stopping: 1 run may go on for 0.1 s; Ctrl-C again leaves at once.",
        "1 run was left; it goes on at the next start, or fails with a reason.",
    ]


def test_a_stop_tells_programs_what_is_left(held) -> None:
    stopping, left = (json.loads(one) for one in held("json"))
    assert (stopping["event"], stopping["signal"]) == ("gateway.stopping", "SIGTERM")
    assert (left["event"], left["count"]) == ("gateway.runs_unfinished", 1)
