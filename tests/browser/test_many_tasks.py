"""A thousand live tasks: pages stay small, are updated in batches, and do not freeze."""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from tests.browser.conftest import DEADLINE_S, DemoGateway, OpenBrowser
from tests.ports import free_port

TASKS = 1000
MAX_NODES = 5000
"""A page of fifty rows has about two thousand elements."""
FROZEN_MS = 20_000
"""No single task of the page may keep it for so long; a machine may be busy with other work."""
WATCH = """() => {
  window.long = []; window.swaps = 0; window.beats = 0;
  new PerformanceObserver(list => list.getEntries().forEach(one => long.push(one.duration)))
    .observe({entryTypes: ["longtask"]});
  document.addEventListener("htmx:sse:after:message", () => { swaps += 1; });
  const beat = () => { beats += 1; requestAnimationFrame(beat); };
  beat();
}"""


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[DemoGateway]:
    """A gateway with a thousand tasks that are worked on and stream."""
    port, program = free_port(), Path(__file__).with_name("busy_gateway.py")
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, str(program), str(port), str(tmp_path)]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    gateway = DemoGateway(f"http://127.0.0.1:{port}", tmp_path)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            assert process.poll() is None, (tmp_path / "log").read_text(encoding="utf-8")
            assert time.monotonic() < deadline
            with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
                urllib.request.urlopen(f"{gateway.address}/readyz", timeout=2).close()
                break
            time.sleep(0.02)  # another process becomes ready; nothing here can be awaited
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda n: gateway.send(f"task {n}", "default"), range(TASKS)))
        yield gateway
    finally:
        (tmp_path / "stop").touch()
        process.terminate()
        process.wait(DEADLINE_S)


@pytest.mark.parametrize("address", ["/dashboard", "/dashboard/tasks?tab=working"])
def test_a_thousand_live_tasks_do_not_freeze_a_page(
    busy: DemoGateway, visit: OpenBrowser, address: str
) -> None:
    busy.wait(lambda now: now["counts"]["working"] == TASKS)
    page = visit(busy).open(address)
    page.wait_for_selector("[data-row]")
    page.evaluate(WATCH)
    # Every task streams meanwhile; new ones come, and the page shows them.
    for number in range(3):
        busy.send(f"newcomer {number}", "default")
        page.wait_for_selector(f"text=newcomer {number}")
    # It still does what a person wants.
    page.keyboard.press("j")
    page.wait_for_selector("[data-row].chosen")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    seen = page.evaluate(
        "({long, swaps, beats, nodes: document.querySelectorAll('*').length,"
        " rows: document.querySelectorAll('[data-row]').length})"
    )
    assert seen["nodes"] < MAX_NODES
    assert seen["rows"] <= 50
    # Batches: a thousand tasks have changed, and the page was drawn again a few times.
    assert 0 < seen["swaps"] < TASKS / 5
    assert seen["beats"] > 0
    assert max(seen["long"], default=0) < FROZEN_MS
