"""Finding OpenClaw's config and reading it as OpenClaw does, whatever it contains."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.settings.openclaw_config import OpenClawInstallation, find_openclaw
from openclaw_a2a.settings.tokens import resolve_token

TOKEN = "a-token-that-nobody-may-see"
GATEWAY = {"auth": {"mode": "token", "token": TOKEN}}


def write(path: Path, values: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = values if isinstance(values, str) else json.dumps(values)
    path.write_text(text, encoding="utf-8")
    return path


def found_in(home: Path, **environ: str) -> OpenClawInstallation:
    found = find_openclaw(environ={"HOME": str(home), **environ})
    assert found is not None
    return found


def token_of(found: OpenClawInstallation, **environ: str) -> str:
    assert found.token is not None
    return resolve_token(found.token, environ=environ)


def test_without_a_config_no_installation_is_found(home: Path) -> None:
    assert find_openclaw(environ={"HOME": str(home)}) is None
    assert find_openclaw(environ={}) is None
    assert find_openclaw(environ={"OPENCLAW_CONFIG_PATH": str(home / "no.json")}) is None


def test_the_config_is_searched_where_openclaw_searches(home: Path) -> None:
    usual = write(home / ".openclaw" / "openclaw.json", {})
    profile = write(home / ".openclaw-work" / "openclaw.json", {})
    state = write(home / "state" / "openclaw.json", {})
    given_path = write(home / "given.json", {})
    other = write(home / "other" / ".openclaw" / "openclaw.json", {})
    assert found_in(home).config_path == usual
    assert found_in(home, OPENCLAW_PROFILE="work").config_path == profile
    assert found_in(home, OPENCLAW_PROFILE="default").config_path == usual
    assert found_in(home, OPENCLAW_HOME=str(home / "other")).config_path == other
    assert found_in(home, OPENCLAW_HOME="~/other").config_path == other
    assert found_in(home, OPENCLAW_HOME="undefined").config_path == usual
    assert found_in(home, OPENCLAW_STATE_DIR="~/state", OPENCLAW_PROFILE="x").config_path == state
    both = {"OPENCLAW_STATE_DIR": "~/state", "OPENCLAW_CONFIG_PATH": "~/given.json"}
    assert found_in(home, **both).config_path == given_path


def test_a_current_config_gives_url_token_and_agents(home: Path) -> None:
    text = """{
      // as people write it
      gateway: {port: 19001, bind: "lan", auth: {mode: "token", token: "TOKEN"}},
      agents: {entries: {
        main: {identity: {name: "Samantha", theme: "helpful sloth"}, workspace: "~/w"},
        Helper: {name: "Helper", description: "Helps."},
      }},
    }""".replace("TOKEN", TOKEN)
    path = write(home / ".openclaw" / "openclaw.json", text)
    found = found_in(home)
    assert (found.url, found.auth_mode, found.warnings) == ("ws://127.0.0.1:19001", "token", ())
    assert [(agent.id, agent.name, agent.description) for agent in found.agents] == [
        ("main", "Samantha", "helpful sloth"),
        ("helper", "Helper", "Helps."),
    ]
    assert found.default_agent.id == "main"
    assert token_of(found) == TOKEN
    assert found.token == f"openclaw-config:{path}"


def test_a_config_of_earlier_versions_has_a_list_and_a_default(home: Path) -> None:
    agents = {"list": [{"id": "one"}, {"id": "two", "default": True}]}
    write(home / ".openclaw" / "openclaw.json", {"gateway": GATEWAY, "agents": agents})
    found = found_in(home)
    assert [agent.id for agent in found.agents] == ["one", "two"]
    assert found.default_agent.id == "two"


def test_a_config_without_agents_has_main(home: Path) -> None:
    write(home / ".openclaw" / "openclaw.json", {"gateway": GATEWAY})
    found = found_in(home)
    assert [agent.id for agent in found.agents] == ["main"]
    assert found.url == "ws://127.0.0.1:18789"


@pytest.mark.parametrize(
    ("gateway", "environ", "url"),
    [
        ({"port": 1}, {"OPENCLAW_GATEWAY_PORT": "4000"}, "ws://127.0.0.1:4000"),
        ({"port": "${PORT}"}, {"PORT": "4001"}, "ws://127.0.0.1:4001"),
        ({"port": 4002, "tls": {"enabled": True}}, {}, "wss://127.0.0.1:4002"),
        ({"port": 70000}, {}, "ws://127.0.0.1:18789"),
        ({"port": True}, {}, "ws://127.0.0.1:18789"),
        ({"port": None}, {"OPENCLAW_GATEWAY_PORT": "many"}, "ws://127.0.0.1:18789"),
        ({"mode": "remote", "remote": {"url": "wss://far.example"}}, {}, "wss://far.example"),
        ({"mode": "local", "remote": {"url": "wss://far.example"}}, {}, "ws://127.0.0.1:18789"),
        ({}, {"OPENCLAW_GATEWAY_URL": "ws://10.0.0.9:1"}, "ws://10.0.0.9:1"),
    ],
)
def test_the_address_is_the_one_openclaws_clients_use(
    home: Path, gateway: object, environ: dict[str, str], url: str
) -> None:
    write(home / ".openclaw" / "openclaw.json", {"gateway": gateway})
    assert found_in(home, **environ).url == url


def test_variables_come_from_the_environment_then_dotenv_then_the_config(home: Path) -> None:
    values = {"gateway": {"auth": {"token": "${TOK}"}}, "env": {"vars": {"TOK": "of-config"}}}
    write(home / ".openclaw" / "openclaw.json", values)
    around = {"HOME": str(home)}
    assert token_of(found_in(home), **around) == "of-config"
    write(home / ".openclaw" / ".env", "# mine\nexport TOK='of dotenv' \nOTHER=x\n")
    assert token_of(found_in(home), **around) == "of dotenv"
    assert token_of(found_in(home, TOK="of-environ"), TOK="of-environ", **around) == "of-environ"


@pytest.mark.parametrize(
    ("token", "environ", "expected"),
    [
        ("$MINE", {"MINE": "short-hand"}, "short-hand"),
        ("x-${MINE}-y", {"MINE": "inner"}, "x-inner-y"),
        ("$${MINE}", {"MINE": "inner"}, "${MINE}"),
        ({"source": "env", "provider": "default", "id": "MINE"}, {"MINE": "ref"}, "ref"),
        (None, {"OPENCLAW_GATEWAY_TOKEN": "ambient"}, "ambient"),
        ("own", {"OPENCLAW_GATEWAY_TOKEN": "ambient"}, "own"),
    ],
)
def test_the_token_is_found_however_it_is_written(
    home: Path, token: object, environ: dict[str, str], expected: str
) -> None:
    write(home / ".openclaw" / "openclaw.json", {"gateway": {"auth": {"token": token}}})
    assert token_of(found_in(home, **environ), **environ) == expected


def test_a_token_in_a_secrets_file_is_found(home: Path) -> None:
    write(home / "secrets.json", {"gate/way": {"token": TOKEN}})
    write(home / "one.txt", f"{TOKEN}\n")
    providers = {
        "many": {"source": "file", "path": str(home / "secrets.json")},
        "one": {"source": "file", "path": str(home / "one.txt"), "mode": "singleValue"},
    }
    for provider, name in (("many", "/gate~1way/token"), ("one", "value")):
        token = {"source": "file", "provider": provider, "id": name}
        values = {"gateway": {"auth": {"token": token}}, "secrets": {"providers": providers}}
        write(home / ".openclaw" / "openclaw.json", values)
        assert token_of(found_in(home)) == TOKEN


@pytest.mark.parametrize(
    ("token", "word"),
    [
        ("${NOT_SET}", "variable"),
        ({"source": "exec", "provider": "vault", "id": "x"}, "exec"),
        ({"source": "store", "provider": "default", "id": "X"}, "store"),
        ({"source": ["?"], "id": 5}, "unknown"),
        (None, "openclaw doctor --generate-gateway-token"),
    ],
)
def test_an_unreadable_token_is_a_warning_with_the_fix(
    home: Path, token: object, word: str
) -> None:
    path = write(home / ".openclaw" / "openclaw.json", {"gateway": {"auth": {"token": token}}})
    found = found_in(home)
    assert found.token is None
    (warning,) = found.warnings
    assert word in warning
    with pytest.raises(SettingsInvalid, match=r"gateway\.auth\.token"):
        resolve_token(f"openclaw-config:{path}", environ={})


def test_a_token_that_is_named_and_missing_is_not_replaced_by_another(home: Path) -> None:
    write(home / ".openclaw" / "openclaw.json", {"gateway": {"auth": {"token": "${NOT_SET}"}}})
    assert found_in(home, OPENCLAW_GATEWAY_TOKEN="ambient").token is None


def test_gateways_without_a_token_and_with_a_password(home: Path) -> None:
    write(home / ".openclaw" / "openclaw.json", {"gateway": {"auth": {"mode": "none"}}})
    found = found_in(home)
    assert (found.auth_mode, found.token, found.warnings) == ("none", None, ())
    write(home / ".openclaw" / "openclaw.json", {"gateway": {"auth": {"password": "hush"}}})
    found = found_in(home)
    assert (found.auth_mode, found.token) == ("password", None)
    assert "openclaw config set gateway.auth.mode token" in found.warnings[0]
    assert "hush" not in repr(found)


def test_the_token_is_read_when_it_is_used(home: Path) -> None:
    path = write(home / ".openclaw" / "openclaw.json", {"gateway": GATEWAY})
    found = found_in(home)
    write(path, {"gateway": {"auth": {"token": "the-next-one"}}})
    assert token_of(found) == "the-next-one"


def test_the_discovered_installation_does_not_contain_the_token(home: Path) -> None:
    write(home / ".openclaw" / "openclaw.json", {"gateway": GATEWAY})
    assert TOKEN not in repr(found_in(home))


def test_references_are_read_and_other_texts_are_tokens(home: Path) -> None:
    write(home / "token", " spaced \n")
    assert resolve_token("env:MINE", environ={"MINE": "x"}) == "x"
    assert resolve_token(f"file:{home}/token", environ={}) == "spaced"
    assert resolve_token("plain", environ={}) == "plain"
    for missing in ("env:NOT_SET", "file:/not/there", f"file:{home}", "openclaw-config:/not/there"):
        with pytest.raises(SettingsInvalid):
            resolve_token(missing, environ={})


def test_includes_are_merged_in_order_below_what_stands_beside_them(home: Path) -> None:
    folder = home / ".openclaw"
    write(
        folder / "openclaw.json",
        """{
      gateway: {$include: "./parts/gateway.json5", port: 4100},
      agents: {$include: ["./parts/a.json5", "./parts/b.json5"]},
    }""",
    )
    write(folder / "parts" / "gateway.json5", {"port": 1, "auth": {"$include": "auth.json5"}})
    write(folder / "parts" / "auth.json5", {"token": TOKEN})
    write(folder / "parts" / "a.json5", {"entries": {"a": {"name": "A"}, "c": {"name": "C"}}})
    write(folder / "parts" / "b.json5", {"entries": {"a": {"name": "B"}}})
    found = found_in(home)
    assert found.warnings == ()
    assert found.url.endswith(":4100")
    assert {agent.id: agent.name for agent in found.agents} == {"a": "B", "c": "C"}
    assert token_of(found) == TOKEN


def test_missing_circular_and_outside_includes_are_left_out_with_warnings(home: Path) -> None:
    folder = home / ".openclaw"
    write(home / "secret.json", {"entries": {"stolen": {}}})
    (folder / "x").mkdir(parents=True)
    (folder / "link.json").symlink_to(home / "secret.json")
    for name in ("../secret.json", str(home / "secret.json"), "link.json", "no.json", "\0"):
        write(folder / "openclaw.json", {"gateway": GATEWAY, "agents": {"$include": name}})
        found = found_in(home)
        assert [agent.id for agent in found.agents] == ["main"], name
        assert found.warnings or name == "\0"
    write(folder / "openclaw.json", {"gateway": GATEWAY, "agents": {"$include": "loop.json"}})
    write(folder / "loop.json", {"$include": ["loop.json", "loop.json", "openclaw.json"]})
    assert found_in(home).warnings
    write(folder / "openclaw.json", {"gateway": GATEWAY, "agents": {"$include": "../secret.json"}})
    allowed = found_in(home, OPENCLAW_INCLUDE_ROOTS=f"{home}{os.pathsep}~/none")
    assert [agent.id for agent in allowed.agents] == ["stolen"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"text"',
        "{gateway: {auth: {token: }}}",
        "[" * 10_000,
        '{"a":' * 10_000,
        "\x00\x01",
        "{a: 1} {b: 2}",
    ],
)
def test_a_broken_config_is_found_with_a_warning_and_offers_no_agents(
    home: Path, text: str
) -> None:
    path = write(home / ".openclaw" / "openclaw.json", text)
    found = found_in(home)
    assert found.agents == ()
    assert found.token is None
    assert str(path) in found.warnings[0]


def test_a_config_that_is_not_text_or_too_large_is_found_with_a_warning(home: Path) -> None:
    path = home / ".openclaw" / "openclaw.json"
    path.parent.mkdir()
    path.write_bytes(b'{"a": "\xff\xfe"}')
    assert "UTF-8" in found_in(home).warnings[0]
    path.write_bytes(b"{}" + b" " * 3_000_000)
    assert "larger" in found_in(home).warnings[0]


def test_names_cannot_command_a_terminal_and_ids_are_as_openclaw_spells_them(home: Path) -> None:
    entries = {
        "My Agent!": {"name": "a\x1b[31m\nb"},
        "my-agent": {},
        "!!!": {},
        "x" * 100: {"name": "n" * 10_000},
        "list": [],
    }
    write(
        home / ".openclaw" / "openclaw.json", {"gateway": GATEWAY, "agents": {"entries": entries}}
    )
    found = found_in(home)
    assert [agent.id for agent in found.agents] == ["my-agent", "x" * 64]
    assert found.agents[0].name == "a [31m b"
    assert len(found.agents[1].name) == 500
    assert len(found.warnings) == 3


KEYS = [
    *("gateway", "auth", "token", "agents", "entries", "list", "id", "$include", "env", "vars"),
    *("port", "mode", "remote", "url", "secrets", "providers", "identity", "name", "tls"),
    *("default", "source", "provider"),
]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["${A}"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=30,
)


@given(values=st.dictionaries(st.sampled_from(["gateway", "agents", "env", "secrets"]), ANYTHING))
def test_no_config_breaks_the_search(tmp_path_factory, values) -> None:
    folder = tmp_path_factory.mktemp("config")
    write(folder / "openclaw.json", values)
    found = find_openclaw(environ={"OPENCLAW_STATE_DIR": str(folder), "A": "a"})
    assert found is not None
    if found.agents:
        assert found.default_agent in found.agents
    if found.token:
        assert resolve_token(found.token, environ={"OPENCLAW_STATE_DIR": str(folder), "A": "a"})
