"""What all tests share: the async backend, how hard property tests try, and gateway processes."""

import ast
import functools
import gc
import json
import logging
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings
from tests.fuzz_budget import FuzzBudget
from tests.ports import free_port
from tests.postgres_server import PostgresServer, shared_server
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# How long examples take says nothing on a busy machine; fixtures that are shared between examples
# are folders and clocks, which no example changes for the next one.
_SUPPRESSED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile(
    "default", max_examples=50, deadline=None, suppress_health_check=_SUPPRESSED
)
settings.register_profile(
    "ci", max_examples=200, deadline=None, print_blob=True, suppress_health_check=_SUPPRESSED
)
# How many examples of a property are tried in all is decided by `FuzzBudget`.
settings.register_profile(
    "fuzz", max_examples=50, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck)
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
settings.load_profile(PROFILE)


def _without_collection(parse: Callable[..., ast.AST]) -> Callable[..., ast.AST]:
    """`ast.parse` without a garbage collection in the middle.

    Python 3.11 fails with "AST constructor recursion depth mismatch" when a finalizer that runs
    then parses something itself, as the report of a warning does. Hypothesis parses its tests.
    """

    @functools.wraps(parse)
    def parse_whole(*args: Any, **options: Any) -> ast.AST:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return parse(*args, **options)
        finally:
            if was_enabled:
                gc.enable()

    return parse_whole


ast.parse = _without_collection(ast.parse)

START_DEADLINE_S = 240.0
STOP_DEADLINE_S = 240.0

# A shell that starts a job in the background has it ignore Ctrl-C, and so do the programs that it
# starts. Tests interrupt programs, whatever started the tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rounds", type=int, default=None, help="how often crash tests kill the gateway"
    )
    parser.addoption(
        "--connections", type=int, default=1000, help="how many a hostile client opens at once"
    )
    parser.addoption("--gateways", type=int, default=None, help="how many a cluster has")
    parser.addoption(
        "--tasks", type=int, default=None, help="how many its clients begin while it fails"
    )
    parser.addoption("--faults", type=int, default=None, help="how many faults it has meanwhile")
    parser.addoption("--seed", default=None, help="of the random choices of clients and faults")
    parser.addoption(
        "--minutes", type=float, default=10, help="the CPU time of `./dev fuzz`, all tests together"
    )


def pytest_configure(config: pytest.Config) -> None:
    if PROFILE == "fuzz":
        config.pluginmanager.register(FuzzBudget(config.getoption("--minutes")))


# The files with tests that use `killable_openclaw`.
_KILL_OPENCLAW = (
    "tests/openclaw/test_a2a_endpoint_restarts",
    "tests/openclaw/test_discovery",
    "tests/openclaw/test_gateway_background_events",
    "tests/openclaw/test_gateway_reattach",
    "tests/openclaw/test_gateway_session_delivery",
)


class OpenClawOnTwoWorkers(LoadScopeScheduling):
    """Every test for itself, but those with the real OpenClaw on two workers.

    Each of the two starts its own once. On one worker these tests were still running when all
    others had ended; those that kill OpenClaw take about half of their time.

    (The groups of pytest-xdist 3.8 have no effect with pytest 9.2.)
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(_KILL_OPENCLAW):
            return "openclaw that is killed"
        return "openclaw" if nodeid.startswith("tests/openclaw/") else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(
    config: pytest.Config, log: Producer
) -> OpenClawOnTwoWorkers | None:
    """How `--dist loadgroup` shares the tests out."""
    wanted = config.getoption("dist") == "loadgroup"
    return OpenClawOnTwoWorkers(config, log) if wanted else None


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int | None:
    """What `--rounds` says; None leaves it to the test."""
    return request.config.getoption("--rounds")


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """A test that configures the package's logger leaves no trace."""
    logger = logging.getLogger("openclaw_a2a")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A running PostgreSQL, one for the whole test run; a test takes a schema of its own."""
    # The run is the process that started the workers.
    run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    with shared_server(run) as server:
        yield server


class GatewayProcess:
    """`openclaw-a2a up` as a process of its own, with a home of its own, and a log for people.

    `stop`, `kill` and `start` may follow each other: port and home stay the same.
    """

    def __init__(self, home: Path, config: dict[str, object], env: dict[str, str]) -> None:
        self.home = home
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = home / "gateway.log"
        self.config = home / "gateway.json5"
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True, exist_ok=True)
        self.config.write_text(json.dumps(config), encoding="utf-8")

    @property
    def pid(self) -> int:
        assert self._process is not None, "the gateway is not running"
        return self._process.pid

    def start(self) -> None:
        """Start and wait until it is ready to serve."""
        program = str(Path(sys.executable).with_name("openclaw-a2a"))
        command = [program, "up", "--config", str(self.config), "--port", str(self.port)]
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home,
                env={
                    **kept,
                    "HOME": str(self.home),
                    "NO_COLOR": "1",
                    "OPENCLAW_A2A_LOG__FORMAT": "pretty",
                    **self._env,
                },
            )
        self._wait_until_ready()

    def stop(self) -> int:
        """Ask it to stop, insist after a while; its exit status. No program may outlive it."""
        was_running = self._process is not None
        status = self._end(signal.SIGTERM)
        left = self.end_programs()
        if was_running and left:
            pytest.fail(f"the gateway left programs behind: {left}\n{self.output()}")
        return status

    def kill(self) -> int:
        """End it without warning, as a crash would."""
        return self._end(signal.SIGKILL)

    def end_programs(self) -> list[list[str]]:
        """End what its agents started and a crash left behind; the command lines."""
        left: list[list[str]] = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                environment = process.environ()
                is_agent = "A2A_PROCESS_MARK" in environment
                if is_agent and environment.get("HOME") == str(self.home):
                    left.append(process.cmdline())
                    process.kill()
        return left

    def output(self) -> str:
        """Everything it has printed since its first start."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def _end(self, how: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(how)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(STOP_DEADLINE_S)
        process.kill()
        process.wait()
        pytest.fail(f"the gateway did not stop within {STOP_DEADLINE_S} s:\n{self.output()}")

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                pytest.fail(f"the gateway ended while it started:\n{self.output()}")
            with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
                urllib.request.urlopen(f"{self.url}/readyz", timeout=2).close()
                return
            time.sleep(0.02)  # another process becomes ready; nothing here can be awaited
        pytest.fail(f"the gateway was not ready within {START_DEADLINE_S} s:\n{self.output()}")


