"""What the page about remote agents shows really happens."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/howto/call-remote-agents.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|(?<=--task )[0-9a-f]{8}")


def block(language: str, holding: str) -> str:
    [found] = [text for kind, text in BLOCK.findall(PAGE) if kind == language and holding in text]
    return found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "openclaw-a2a.json5").write_text("{}", encoding="utf-8")
    return tmp_path


def environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("LANG",) if name in os.environ}
    # With our command on it: hints name it as the page does.
    kept["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return {**kept, "HOME": str(home), "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def port(home: Path) -> Iterator[int]:
    """The port at which the agent of the page answers."""
    number = free_port()
    (home / "ops.py").write_text(block("python", "serve(answer").replace("9901", str(number)))
    process = subprocess.Popen(
        [sys.executable, "ops.py"],
        cwd=home,
        env=environment(home),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and process.poll() is None:
            with suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{number}/readyz", timeout=2).close()
                break
            time.sleep(0.02)  # another process becomes ready; nothing here can be awaited
        yield number
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(240)


def run(words: list[str], home: Path) -> str:
    done = subprocess.run(
        words,
        cwd=home,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    return done.stdout


def plain(text: str, home: Path, port: int) -> str:
    """The text with the page's port and without what differs each time."""
    return ID.sub("ID", text.replace(f"{home}/", "").replace(f":{port}", ":9901"))


@pytest.mark.slow
def test_the_commands_and_the_script_of_the_page_work_as_shown(home: Path, port: int) -> None:
    program = str(Path(sys.executable).with_name("openclaw-a2a"))
    for holding in ("targets add", "remote send"):
        for envelope in block("console", holding).split("$ ")[1:]:
            command, _, wanted = envelope.partition("\n")
            words = command.replace('"deploy it"', "deploy_it").replace("9901", str(port)).split()
            words = [word.replace("deploy_it", "deploy it") for word in words[1:]]
            shown = plain(run([program, *words], home), home, port)
            assert wide(shown) == wide(ID.sub("ID", wanted)), command
    (home / "script.py").write_text(block("python", "asyncio.run"), encoding="utf-8")
    assert run([sys.executable, "script.py"], home) == block("text", "A2A_SDK_ERROR")


def wide(text: str) -> list[str]:
    """The lines without the width of columns, which depends on the port."""
    return [re.sub(r" {2,}", "  ", line) for line in text.splitlines()]
