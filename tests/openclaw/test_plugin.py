"""Agents of a real OpenClaw call remote agents with the plugin that `connect` installed."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.openclaw.bare_client import BareClient, connect
from tests.openclaw.openclaw_process import FakeModel
from tests.openclaw.plugin_setup import PluginInstallation, installed_plugin

Json = Any
PLUGIN = "openclaw-a2a-outbound"


@pytest.fixture(scope="module")
def bed(model: FakeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginInstallation]:
    with installed_plugin(tmp_path_factory.mktemp("plugged"), model) as running:
        yield running
        assert "Traceback" not in running.our_gateway.output() + running.helper.output()


@pytest.fixture
async def client(bed: PluginInstallation):
    async with connect(bed.openclaw.ws_url, bed.openclaw.token) as connected:
        yield connected


def words(**arguments: Json) -> str:
    """What makes the model call the tool with these arguments."""
    return f"tool:remote_agent {json.dumps(arguments)}"


def say(text: str) -> list[Json]:
    return [{"kind": "text", "text": text}]


def session(marker: str) -> str:
    return f"agent:main:{marker}"


async def turn(client: BareClient, key: str, text: str) -> Json:
    """The tool's envelope that the model got in this turn, which it repeats as its answer."""
    ended = await client.agent("main", key, text)
    assert ended["status"] == "ok", ended
    answered = ended["result"]["payloads"][-1]["text"]
    assert answered.startswith("The tool said: {"), answered
    return json.loads(answered.removeprefix("The tool said: "))


async def transcript(client: BareClient, key: str) -> list[Json]:
    return (await client.call("chat.history", {"sessionKey": key}))["messages"]


def test_connect_completes_the_setup_without_complaints_of_openclaw(
    bed: PluginInstallation,
) -> None:
    repeated = json.loads(bed.run("connect", "openclaw", "--json").stdout)
    assert [step["name"] for step in repeated["steps"] if not step["isDone"]] == []
    assert repeated["done"] == []
    assert "warning" not in bed.ask_openclaw("config", "validate").stdout
    checked = bed.ask_openclaw("plugins", "doctor")
    assert checked.returncode == 0, checked.stdout
    assert PLUGIN not in checked.stdout + checked.stderr
    config = bed.openclaw.config.read_text("utf-8")
    assert "oca_tool_" not in config
    assert "allow" not in json.loads(config)["plugins"]


def test_doctor_reports_that_the_plugin_has_access(bed: PluginInstallation) -> None:
    findings = json.loads(bed.run("doctor", "--json").stdout)["findings"]
    [plugin] = [one for one in findings if one["check"] == "plugin"]
    assert plugin["verdict"] == "ok", plugin
    assert plugin["detail"].endswith("remote_agent")


def test_openclaw_offers_both_skills(bed: PluginInstallation) -> None:
    listed = json.loads(bed.ask_openclaw("skills", "list", "--agent", "main", "--json").stdout)[
        "skills"
    ]
    ready = {one["name"] for one in listed if one.get("eligible")}
    assert {"remote-agents", "openclaw-a2a-gateway"} <= ready


@pytest.mark.requirement("remote.tool.rounds")
async def test_the_answer_of_a_remote_agent_comes_in_the_turn(
    bed: PluginInstallation, client: BareClient, marker: str
) -> None:
    envelope = await turn(client, session(marker), words(action="send", parts=say(marker)))
    assert envelope["ok"] is True, envelope
    assert envelope["summary"]["target_alias"] == "echo"
    assert envelope["summary"]["message_text"] == f"echo: {marker}"
    [call] = bed.wire.calls(marker)
    assert call.headers["x-openclaw-session-key"] == session(marker)
    assert call.headers["x-openclaw-agent-id"] == "main"
    results = [
        one for one in await transcript(client, session(marker)) if one["role"] == "toolResult"
    ]
    assert [one["isError"] for one in results] == [False]


async def test_the_model_sees_the_configured_targets(
    bed: PluginInstallation, client: BareClient, marker: str
) -> None:
    envelope = await turn(client, session(marker), words(action="list_targets"))
    aliases = [one["target_alias"] for one in envelope["summary"]["targets"]]
    assert aliases == ["echo", "remote", "helper", "channel"]
    catalog = await client.call("tools.catalog", {"agentId": "main", "includePlugins": True})
    assert "remote_agent" in json.dumps(catalog)


async def test_a_session_that_the_model_claims_is_not_believed(
    bed: PluginInstallation, client: BareClient, marker: str
) -> None:
    metadata = {"sessionKey": "agent:helper:main", "mark": marker}
    arguments = words(action="send", parts=say("hello"), metadata=metadata)
    assert (await turn(client, session(marker), arguments))["ok"] is True
    [call] = bed.wire.calls(marker)
    assert call.arguments["metadata"] == metadata
    assert call.headers["x-openclaw-session-key"] == session(marker)


