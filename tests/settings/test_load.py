"""One Settings from four sources, with all problems reported at once."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from platformdirs import user_config_path

from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.settings import (
    LoadedSettings,
    StoreKind,
    check_settings,
    load_settings,
    local_gateway,
    report_hidden_file,
)
from openclaw_a2a.settings.load import read_outbound_section
from openclaw_a2a.settings.sections import ToolSettings

SMALL = st.text(max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | SMALL,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(SMALL, inner, max_size=4),
    max_leaves=12,
)


def test_without_settings_the_gateway_works_on_loopback(load, home: Path) -> None:
    loaded: LoadedSettings = load()
    settings = loaded.settings
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 9900)
    assert settings.server.public_base_url == "http://127.0.0.1:9900"
    assert settings.store.kind is StoreKind.SQLITE
    assert settings.store.path == home / ".openclaw-a2a" / "state.db"
    assert {name: agent.adapter for name, agent in settings.agents.items()} == {"main": "echo"}
    assert [account.id for account in settings.accounts] == ["default"]
    assert (loaded.origins, loaded.warnings, loaded.path) == ({}, (), None)


def test_each_source_wins_over_the_one_before_it(load) -> None:
    values = {"server": {"port": 1001, "host": "localhost", "stopSeconds": 3}}
    environ = {"OPENCLAW_A2A_SERVER__PORT": "1002", "OPENCLAW_A2A_SERVER__HOST": "127.0.0.2"}
    loaded: LoadedSettings = load(values, environ=environ, overrides={"server.port": 1003})
    server = loaded.settings.server
    assert (server.port, server.host, server.stop_seconds) == (1003, "127.0.0.2", 3)
    assert server.heartbeat_seconds == 15
    assert loaded.origins == {
        "server.port": "flag",
        "server.host": "environment OPENCLAW_A2A_SERVER__HOST",
        "server.stopSeconds": "file given.json5",
    }


def test_the_working_directory_wins_over_the_config_folder(home: Path) -> None:
    user = user_config_path("openclaw-a2a", appauthor=False)
    assert user.is_relative_to(home)
    user.mkdir(parents=True)
    (user / "openclaw-a2a.json5").write_text("{server: {port: 1}}", encoding="utf-8")
    assert load_settings(environ={}).settings.server.port == 1
    (home / "openclaw-a2a.json5").write_text("{server: {port: 2}}", encoding="utf-8")
    assert load_settings(environ={}).settings.server.port == 2
    other = home / "other.json5"
    other.write_text("{server: {port: 3}}", encoding="utf-8")
    chosen = {"OPENCLAW_A2A_CONFIG": "~/other.json5"}
    assert load_settings(environ=chosen).settings.server.port == 3


@pytest.fixture
def two_files(home: Path) -> tuple[Path, Path]:
    """The settings file of the working directory, and that of the user, which it hides."""
    hidden = user_config_path("openclaw-a2a", appauthor=False) / "openclaw-a2a.json5"
    hidden.parent.mkdir(parents=True)
    used = home / "openclaw-a2a.json5"
    for path in (used, hidden):
        path.write_text("{}", encoding="utf-8")
    return used, hidden


@pytest.mark.parametrize("read", [load_settings, local_gateway, read_outbound_section])
def test_a_hidden_file_is_reported_once_however_settings_are_read(two_files, read) -> None:
    reports: list[tuple[Path, Path]] = []
    read()  # outside of the block nobody wants to know
    with report_hidden_file(lambda *files: reports.append(files)):
        read()
        assert reports == [two_files]
        load_settings()
        read()
    read()
    assert reports == [two_files]


def test_a_hidden_file_is_reported_before_the_problems_of_the_file_that_is_used(two_files) -> None:
    reports: list[tuple[Path, Path]] = []
    two_files[0].write_text("{server: {port: true}}", encoding="utf-8")
    with report_hidden_file(lambda *files: reports.append(files)), pytest.raises(SettingsInvalid):
        load_settings()
    assert reports == [two_files]


def test_a_hidden_file_is_not_reported_when_the_caller_gets_the_warning(two_files) -> None:
    reports: list[tuple[Path, Path]] = []
    with report_hidden_file(lambda *files: reports.append(files)):
        checked = check_settings()
        local_gateway()
    assert [one.path for one in checked.loaded.warnings] == [str(two_files[1])]
    assert reports == []


def test_a_file_may_have_comments_and_trailing_commas(load) -> None:
    text = "\ufeff// mine\n{ server: { port: 9901, }, /* later */ }"
    assert load(text=text).settings.server.port == 9901


def test_every_problem_is_reported_at_once_with_its_path(problems) -> None:
    found = problems(
        {
            "sever": {},
            "server": {"prt": 1, "port": 70_000, "host": ""},
            "store": {"kind": "oracle"},
            "agents": {"Main!": {"adapter": 3}},
            "limits": {"runs": 0, "joinDeltas": "yes", "runSeconds": -1},
            "log": {"level": "loud"},
            "channels": {"a2a": {"accounts": [], "securty": {}}},
            "outbound": 1,
        }
    )
    assert set(found) == {
        "sever",
        "server.prt",
        "server.port",
        "server.host",
        "store.kind",
        "agents.Main!",
        "agents.Main!.adapter",
        "limits.runs",
        "limits.joinDeltas",
        "limits.runSeconds",
        "log.level",
        "channels.a2a.accounts",
        "channels.a2a.securty",
        "outbound",
    }
    assert "postgres" in found["store.kind"].message


def test_the_unsent_bytes_of_a_connection_leave_room_for_clients_that_read(load, problems) -> None:
    found = problems({"limits": {"connectionUnsentBytes": 1024 * 1024 - 1}})
    assert set(found) == {"limits.connectionUnsentBytes"}
    least = load({"limits": {"connectionUnsentBytes": 1024 * 1024}}).settings.limits
    assert least.connection_unsent_bytes == 1024 * 1024


def test_the_error_text_has_one_line_for_each_problem(load) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        load({"server": {"port": "x"}, "log": {"level": 1}})
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == ["server.port", "log.level"]


@pytest.mark.parametrize(
    ("path", "nearest"),
    [("sever", "server"), ("server.prt", "port"), ("limits.perPeerRun", "perPeerRuns")],
)
def test_an_unknown_key_names_the_nearest_one(problems, path: str, nearest: str) -> None:
    found = problems(overrides={path: 1})
    assert found[path].keyword == "unknown-key"
    assert f"did you mean {nearest}?" in found[path].message


def test_an_unknown_key_without_a_similar_one_lists_the_known_keys(problems) -> None:
    found = problems(overrides={"lease.xyzzy": 1})
    assert "known here: seconds" in found["lease.xyzzy"].message


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{\n  server: {\n    port: ],\n  }\n}", "line 3, column 11"),
        ("{server: {}}\n}", "line 2, column 1"),
        ("{a: 'x'\n b: 1}", "line 2, column 2"),
        ("", "line 1, column 1"),
        ("[" * 2000, "JSON5"),
    ],
)
def test_broken_json_is_placed_by_line_and_column(problems, text: str, place: str) -> None:
    (problem,) = problems(text=text).values()
    assert problem.keyword == "syntax"
    assert place in problem.message


def test_a_file_that_is_missing_or_not_an_object_is_a_problem(problems, home: Path) -> None:
    assert next(iter(problems([1]).values())).keyword == "type"
    with pytest.raises(SettingsInvalid, match=r"nowhere\.json5: cannot be read"):
        load_settings(home / "nowhere.json5", environ={})
    (home / "latin.json5").write_bytes(b'{"data":\n"\xff"}')
    with pytest.raises(SettingsInvalid, match="UTF-8 text at line 2"):
        load_settings(home / "latin.json5", environ={})


def test_a_problem_names_its_variable_or_flag(problems) -> None:
    environ = {"OPENCLAW_A2A_SERVER__PORT": "many"}
    found = problems(environ=environ, overrides={"log.level": "loud"})
    assert found["server.port"].message.endswith("(from environment OPENCLAW_A2A_SERVER__PORT)")
    assert found["log.level"].message.endswith("(from flag)")


def test_a_problem_names_its_file_and_line(problems) -> None:
    found = problems(text="{\n  log: { level: 'loud' },\n  agents: { a: {}, b: {adapter: ''} } }")
    assert found["log.level"].message.endswith("(in given.json5, line 2)")
    assert found["agents.a.adapter"].message.endswith("(in given.json5)")
    assert found["agents.b.adapter"].message.endswith("(in given.json5, line 3)")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.test"])
@pytest.mark.requirement("door.bind")
def test_an_open_bind_without_tokens_is_refused_with_what_to_do(problems, host: str) -> None:
    message = problems({"server": {"host": host}})["server.host"].message
    assert "127.0.0.1" in message
    assert "channels.a2a.security.peers" in message


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_tokens(load, host: str) -> None:
    assert load({"server": {"host": host}}).settings.is_open


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("0.0.0.0", "http://localhost:9900"),
        ("::", "http://localhost:9900"),
        ("0:0:0:0:0:0:0:0", "http://localhost:9900"),
        ("::1", "http://[::1]:9900"),
        ("127.0.0.1", "http://127.0.0.1:9900"),
    ],
)
def test_the_public_address_is_made_of_host_and_port(load, host: str, address: str) -> None:
    peers = {"alice": {"tokens": ["env:T"]}}
    values = {"server": {"host": host}, "channels": {"a2a": {"security": {"peers": peers}}}}
    assert load(values, environ={"T": "x" * 20}).settings.server.public_base_url == address


def test_urls_use_the_actual_port(load) -> None:
    own = {"own": {"publicBaseUrl": "https://a.example/x/"}, "default": {}}
    loaded: LoadedSettings = load({"server": {"port": 0}, "channels": {"a2a": {"accounts": own}}})
    bound = loaded.with_port(1234)
    assert bound.server.port == 1234
    assert bound.server.public_base_url == "http://127.0.0.1:1234"
    assert [account.public_base_url for account in bound.accounts] == [
        "http://127.0.0.1:1234",
        "https://a.example/x",
    ]
    fixed: LoadedSettings = load({"server": {"port": 0, "publicBaseUrl": "https://b.example"}})
    assert fixed.with_port(1234).server.public_base_url == "https://b.example"


@pytest.mark.parametrize(
    "address", ["ftp://x", "nonsense", "http://u:p@x", "http://x:99999", "//x"]
)
def test_a_public_address_of_the_server_must_be_one(problems, address: str) -> None:
    assert set(problems({"server": {"publicBaseUrl": address}})) == {"server.publicBaseUrl"}


def test_the_data_folder_moves_the_store(load, home: Path) -> None:
    assert load(environ={"OPENCLAW_A2A_DATA": "~/elsewhere"}).settings.store.path == (
        home / "elsewhere" / "state.db"
    )
    moved = load(overrides={"data": "/tmp/x", "store.kind": "json-file"})
    assert moved.settings.store.path == Path("/tmp/x/tasks")
    assert load({"store": {"kind": "memory"}}).settings.store.path is None


def test_relative_paths_start_at_the_folder_of_the_file(load, home: Path) -> None:
    assert load({"store": {"path": "state/my.db"}}).settings.store.path == home / "state/my.db"
    assert load({"store": {"path": "~/a/../my.db"}}).settings.store.path == home / "my.db"


@pytest.mark.parametrize("path", ["", "\0", "~nobody-has-this-name/x", 3])
def test_a_path_that_is_none_is_a_problem(problems, path: object) -> None:
    assert set(problems({"store": {"path": path}})) == {"store.path"}


def test_agents_keep_the_options_of_their_adapter_untouched(load) -> None:
    options = {"command": ["x", "~"], "deep": {"a": [1, None]}}
    agent = load({"agents": {"x-1": {"adapter": " command ", **options}}}).settings.agents["x-1"]
    assert (agent.adapter, agent.options) == ("command", options)


def test_the_outbound_section_is_kept_as_it_was_written(load) -> None:
    section = {"enabled": True, "targets": [{"alias": "a", "baseUrl": "x"}], "no": ["such"]}
    loaded = load({"outbound": section}, environ={"OPENCLAW_A2A_OUTBOUND__TASK_HANDLES": "{n: 1}"})
    assert loaded.settings.outbound == {**section, "taskHandles": {"n": 1}}
    assert loaded.warnings == ()


def test_tools_are_offered_over_http_and_mcp_by_default(load, problems) -> None:
    assert load().settings.tools == ToolSettings()
    assert load({"tools": {"mcp": False}}).settings.tools == ToolSettings(mcp=False)
    assert set(problems({"tools": {"htp": True, "perTokenCalls": 0, "agentToAgent": 1}})) == {
        "tools.htp",
        "tools.perTokenCalls",
        "tools.agentToAgent",
    }


@given(JSON)
def test_no_json_makes_loading_fail_in_another_way(load, value: object) -> None:
    try:
        load(value)
    except SettingsInvalid as error:
        assert error.problems


PIECES = [b"{", b"}", b"[", b"]", b":", b",", b"'", b'"', b"//", b"/*", b"*/", b"\\", b"\\u", b"\n"]
PIECES += [
    b"server",
    b"port",
    b"agents",
    b"0x",
    b"1e999",
    b"+Infinity",
    b"NaN",
    b"1",
    b"\xff",
    b"\0",
]
PIECES += ["\u2028".encode(), "\ufeff".encode(), b"\\ud800", b"[" * 200, b"{a:" * 200, b"9" * 5000]
PIECES += [b"0x" + b"f" * 9000, b"}}", b"'x'"]
FILES = st.binary(max_size=80) | st.builds(
    lambda start, pieces, end: start + b" ".join(pieces) + end,
    st.sampled_from([b"", b"{", b"{server: {port: ", b"{agents: {main: {adapter: 'echo', x: "]),
    st.lists(st.sampled_from(PIECES), max_size=12),
    st.sampled_from([b"", b"}}}", b"}}", b"}"]),
)


@given(FILES)
def test_no_bytes_of_a_file_make_loading_fail_in_another_way(home: Path, content: bytes) -> None:
    path = home / "any.json5"
    path.write_bytes(content)
    try:
        load_settings(path, environ={})
    except SettingsInvalid as error:
        assert error.problems


KEYS = ["server", "agents", "main", "adapter", "channels", "a2a", "accounts", "default", "security"]
KEYS += ["peers", "tokens", "skills", "taskStore", "kind", "path", "store", "limits", "runs", "log"]
KEYS += ["tools", "agentToAgent", "allow", "responseRouting", "webhooks", "url", "token", "name"]
KEYS += ["input", "type", "properties", "items", "pattern", "enum", "minimum", "timeoutSeconds"]
KEYS += ["defaultInputModes", "publicBaseUrl", "agentStyle", "maxBodyBytes", "data", "host", "port"]
PLAUSIBLE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(KEYS) | SMALL,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=25,
)
PLACES = ["server", "store", "agents.main", "channels", "channels.a2a", "limits", "log", "data"]
PLACES += [f"channels.a2a.accounts.default.{key}" for key in ("skills", "taskStore", "label")]
PLACES += ["channels.a2a.accounts.default", "channels.a2a.security.peers.alice.tokens"]


@given(st.dictionaries(st.sampled_from(PLACES), PLAUSIBLE, max_size=6), SMALL)
def test_wrong_values_in_right_places_are_problems_too(load, overrides, text: str) -> None:
    environ = {"OPENCLAW_A2A_SERVER__HEARTBEAT_SECONDS": text, "OPENCLAW_A2A_AGENTS__X": text}
    try:
        load(overrides=overrides, environ=environ)
    except SettingsInvalid as error:
        assert error.problems


def test_a_public_address_without_tokens_is_a_warning(load) -> None:
    accounts = {"own": {"publicBaseUrl": "https://a.example"}, "default": {}}
    values = {
        "server": {"publicBaseUrl": "https://b.example"},
        "channels": {"a2a": {"accounts": accounts}},
    }
    found = load(values).warnings
    assert [(one.path, one.keyword) for one in found] == [
        ("server.publicBaseUrl", "open-address"),
        ("channels.a2a.accounts.own.publicBaseUrl", "open-address"),
    ]
    assert all("channels.a2a.security.peers" in one.message for one in found)
    peers = {"alice": {"tokens": ["sha256:" + "0" * 64]}}
    values["channels"]["a2a"]["security"] = {"peers": peers}
    assert load(values).warnings == ()


@pytest.mark.parametrize("address", ["http://127.0.0.1:80", "http://localhost", "http://[::1]:9"])
def test_an_address_of_this_machine_needs_no_tokens(load, address: str) -> None:
    assert load({"server": {"publicBaseUrl": address}}).warnings == ()
