"""A gateway process that the tests of the command line share, and ways to run commands."""

import codecs
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.ports import free_port

from openclaw_a2a.cli import run

SLOW_AGENT = Path(__file__).parents[1] / "clients" / "agents" / "slow.py"
COMMAND = [sys.executable, "-c", "from openclaw_a2a.cli import main; main()"]


class Finished:
    """What a command left behind: its exit code and what it printed."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def lines(self):
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def command(capsys, tmp_path: Path, monkeypatch) -> Callable[..., Finished]:
    """Run one command line in this process, away from the machine's settings."""
    for name in [name for name in os.environ if name.startswith("OPENCLAW_A2A_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    monkeypatch.chdir(tmp_path)

    def execute(*arguments: str) -> Finished:
        capsys.readouterr()
        code = run(list(arguments))
        printed = capsys.readouterr()
        return Finished(code, printed.out, printed.err)

    return execute


@pytest.fixture(scope="session")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of the shared gateway."""
    return tmp_path_factory.mktemp("shared-gateway")


@pytest.fixture(scope="session")
def shared_gateway(shared_home: Path) -> Iterator[str]:
    """The address of a gateway with an echo account, a slow one and one that fails."""
    home = shared_home
    port = free_port()
    config = home / "gateway.json5"
    config.write_text(json.dumps(shared_settings()), encoding="utf-8")
    arguments = ("--config", str(config), "--port", str(port), "--data", str(home))
    with served([*COMMAND, "up", *arguments], home, port) as address:
        yield address


@contextmanager
def served(command: Sequence[str], home: Path, port: int) -> Iterator[str]:
    """The address of a gateway that a command starts, until the block is left."""
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home,
            env={**os.environ, "HOME": str(home)},
        )
    try:
        address = f"http://127.0.0.1:{port}"
        wait_until_ready(address, process, home / "log")
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(240)


def shared_settings() -> dict[str, object]:
    slow = [sys.executable, str(SLOW_AGENT)]
    fails = [sys.executable, "-c", "import sys; sys.exit('no luck today')"]
    return {
        "server": {"stopSeconds": 0},
        "agents": {
            "main": {"adapter": "echo"},
            "slow": {"adapter": "command", "command": slow, "input": "stdin"},
            "fails": {"adapter": "command", "command": fails, "input": "stdin"},
        },
        "channels": {
            "a2a": {
                "accounts": {
                    "default": {"agentStyle": "task-generating", "label": "Echo"},
                    "slow": {"defaultAgentId": "slow", "agentStyle": "task-generating"},
                    "fails": {"defaultAgentId": "fails", "agentStyle": "task-generating"},
                    "direct": {"defaultAgentId": "main"},
                }
            }
        },
    }


def wait_until_ready(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with suppress(OSError):
            urllib.request.urlopen(f"{address}/readyz", timeout=2).close()
            return
        time.sleep(0.02)  # another process becomes ready; nothing here can be awaited
    pytest.fail(f"the gateway was not ready:\n{log.read_text(encoding='utf-8')}")


class Terminal:
    """A program on a terminal of this size, and everything it has written there."""

    def __init__(self, words: Sequence[str], home: Path, *, columns: int, rows: int) -> None:
        self._outside, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {**os.environ, "HOME": str(home), "TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            words, stdin=inside, stdout=inside, stderr=inside, cwd=home, env=environment
        )
        os.close(inside)
        self.seen = ""
        # A character may be divided between two reads.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def press(self, keys: str) -> None:
        """Type on it."""
        os.write(self._outside, keys.encode())

    def resize(self, *, columns: int, rows: int) -> None:
        """Give it another size, of which the program is told."""
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._outside, termios.TIOCSWINSZ, size)
        # The kernel tells only those that have it as their controlling terminal.
        self.process.send_signal(signal.SIGWINCH)

    @property
    def is_usual(self) -> bool:
        """True when lines are edited and echoed, as a shell leaves a terminal."""
        flags = termios.tcgetattr(self._outside)[3]
        return bool(flags & termios.ICANON and flags & termios.ECHO)

    def read_until(self, is_so: Callable[[str], bool]) -> str:
        """Read on until what was written is so, or the program has ended."""
        deadline = time.monotonic() + 240
        while not is_so(self.seen):
            ready, _, _ = select.select([self._outside], [], [], deadline - time.monotonic())
            assert ready, self.seen
            try:
                chunk = os.read(self._outside, 65536)
            except OSError:  # the other end is closed
                break
            self.seen += self._decoder.decode(chunk)
        return self.seen

    def finish(self) -> str:
        """Read to the end; the program must have ended by itself."""
        self.read_until(lambda _: False)
        os.close(self._outside)
        self.process.wait(240)
        return self.seen


@pytest.fixture
def echo(command, shared_gateway: str) -> Callable[..., Finished]:
    """Run a command against the echo account."""
    return lambda *arguments: command(*arguments, "--url", shared_gateway)


@pytest.fixture
def slow(command, shared_gateway: str) -> Callable[..., Finished]:
    """Run a command against the slow account."""
    return lambda *arguments: command(*arguments, "--url", f"{shared_gateway}/agents/slow")


@pytest.fixture
def operator(command, shared_gateway: str, shared_home: Path) -> Callable[..., Finished]:
    """Run a command as the operator of the shared gateway."""
    place = ("--url", shared_gateway, "--data", str(shared_home))
    return lambda *arguments: command(*arguments, *place)


@pytest.fixture
def program() -> list[str]:
    """The command line that starts the program as a process of its own."""
    return COMMAND
