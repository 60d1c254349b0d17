"""OpenClaw's agents as defaults: which are added, where, and what wins."""

import json
from pathlib import Path

import pytest

from openclaw_a2a.settings import describe_settings, effective_settings

TOKEN = "a-token-that-nobody-may-see"
AGENTS = {"entries": {"main": {"name": "Samantha"}, "helper": {}}}


@pytest.fixture
def openclaw(home: Path) -> Path:
    """An OpenClaw with two agents in this home."""
    path = home / ".openclaw" / "openclaw.json"
    path.parent.mkdir()
    gateway = {"port": 4100, "auth": {"mode": "token", "token": TOKEN}}
    path.write_text(json.dumps({"gateway": gateway, "agents": AGENTS}), encoding="utf-8")
    return path


@pytest.fixture
def offered(load, home: Path, openclaw: Path):
    """Load settings with that OpenClaw around."""
    return lambda *values, **more: load(*values, environ={"HOME": str(home)}, **more)


def accounts_of(loaded) -> dict[str, str]:
    return {one.id: one.default_agent_id for one in loaded.settings.accounts}


def adapters_of(loaded) -> dict[str, str]:
    return {name: one.adapter for name, one in loaded.settings.agents.items()}


def test_without_openclaw_the_agent_that_echoes_stands_in(load, home: Path) -> None:
    loaded = load(environ={"HOME": str(home)})
    assert adapters_of(loaded) == {"main": "echo"}
    assert loaded.settings.agents["main"].is_placeholder
    assert loaded.openclaw is None


def test_every_agent_of_openclaw_gets_an_account_of_its_own(offered, openclaw: Path) -> None:
    loaded = offered()
    assert accounts_of(loaded) == {"default": "main", "helper": "helper"}
    assert loaded.settings.agents["helper"].options == {
        "url": "ws://127.0.0.1:4100",
        "token": f"openclaw-config:{openclaw}",
        "agentId": "helper",
    }
    assert loaded.settings.agents["main"].profile.name == "Samantha"
    assert loaded.settings.agents["helper"].profile.name == "helper"
    helper = next(one for one in loaded.settings.accounts if one.id == "helper")
    assert helper.agent_card_path == "/agents/helper/.well-known/agent-card.json"
    assert "image/png" in helper.default_input_modes
    assert loaded.openclaw.config_path == openclaw


def test_described_settings_have_their_origin_and_hide_the_token(offered, openclaw: Path) -> None:
    loaded = offered()
    rows = {row.path: row for row in describe_settings(loaded.settings, loaded.origins)}
    for path in ("agents.main.adapter", "channels.a2a.accounts.helper.defaultAgentId"):
        assert rows[path].origin == f"OpenClaw ({openclaw})"
    assert rows["agents.main.token"].value == f"openclaw-config:{openclaw}"
    assert rows["channels.a2a.accounts.helper.label"].origin == "default"
    assert TOKEN not in repr(loaded) + json.dumps(effective_settings(loaded.settings))


def test_agents_that_are_written_win(offered) -> None:
    loaded = offered({"agents": {"mine": {"adapter": "echo"}}})
    assert adapters_of(loaded) == {"mine": "echo"}
    assert loaded.openclaw is None


def test_with_a_section_both_are_offered_and_the_written_one_keeps_its_id(offered) -> None:
    written = {"agents": {"main": {"adapter": "echo"}}, "openclaw": {}}
    loaded = offered(written)
    assert adapters_of(loaded) == {"helper": "openclaw-gateway", "main": "echo"}
    assert accounts_of(loaded) == {"default": "helper"}
    accounts = {"default": {"defaultAgentId": "main"}}
    loaded = offered({**written, "channels": {"a2a": {"accounts": accounts}}})
    assert accounts_of(loaded) == {"default": "main", "helper": "helper"}


def test_it_can_be_switched_off(offered) -> None:
    loaded = offered({"openclaw": {"enabled": False}})
    assert adapters_of(loaded) == {"main": "echo"}
    assert offered(overrides={"openclaw.enabled": False}).openclaw is None


def test_some_agents_can_be_chosen(offered, problems, home: Path) -> None:
    assert accounts_of(offered({"openclaw": {"expose": ["helper"]}})) == {"default": "helper"}
    assert accounts_of(offered({"openclaw": {"expose": "all"}})).keys() == {"default", "helper"}
    found = problems({"openclaw": {"expose": ["helpr"]}}, environ={"HOME": str(home)})
    assert "main, helper" in found["openclaw.expose[0]"].message


def test_configured_accounts_get_the_agents_they_name_and_no_others(offered) -> None:
    accounts = {"door": {"label": "Front", "defaultAgentId": "helper"}}
    loaded = offered({"channels": {"a2a": {"accounts": accounts}}})
    assert accounts_of(loaded) == {"door": "helper"}
    assert adapters_of(loaded) == {"helper": "openclaw-gateway"}
    loaded = offered({"channels": {"a2a": {"accounts": {"default": {"label": "Front"}}}}})
    assert accounts_of(loaded) == {"default": "main"}
    assert adapters_of(loaded) == {"main": "openclaw-gateway"}
    assert loaded.settings.default_account.customized == ("label",)


