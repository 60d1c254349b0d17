"""Settings from environment variables, and what commands read from them."""

import pytest

from openclaw_a2a.settings import read_command_environment


@pytest.mark.parametrize("name", ["PUBLIC_BASE_URL", "PUBLICBASEURL", "publicBaseUrl"])
def test_a_key_is_found_in_any_spelling(load, name: str) -> None:
    environ = {f"OPENCLAW_A2A_SERVER__{name}": "https://a.example"}
    assert load(environ=environ).settings.server.public_base_url == "https://a.example"


def test_values_are_json5_where_the_setting_is_not_a_string(load) -> None:
    environ = {
        "OPENCLAW_A2A_LIMITS__JOIN_DELTAS": "false",
        "OPENCLAW_A2A_LIMITS__RUN_SECONDS": "1e2",
        "OPENCLAW_A2A_DATA": "123",
        "OPENCLAW_A2A_AGENTS__MAIN__ADAPTER": "command",
        "OPENCLAW_A2A_AGENTS__MAIN__COMMAND": "['prog', 'arg',]",
        "OPENCLAW_A2A_AGENTS__MAIN__MAX_OUTPUT": "5",
        "OPENCLAW_A2A_LOG": "{level: 'debug'}",
        "HOME": "unrelated",
    }
    settings = load(environ=environ).settings
    assert settings.limits.join_deltas is False
    assert settings.limits.run_seconds == 100
    assert settings.data.name == "123"
    assert settings.agents["main"].options == {"command": ["prog", "arg"], "maxOutput": 5}
    assert settings.log.level == "debug"


def test_ids_of_the_file_keep_their_spelling(load) -> None:
    values = {"agents": {"my-agent": {"adapter": "echo"}}}
    environ = {"OPENCLAW_A2A_AGENTS__MY_AGENT__PREFIX": "> "}
    agents = load(values, environ=environ).settings.agents
    assert {name: agent.options for name, agent in agents.items()} == {"my-agent": {"prefix": "> "}}


def test_an_unknown_key_below_a_section_is_a_problem(problems) -> None:
    found = problems(environ={"OPENCLAW_A2A_SERVER__PRT": "1"})
    assert "did you mean port?" in found["server.prt"].message


def test_a_variable_that_is_not_a_setting_is_a_warning(load) -> None:
    (warning,) = load(environ={"OPENCLAW_A2A_SEVER": "1"}).warnings
    assert warning.path == "OPENCLAW_A2A_SEVER"
    assert "OPENCLAW_A2A_SERVER" in warning.message


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("PORT", "OPENCLAW_A2A_SERVER__PORT"),
        ("PUBLIC_BASE_URL", "OPENCLAW_A2A_SERVER__PUBLIC_BASE_URL"),
        ("FORMAT", "OPENCLAW_A2A_LOG__FORMAT"),
    ],
)
def test_a_variable_without_its_section_names_the_whole_one(load, name: str, meant: str) -> None:
    (warning,) = load(environ={f"OPENCLAW_A2A_{name}": "1"}).warnings
    assert f"did you mean {meant}?" in warning.message


def test_a_variable_used_as_a_reference_gives_no_warning(load) -> None:
    peers = {"alice": {"tokens": ["env:OPENCLAW_A2A_ALICE"]}}
    values = {"channels": {"a2a": {"security": {"peers": peers}}}}
    assert load(values, environ={"OPENCLAW_A2A_ALICE": "x" * 20}).warnings == ()


def test_commands_take_address_and_token_and_settings_do_not(
    load, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"OPENCLAW_A2A_URL": " http://x ", "OPENCLAW_A2A_TOKEN": ""}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    surroundings = read_command_environment()
    assert (surroundings.url, surroundings.token) == ("http://x", None)
    assert load(environ=environ).warnings == ()


def test_the_cache_folder_of_the_development_script_is_no_setting_and_no_mistake(load) -> None:
    assert load(environ={"OPENCLAW_A2A_CACHE": "/var/cache/dev"}).warnings == ()
