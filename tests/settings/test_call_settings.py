"""Settings of calls between agents: permissions, timeouts, skills and webhooks."""

import json

import pytest

from openclaw_a2a.model.errors import Problem
from openclaw_a2a.model.skill import Parameter, Skill
from openclaw_a2a.settings import WebhookSettings, effective_settings
from openclaw_a2a.settings.sections import AgentToAgentSettings, ResponseRoutingSettings

RESEARCH = {
    "name": "research",
    "description": "Finds things out.",
    "input": {
        "q": {"type": "string", "required": True, "minLength": 2, "pattern": "^\\p{L}+$"},
        "depth": {"type": "integer", "minimum": 1, "maximum": 3, "default": 2},
        "where": {"type": "object", "properties": {"site": {"type": "string", "enum": ["a"]}}},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 9}},
    },
    "output": {"answer": {"type": "string", "description": "What was found."}},
    "timeoutSeconds": 90,
    "sideEffects": False,
    "modes": ["execute", "critique"],
    "examples": [{"q": "tides"}],
}


def with_skills(*skills: object) -> dict[str, object]:
    return {"agents": {"main": {"adapter": "echo", "skills": list(skills)}}}


def with_parameter(parameter: object) -> dict[str, object]:
    return with_skills({"name": "s", "input": {"p": parameter}})


def sentences(problems: dict[str, Problem]) -> dict[str, str]:
    """What is said of each path, without the place in the file."""
    return {path: one.message.partition(" (in ")[0] for path, one in problems.items()}


# ------------------------------------------------------------------ who may call whom


@pytest.mark.requirement("calls.policy.default")
def test_calls_are_disabled_by_default(load) -> None:
    assert load().settings.tools.agent_to_agent == AgentToAgentSettings(
        enabled=False, allow=(), max_depth=5, max_ping_pong_turns=5
    )


def test_allowed_agents_are_read_without_a_warning(load) -> None:
    section = {"enabled": True, "allow": ["main", "helper-*"], "maxDepth": 20}
    loaded = load({"tools": {"agentToAgent": {**section, "maxPingPongTurns": 0}}})
    assert loaded.settings.tools.agent_to_agent == AgentToAgentSettings(
        enabled=True, allow=("main", "helper-*"), max_depth=20, max_ping_pong_turns=0
    )
    assert loaded.warnings == ()


def test_enabled_calls_without_allowed_agents_are_a_warning_with_the_fix(load) -> None:
    [warning] = load({"tools": {"agentToAgent": {"enabled": True}}}).warnings
    assert warning.path == "tools.agentToAgent.allow"
    assert "every call is forbidden" in warning.message
    assert '["*"]' in warning.message
    assert load({"tools": {"agentToAgent": {"allow": []}}}).warnings == ()


def test_calls_can_be_turned_on_from_the_environment(load) -> None:
    environ = {
        "OPENCLAW_A2A_TOOLS__AGENT_TO_AGENT__ENABLED": "true",
        "OPENCLAW_A2A_TOOLS__AGENT_TO_AGENT__ALLOW": '["*"]',
    }
    found = load(environ=environ).settings.tools.agent_to_agent
    assert (found.enabled, found.allow) == (True, ("*",))


def test_all_problems_of_agent_to_agent_are_reported_at_once(problems) -> None:
    section = {"enabled": "yes", "allow": "*", "maxDepth": 0, "maxPingPongTurns": 21, "alow": []}
    found = problems({"tools": {"agentToAgent": section, "mcp": 1}})
    assert sentences(found) == {
        "tools.agentToAgent.enabled": "must be true or false, not a string",
        "tools.agentToAgent.allow": "must be a list of strings, not a string",
        "tools.agentToAgent.maxDepth": "must be a whole number from 1 to 20, not 0",
        "tools.agentToAgent.maxPingPongTurns": "must be a whole number from 0 to 20, not 21",
        "tools.agentToAgent.alow": "is not a setting; did you mean allow?",
        "tools.mcp": "must be true or false, not 1",
    }


@pytest.mark.parametrize(
    ("tools", "reaches"),
    [
        (None, None),
        ({}, None),
        ({"agentToAgent": {}}, None),
        ({"agentToAgent": {"allow": []}}, ()),
        ({"agentToAgent": {"allow": ["b*", "c"]}}, ("b*", "c")),
    ],
)
def test_an_agent_with_an_empty_allow_list_is_not_unlimited(load, tools, reaches) -> None:
    agent = {"adapter": "echo", "cwd": "x"} | ({} if tools is None else {"tools": tools})
    found = load({"agents": {"a": agent}}).settings.agents["a"]
    assert (found.allowed_targets, found.options) == (reaches, {"cwd": "x"})


