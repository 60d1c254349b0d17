"""Commands that need no gateway: config, db, and up when it cannot start."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.conftest import COMMAND, served
from tests.ports import free_port

from openclaw_a2a.store.sqlite import migrate


def test_valid_settings_are_confirmed(command, tmp_path: Path) -> None:
    shown = command("config", "check")
    assert (shown.code, shown.err) == (0, "")
    (tmp_path / "openclaw-a2a.json5").write_text("{ outbound: { x: 1 } }", encoding="utf-8")
    shown = command("config", "check")
    assert shown.code == 0
    assert "openclaw-a2a.json5" in shown.out
    assert shown.err.startswith("warning outbound.x: ")


def test_an_issuer_that_does_not_answer_is_a_warning(command, tmp_path: Path) -> None:
    issuer = {"issuer": "http://127.0.0.1:1", "audience": ["gateway"], "name": "corp"}
    settings = {"channels": {"a2a": {"security": {"oidc": [issuer]}}}}
    (tmp_path / "openclaw-a2a.json5").write_text(json.dumps(settings), encoding="utf-8")
    shown = command("config", "check")
    assert shown.code == 0
    assert shown.err.startswith("warning channels.a2a.security.oidc: http://127.0.0.1:1/")


def test_every_settings_problem_is_reported(command, tmp_path: Path) -> None:
    file = tmp_path / "mine.json5"
    file.write_text("{ sever: {}, server: { port: 'x' } }", encoding="utf-8")
    for words in (["config", "check"], ["config", "show"], ["db", "upgrade"]):
        shown = command(*words, "--config", str(file))
        assert (shown.code, shown.out) == (2, "")
        first, *problems, last = shown.err.splitlines()
        assert first == "error settings-invalid: the settings have 2 problems"
        assert [problem.split(":")[0].strip() for problem in problems] == ["sever", "server.port"]
        assert all("(in mine.json5, line 1)" in problem for problem in problems)
        assert ("openclaw-a2a config check" in last) is (words != ["config", "check"])
    started = command("up", "--config", str(file))
    assert (started.code, started.out) == (2, "")
    line = json.loads(started.err)  # the log of a gateway is JSON lines, from the first one on
    assert (line["event"], line["level"]) == ("gateway.not_started", "error")
    assert (line["code"], line["reason"]) == (
        "settings-invalid",
        "the settings have 2 problems",
    )
    assert [problem["path"] for problem in line["problems"]] == ["sever", "server.port"]
    assert "openclaw-a2a config check" in line["hint"]
    checked = command("config", "check", "--json", "--config", str(file))
    assert checked.code == 2
    assert [problem["path"] for problem in checked.json["problems"]] == ["sever", "server.port"]
    assert checked.json["ok"] is False


def test_adapter_options_are_checked(command, tmp_path: Path) -> None:
    file = tmp_path / "mine.json5"
    text = "{ agents: { a: { adapter: 'nobody' }, b: { adapter: 'command' } } }"
    file.write_text(text.replace("} }", "}, main: { adapter: 'echo' } }"), encoding="utf-8")
    checked = command("config", "check", "--json", "--config", str(file)).json
    assert {problem["path"].split(".")[1] for problem in checked["problems"]} == {"a", "b"}


def test_all_problems_are_reported_together_with_file_and_line(command, tmp_path: Path) -> None:
    (tmp_path / "openclaw-a2a.json5").write_text(
        """{
          server: { prot: 1 },
          agents: {
            main: { adapter: "command", command: "rev" },
            other: { input: "stdin" },
          },
        }""",
        encoding="utf-8",
    )
    shown = command("config", "check")
    assert shown.code == 2
    first, *problems, last = shown.err.splitlines()
    assert first == "error settings-invalid: the settings have 3 problems"
    assert problems == [
        "  server.prot: is not a setting; did you mean port? (in openclaw-a2a.json5, line 2)",
        "  agents.other.adapter: must name who answers, such as echo or command"
        " (in openclaw-a2a.json5)",
        '  agents.main.command: must be a list of strings, for example ["rev"]'
        " (in openclaw-a2a.json5, line 4)",
    ]
    assert last == "Correct the settings and check again."


def test_config_show_prints_effective_settings_and_origins(command, monkeypatch) -> None:
    monkeypatch.setenv("OPENCLAW_A2A_SERVER__PORT", "9901")
    rows = command("config", "show", "--origin").out.splitlines()
    (port,) = [row.split(maxsplit=1) for row in rows if row.startswith("server.port")]
    assert port[1].split() == ["environment", "OPENCLAW_A2A_SERVER__PORT", "9901"]
    assert command("config", "show", "--json").json["server"]["port"] == 9901
    listed = command("config", "show", "--origin", "--json").json
    assert {"path", "value", "origin"} == set(listed[0])


def test_secrets_are_not_shown(command, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("SESAME", "open-sesame-open-sesame")
    peers = "{ channels: { a2a: { security: { peers: { a: { tokens: ['env:SESAME'] } } } } } }"
    (tmp_path / "openclaw-a2a.json5").write_text(peers, encoding="utf-8")
    for more in ([], ["--origin"], ["--json"], ["--origin", "--json"]):
        shown = command("config", "show", *more)
        assert "env:SESAME" in shown.out
        assert "open-sesame" not in shown.out


def test_config_schema_prints_a_json_schema(command) -> None:
    schema = command("config", "schema").json
    assert "server" in schema["properties"]


def test_db_upgrade_follows_its_plan(command, tmp_path: Path) -> None:
    data = tmp_path / "data"
    plan = command("db", "upgrade", "--plan", "--json", "--data", str(data)).json
    (store,) = plan["stores"]
    assert store["path"] == str(data / "state.db")
    assert store["steps"]
    assert not data.exists()
    assert "would take" in command("db", "upgrade", "--plan", "--data", str(data)).out
    done = command("db", "upgrade", "--json", "--data", str(data)).json
    assert done["stores"][0]["steps"] == store["steps"]
    assert "newest schema" in command("db", "upgrade", "--data", str(data)).out
    [upgraded] = command("audit", "--what", "db-upgraded", "--json", "--data", str(data)).lines
    assert (upgraded["who"], upgraded["outcome"]) == ("operator", "ok")
    assert upgraded["target"] == done["stores"][0]["path"]
    assert upgraded["count"] == len(done["stores"][0]["steps"])


def test_an_upgrade_at_the_start_of_a_gateway_is_in_the_audit_log(command, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    path, steps = data / "state.db", migrate.load_migrations()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate.upgrade(connection, steps[:4])
    audit = ("audit", "--what", "db-upgraded", "--json", "--data", str(data))
    for _ in range(2):  # the second start has nothing to upgrade
        port = free_port()
        arguments = ("--port", str(port), "--data", str(data))
        with served([*COMMAND, "up", *arguments], tmp_path, port):
            pass
        [upgraded] = command(*audit).lines
        assert (upgraded["who"], upgraded["outcome"]) == ("gateway", "ok")
        assert (upgraded["target"], upgraded["count"]) == (str(path), len(steps) - 4)


def test_a_new_store_is_not_an_upgraded_one(command, shared_gateway: str, shared_home) -> None:
    audit = ("audit", "--what", "db-upgraded", "--json", "--data", str(shared_home))
    assert command(*audit).lines == []


def test_store_without_a_schema_needs_no_upgrade(command, monkeypatch) -> None:
    monkeypatch.setenv("OPENCLAW_A2A_STORE__KIND", "memory")
    shown = command("db", "upgrade")
    assert (shown.code, shown.out) == (0, "")
    assert "memory" in shown.err
    assert command("db", "upgrade", "--json").json == {"plan": False, "stores": []}


def test_unauthenticated_public_bind_is_rejected_at_start(command) -> None:
    shown = command("up", "--host", "0.0.0.0")
    assert shown.code == 2
    assert "channels.a2a.security.peers" in shown.err


def test_port_in_use_is_reported(command, shared_gateway: str, tmp_path: Path) -> None:
    port = shared_gateway.rpartition(":")[2]
    shown = command("up", "--port", port, "--data", str(tmp_path))
    assert shown.code == 1
    assert port in json.loads(shown.err)["reason"]


@pytest.mark.slow
def test_locked_store_is_reported_with_an_alternative(start_gateway, command) -> None:
    gateway = start_gateway()
    data = gateway.home / ".openclaw-a2a"
    shown = command("up", "--port", "0", "--data", str(data))
    assert shown.code == 1
    line = json.loads(shown.err)
    assert line["code"] == "store-locked"
    assert line["reason"].startswith(f"process {gateway.pid} uses {data}/state.db")
    assert "OPENCLAW_A2A_DATA" in shown.err
    assert f"It is the gateway at {gateway.url}" in shown.err
    assert "stop it, or use another --data DIR." in shown.err


@pytest.mark.parametrize("as_json", [True, False])
def test_card_is_shown_as_text_and_as_json(command, shared_gateway: str, as_json: bool) -> None:
    if as_json:
        assert command("card", "--json", shared_gateway).json["name"] == "Echo"
    else:
        shown = command("card", f"{shared_gateway}/agents/slow").out
        assert shown.startswith("slow ")
        assert "JSONRPC" in shown
        assert "/agents/slow/a2a/jsonrpc" in shown


def test_invalid_targets_are_a_settings_problem(command, tmp_path) -> None:
    text = "{ outbound: { targets: [{ alias: 'a' }] } }"
    (tmp_path / "openclaw-a2a.json5").write_text(text, encoding="utf-8")
    shown = command("config", "check")
    assert (shown.code, shown.out) == (2, "")
    assert "targets[0].baseUrl must be" in shown.err


def test_unknown_adapter_is_reported_with_the_nearest_name(command, tmp_path: Path) -> None:
    agents = {"a": {"adapter": "openclaw-gatway"}, "b": {"adapter": "zzz"}}
    (tmp_path / "openclaw-a2a.json5").write_text(json.dumps({"agents": agents}), "utf-8")
    problems = command("config", "check", "--json").json["problems"]
    near, far = [one["message"] for one in problems if one["path"].endswith(".adapter")]
    assert "did you mean openclaw-gateway?" in near
    assert "echo" in far
