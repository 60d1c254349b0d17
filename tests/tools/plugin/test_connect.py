"""`connect openclaw` puts the plugin into OpenClaw with OpenClaw's own commands, once."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.ports import free_port
from tests.tools.plugin.conftest import DATA, OUTBOUND, TOKEN_FILE, Machine

from openclaw_a2a.auth.tokens import TokenKind, TokenStore
from openclaw_a2a.tools.openclaw_plugin import PLUGIN_FOLDER, PLUGIN_ID, PLUGIN_TOOLS

Json = Any


def test_a_dry_run_shows_everything_and_changes_nothing(machine: Machine) -> None:
    _, shown = machine.run("connect", "openclaw", "--dry-run")
    for words in (
        f"plugins install --link {PLUGIN_FOLDER}",
        "config patch --stdin",
        str(TOKEN_FILE),
    ):
        assert words in shown
    assert "Nothing was changed" in shown
    assert machine.said == []
    assert not (machine.home / DATA).exists()


def test_openclaws_own_commands_load_it_and_the_token_is_in_a_file_alone(machine: Machine) -> None:
    _, shown = machine.run("connect", "openclaw")
    link, patch = machine.said
    assert link.startswith(f"plugins install --link {PLUGIN_FOLDER}")
    assert patch == "config patch --stdin"
    entry = machine.patch["plugins"]["entries"][PLUGIN_ID]
    assert entry["enabled"] is True
    assert entry["config"]["url"] == "http://127.0.0.1:9900"
    assert machine.patch["tools"] == {"alsoAllow": [*PLUGIN_TOOLS]}
    place = machine.home / TOKEN_FILE
    assert entry["config"]["tokenFile"] == str(place)
    assert place.stat().st_mode & 0o777 == 0o600
    token = place.read_bytes().strip()
    known = TokenStore(machine.home / DATA).find(token)
    assert known is not None
    assert known.kind is TokenKind.HOST
    everything = shown + json.dumps(machine.patch) + " ".join(machine.said)
    assert token.decode() not in everything


def test_a_second_time_there_is_nothing_to_do(machine: Machine) -> None:
    machine.run("connect", "openclaw")
    machine.is_installed()
    before, token = machine.said, (machine.home / TOKEN_FILE).read_bytes()
    assert machine.step()["isDone"] is True
    assert machine.said == before
    assert (machine.home / TOKEN_FILE).read_bytes() == token


@pytest.mark.parametrize(
    "settings", [{}, {"outbound": {}}, {"outbound": OUTBOUND, "tools": {"http": False}}]
)
def test_without_tools_openclaw_is_left_alone(machine: Machine, settings: Json) -> None:
    machine.settings(**settings)
    assert machine.step()["isDone"] is True
    assert machine.said == []


def test_lists_that_a_person_made_are_kept(machine: Machine) -> None:
    machine.openclaw(tools={"allow": ["read", "exec"]}, plugins={"load": {"paths": ["/other"]}})
    machine.run("connect", "openclaw")
    assert machine.patch["tools"] == {"allow": ["read", "exec", *PLUGIN_TOOLS]}
    assert "load" not in machine.patch["plugins"]
    assert "allow" not in machine.patch["plugins"]


def test_the_plugin_of_an_older_install_makes_room(machine: Machine) -> None:
    old = "/old/venv/site-packages/openclaw_a2a/tools/plugin"
    machine.openclaw(plugins={"load": {"paths": [old, "/other"]}})
    machine.run("connect", "openclaw")
    assert machine.patch["plugins"]["load"] == {"paths": ["/other", str(PLUGIN_FOLDER)]}


@pytest.mark.parametrize("plugins", [{"enabled": False}, {"deny": [PLUGIN_ID]}])
def test_a_plugin_that_is_denied_is_not_installed(machine: Machine, plugins: Json) -> None:
    machine.openclaw(plugins=plugins)
    step = machine.step()
    assert (step["isDone"], step["isOurs"]) == (False, False)
    assert PLUGIN_ID in step["what"]
    assert machine.said == []


def test_one_that_was_disabled_stays_so_and_one_that_was_taken_out_comes_again(
    machine: Machine,
) -> None:
    machine.is_installed(enabled=False)
    assert machine.step()["isOurs"] is False
    machine.openclaw(plugins={"entries": {PLUGIN_ID: {"enabled": False}}})
    assert machine.step()["isOurs"] is True
    assert machine.patch["plugins"]["entries"][PLUGIN_ID]["enabled"] is True


def test_a_lost_token_is_replaced_and_the_old_one_is_good_no_more(machine: Machine) -> None:
    machine.run("connect", "openclaw")
    machine.is_installed()
    place = machine.home / TOKEN_FILE
    lost = place.read_bytes().strip()
    place.unlink()
    assert machine.step()["isDone"] is False
    tokens = TokenStore(machine.home / DATA)
    assert tokens.find(lost) is None
    assert tokens.find(place.read_bytes().strip()) is not None
    assert len(tokens.list_tokens()) == 1


def test_a_command_that_fails_is_reported_with_what_to_do(machine: Machine, monkeypatch) -> None:
    monkeypatch.setenv("OPENCLAW_SAYS_NO", "3")
    code, shown = machine.run("connect", "openclaw")
    assert code == 1
    assert "plugins install --link" in shown
    assert "openclaw doctor" in shown


def test_doctor_tells_how_to_give_agents_the_tools(machine: Machine) -> None:
    found = machine.finding()
    assert found is not None
    assert found["verdict"] == "note"
    assert "connect openclaw" in found["fix"]
    machine.settings()
    assert machine.finding() is None


@pytest.fixture
def plugged(machine: Machine, start_gateway: Callable[..., Json]) -> Machine:
    """A machine on which all is well, and our gateway runs."""
    machine.run("connect", "openclaw")
    data = str(machine.home / DATA)
    ours = start_gateway({"data": data, "agents": {"a": {"adapter": "echo"}}, "outbound": OUTBOUND})
    machine.settings(outbound=OUTBOUND, server={"port": ours.port})
    options = {"url": ours.url, "tokenFile": str(machine.home / TOKEN_FILE)}
    machine.is_installed(config=options)
    return machine


def test_doctor_is_content_when_the_plugin_is_let_in(plugged: Machine) -> None:
    assert plugged.finding() == {
        "group": "openclaw",
        "check": "plugin",
        "verdict": "ok",
        "detail": f"{PLUGIN_ID} is let in: remote_agent",
        "fix": "",
    }


def test_doctor_tells_of_a_token_that_is_not_accepted(plugged: Machine) -> None:
    (plugged.home / TOKEN_FILE).write_text("oca_tool_of_somebody_else", "ascii")
    found = plugged.finding()
    assert found is not None
    assert found["verdict"] == "broken"
    assert "connect openclaw" in found["fix"]


def test_doctor_tells_of_a_gateway_that_does_not_run(machine: Machine) -> None:
    machine.run("connect", "openclaw")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    machine.settings(outbound=OUTBOUND, server={"port": port})
    machine.is_installed(config={"url": url, "tokenFile": str(machine.home / TOKEN_FILE)})
    found = machine.finding()
    assert found is not None
    assert found["verdict"] == "note"
    assert "openclaw-a2a up" in found["fix"]


def test_doctor_tells_of_a_plugin_that_points_elsewhere(plugged: Machine) -> None:
    options = {"url": "http://127.0.0.1:1", "tokenFile": str(plugged.home / TOKEN_FILE)}
    plugged.is_installed(config=options)
    found = plugged.finding()
    assert found is not None
    assert found["verdict"] == "broken"
    assert f"{PLUGIN_ID} calls http://127.0.0.1:1, and our gateway is at " in found["detail"]
    assert "connect openclaw" in found["fix"]


def test_doctor_tells_that_the_plugin_calls_another_port_than_up_was_given(
    machine: Machine, start_gateway: Callable[..., Json]
) -> None:
    machine.run("connect", "openclaw")
    start_gateway({"data": str(machine.home / DATA), "agents": {"a": {"adapter": "echo"}}})
    address = "http://127.0.0.1:9900"  # that of the settings, which name no port
    machine.is_installed(config={"url": address, "tokenFile": str(machine.home / TOKEN_FILE)})
    found = machine.finding()
    assert found is not None
    assert found["verdict"] == "broken"
    assert f"calls {address}, and our gateway runs at http://127.0.0.1:" in found["detail"]
    assert "server.port" in found["fix"]


def test_a_gateway_that_starts_writes_the_tools_for_the_plugin(plugged: Machine) -> None:
    written = json.loads((plugged.home / DATA / "openclaw-plugin" / "tools.json").read_bytes())
    assert [one["name"] for one in written["tools"]] == ["remote_agent"]


def test_connect_gives_the_tools_of_a_gateway_that_runs_and_says_to_restart_it(
    machine: Machine, start_gateway: Callable[..., Json]
) -> None:
    data = machine.home / DATA
    ours = start_gateway(
        {"data": str(data), "agents": {"a": {"adapter": "echo"}}, "outbound": OUTBOUND}
    )
    assert not (data / "openclaw-plugin").exists()
    machine.settings(outbound=OUTBOUND, server={"port": ours.port})
    _, shown = machine.run("connect", "openclaw")
    written = json.loads((data / "openclaw-plugin" / "tools.json").read_bytes())
    assert [one["name"] for one in written["tools"]] == ["remote_agent"]
    assert f"Restart the gateway that runs at {ours.url} (process " in shown


def test_connect_says_which_tools_are_on_and_where_to_switch_on_more(machine: Machine) -> None:
    _, shown = machine.run("connect", "openclaw")
    assert "Installing the plugin" in shown
    assert "Tools of OpenClaw's agents: remote_agent." in shown
    assert "openclaw-a2a.json5: agent_call, " in shown
    assert "agent_poll (tools.agentToAgent.enabled); " in shown
    assert "step_answer (opt.enabled and opt.tools)." in shown
    assert "restart it: openclaw gateway restart" not in shown
    assert "start the gateway: openclaw-a2a up" in shown


def test_connect_says_when_openclaw_must_be_restarted(machine: Machine) -> None:
    auth = {"mode": "token", "token": "t"}
    machine.openclaw(gateway={"port": free_port(), "auth": auth, "reload": {"mode": "off"}})
    _, shown = machine.run("connect", "openclaw")
    assert "restart it: openclaw gateway restart" in shown
