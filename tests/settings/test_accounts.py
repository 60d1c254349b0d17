"""The accounts of the channel: defaults, warnings and problems."""

from pathlib import Path

import pytest

from openclaw_a2a.settings import Account, AgentStyle, OriginRoutingPolicy, StoreKind

PREFIX = "channels.a2a.accounts"


@pytest.fixture
def account(load):
    """One account made of the given keys, and the warnings about it by key."""

    def read(**keys: object) -> tuple[Account, dict[str, str]]:
        loaded = load({"channels": {"a2a": {"accounts": {"default": keys}}}})
        warnings = {
            one.path.removeprefix(f"{PREFIX}.default."): one.message for one in loaded.warnings
        }
        return loaded.settings.accounts[0], warnings

    return read


@pytest.fixture
def account_problems(problems):
    """The problems of one account `x` made of the given keys: key to sentence."""

    def read(**keys: object) -> dict[str, str]:
        found = problems({"channels": {"a2a": {"accounts": {"x": keys}}}})
        return {path.removeprefix(f"{PREFIX}.x."): one.message for path, one in found.items()}

    return read


@pytest.mark.requirement(
    "inbound.account.enabled-by-default",
    "inbound.account.label",
    "inbound.account.description",
    "inbound.account.protocol-version",
    "inbound.account.max-body",
    "inbound.account.input-modes",
    "inbound.account.output-modes",
    "inbound.account.agent-style",
    "inbound.account.origin-policy",
)
def test_an_empty_account_has_the_defaults_of_the_contract(account) -> None:
    found, warnings = account()
    assert found.is_running
    assert found.label == "default"
    assert found.description
    assert found.protocol_version == "0.3.0"
    assert found.max_body_bytes == 1_048_576
    assert found.default_input_modes == ("text/plain", "application/json")
    assert found.default_output_modes == ("text/plain", "application/json")
    assert found.agent_style is AgentStyle.HYBRID
    assert found.origin_routing_policy is OriginRoutingPolicy.SUPPRESS_GENERIC_FOLLOWUP
    assert (found.session_store, found.task_store) == (None, None)
    assert [skill.id for skill in found.skills] == ["chat"]
    assert warnings == {}


@pytest.mark.requirement(
    "inbound.account.label", "inbound.account.session-store", "inbound.account.trimmed"
)
def test_given_values_are_used_and_trimmed(account) -> None:
    found, warnings = account(
        label=" Me ",
        description=" Mine ",
        publicBaseUrl="http://localhost:1/base/",
        sessionStore=" /s ",
        protocolVersion="0.3.1",
        maxBodyBytes=5,
        defaultInputModes=[" Text/Plain ", "image/*", "text/plain"],
        defaultOutputModes=[" anything goes ", "", "anything goes"],
        agentStyle="task-generating",
        originRoutingPolicy="legacy-origin-routing",
    )
    assert (found.label, found.description, found.session_store) == ("Me", "Mine", "/s")
    assert found.public_base_url == "http://localhost:1/base"
    assert (found.protocol_version, found.max_body_bytes) == ("0.3.1", 5)
    assert found.default_input_modes == ("text/plain", "image/*")
    assert found.default_output_modes == ("anything goes",)
    assert found.agent_style is AgentStyle.TASK_GENERATING
    assert found.origin_routing_policy is OriginRoutingPolicy.LEGACY_ORIGIN_ROUTING
    assert warnings == {}


@pytest.mark.requirement("inbound.account.none-configured", "inbound.account.default-choice")
@pytest.mark.parametrize("values", [None, {}, {"channels": {"a2a": {"security": {}}}}])
def test_without_accounts_there_is_one_task_generating_default(load, values) -> None:
    settings = load(values).settings
    assert [account.id for account in settings.accounts] == ["default"]
    assert settings.default_account.agent_style is AgentStyle.TASK_GENERATING


