"""The settings as shown to people and editors."""

import json

import jsonschema_rs
import pyjson5
import pytest

from openclaw_a2a.settings import describe_settings, effective_settings, settings_schema

EXAMPLE = """{
  server:   { host: "127.0.0.1", port: 9900, publicBaseUrl: "http://127.0.0.1:9900" },
  store:    { kind: "sqlite", path: "~/.openclaw-a2a/state.db" },
  agents:   {
    main: { adapter: "command", command: ["cat"], token: "env:TOKEN" },
    helper: {
      adapter: "echo",
      skills: [{ name: "find", input: { q: { type: "string", required: true } } }],
      tools: { agentToAgent: { allow: [] } },
    },
  },
  channels: { a2a: { accounts: { default: { defaultAgentId: "main" } }, security: {} } },
  outbound: { enabled: true, targets: [] },
  tools:    { agentToAgent: { enabled: true, allow: ["*"], maxDepth: 3 } },
  responseRouting: { webhooks: { script: { url: "http://127.0.0.1:9/hook" } } },
  opt:      { enabled: true, directory: "~/sessions", planner: "helper", tools: true },
}"""


def test_every_setting_has_its_origin(load) -> None:
    loaded = load(
        {"log": {"level": "debug"}, "agents": {"x": {"adapter": "echo", "deep": {"a": [1]}}}},
        environ={"OPENCLAW_A2A_LIMITS__RUNS": "5"},
        overrides={"server.port": 1},
    )
    rows = {
        row.path: (row.value, row.origin)
        for row in describe_settings(loaded.settings, loaded.origins)
    }
    assert rows["log.level"] == ("debug", "file given.json5")
    assert rows["agents.x.deep.a"] == ([1], "file given.json5")
    assert rows["limits.runs"] == (5, "environment OPENCLAW_A2A_LIMITS__RUNS")
    assert rows["server.port"] == (1, "flag")
    assert rows["limits.queue"] == (1000, "default")
    assert rows["server.publicBaseUrl"] == ("http://127.0.0.1:1", "default")


def test_options_that_look_like_secrets_are_hidden_and_references_are_not(load) -> None:
    options = {
        "token": "sesame",
        "env": {"API_KEY": "sesame", "MODE": "fast"},
        "headers": [{"Authorization": "sesame"}],
        "password": "file:/p",
        "url": "ws://me:sesame@host/x",
    }
    loaded = load({"agents": {"main": {"adapter": "x", **options}}})
    shown = effective_settings(loaded.settings)["agents"]["main"]
    assert "sesame" not in json.dumps(shown)
    assert shown["password"] == "file:/p"
    assert shown["env"]["MODE"] == "fast"
    assert loaded.settings.agents["main"].options == options


def test_the_described_settings_load_as_the_same_settings(load) -> None:
    loaded = load(text=EXAMPLE)
    again = load(effective_settings(loaded.settings))
    assert again.settings == loaded.settings


def test_the_schema_accepts_the_example_and_refuses_what_loading_refuses() -> None:
    schema = jsonschema_rs.validator_for(settings_schema())
    assert schema.is_valid(pyjson5.decode(EXAMPLE))
    for wrong in (
        {"sever": {}},
        {"server": {"port": 70000}},
        {"server": {"prt": 1}},
        {"store": {"kind": "oracle"}},
        {"store": {"kind": "postgres", "schema": "Not A Name"}},
        {"agents": {"Bad Id": {"adapter": "echo"}}},
        {"agents": {"x": {}}},
        {"channels": {"a2a": {"accounts": {"x": {"agentStyle": "other"}}}}},
        {"channels": {"a2a": {"security": {"peers": {"a": {"tokens": ["literal"]}}}}}},
        {"log": {"level": "loud"}},
        {"tools": {"agentToAgent": {"maxDepth": 0}}},
        {"agents": {"x": {"adapter": "echo", "skills": [{"name": "a", "input": {"q": {}}}]}}},
        {"agents": {"x": {"adapter": "echo", "tools": {"agentToAgent": {"alow": []}}}}},
        {"responseRouting": {"webhooks": {"x": {}}}},
        {"opt": {"maxPlansPerObjective": 0}},
        {"opt": {"plans": 1}},
    ):
        assert not schema.is_valid(wrong), wrong


def test_every_key_of_the_schema_is_a_setting(load) -> None:
    schema = settings_schema()
    defaults = {
        section: {
            key: member["default"]
            for key, member in schema["$defs"][part["$ref"].rpartition("/")[2]][
                "properties"
            ].items()
            if "default" in member
        }
        for section, part in schema["properties"].items()
        if section in {"server", "store", "limits", "retention", "lease", "log", "opt"}
    }
    assert load(defaults).settings == load().settings


@pytest.mark.parametrize("key", ["outbound", "tools", "responseRouting", "opt"])
def test_sections_read_by_other_packages_are_in_the_schema(key: str) -> None:
    assert key in settings_schema()["properties"]