StartGateway = Callable[..., GatewayProcess]


@pytest.fixture
def start_gateway(tmp_path: Path) -> Iterator[StartGateway]:
    """Start gateway processes: `start_gateway(config, env={...})`; all are stopped at the end.

    A test whose gateway printed a traceback fails.
    """
    running: list[GatewayProcess] = []

    def start(
        config: dict[str, object] | None = None, *, env: dict[str, str] | None = None
    ) -> GatewayProcess:
        home = tmp_path / f"gateway-{len(running)}"
        gateway = GatewayProcess(home, config or {}, env or {})
        running.append(gateway)
        gateway.start()
        return gateway

    yield start
    for gateway in running:
        gateway.stop()
    for gateway in running:
        assert "Traceback (most recent call last)" not in gateway.output(), gateway.output()


SLOW_AGENT = Path(__file__).parent / "clients" / "agents" / "slow.py"


@pytest.fixture
def slow_agent() -> dict[str, object]:
    """Settings of an agent that does as the text says: `hold`, `chunks:N:B`, `echo:X`."""
    return {
        "adapter": "command",
        "command": [sys.executable, str(SLOW_AGENT)],
        "input": "stdin",
        "output": "text",
    }


@pytest.fixture
def gateway(start_gateway: StartGateway, slow_agent: dict[str, object]) -> GatewayProcess:
    """A running gateway with the slow agent; at `/agents/direct` it answers without a task."""
    accounts = {
        "default": {"defaultAgentId": "main", "agentStyle": "task-generating"},
        "direct": {"defaultAgentId": "main", "agentStyle": "hybrid"},
    }
    return start_gateway(
        {"agents": {"main": slow_agent}, "channels": {"a2a": {"accounts": accounts}}}
    )


ASKING_AGENT = Path(__file__).parent / "clients" / "agents" / "asking.py"


@pytest.fixture
def own_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adapters that a test registers are unregistered after it."""
    from openclaw_a2a.agents import registry

    monkeypatch.setattr(registry, "_registered", dict(registry._registered))


@pytest.fixture(scope="session")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an agent in a process of its own; `tests/clients/agents/asking.py` says how
    it answers.
    """
    home, port = tmp_path_factory.mktemp("asker"), free_port()
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(ASKING_AGENT), str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home,
            env={**kept, "HOME": str(home), "OPENCLAW_A2A_SERVER__STOP_SECONDS": "0"},
        )
    try:
        _wait_for(f"http://127.0.0.1:{port}", process, home / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(STOP_DEADLINE_S)


def _wait_for(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError):
            urllib.request.urlopen(f"{address}/readyz", timeout=2).close()
            return
        time.sleep(0.02)  # another process becomes ready; nothing here can be awaited
    pytest.fail(f"the agent was not ready:\n{log.read_text(encoding='utf-8')}")


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Lone surrogates in what a test printed or logged would end the worker that ran it."""
    return _encodable((yield))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {key: _encodable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_encodable(one) for one in value)
    return value