@pytest.mark.requirement("inbound.account.forgiving")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enabled", "no"),
        ("label", 5),
        ("description", ["x"]),
        ("publicBaseUrl", 1),
        ("defaultAgentId", {}),
        ("sessionStore", False),
        ("protocolVersion", 0.3),
        ("agentCardPath", 1),
        ("jsonRpcPath", None),
        ("maxBodyBytes", 0),
        ("maxBodyBytes", 1.5),
        ("maxBodyBytes", True),
        ("defaultInputModes", "text/plain"),
        ("defaultOutputModes", "text/plain"),
        ("pushNotifications", 1),
        ("skills", {}),
    ],
)
def test_a_value_of_the_wrong_type_gives_the_default_and_a_warning(account, key, value) -> None:
    default, _ = account()
    found, warnings = account(**{key: value})
    assert found == default
    assert set(warnings) == {key}


@pytest.mark.requirement("inbound.account.trimmed")
def test_blank_strings_and_empty_lists_mean_the_default(account) -> None:
    default, _ = account()
    found, _ = account(
        label="  ",
        defaultInputModes=[],
        defaultOutputModes=[" "],
        skills=[],
        jsonRpcPath="",
        publicBaseUrl=" ",
    )
    assert found == default


@pytest.mark.requirement("inbound.account.output-modes")
def test_an_output_mode_that_is_not_a_string_is_left_out_with_a_warning(account) -> None:
    found, warnings = account(defaultOutputModes=["a/b", 3])
    assert found.default_output_modes == ("a/b",)
    assert set(warnings) == {"defaultOutputModes[1]"}


@pytest.mark.requirement("inbound.account.bad-public-url-is-unset", "inbound.account.inherits")
def test_a_public_address_that_is_none_counts_as_absent(account) -> None:
    found, warnings = account(publicBaseUrl="not an address")
    assert found.public_base_url == "http://127.0.0.1:9900"
    assert set(warnings) == {"publicBaseUrl"}


@pytest.mark.requirement("inbound.account.needs-public-url")
def test_an_account_without_a_public_url_is_off_with_a_reason(load) -> None:
    own = {"publicBaseUrl": "https://a.example"}
    accounts = {"default": {}, "own": own}
    values = {"server": {"publicBaseUrl": ""}, "channels": {"a2a": {"accounts": accounts}}}
    without, with_own = load(values).settings.accounts
    assert not without.is_running
    assert "publicBaseUrl" in without.not_running_reason
    assert with_own.is_running


@pytest.mark.requirement("inbound.account.card-path", "inbound.account.rpc-path")
def test_paths_get_their_leading_slash(account) -> None:
    found, _ = account(agentCardPath="card.json", jsonRpcPath=" /rpc ")
    assert (found.agent_card_path, found.json_rpc_path) == ("/card.json", "/rpc")
    assert found.agent_card_alias is None


def test_an_invalid_url_path_gives_the_default_and_a_warning(account) -> None:
    found, warnings = account(jsonRpcPath="/a?b")
    assert found.json_rpc_path == "/a2a/jsonrpc"
    assert set(warnings) == {"jsonRpcPath"}


@pytest.mark.requirement("inbound.account.paths", "inbound.account.sorted")
def test_other_accounts_live_below_their_own_path_in_order_of_their_ids(load) -> None:
    accounts = {"zoe": {}, "default": {}, "anna": {}}
    found = load({"channels": {"a2a": {"accounts": accounts}}}).settings.accounts
    assert [account.id for account in found] == ["anna", "default", "zoe"]
    assert [account.agent_card_path for account in found] == [
        "/agents/anna/.well-known/agent-card.json",
        "/.well-known/agent-card.json",
        "/agents/zoe/.well-known/agent-card.json",
    ]
    anna, default, _ = found
    assert (default.agent_card_alias, anna.agent_card_alias) == (
        "/.well-known/agent.json",
        "/agents/anna/.well-known/agent.json",
    )
    assert (default.json_rpc_path, default.rest_path) == ("/a2a/jsonrpc", "/a2a/rest")
    assert (anna.json_rpc_path, anna.rest_path) == (
        "/agents/anna/a2a/jsonrpc",
        "/agents/anna/a2a/rest",
    )


