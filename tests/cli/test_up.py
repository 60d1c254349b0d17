"""What `up` says when it is ready and when it stops."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from rich.cells import cell_len
from tests.cli.conftest import served
from tests.ports import free_port

pytestmark = pytest.mark.slow

TASKS = {"agentStyle": "task-generating"}


def line(gateway, beginning: str) -> str:
    [found] = [one for one in gateway.output().splitlines() if one.startswith(beginning)]
    return found


def test_start_hint_is_a_working_command(start_gateway, tmp_path: Path) -> None:
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


def test_start_hint_names_a_local_executable_relative_to_the_folder(tmp_path: Path) -> None:
    """As in a checkout that has its environment in `.venv`."""
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "openclaw-a2a").write_text("", encoding="utf-8")
    code = (
        "import sys; sys.executable = sys.argv[1]\n"
        "from openclaw_a2a.app.lifecycle import program; print(program())"
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


def test_function_of_the_settings_is_imported_from_their_folder(
    tmp_path: Path, program: list[str]
) -> None:
    """Wherever the gateway is started, with the modules that the function itself imports."""
    folder = tmp_path / "weather agent"
    folder.mkdir()
    (folder / "forecasts.py").write_text('TODAY = "rain"\n', encoding="utf-8")
    (folder / "weather.py").write_text(
        "def answer(text):\n    from forecasts import TODAY\n\n    return f'{text}: {TODAY}'\n",
        encoding="utf-8",
    )
    file, port = folder / "openclaw-a2a.json5", free_port()
    agents = {"weather": {"adapter": "callable", "function": "weather:answer"}}
    file.write_text(json.dumps({"agents": agents, "data": "data"}), encoding="utf-8")
    home = tmp_path / "home"
    home.mkdir()
    with served([*program, "up", "--config", str(file), "--port", str(port)], home, port) as url:
        sent = subprocess.run([*program, "send", "--url", url, "today"], capture_output=True)
        checked = subprocess.run(
            [*program, "config", "check", "--config", str(file)], cwd=home, capture_output=True
        )
    assert sent.stdout.decode() == "today: rain\n"
    assert checked.returncode == 0, checked.stderr.decode()


def test_function_that_is_not_there_is_reported_with_the_file_that_was_read(
    tmp_path: Path, program: list[str]
) -> None:
    file = tmp_path / "openclaw-a2a.json5"
    (tmp_path / "weather.py").write_text("", encoding="utf-8")
    for place, reason in {
        "weather:answer": f"{tmp_path / 'weather.py'} has no answer",
        "nowhere:answer": "No module named 'nowhere'",
        "weather": "is no place",
    }.items():
        agents = {"weather": {"adapter": "callable", "function": place}}
        file.write_text(json.dumps({"agents": agents}), encoding="utf-8")
        checked = subprocess.run(
            [*program, "config", "check", "--config", str(file)], cwd=tmp_path, capture_output=True
        )
        assert checked.returncode != 0
        assert reason in checked.stderr.decode() + checked.stdout.decode()


def test_start_hint_has_a_token_placeholder_when_peers_are_set(start_gateway) -> None:
    peers = {"alice": {"tokens": ["env:ALICE"]}}
    settings = {"channels": {"a2a": {"security": {"peers": peers}}}}
    gateway = start_gateway(settings, env={"ALICE": "a-token-that-is-long-enough"})
    assert line(gateway, "Try it:  ").startswith("Try it:  OPENCLAW_A2A_TOKEN=<token> ")


@pytest.mark.parametrize(
    ("more", "reach"),
    [
        ({}, "no client reaches them: name each in an account"),
        ({"opt": {"enabled": True}}, "reached by calls and plans only"),
        (
            {"tools": {"agentToAgent": {"enabled": True, "allow": ["*"]}}},
            "reached by calls and plans only",
        ),
    ],
)
def test_start_banner_lists_agents_without_an_account(start_gateway, more, reach) -> None:
    echo = {"adapter": "echo"}
    gateway = start_gateway({"agents": {"main": echo, "judge": echo, "sceptic": echo}, **more})
    assert line(gateway, "  no account") == f"  no account   judge, sceptic ({reach})"


def test_start_banner_has_no_such_line_when_every_agent_has_an_account(start_gateway) -> None:
    assert "no account" not in start_gateway().output()


def test_start_banner_aligns_names_by_their_width_on_a_terminal(start_gateway) -> None:
    accounts = {"default": {**TASKS, "label": "東京の窓口"}, "other": {**TASKS, "label": "plain"}}
    gateway = start_gateway({"channels": {"a2a": {"accounts": accounts}}})
    columns = {
        cell_len(one.partition("agent main")[0])
        for one in gateway.output().splitlines()
        if "agent main" in one
    }
    assert len(columns) == 1


def test_start_banner_lists_the_default_account_first_and_local_addresses(start_gateway) -> None:
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


def test_start_hint_uses_another_account_without_a_default(start_gateway) -> None:
    gateway = start_gateway({"channels": {"a2a": {"accounts": {"other": TASKS}}}})
    assert f" --url {gateway.url}/agents/other " in line(gateway, "Try it:  ")


@pytest.fixture
def held(start_gateway, slow_agent, program):
    """A gateway with a run that does not end, and what it says when it is stopped."""

    def stop(log_format: str) -> list[str]:
        gateway = start_gateway(
            {
                "server": {"stopSeconds": 0.1},
                "agents": {"main": slow_agent},
                "channels": {"a2a": {"accounts": {"default": TASKS}}},
            },
            env={"OPENCLAW_A2A_LOG__FORMAT": log_format},
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
        lines = gateway.output().splitlines()
        ready = ("Stop it: Ctrl-C", '{"event":"gateway.ready"')
        [last] = [number for number, one in enumerate(lines) if one.startswith(ready)]
        return lines[last + 1 :]

    return stop


def test_shutdown_prints_unfinished_runs(held) -> None:
    assert held("pretty") == [
        "Stopping: 1 run may go on for 0.1 s; Ctrl-C again leaves at once.",
        "1 run was left; it goes on at the next start, or fails with a reason.",
    ]


def test_shutdown_logs_unfinished_runs_as_json(held) -> None:
    stopping, left = (json.loads(one) for one in held("json"))
    assert (stopping["event"], stopping["signal"]) == ("gateway.stopping", "SIGTERM")
    assert (left["event"], left["count"]) == ("gateway.runs_unfinished", 1)


def test_gateway_accepts_connections_when_it_says_that_it_is_ready(program, tmp_path: Path) -> None:
    command = [*program, "up", "--port", str(port := free_port()), "--data", str(tmp_path)]
    for log_format in ("json", "pretty"):
        env = {**os.environ, "HOME": str(tmp_path), "OPENCLAW_A2A_LOG__FORMAT": log_format}
        with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE) as process:
            try:
                assert process.stderr is not None
                assert b"ready" in process.stderr.readline()
                # Once and at once: nothing is tried again.
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{port}/readyz", timeout=240
                ) as found:
                    assert json.load(found)["ready"] is True
            finally:
                process.terminate()


@pytest.mark.parametrize("log_format", ["json", "pretty"])
def test_gateway_stops_although_nobody_reads_what_it_prints(
    program, tmp_path: Path, log_format: str
) -> None:
    command = [*program, "up", "--port", "0", "--data", str(tmp_path)]
    env = {**os.environ, "HOME": str(tmp_path), "OPENCLAW_A2A_LOG__FORMAT": log_format}
    env.pop("PYTHONUNBUFFERED", None)  # with it Python has nothing left to write at exit
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert b"ready" in process.stderr.readline()
        process.stderr.close()
        process.terminate()
        try:
            assert process.wait(240) == 0
        finally:
            process.kill()


def test_a_public_bind_without_a_public_address_is_warned_of_and_its_card_works(
    start_gateway,
) -> None:
    peers = {"alice": {"tokens": ["env:ALICE"]}}
    settings = {"server": {"host": "0.0.0.0"}, "channels": {"a2a": {"security": {"peers": peers}}}}
    gateway = start_gateway(settings, env={"ALICE": "a-long-token-of-alice"})
    assert "server.publicBaseUrl" in gateway.output()
    address = gateway.url.replace("localhost", "127.0.0.1")
    with urllib.request.urlopen(f"{address}/.well-known/agent-card.json", timeout=240) as card:
        assert json.loads(card.read())["url"] == f"{address}/a2a/jsonrpc"
