"""`up` without any configuration serves the agents of the OpenClaw on the machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from tests.openclaw.openclaw_process import OpenClaw

pytestmark = pytest.mark.slow


def environ_of(openclaw: OpenClaw) -> dict[str, str]:
    """Where this OpenClaw is, for our program: as a person's shell would have it."""
    return {"OPENCLAW_CONFIG_PATH": str(openclaw.config)}


@pytest.fixture
def run(tmp_path: Path, openclaw: OpenClaw):
    """Run a command of ours in an empty home, with the real OpenClaw's config around."""
    program = str(Path(sys.executable).with_name("openclaw-a2a"))

    def finish(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(Path(openclaw.program).parent), openclaw.env["PATH"]])
        env = {"PATH": path, "HOME": str(tmp_path), **environ_of(openclaw), **more}
        return subprocess.run(
            [program, *words],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    return finish


def test_up_without_settings_offers_both_agents_and_they_answer(
    start_gateway, openclaw: OpenClaw, marker: str
) -> None:
    our_gateway = start_gateway(env=environ_of(openclaw))
    listed = httpx2.get(f"{our_gateway.url}/agents").json()
    assert {(one["account"], one["agent"]) for one in listed["states"]} == {
        ("default", "main"),
        ("helper", "helper"),
    }
    assert "agent main (openclaw-gateway)" in our_gateway.output()
    for address in (our_gateway.url, f"{our_gateway.url}/agents/helper"):
        words = [sys.executable, "-c", "from openclaw_a2a.cli import main; main()", "send"]
        sent = subprocess.run(
            [*words, "--json", "--url", address, f"hello {marker}"],
            capture_output=True,
            text=True,
            timeout=200,
            check=True,
        )
        assert f"echo: hello {marker}" in sent.stdout
    assert openclaw.token not in our_gateway.output()


def test_doctor_finds_no_problem_and_agents_answer(run, tmp_path: Path) -> None:
    done = run("doctor", "--json", "--ask", OPENCLAW_A2A_SERVER__PORT="0")
    findings = {one["check"]: one for one in json.loads(done.stdout)["findings"]}
    assert {one["verdict"] for one in findings.values()} == {"ok"}, findings
    assert findings["version"]["detail"] == "2026.9.6"
    assert findings["program"]["detail"].startswith("2026.9.6")
    assert findings["agent helper"]["detail"] == "answered a turn"
    assert done.returncode == 0
    assert not (tmp_path / ".openclaw-a2a").exists()


def test_connect_writes_the_section_and_leaves_openclaws_config_alone(
    run, openclaw: OpenClaw, tmp_path: Path
) -> None:
    before = Path(openclaw.config).read_bytes()
    done = run("connect", "openclaw", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] is True
    shown = json.loads(run("config", "show", "--json").stdout)
    assert shown["agents"]["helper"]["agentId"] == "helper"
    assert openclaw.token not in done.stdout + json.dumps(shown)
    assert Path(openclaw.config).read_bytes() == before


def test_agents_are_unavailable_while_openclaw_is_down(
    start_gateway, killable_openclaw: OpenClaw
) -> None:
    killable_openclaw.kill()
    our_gateway = start_gateway(env=environ_of(killable_openclaw))
    assert "unavailable" in our_gateway.output()
    (state, _) = httpx2.get(f"{our_gateway.url}/readyz").json()["agents"]
    assert state["available"] is False
    assert "openclaw gateway run" in state["reason"]
    killable_openclaw.start()
    wait_until(lambda: httpx2.get(f"{our_gateway.url}/readyz").json()["agents"][0]["available"])


def wait_until(is_so) -> None:
    import time

    deadline = time.monotonic() + 240
    while not is_so():
        assert time.monotonic() < deadline, "it did not come back"
        time.sleep(0.1)  # another process has to do it; nothing here can be awaited