@pytest.mark.requirement("inbound.account.skills")
def test_skills_without_id_or_name_are_left_out(account) -> None:
    skills = [
        {"id": " a ", "name": " A ", "tags": [" t ", "t", 1], "examples": "none"},
        {"id": "b"},
        {"name": "C"},
        "d",
    ]
    found, warnings = account(skills=skills, defaultOutputModes=["x/y"])
    (skill,) = found.skills
    assert (skill.id, skill.name, skill.description, skill.tags) == ("a", "A", "A", ("t",))
    assert (skill.input_modes, skill.output_modes) == (found.default_input_modes, ("x/y",))
    assert set(warnings) == {
        "skills[0].tags[2]",
        "skills[0].examples",
        "skills[1]",
        "skills[2]",
        "skills[3]",
    }


@pytest.mark.requirement("inbound.account.skills")
def test_with_no_usable_skill_there_is_the_chat_skill(account) -> None:
    found, _ = account(skills=[{"id": "x"}])
    assert [skill.name for skill in found.skills] == ["Chat"]


def test_push_is_on_unless_it_is_switched_off(account) -> None:
    default, _ = account()
    found, warnings = account(pushNotifications=False)
    assert (default.push_notifications, found.push_notifications) == (True, False)
    assert not warnings


@pytest.mark.requirement("inbound.account.bad-choice")
@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("agentStyle", ["hybrid", "task-generating"]),
        ("originRoutingPolicy", ["suppress-generic-followup", "legacy-origin-routing"]),
    ],
)
@pytest.mark.parametrize("value", ["other", 3, None, {}])
def test_a_choice_that_is_not_listed_is_an_error_with_the_list(
    account_problems, key: str, values: list[str], value: object
) -> None:
    found = account_problems(**{key: value})
    assert all(choice in found[key] for choice in values)


@pytest.mark.requirement("inbound.account.bad-input-mode")
@pytest.mark.parametrize(
    ("mode", "named"), [("plain", "plain"), ("text/", "text/"), ("a b/c", "a b/c"), (3, "number")]
)
def test_an_invalid_input_mode_is_an_error(account_problems, mode, named) -> None:
    found = account_problems(defaultInputModes=["text/plain", mode])
    assert named in found["defaultInputModes[1]"]


@pytest.mark.requirement("inbound.account.bad-task-store")
@pytest.mark.parametrize(
    ("store", "key"),
    [
        ("memory", "taskStore"),
        (None, "taskStore"),
        ({"kind": "redis"}, "taskStore.kind"),
        ({"kind": "postgres"}, "taskStore.kind"),
        ({"kind": ["json-file"]}, "taskStore.kind"),
        ({"kind": "json-file"}, "taskStore.path"),
        ({"kind": "json-file", "path": "  "}, "taskStore.path"),
        ({"kind": "json-file", "path": "relative/x"}, "taskStore.path"),
        ({"kind": "json-file", "path": 5}, "taskStore.path"),
        ({"kind": "memory", "pth": 5}, "taskStore.pth"),
    ],
)
def test_a_task_store_that_cannot_be_is_an_error(account_problems, store, key: str) -> None:
    assert set(account_problems(taskStore=store)) == {key}


@pytest.mark.requirement("inbound.account.task-store")
def test_an_account_may_have_a_store_of_its_own(account, home: Path) -> None:
    assert account(taskStore={})[0].task_store.kind is StoreKind.MEMORY
    found, _ = account(taskStore={"kind": "json-file", "path": "~/tasks/"})
    assert found.task_store.kind is StoreKind.JSON_FILE
    assert found.task_store.path == home / "tasks"
    assert account(taskStore={"kind": "sqlite", "path": "/s.db"})[0].task_store.path == Path(
        "/s.db"
    )


@pytest.mark.requirement("inbound.account.removed-keys", "inbound.account.unknown-key")
def test_removed_and_unknown_keys_are_errors(account_problems) -> None:
    found = account_problems(restPath="/r", capabilities={}, auth={}, lable="x")
    assert set(found) == {"restPath", "capabilities", "auth", "lable"}
    assert all("remove the key" in found[key] for key in ("restPath", "capabilities", "auth"))
    assert "label" in found["lable"]