def test_a_misspelt_limit_is_a_problem_and_not_a_missing_limit(problems) -> None:
    agents = {
        "a": {"adapter": "echo", "tools": {"agentToAgent": {"alow": []}}},
        "b": {"adapter": "echo", "tools": {"agentoAgent": {"allow": []}}},
        "c": {"adapter": "echo", "tools": {"agentToAgent": {"allow": [1]}}},
        "main": {"adapter": "echo", "tools": []},
    }
    assert set(problems({"agents": agents})) == {
        "agents.a.tools.agentToAgent.alow",
        "agents.b.tools.agentoAgent",
        "agents.c.tools.agentToAgent.allow",
        "agents.main.tools",
    }


# ------------------------------------------------------------------ skills


@pytest.mark.requirement("calls.skills.members")
def test_a_skill_is_read_completely_and_is_not_an_adapter_option(load) -> None:
    agent = load(with_skills(RESEARCH, {"name": " webSearch_2 "})).settings.agents["main"]
    [research, search] = agent.skills
    assert agent.options == {}
    assert search == Skill("webSearch_2")
    assert (research.name, research.timeout_seconds, research.side_effects) == (
        "research",
        90,
        False,
    )
    assert research.input["q"] == Parameter(
        "string", required=True, min_length=2, pattern="^\\p{L}+$"
    )
    assert research.input["where"].properties == {"site": Parameter("string", enum=("a",))}
    assert research.input["tags"].items == Parameter("string", max_length=9)
    assert research.output["answer"].description == "What was found."
    assert research.modes == ("execute", "critique")


def test_skills_are_described_as_written(load) -> None:
    shown = effective_settings(load(with_skills(RESEARCH)).settings)["agents"]["main"]["skills"]
    assert json.loads(json.dumps(shown)) == [RESEARCH]


@pytest.mark.requirement("calls.skills.members")
def test_all_problems_of_skills_are_reported_at_once(problems) -> None:
    found = problems(
        with_skills(
            {**RESEARCH, "timeout": 3},
            {"description": "x"},
            "find",
            {"name": "research"},
            {"name": "two words"},
            {"name": "x" * 129},
            {"name": "a/b", "timeoutSeconds": -1, "modes": ["think"]},
        )
    )
    at = "agents.main.skills"
    assert sentences(found) == {
        f"{at}[0].timeout": "is not a setting; did you mean timeoutSeconds?",
        f"{at}[1].name": "is missing; set it",
        f"{at}[2]": "must be an object, not a string",
        f"{at}[3].name": "research is declared twice; remove one or rename it",
        f"{at}[4].name": "a skill's name is 1 to 128 of a-z A-Z 0-9 _ -; call it something else",
        f"{at}[5].name": "a skill's name is 1 to 128 of a-z A-Z 0-9 _ -; call it something else",
        f"{at}[6].name": "a skill's name is 1 to 128 of a-z A-Z 0-9 _ -; call it something else",
        f"{at}[6].timeoutSeconds": "must be a number from 0 to 2147483647, not -1",
        f"{at}[6].modes": "must be a list of critique and execute",
    }


@pytest.mark.parametrize(
    ("parameter", "path", "words"),
    [
        ({}, ".type", "is missing"),
        ({"type": "text"}, ".type", "must be one of"),
        ({"type": "string", "requird": True}, ".requird", "did you mean required"),
        ({"type": "string", "pattern": "("}, ".pattern", "not a regular expression"),
        ({"type": "string", "pattern": 3}, ".pattern", "must be a string"),
        ({"type": "string", "minLength": -1}, ".minLength", "from 0"),
        ({"type": "string", "enum": []}, ".enum", "allows nothing"),
        ({"type": "string", "enum": "a"}, ".enum", "must be a list"),
        ({"type": "number", "minimum": "1"}, ".minimum", "must be a number"),
        ({"type": "object", "properties": {"x": {}}}, ".properties.x.type", "is missing"),
        ({"type": "object", "properties": 1}, ".properties", "must be an object"),
        ({"type": "array", "items": {"type": "string", "z": 1}}, ".items.z", "known here"),
        (
            {"type": "array", "items": {"type": "string", "pattern": "[b-a]"}},
            ".items.pattern",
            "not a regular expression",
        ),
        (["string"], "", "must be an object"),
    ],
)
def test_a_wrong_parameter_is_reported_with_its_path(problems, parameter, path, words) -> None:
    found = problems(with_parameter(parameter))
    assert list(found) == [f"agents.main.skills[0].input.p{path}"]
    assert words in found[f"agents.main.skills[0].input.p{path}"].message


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_nan_and_infinity_are_not_valid_numbers(problems, number: str) -> None:
    parameter = f'{{type: "number", maximum: {number}}}'
    skill = f'{{name: "s", timeoutSeconds: {number}, input: {{p: {parameter}}}}}'
    found = problems(text=f'{{agents: {{main: {{adapter: "echo", skills: [{skill}]}}}}}}')
    at = "agents.main.skills[0]"
    assert set(found) == {f"{at}.timeoutSeconds", f"{at}.input.p.maximum"}


