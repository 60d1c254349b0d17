"""The link from a task into OpenClaw's own interface, clicked: a real OpenClaw serves it."""

import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.browser.conftest import DemoGateway, OpenBrowser, TakePicture, run_gateway
from tests.openclaw.openclaw_process import FakeModel, OpenClaw


@pytest.fixture
def openclaw(tmp_path: Path) -> Iterator[OpenClaw]:
    """One of its own: the shared one of other tests serves no pages."""
    model = FakeModel()
    pages = {"gateway": {"controlUi": {"enabled": True}}}
    running = OpenClaw(tmp_path / "openclaw", model, pages)
    try:
        running.start()
        running.warm_up()
        yield running
    finally:
        running.stop()
        model.close()


@pytest.fixture
def gateway(openclaw: OpenClaw, tmp_path: Path) -> Iterator[DemoGateway]:
    """Ours, in front of it."""
    folder = tmp_path / "ours"
    folder.mkdir()
    (folder / "token").write_text(openclaw.token, encoding="ascii")
    main = {
        "adapter": "openclaw-gateway",
        "url": openclaw.ws_url,
        "agentId": "main",
        "token": "file:token",
    }
    account = {"defaultAgentId": "main", "agentStyle": "task-generating"}
    settings = {
        "agents": {"main": main},
        "channels": {"a2a": {"accounts": {"default": account}}},
    }
    config = folder / "openclaw-a2a.json5"
    config.write_text(json.dumps(settings), encoding="utf-8")
    program = str(Path(sys.executable).with_name("openclaw-a2a"))

    def command(port: str, data: str) -> list[str]:
        return [program, "up", "--port", port, "--data", data, "--config", str(config)]

    with run_gateway(folder, command) as running:
        yield running


@pytest.mark.timeout(1200)
def test_a_task_leads_to_its_session_in_the_interface_of_openclaw(
    openclaw: OpenClaw, gateway: DemoGateway, visit: OpenBrowser, take_picture: TakePicture
) -> None:
    marker = f"mark{uuid.uuid4().hex[:12]}"
    task, _ = [gateway.send_over_http(f"{marker} {n}", account="default") for n in ("one", "two")]
    shown = gateway.request(f"/dashboard/tasks/{task}")
    assert shown["task"]["state"] == "completed", shown["headline"]
    assert shown["sessionKey"].startswith("agent:main:a2a:")
    page = visit(gateway).open(f"/dashboard/tasks/{task}")
    # The interface of OpenClaw keeps who its user is in the browser.
    known = page.context.new_page()
    known.goto(f"{openclaw.url}/#token={openclaw.token}")
    known.get_by_text("Connected").first.wait_for()
    known.close()
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Open in OpenClaw").click()
    there = opened.value
    # The session of this task, and of no other.
    there.get_by_text(f"{marker} one").first.wait_for()
    take_picture(there, "openclaw-session")
    assert there.url.startswith(openclaw.url)
    assert there.get_by_text(f"{marker} two").count() == 0