def test_with_a_section_agents_that_no_account_names_get_one(offered) -> None:
    accounts = {"door": {"defaultAgentId": "helper"}}
    loaded = offered({"openclaw": {}, "channels": {"a2a": {"accounts": accounts}}})
    assert accounts_of(loaded) == {"default": "main", "door": "helper"}


def test_an_offered_agent_can_get_more_options(offered) -> None:
    loaded = offered({"openclaw": {}, "agents": {"helper": {"thinking": "high"}}})
    helper = loaded.settings.agents["helper"]
    assert helper.adapter == "openclaw-gateway"
    assert helper.options.items() >= {"thinking": "high", "agentId": "helper"}.items()
    assert loaded.origins["agents.helper.thinking"] == "file given.json5"


def test_the_section_can_come_from_the_environment(load, home: Path, openclaw: Path) -> None:
    environ = {"HOME": str(home), "OPENCLAW_A2A_OPENCLAW__EXPOSE": '["main"]'}
    assert accounts_of(load(environ=environ)) == {"default": "main"}


def test_an_agent_called_default_does_not_take_the_default_address(load, home: Path) -> None:
    path = home / "openclaw.json"
    path.write_text("{agents: {entries: {main: {}, default: {}}}}", encoding="utf-8")
    loaded = load(environ={"OPENCLAW_CONFIG_PATH": str(path)})
    assert accounts_of(loaded) == {"default": "main", "openclaw-default": "default"}


def test_another_config_address_and_token_can_be_named(load, home: Path) -> None:
    (home / "else").mkdir()
    (home / "else" / "oc.json").write_text('{gateway: {auth: {token: "x"}}}', encoding="utf-8")
    section = {"configPath": "else/oc.json", "url": "ws://10.0.0.9:1", "token": "file:tok"}
    loaded = load({"openclaw": section})
    options = loaded.settings.agents["main"].options
    assert options["url"] == "ws://10.0.0.9:1"
    assert options["token"] == f"file:{home}/tok"


def test_the_token_of_the_config_is_not_sent_to_another_machine(offered) -> None:
    near = offered({"openclaw": {"url": "ws://localhost:9"}}).settings.agents["main"].options
    far = offered({"openclaw": {"url": "wss://far.example"}}).settings.agents["main"].options
    assert near["token"].startswith("openclaw-config:")
    assert "token" not in far


def test_without_a_config_the_settings_can_name_everything(load, problems) -> None:
    section = {"url": "ws://127.0.0.1:1", "token": "env:T", "expose": ["main", "Other One"]}
    loaded = load({"openclaw": section})
    assert adapters_of(loaded).keys() == {"main", "other-one"}
    assert loaded.openclaw.config_path is None
    found = problems({"openclaw": {"url": "ws://127.0.0.1:1"}})
    assert found.keys() == {"openclaw.expose"}


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ({"token": "literal"}, "openclaw.token"),
        ({"url": "not an address"}, "openclaw.url"),
        ({"url": "ws://user:pass@host"}, "openclaw.url"),
        ({"configPath": "/not/there.json"}, "openclaw.configPath"),
        ({"configPath": "\0"}, "openclaw.configPath"),
        ({"expose": "some"}, "openclaw.expose"),
        ({"expose": [1]}, "openclaw.expose"),
        ({"exposed": "all"}, "openclaw.exposed"),
        ({"enabled": "yes"}, "openclaw.enabled"),
        ({}, "openclaw.configPath"),
        ([], "openclaw"),
    ],
)
def test_a_wrong_section_is_a_problem_with_its_path(problems, section, path: str) -> None:
    assert path in problems({"openclaw": section})


def test_an_openclaw_section_without_an_installation_is_a_problem(load, problems) -> None:
    assert adapters_of(load()) == {"main": "echo"}
    assert "install OpenClaw" in problems({"openclaw": {}})["openclaw.configPath"].message


def test_what_is_wrong_with_openclaws_config_is_a_warning(load, home: Path, openclaw: Path) -> None:
    openclaw.write_text("{gateway: ", encoding="utf-8")
    loaded = load(environ={"HOME": str(home)})
    assert adapters_of(loaded) == {"main": "echo"}
    assert [one.path for one in loaded.warnings][:1] == ["openclaw"]
    assert "line 1" in loaded.warnings[0].message


@pytest.mark.parametrize("agents", ["text", ["x"], {"main": "text"}, {"other": {}}])
def test_wrong_agents_beside_a_section_are_problems_and_no_crash(
    problems, home: Path, openclaw: Path, agents
) -> None:
    found = problems({"openclaw": {}, "agents": agents}, environ={"HOME": str(home)})
    assert any(path.startswith("agents") for path in found)


@pytest.mark.parametrize("account", ["text", [], {"defaultAgentId": []}, {"defaultAgentId": 5}])
def test_wrong_accounts_beside_a_section_do_not_crash(
    home: Path, openclaw: Path, load, account
) -> None:
    from openclaw_a2a.settings import check_settings

    values = {"openclaw": {}, "channels.a2a.accounts.door": account}
    examined = check_settings(overrides=values, environ={"HOME": str(home)})
    assert examined.loaded.settings.accounts
