"""The plugin registers what its manifest names, with what the gateway tells about it."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from openclaw_a2a.tools.openclaw_plugin import PLUGIN_FOLDER, PLUGIN_ID, PLUGIN_TOOLS

Json = Any
LISTED = {
    "name": "remote_agent",
    "label": "Remote Agent",
    "description": "Calls remote agents: ops.",
    "inputSchema": {"type": "object", "properties": {"action": {"type": "string"}}},
}


def manifest() -> Json:
    return json.loads((PLUGIN_FOLDER / "openclaw.plugin.json").read_text("utf-8"))


async def is_told(host, description: str) -> Json:
    """The tool, when the gateway's word has arrived in the background."""
    while (tool := await host.tool())["description"] != description:
        pass
    return tool


@pytest.mark.requirement("remote.register.tool")
async def test_every_tool_is_optional_and_has_its_exact_name(host) -> None:
    names = [
        "remote_agent",
        *("agent_call", "agent_call_batch", "debate_call", "agent_poll"),
        *("objective_create", "objective_update", "plan_create", "plan_update", "objective_status"),
        *("step_read", "step_answer"),
    ]
    for mode in ("full", "tool-discovery"):
        host.lines.clear()
        assert await host.register(mode, url="http://127.0.0.1:9") == [
            [name, {"name": name, "optional": True}] for name in names
        ]


@pytest.mark.requirement("remote.register.modes", "remote.log.load")
async def test_in_other_modes_nothing_is_registered_and_the_gateway_is_not_called(
    host, scripted
) -> None:
    for mode in ("discovery", "setup-only", "setup-runtime", "cli-metadata"):
        host.lines.clear()
        assert await host.register(mode, url=scripted.url) == []
        [logged] = [line["log"] for line in host.lines if "log" in line]
        assert logged == f'a2a.plugin.registration.deferred {{"mode":"{mode}"}}'
    assert scripted.asked == []


async def test_only_tools_that_are_asked_for_are_registered(host) -> None:
    assert await host.register(url="http://127.0.0.1:9", tools=["another"]) == []
    host.lines.clear()
    [[name, _]] = await host.register(url="http://127.0.0.1:9", tools=["agent_poll"])
    assert name == "agent_poll"


@pytest.mark.requirement("remote.register.tool")
async def test_the_gateway_describes_its_tools(host, scripted) -> None:
    scripted.table = {"tools": [LISTED]}
    await host.register(url=scripted.url)
    tool = await is_told(host, LISTED["description"])
    assert tool == {
        "name": "remote_agent",
        "label": "Remote Agent",
        "description": LISTED["description"],
        "parameters": LISTED["inputSchema"],
        "execute": "function",
    }


async def test_the_list_of_tools_is_stored_for_the_next_start(
    host, scripted, tmp_path: Path
) -> None:
    kept = tmp_path / "tools.json"
    scripted.table = {"tools": [LISTED]}
    await host.register(url=scripted.url, tableFile=str(kept))
    await is_told(host, LISTED["description"])
    assert json.loads(kept.read_text("utf-8")) == scripted.table
    assert kept.stat().st_mode & 0o777 == 0o600
    await host.register(url="http://127.0.0.1:9", tableFile=str(kept))
    assert (await host.tool())["description"] == LISTED["description"]


async def test_a_kept_list_that_is_broken_is_not_used(host, tmp_path: Path) -> None:
    kept = tmp_path / "tools.json"
    for text in ("", "{", "[]", "null", '{"tools": 5}', '{"tools": [null]}'):
        kept.write_text(text, "utf-8")
        host.lines.clear()
        await host.register(url="http://127.0.0.1:9", tableFile=str(kept))
        assert "has not answered yet" in (await host.tool())["description"]


async def test_a_list_that_the_gateway_wrote_since_is_used_by_the_next_run(
    host, tmp_path: Path
) -> None:
    kept = tmp_path / "tools.json"
    kept.write_text('{"tools": []}', "utf-8")
    await host.register(url="http://127.0.0.1:9", tableFile=str(kept))
    assert await host.tool() is None
    # As `up` writes it, when a tool or a target was added: nothing is restarted or asked.
    for alias in ("first", "second"):
        listed = {**LISTED, "description": f"targets: {alias}"}
        draft = tmp_path / "draft"
        draft.write_text(json.dumps({"tools": [listed]}), "utf-8")
        draft.replace(kept)
        assert (await host.tool())["description"] == f"targets: {alias}"


@pytest.mark.requirement("remote.register.enabled")
async def test_a_tool_that_the_gateway_does_not_offer_is_not_there(
    host, scripted, tmp_path
) -> None:
    kept = tmp_path / "tools.json"
    kept.write_text('{"tools": []}', "utf-8")
    scripted.table = {"tools": []}  # it may have answered before the first tool is asked for
    await host.register(url=scripted.url, tableFile=str(kept))
    assert await host.tool() is None


async def test_calls_between_agents_are_there_when_the_gateway_offers_them(host, scripted) -> None:
    scripted.table = {"tools": [{**LISTED, "name": "agent_call", "label": "Agent Call"}]}
    await host.register(url=scripted.url)
    while await host.tool() is not None:
        pass
    assert (await host.tool("agent_call"))["label"] == "Agent Call"
    assert await host.tool("debate_call") is None


@pytest.mark.requirement("remote.register.tool")
def test_the_manifest_and_the_package_say_the_same() -> None:
    declared = manifest()
    package = json.loads((PLUGIN_FOLDER / "package.json").read_text("utf-8"))
    assert declared["id"] == PLUGIN_ID == package["name"] == "openclaw-a2a-outbound"
    assert declared["version"] == package["version"] == version("openclaw-a2a")
    assert package["openclaw"]["extensions"] == ["./index.js"]
    assert "dependencies" not in package
    assert set(declared["toolMetadata"]) == set(declared["contracts"]["tools"]) == set(PLUGIN_TOOLS)
