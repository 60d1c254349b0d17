"""The first minute: OpenClaw runs already when its agents get our tools, and targets come later."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.openclaw.bare_client import connect
from tests.openclaw.openclaw_process import FakeModel, OpenClaw
from tests.openclaw.plugin_setup import PluginInstallation, channel_config

from openclaw_a2a.tools.openclaw_plugin import PLUGIN_TOOLS

Json = Any
CALLS = {"agentToAgent": {"enabled": True, "allow": ["*"]}}
CALL_TOOLS = {"agent_call", "agent_call_batch", "debate_call", "agent_poll"}


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


async def run_turn(bed: PluginInstallation, key: str, text: str) -> str:
    """What the model says at the end of one turn in a new session."""
    async with connect(bed.openclaw.ws_url, bed.openclaw.token) as client:
        ended = await client.agent("main", f"agent:main:{key}", text)
    return ended["result"]["payloads"][-1]["text"]


async def call_tool(bed: PluginInstallation, key: str, name: str, **arguments: Json) -> str:
    """What the model says after it called this tool, in one turn."""
    return await run_turn(bed, key, f"tool:{name} {json.dumps(arguments)}")


async def send(bed: PluginInstallation, key: str, text: str, **arguments: Json) -> str:
    """The same, after it sent this with the tool `remote_agent`."""
    arguments |= {"action": "send", "parts": [{"kind": "text", "text": text}]}
    return await call_tool(bed, key, "remote_agent", **arguments)


def offered_tools(model: FakeModel, key: str) -> set[str]:
    """Our tools that the model could call in every request of this session."""
    requests = [set(one["offered"]) for one in model.requests(f"agent:main:{key}")]
    assert requests, f"the model was not asked in session {key}"
    assert all(offered == requests[0] for offered in requests)
    return requests[0] & set(PLUGIN_TOOLS)


def is_pending(answer: str) -> bool:
    """True when `agent_call` accepted a call."""
    prefix = "The tool said: "
    assert answer.startswith(prefix), answer
    return json.loads(answer.removeprefix(prefix)).get("status") == "pending"


async def test_the_first_turn_after_each_start_has_the_tools_and_targets_of_that_gateway(
    bed: PluginInstallation, model: FakeModel
) -> None:
    whole = json.loads(bed.our_gateway.config.read_text("utf-8"))
    write_settings(bed, {**whole, "outbound": {}, "tools": CALLS})
    connected = bed.run("connect", "openclaw")
    assert connected.returncode == 0, connected.stdout + connected.stderr
    bed.our_gateway.start()
    # The very first turn has the tools that are on, and no other; they work.
    called = await call_tool(bed, "first", "agent_call", agent="echo", skill="work", input={})
    assert is_pending(called)
    assert offered_tools(model, "first") == CALL_TOOLS
    # Another tool is switched on: the very next turn has it.
    write_settings(bed, whole)
    restart(bed)
    assert "echo: two" in await send(bed, "second", "two")
    assert offered_tools(model, "second") == {"remote_agent"}
    # Another target: the very next turn may name it.
    added = bed.run("targets", "add", "late", bed.our_gateway.url)
    assert added.returncode == 0, added.stderr
    restart(bed)
    assert "echo: three" in await send(bed, "third", "three", target_alias="late")


async def test_each_turn_reads_the_list_of_tools_anew_without_a_reload_of_openclaw(
    bed: PluginInstallation, model: FakeModel
) -> None:
    settings = json.loads(bed.our_gateway.config.read_text("utf-8"))
    write_settings(bed, {**settings, "tools": CALLS})
    connected = bed.run("connect", "openclaw")
    assert connected.returncode == 0, connected.stdout + connected.stderr
    bed.our_gateway.start()
    assert "echo: one" in await send(bed, "whole", "one")
    assert offered_tools(model, "whole") == {*CALL_TOOLS, "remote_agent"}
    # Without a gateway, the list can come from nowhere but the file.
    bed.our_gateway.stop()
    openclaw = bed.openclaw.pid
    [file] = bed.our_gateway.home.rglob("tools.json")
    listed = json.loads(file.read_text("utf-8"))["tools"]
    for number, names in enumerate(({"agent_call"}, {"agent_poll", "remote_agent"})):
        kept = [one for one in listed if one["name"] in names]
        file.write_text(json.dumps({"tools": kept}), "utf-8")
        await run_turn(bed, f"file-{number}", "tools")
        assert offered_tools(model, f"file-{number}") == names
    assert bed.openclaw.pid == openclaw
