"""The fixtures themselves: OpenClaw and its model behave as the other tests expect."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.openclaw.bare_client import Refused
from tests.openclaw.conftest import Bare
from tests.openclaw.openclaw_process import FakeModel, OpenClaw


def test_a_second_install_is_cached() -> None:
    command = [sys.executable, Path(__file__).with_name("install.py")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "Installing" not in done.stdout + done.stderr


def test_the_child_that_is_killed_in_tests_is_the_gateway_itself(openclaw: OpenClaw) -> None:
    title = Path(f"/proc/{openclaw.pid}/cmdline").read_bytes()
    assert title.startswith(b"openclaw-gateway")


async def test_both_agents_answer_over_the_websocket(bare: Bare, marker: str) -> None:
    async with bare() as client:
        for agent in ("main", "helper"):
            ended = await client.agent(agent, f"agent:{agent}:{marker}", f"hi {marker}")
            assert [one["text"] for one in ended["result"]["payloads"]] == [f"echo: hi {marker}"]


async def test_the_model_reads_the_call_outcome_with_its_caller(
    bare: Bare, model: FakeModel, marker: str
) -> None:
    async with bare() as client:
        await client.agent("main", f"agent:main:{marker}", "tools")
    (asked,) = model.requests(marker)
    assert asked["session"] == f"agent:main:{marker}"
    assert asked["last_user"] == "tools"
    assert asked["outcome"] == "done"
    assert {"exec", "ask_user"} <= set(asked["offered"])


async def test_a_held_answer_comes_when_it_is_released(
    bare: Bare, model: FakeModel, marker: str
) -> None:
    async with bare() as client:
        params = {"agentId": "main", "sessionKey": f"agent:main:{marker}"}
        key = f"run-{marker}"
        text = f"hold:{marker} words"
        await client.call("agent", {**params, "message": text, "idempotencyKey": key})
        model.wait_for(marker, outcome="active")
        model.release(marker)
        waited = await client.call("agent.wait", {"runId": key, "timeoutMs": 240_000})
    assert waited["status"] == "ok"


async def test_a_wrong_token_is_refused(bare: Bare) -> None:
    with pytest.raises(Refused) as refused:
        async with bare(token="wrong"):
            pass
    assert refused.value.error["details"]["code"] == "AUTH_TOKEN_MISMATCH"
