"""The examples that ask OpenClaw by its command, each run as people would run it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAKE = ROOT / "tests" / "agents" / "openclaw_cli" / "fake_openclaw.py"
TASK = r"[0-9a-f-]{36}"


@pytest.fixture
def run(tmp_path):
    """Runs an example with a fake `openclaw` on the PATH; what it printed."""
    program = tmp_path / "bin" / "openclaw"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable} -IS\n{FAKE.read_text(encoding='utf-8')}")
    program.chmod(0o755)
    (tmp_path / "state").mkdir()
    environment = {
        **os.environ,
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "OPENCLAW_STATE_DIR": str(tmp_path / "state"),
    }

    def run_example(name: str, *arguments: str) -> str:
        return subprocess.run(
            [sys.executable, "-W", "error", ROOT / "examples" / name, *arguments],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        ).stdout

    return run_example


def test_synchronous_example_prints_the_answer(run):
    assert run("openclaw_sync.py", "good", "morning") == "echo: good morning\n"
    assert run("openclaw_sync.py", "history") == "history: ['good morning', 'history']\n"


def test_polling_example_prints_the_states_and_the_answer(run):
    printed = run("openclaw_polling_client.py", "good", "morning")
    states = f"({TASK}) TASK_STATE_WORKING\n(\\1 TASK_STATE_WORKING\n)*\\1 TASK_STATE_COMPLETED\n"
    assert re.fullmatch(f"{states}echo: good morning\n", printed)


def test_webhook_example_prints_what_it_is_told(run):
    printed = run("openclaw_push_receiver.py", "good", "morning")
    lines = f"waiting for ({TASK})\n\\1 TASK_STATE_COMPLETED\necho: good morning\n"
    assert re.fullmatch(lines, printed)