async def test_wrong_arguments_come_back_with_every_problem(
    bed: PluginInstallation, client: BareClient, marker: str
) -> None:
    key = session(marker)
    envelope = await turn(client, key, words(action="status", history_length=1))
    assert envelope["ok"] is False
    assert envelope["error"]["code"] == "VALIDATION_ERROR"
    assert envelope["error"]["details"]["errors"]
    [result] = [one for one in await transcript(client, key) if one["role"] == "toolResult"]
    assert result["isError"] is True


async def test_progress_is_reported_and_an_abort_ends_the_call(
    bed: PluginInstallation, client: BareClient, marker: str
) -> None:
    key, run = session(marker), f"run-{marker}"
    arguments = words(
        action="send", target_alias="remote", parts=say(f"slowly {marker}"), follow_updates=True
    )
    running = asyncio.create_task(client.agent("main", key, arguments, idempotencyKey=run))
    async with asyncio.timeout(240):
        while "first words" not in json.dumps(updates(client, key)):
            client.heard.clear()
            await client.heard.wait()
    [call] = bed.wire.calls(marker)
    assert not call.is_left.is_set()
    stopped = await client.call("chat.abort", {"sessionKey": key, "runId": run})
    assert stopped["aborted"] is True
    assert (await running)["status"] == "timeout"
    assert await asyncio.to_thread(call.is_left.wait, 240)


def updates(client: BareClient, key: str) -> list[Json]:
    run_turn = [one["payload"] for one in client.events if one["event"] == "agent"]
    wait_processed = [
        one["data"] for one in run_turn if one.get("sessionKey") == key and one["stream"] == "tool"
    ]
    return [one["partialResult"]["details"] for one in wait_processed if one["phase"] == "update"]


@pytest.mark.requirement("remote.tool.rounds", "remote.durable.resume")
async def test_a_question_is_answered_after_a_restart_of_our_gateway(
    bed: PluginInstallation, client: BareClient, marker: str
) -> None:
    key = session(marker)
    arguments = words(action="send", target_alias="remote", parts=say(f"question {marker}"))
    asked = await turn(client, key, arguments)
    assert asked["summary"]["message_text"] == "Deploy now?"
    kept = asked["summary"]["continuation"]
    assert kept["task"]["status"] == "input-required"
    bed.our_gateway.kill()
    bed.our_gateway.start()
    arguments = words(action="send", parts=say("yes"), continuation=kept)
    answered = await turn(client, key, arguments)
    assert answered["ok"] is True, answered
    assert "deployed after yes" in answered["summary"]["message_text"]
    after = answered["summary"]["continuation"]["task"]
    assert after["task_id"] == kept["task"]["task_id"]
    assert after["status"] == "completed"


async def test_without_our_gateway_the_turn_continues_with_a_hint(
    bed: PluginInstallation, client: BareClient, marker: str
) -> None:
    bed.our_gateway.stop()
    try:
        envelope = await turn(client, session(marker), words(action="list_targets"))
    finally:
        bed.our_gateway.start()
    assert envelope["ok"] is False
    assert "openclaw-a2a up" in envelope["error"]["details"]["hint"]
    repeated = await turn(client, session(marker), words(action="list_targets"))
    assert repeated["ok"] is True


@pytest.mark.requirement("remote.tool.rounds")
async def test_an_agent_of_openclaw_calls_another_agent_of_openclaw_end_to_end(
    bed: PluginInstallation, client: BareClient, marker: str
) -> None:
    key = session(marker)
    arguments = words(action="send", target_alias="helper", parts=say(f"greetings {marker}"))
    envelope = await turn(client, key, arguments)
    assert envelope["ok"] is True, envelope
    assert envelope["summary"]["target_name"] == "Helper"
    assert envelope["summary"]["message_text"] == f"echo: greetings {marker}"
    run_turn = json.dumps(await transcript(client, key))
    assert f"echo: greetings {marker}" in run_turn
    asked = bed.openclaw.model.requests(marker)
    assert {one["session"].split(":")[1] for one in asked} == {"main", "helper"}


async def test_openclaws_own_a2a_channel_is_a_target_like_any_other(
    bed: PluginInstallation, client: BareClient, marker: str
) -> None:
    asked = say(f"parrot:said by helper {marker}")
    envelope = await turn(
        client, session(marker), words(action="send", target_alias="channel", parts=asked)
    )
    assert envelope["ok"] is True, envelope
    assert envelope["summary"]["message_text"] == f"said by helper {marker}"
    kept = envelope["summary"]["continuation"]
    assert kept["task"]["can_watch"] is False
    status = await turn(client, session(marker), words(action="status", continuation=kept))
    assert status["summary"]["continuation"]["task"]["status"] == "completed"