@pytest.mark.parametrize("value", [None, {}, "x", 1])
def test_skills_are_a_list(problems, value: object) -> None:
    agents = {"main": {"adapter": "echo", "skills": value}}
    assert set(problems({"agents": agents})) == {"agents.main.skills"}


@pytest.mark.parametrize("name", ["ping", "list_skills"])
def test_what_the_gateway_answers_itself_cannot_be_declared(load, name: str) -> None:
    loaded = load(with_skills({"name": name}, {"name": "find"}))
    assert [one.name for one in loaded.settings.agents["main"].skills] == ["find"]
    [warning] = loaded.warnings
    assert warning.path == "agents.main.skills[0]"


# ------------------------------------------------------------------ how answers come back


@pytest.mark.requirement("calls.settings.defaults")
def test_answers_are_routed_by_default(load) -> None:
    assert load().settings.response_routing == ResponseRoutingSettings(
        enabled=True, default_timeout_ms=60_000, max_timeout_ms=300_000, dual_delivery=False
    )


def test_a_caller_without_a_session_can_have_a_webhook(load, home) -> None:
    (home / "hook.token").write_text("a-long-token-of-the-hook\n", encoding="utf-8")
    webhooks = {
        "script": {"url": "http://127.0.0.1:9/hook?x=1", "token": "file:hook.token"},
        "other": {"url": "https://hooks.example/x", "token": "env:HOOK"},
        "bare": {"url": "https://hooks.example/y"},
    }
    loaded = load({"responseRouting": {"webhooks": webhooks}}, environ={"HOOK": "sesame-sesame"})
    found = loaded.settings.response_routing.webhooks
    assert found == {
        "bare": WebhookSettings("https://hooks.example/y"),
        "other": WebhookSettings("https://hooks.example/x", "env:HOOK"),
        "script": WebhookSettings("http://127.0.0.1:9/hook?x=1", f"file:{home / 'hook.token'}"),
    }
    shown = json.dumps(effective_settings(loaded.settings))
    assert "sesame" not in shown
    assert "a-long-token" not in shown


@pytest.mark.parametrize(
    ("webhook", "path"),
    [
        ({}, ".url"),
        ({"url": ""}, ".url"),
        ({"url": "ftp://x/y"}, ".url"),
        ({"url": "https://me:secret@x/y"}, ".url"),
        ({"url": "https://x/y#z"}, ".url"),
        ({"url": "https://x:port/"}, ".url"),
        ({"url": "https:// x/"}, ".url"),
        ({"url": "https://x/", "token": "sesame"}, ".token"),
        ({"url": "https://x/", "token": "env:NOT_SET"}, ".token"),
        ({"url": "https://x/", "token": "file:not-there"}, ".token"),
        ({"url": "https://x/", "headers": {}}, ".headers"),
        ("https://x/", ""),
    ],
)
def test_a_webhook_that_cannot_work_is_a_problem(problems, webhook, path: str) -> None:
    found = problems({"responseRouting": {"webhooks": {"script": webhook}}})
    assert list(found) == [f"responseRouting.webhooks.script{path}"]
    assert "sesame" not in found[f"responseRouting.webhooks.script{path}"].message


def test_the_times_and_names_of_answers_are_checked_together(problems) -> None:
    section = {"defaultTimeoutMs": 9000, "maxTimeoutMs": 8000, "webhooks": {"A b": {"url": "x"}}}
    assert set(problems({"responseRouting": section})) == {
        "responseRouting.defaultTimeoutMs",
        "responseRouting.webhooks.A b",
        "responseRouting.webhooks.A b.url",
    }
    assert set(problems({"responseRouting": {"maxTimeoutMs": 0, "dualDelivery": 1}})) == {
        "responseRouting.maxTimeoutMs",
        "responseRouting.dualDelivery",
    }


def test_the_largest_input_of_a_call_fits_into_the_body_limit(load) -> None:
    assert load().settings.tools.body_bytes == 4 * 1024 * 1024