@pytest.mark.requirement("inbound.account.route-conflict")
@pytest.mark.parametrize(
    ("accounts", "place", "owner"),
    [
        (
            {"a": {"jsonRpcPath": "/x"}, "b": {"agentCardPath": "x"}},
            "b.agentCardPath",
            "account a (jsonRpcPath)",
        ),
        (
            {"a": {"agentCardPath": "/x", "jsonRpcPath": "/x"}},
            "a.jsonRpcPath",
            "account a (agentCardPath)",
        ),
        ({"a": {"jsonRpcPath": "/healthz"}}, "a.jsonRpcPath", "the gateway"),
        (
            {"a": {"jsonRpcPath": "/a2a/rest/x"}, "default": {}},
            "a.jsonRpcPath",
            "account default",
        ),
    ],
)
def test_a_path_has_one_owner(problems, accounts, place: str, owner: str) -> None:
    found = problems({"channels": {"a2a": {"accounts": accounts}}})
    (problem,) = found.values()
    assert problem.path == f"{PREFIX}.{place}"
    assert owner in problem.message


@pytest.mark.requirement("inbound.account.route-conflict")
def test_a_disabled_account_owns_no_path(load) -> None:
    accounts = {"a": {"jsonRpcPath": "/x"}, "b": {"jsonRpcPath": "/x", "enabled": False}}
    on, off = load({"channels": {"a2a": {"accounts": accounts}}}).settings.accounts
    assert (on.is_running, off.is_running) == (True, False)
    assert "b" in off.not_running_reason


@pytest.mark.requirement("inbound.account.store-conflict")
def test_a_store_path_has_one_owner_even_when_one_account_is_off(problems) -> None:
    first = {"enabled": False, "taskStore": {"kind": "json-file", "path": "/t/tasks"}}
    second = {"taskStore": {"kind": "json-file", "path": "/t/x/../tasks/"}}
    found = problems({"channels": {"a2a": {"accounts": {"a": first, "b": second}}}})
    assert "account a" in found[f"{PREFIX}.b.taskStore.path"].message


def test_an_account_cannot_take_the_path_of_the_gateways_store(problems) -> None:
    account = {"taskStore": {"kind": "sqlite", "path": "/t/s.db"}}
    values = {"store": {"path": "/t/s.db"}, "channels": {"a2a": {"accounts": {"a": account}}}}
    assert set(problems(values)) == {f"{PREFIX}.a.taskStore.path"}


@pytest.mark.requirement("inbound.account.default-choice")
def test_the_default_account_is_the_first_enabled_one(load) -> None:
    accounts = {"a": {"enabled": False}, "b": {}, "c": {}}
    settings = load({"channels": {"a2a": {"accounts": accounts}}}).settings
    assert settings.default_account.id == "b"
    assert [account.is_running for account in settings.accounts] == [False, True, True]
    off = load({"channels": {"a2a": {"accounts": {"a": {"enabled": False}}}}}).settings
    assert off.default_account.id == "a"


@pytest.mark.requirement("inbound.account.default-agent")
def test_the_only_agent_or_main_answers_unless_another_is_named(load) -> None:
    def agent_of(agents: list[str], **keys: object) -> str:
        values = {name: {"adapter": "echo"} for name in agents}
        channels = {"a2a": {"accounts": {"default": keys}}}
        return load({"agents": values, "channels": channels}).settings.accounts[0].default_agent_id

    assert agent_of([]) == "main"
    assert agent_of(["solo"]) == "solo"
    assert agent_of(["a", "main"]) == "main"
    assert agent_of(["a", "main"], defaultAgentId=" a ") == "a"


@pytest.mark.requirement("inbound.account.default-agent")
def test_an_agent_that_is_not_there_is_an_error_that_lists_them(problems) -> None:
    agents = {name: {"adapter": "echo"} for name in ("one", "two")}
    accounts = {"x": {"defaultAgentId": "three"}, "y": {}, "z": {"enabled": False}}
    found = problems({"agents": agents, "channels": {"a2a": {"accounts": accounts}}})
    assert set(found) == {f"{PREFIX}.x.defaultAgentId", f"{PREFIX}.y.defaultAgentId"}
    assert all("one, two" in problem.message for problem in found.values())


def test_ids_that_fit_no_address_are_errors(problems) -> None:
    found = problems({"channels": {"a2a": {"accounts": {"a/b": {}, "c": 1}}}})
    assert {f"{PREFIX}.a/b", f"{PREFIX}.c"} <= set(found)
