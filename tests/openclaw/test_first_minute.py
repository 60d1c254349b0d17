"""The first minute: OpenClaw runs already when its agents get our tools, and targets come later."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.openclaw.bare_client import connect
from tests.openclaw.openclaw_process import FakeModel, OpenClaw
from tests.openclaw.plugin_setup import PluginInstallation, channel_config

Json = Any


@pytest.fixture
def bed(model: FakeModel, tmp_path: Path) -> Iterator[PluginInstallation]:
    """OpenClaw runs, our gateway does not, and nothing of ours is installed."""
    openclaw = OpenClaw(tmp_path / "openclaw", model, channel_config())
    found = PluginInstallation(tmp_path, openclaw)
    try:
        openclaw.start()
        openclaw.warm_up()
        yield found
    finally:
        openclaw.stop()
        found.our_gateway.stop()
        found.wire.close()


def write_settings(bed: PluginInstallation, settings: Json) -> None:
    bed.our_gateway.config.write_text(json.dumps(settings), "utf-8")


def restart(bed: PluginInstallation) -> None:
    bed.our_gateway.stop()
    bed.our_gateway.start()


async def send(bed: PluginInstallation, key: str, text: str, **arguments: Json) -> str:
    """What the model says after it sent this with the tool `remote_agent`, in one turn."""
    arguments |= {"action": "send", "parts": [{"kind": "text", "text": text}]}
    async with connect(bed.openclaw.ws_url, bed.openclaw.token) as client:
        text = f"tool:remote_agent {json.dumps(arguments)}"
        ended = await client.agent("main", f"agent:main:{key}", text)
    return ended["result"]["payloads"][-1]["text"]


async def test_the_first_turn_after_each_start_has_the_tools_and_targets_of_that_gateway(
    bed: PluginInstallation,
) -> None:
    whole = json.loads(bed.our_gateway.config.read_text("utf-8"))
    calls = {"agentToAgent": {"enabled": True, "allow": ["*"]}}
    write_settings(bed, {**whole, "outbound": {}, "tools": calls})
    connected = bed.run("connect", "openclaw")
    assert connected.returncode == 0, connected.stdout + connected.stderr
    bed.our_gateway.start()
    assert "echo: one" not in await send(bed, "first", "one")
    # Another tool is switched on: the very next turn has it.
    write_settings(bed, whole)
    restart(bed)
    assert "echo: two" in await send(bed, "second", "two")
    # Another target: the very next turn may name it.
    added = bed.run("targets", "add", "late", bed.our_gateway.url)
    assert added.returncode == 0, added.stderr
    restart(bed)
    assert "echo: three" in await send(bed, "third", "three", target_alias="late")
