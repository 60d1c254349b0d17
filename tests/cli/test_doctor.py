"""`doctor` finds what is broken, says what to do, and changes nothing."""

import json
import os
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests import ports
from tests.auth.local_issuer import serve_issuer
from tests.cli.scripted_openclaw import ScriptedOpenClaw, scripted_openclaw


@pytest.fixture
def gateway() -> Iterator[ScriptedOpenClaw]:
    with scripted_openclaw() as running:
        yield running


@pytest.fixture
def free_port() -> int:
    return ports.free_port()


@pytest.fixture
def doctor(command, tmp_path: Path, monkeypatch, free_port: int):
    """Run `doctor` in an empty home without an `openclaw` on the path; its findings by check."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in [name for name in os.environ if name.startswith("OPENCLAW_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OPENCLAW_A2A_SERVER__PORT", str(free_port))

    def run(*arguments: str):
        finished = command("doctor", "--json", *arguments)
        findings = finished.json["findings"]
        assert finished.json["ok"] == (finished.code == 0)
        return finished.code, {one["check"]: one for one in findings}

    return run


@pytest.fixture
def openclaw(tmp_path: Path):
    """Write an OpenClaw config into the home."""

    def write(port: int, token: str = "the-right-token", **more: object) -> Path:
        path = tmp_path / ".openclaw" / "openclaw.json"
        path.parent.mkdir(exist_ok=True)
        gateway = {"port": port, "auth": {"mode": "token", "token": token}}
        entries = {"entries": {"main": {}, "helper": {}}}
        path.write_text(json.dumps({"gateway": gateway, "agents": entries, **more}), "utf-8")
        return path

    return write


def program(tmp_path: Path, answer: str) -> None:
    """Put a command `openclaw` on the path that tells this version."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    script = folder / "openclaw"
    script.write_text(f"#!/bin/sh\necho '{answer}'\n", "utf-8")
    script.chmod(0o755)


def write_settings(tmp_path: Path, **settings: object) -> None:
    """Write the settings file of the working folder."""
    settings.setdefault("server", {"port": ports.free_port()})
    (tmp_path / "openclaw-a2a.json5").write_text(json.dumps(settings), "utf-8")


def one_finding(command, check: str) -> dict[str, str]:
    """What `doctor` found in this check."""
    findings = command("doctor", "--json").json["findings"]
    [found] = [one for one in findings if one["check"] == check]
    return found


def verdicts(findings) -> dict[str, str]:
    return {check: one["verdict"] for check, one in findings.items()}


def test_machine_without_openclaw_has_a_note_and_nothing_broken(doctor, tmp_path) -> None:
    code, findings = doctor()
    assert code == 0
    in_order = dict.fromkeys(("python", "settings", "store", "disk", "port"), "ok")
    assert verdicts(findings) == {**in_order, "config": "note"}
    assert "connect openclaw" in findings["config"]["fix"]
    assert not (tmp_path / ".openclaw-a2a").exists()


def test_reachable_gateway_passes_all_checks(doctor, openclaw, gateway, tmp_path) -> None:
    openclaw(gateway.port)
    program(tmp_path, "OpenClaw 2026.9.6 (abc)")
    code, findings = doctor()
    assert code == 0
    assert set(verdicts(findings).values()) == {"ok"}
    assert findings["program"]["detail"].startswith("2026.9.6")
    assert findings["version"]["detail"] == "2026.9.6"
    assert findings["agent helper"]["detail"] == "known to the gateway"
    assert "agent" not in gateway.methods


def test_doctor_runs_agent_turns_only_with_the_ask_flag(doctor, openclaw, gateway) -> None:
    openclaw(gateway.port)
    code, findings = doctor("--ask")
    assert code == 0
    assert findings["agent main"]["detail"] == "answered a turn"
    assert gateway.methods.count("agent") == 2
    gateway.turn = "timeout"
    code, findings = doctor("--ask")
    assert code == 1
    assert findings["agent main"]["verdict"] == "broken"


def test_unreachable_gateway_is_broken_and_dependent_checks_are_skipped(
    doctor, openclaw, free_port: int
) -> None:
    openclaw(free_port)
    code, findings = doctor()
    assert code == 1
    assert findings["gateway"]["verdict"] == "broken"
    assert "openclaw gateway run" in findings["gateway"]["fix"]
    assert findings["token"]["verdict"] == "skipped"
    assert findings["agent main"]["verdict"] == "skipped"


def test_an_openclaw_that_is_starting_is_waited_for(doctor, openclaw, gateway) -> None:
    openclaw(gateway.port)
    gateway.starting = 3
    code, findings = doctor()
    assert code == 0
    assert findings["gateway"]["verdict"] == findings["token"]["verdict"] == "ok"
    assert gateway.methods.count("connect") == 4


def test_wrong_token_is_distinguished_from_an_unreachable_gateway(
    doctor, openclaw, gateway
) -> None:
    openclaw(gateway.port, token="another-token")
    code, findings = doctor()
    assert code == 1
    assert findings["gateway"]["verdict"] == "ok"
    assert findings["token"]["verdict"] == "broken"
    assert findings["token"]["fix"]
    assert "another-token" not in str(findings)


def test_missing_token_is_reported_with_the_command_that_creates_one(
    doctor, openclaw, gateway
) -> None:
    openclaw(gateway.port, token="")
    code, findings = doctor()
    assert code == 1
    assert findings["token"]["verdict"] == "broken"
    assert "generate-gateway-token" in findings["config"]["fix"]


@pytest.mark.parametrize("version", ["2025.1.1", "2026.3.2"])
def test_outdated_program_and_gateway_are_broken(
    doctor, openclaw, gateway, tmp_path, version: str
) -> None:
    openclaw(gateway.port)
    program(tmp_path, version)
    gateway.version = version
    code, findings = doctor()
    assert code == 1
    assert findings["program"]["verdict"] == findings["version"]["verdict"] == "broken"
    assert "openclaw update" in findings["version"]["fix"]


def test_unreadable_openclaw_config_is_reported_once_as_broken(doctor, openclaw) -> None:
    path = openclaw(1)
    path.write_text("{ gateway: ", "utf-8")
    code, findings = doctor()
    assert (code, findings["config"]["verdict"]) == (1, "broken")
    assert findings["config"]["detail"].count(str(path)) == 1
    assert "openclaw doctor --fix" in findings["config"]["fix"]


def by_its_command(tmp_path: Path, **options: str) -> str:
    """A settings file with an agent that runs the command, and one that does not."""
    agents = {"clerk": {"adapter": "openclaw", **options}, "other": {"adapter": "echo"}}
    path = tmp_path / "by-command.json5"
    channels = {"a2a": {"accounts": {"default": {"defaultAgentId": "clerk"}}}}
    path.write_text(json.dumps({"agents": agents, "channels": channels}), "utf-8")
    return str(path)


def test_missing_agent_program_is_broken(doctor, tmp_path: Path) -> None:
    code, findings = doctor("--config", by_its_command(tmp_path, openclawPath="/nowhere/openclaw"))
    assert (code, findings["agent clerk"]["verdict"]) == (1, "broken")
    assert "/nowhere/openclaw" in findings["agent clerk"]["detail"]
    assert "openclawPath" in findings["agent clerk"]["fix"]
    assert "agent other" not in findings
    assert "echoes" not in findings["config"]["detail"]


def test_agent_program_may_be_older_than_the_minimum_for_gateways(doctor, tmp_path: Path) -> None:
    program(tmp_path, "2026.3.2")
    code, findings = doctor("--config", by_its_command(tmp_path))
    assert code == 0
    assert findings["agent clerk"]["verdict"] == "ok"
    assert findings["agent clerk"]["detail"].startswith("2026.3.2")


def test_ask_flag_runs_a_turn_of_a_program_agent(doctor, tmp_path: Path) -> None:
    settings = by_its_command(tmp_path)
    program(tmp_path, '{"payloads": [{"text": "ready"}]}')
    code, findings = doctor("--ask", "--config", settings)
    assert (code, findings["agent clerk"]["detail"]) == (0, "answered a turn")
    program(tmp_path, '{"ok": false, "error": {"message": "no key for the model"}}')
    code, findings = doctor("--ask", "--config", settings)
    assert (code, findings["agent clerk"]["verdict"]) == (1, "broken")
    assert "no key for the model" in findings["agent clerk"]["detail"]


def test_gateway_with_another_protocol_version_is_broken(doctor, openclaw, gateway) -> None:
    openclaw(gateway.port)
    gateway.protocol = 3
    code, findings = doctor()
    assert code == 1
    assert "update OpenClaw" in findings["token"]["fix"]


def test_agent_unknown_to_the_gateway_is_broken(doctor, openclaw, gateway) -> None:
    openclaw(gateway.port)
    gateway.agents = ["main"]
    code, findings = doctor()
    assert code == 1
    assert findings["agent main"]["verdict"] == "ok"
    assert findings["agent helper"]["verdict"] == "broken"


def test_agents_in_the_settings_file_are_checked(doctor, gateway, tmp_path: Path) -> None:
    """Also where the address is that of HTTP, and where the only agent is meant."""
    agent = {"adapter": "openclaw-gateway", "url": f"http://127.0.0.1:{gateway.port}"}
    agent["token"] = "file:token"
    (tmp_path / "token").write_text("the-right-token\n", "utf-8")
    file = tmp_path / "openclaw-a2a.json5"
    file.write_text(json.dumps({"agents": {"main": agent}}), "utf-8")
    gateway.agents = ["somebody"]
    code, findings = doctor()
    assert (code, findings["agent"]["verdict"]) == (0, "ok")
    gateway.agents = ["one", "two"]
    code, findings = doctor()
    assert (code, findings["agent"]["verdict"]) == (1, "broken")
    assert "one, two" in findings["agent"]["detail"]


def test_program_without_a_version_is_accepted(doctor, openclaw, gateway, tmp_path) -> None:
    openclaw(gateway.port)
    program(tmp_path, "hello")
    code, findings = doctor()
    assert code == 0
    assert "version unknown" in findings["program"]["detail"]


def test_other_server_on_the_gateway_port_is_broken(doctor, openclaw) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.listen()
        listener.settimeout(240)
        openclaw(listener.getsockname()[1])

        def hang_up() -> None:
            connection, _ = listener.accept()
            connection.close()

        other = threading.Thread(target=hang_up)
        other.start()
        code, findings = doctor()
        other.join(240)
    assert code == 1
    assert findings["gateway"]["verdict"] == "broken"


def test_every_settings_problem_is_reported(command, doctor, tmp_path: Path) -> None:
    file = tmp_path / "given.json5"
    file.write_text('{server: {prt: 1}, agents: {main: {adapter: "nobody"}}}', "utf-8")
    finished = command("doctor", "--json", "--config", str(file))
    assert finished.code == 1
    findings = [one for one in finished.json["findings"] if one["check"] == "settings"]
    assert [one["verdict"] for one in findings] == ["broken", "broken"]
    assert "server.prt" in findings[0]["detail"]
    assert all("config check" in one["fix"] for one in findings)


def test_port_in_use_is_broken_unless_our_gateway_uses_it(
    command, doctor, monkeypatch, shared_gateway: str, shared_home: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("OPENCLAW_A2A_SERVER__PORT", str(listener.getsockname()[1]))
        code, findings = doctor()
        assert code == 1
        assert "server.port" in findings["port"]["fix"]
    monkeypatch.setenv("OPENCLAW_A2A_SERVER__PORT", shared_gateway.rpartition(":")[2])
    code, findings = doctor("--data", str(shared_home))
    assert code == 0
    assert f"our gateway runs at {shared_gateway} (process " in findings["port"]["detail"]
    code, findings = doctor()
    assert (code, findings["port"]["verdict"]) == (1, "broken")
    assert "a gateway with another data folder runs at" in findings["port"]["detail"]


def test_the_store_of_our_gateway_that_runs_names_the_process_and_its_address(
    doctor, monkeypatch, shared_gateway: str, shared_home: Path
) -> None:
    pid = json.loads(next(shared_home.glob("gateway-*.json")).read_text("utf-8"))["pid"]
    monkeypatch.setenv("OPENCLAW_A2A_SERVER__PORT", shared_gateway.rpartition(":")[2])
    _, findings = doctor("--data", str(shared_home))
    assert findings["store"]["verdict"] == "ok"
    assert f"our gateway (process {pid}, {shared_gateway})" in findings["store"]["detail"]


@pytest.mark.parametrize("is_same_folder", [True, False])
def test_a_store_that_another_gateway_has_locked_is_broken_and_says_whose_it_is(
    doctor, monkeypatch, shared_gateway: str, shared_home: Path, is_same_folder: bool
) -> None:
    pid = json.loads(next(shared_home.glob("gateway-*.json")).read_text("utf-8"))["pid"]
    if is_same_folder:
        code, findings = doctor("--data", str(shared_home))
    else:
        monkeypatch.setenv("OPENCLAW_A2A_STORE__PATH", str(shared_home / "state.db"))
        code, findings = doctor()
    assert (code, findings["store"]["verdict"]) == (1, "broken")
    holder = f"is locked by process {pid}, the gateway at {shared_gateway}"
    assert findings["store"]["detail"].endswith(holder)
    assert "--data" in findings["store"]["fix"]


def test_up_says_which_gateway_has_the_store(
    command, shared_gateway: str, shared_home: Path, free_port: int
) -> None:
    started = command("up", "--data", str(shared_home), "--port", str(free_port))
    assert started.code == 1
    assert f"It is the gateway at {shared_gateway}: stop it" in started.err


@pytest.mark.parametrize("name", ["OPENCLAW_A2A_SERVER__PORT", "OPENCLAW_A2A_URL"])
def test_doctor_knows_the_gateway_that_runs_elsewhere_than_by_default(
    doctor, monkeypatch, shared_gateway: str, shared_home: Path, name: str
) -> None:
    if name == "OPENCLAW_A2A_URL":
        monkeypatch.setenv(name, shared_gateway)
    else:  # started with `up --port`, and no settings name a port
        monkeypatch.delenv(name)
    code, findings = doctor("--data", str(shared_home))
    assert code == 0
    assert shared_gateway in findings["port"]["detail"]
    assert findings["store"]["verdict"] == "ok"


def test_a_store_of_a_newer_version_is_broken_with_the_advice_of_up(
    doctor, command, tmp_path: Path
) -> None:
    command("db", "upgrade")
    with closing(sqlite3.connect(tmp_path / ".openclaw-a2a" / "state.db")) as database:
        database.execute("INSERT INTO schema_version (version, made_by) VALUES (999, '9.9.9')")
        database.commit()
    code, findings = doctor()
    assert (code, findings["store"]["verdict"]) == (1, "broken")
    assert "made by openclaw-a2a 9.9.9" in findings["store"]["detail"]
    assert findings["store"]["fix"] == "Upgrade openclaw-a2a, or use another store path"
    assert findings["store"]["fix"] in command("up").err


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"command": ["no-such-program"]}, "command"),
        ({"command": ["./no-such-script"]}, "command"),
        ({"command": ["./not-executable"]}, "command"),
        ({"command": ["./script"], "cwd": "no-such-folder"}, "cwd"),
    ],
)
def test_the_missing_program_of_a_command_agent_is_broken(
    command, tmp_path: Path, options: dict[str, object], place: str
) -> None:
    (tmp_path / "not-executable").write_text("", "utf-8")
    write_settings(tmp_path, agents={"main": {"adapter": "command", **options}})
    finding = one_finding(command, "agent main")
    assert finding["verdict"] == "broken"
    assert f"agents.main.{place}" in finding["fix"]


def test_the_program_of_a_command_agent_is_found_in_its_own_folder_and_path(
    command, tmp_path: Path
) -> None:
    script = tmp_path / "tools" / "script"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n", "utf-8")
    script.chmod(0o755)
    folder = str(script.parent)
    for options in (
        {"command": ["./script"], "cwd": folder},
        {"command": ["script"], "env": {"PATH": folder}},
    ):
        write_settings(tmp_path, agents={"main": {"adapter": "command", **options}})
        assert one_finding(command, "agent main")["verdict"] == "ok"


def test_a_token_file_that_others_can_read_is_told_by_doctor_and_config_check(
    command, tmp_path: Path
) -> None:
    token = tmp_path / "alice.token"
    token.write_text("a-token-that-is-long-enough\n", "utf-8")
    token.chmod(0o644)
    peers = {"alice": {"tokens": [f"file:{token}"]}}
    write_settings(tmp_path, channels={"a2a": {"security": {"peers": peers}}})
    finding = one_finding(command, "settings")
    assert finding["verdict"] == "note"
    assert f"chmod 600 {token}" in finding["detail"]
    assert "others can read" in command("config", "check").err
    token.chmod(0o600)
    assert one_finding(command, "settings")["verdict"] == "ok"


def test_targets_that_do_not_answer_or_do_not_let_us_in_are_told(
    command, tmp_path: Path, shared_gateway: str, free_port: int
) -> None:
    targets = [
        {"alias": "there", "baseUrl": shared_gateway},
        {"alias": "away", "baseUrl": f"http://127.0.0.1:{free_port}"},
    ]
    write_settings(tmp_path, outbound={"enabled": True, "targets": targets})
    assert one_finding(command, "target there")["verdict"] == "ok"
    away = one_finding(command, "target away")
    assert away["verdict"] == "note"
    assert "targets check away" in away["fix"]


def test_targets_that_up_refuses_are_broken(command, tmp_path: Path) -> None:
    write_settings(tmp_path, outbound={"enabled": True, "targets": [{"alias": "there"}]})
    assert command("config", "check").code == 2
    finding = one_finding(command, "settings")
    assert finding["verdict"] == "broken"
    assert finding["detail"].startswith("outbound: ")
    assert "targets[0].baseUrl" in finding["detail"]


def test_a_public_address_that_does_not_lead_to_the_gateway_is_told(
    doctor, monkeypatch, shared_gateway: str, shared_home: Path, free_port: int
) -> None:
    monkeypatch.setenv("OPENCLAW_A2A_SERVER__PORT", shared_gateway.rpartition(":")[2])
    for address, verdict in (
        (f"http://127.0.0.1:{free_port}", "note"),
        ("http://no-such-name.invalid", "note"),
        (shared_gateway.replace("127.0.0.1", "localhost"), "ok"),
    ):
        monkeypatch.setenv("OPENCLAW_A2A_SERVER__PUBLICBASEURL", address)
        _, findings = doctor("--data", str(shared_home))
        assert findings["public address"]["verdict"] == verdict
        assert (
            address.removeprefix("http://").partition(":")[0]
            in (findings["public address"]["detail"])
        )


def test_doctor_opens_the_store_without_changing_it(doctor, command, tmp_path: Path) -> None:
    folder = tmp_path / ".openclaw-a2a"
    command("db", "upgrade")
    code, findings = doctor()
    assert (code, findings["store"]["verdict"]) == (0, "ok")
    (folder / "state.db").write_bytes(b"no database at all, but long enough to be read as one" * 99)
    code, findings = doctor()
    assert code == 1
    assert findings["store"]["fix"]


def test_doctor_output_is_aligned_and_uncoloured_without_a_terminal(
    command, doctor, openclaw, free_port: int
) -> None:
    openclaw(free_port)
    finished = command("doctor")
    assert finished.code == 1
    assert "\x1b" not in finished.out
    lines = finished.out.splitlines()
    assert lines[0] == "gateway"
    details = {len(line) - len(line.lstrip()) for line in lines if line.startswith("      ")}
    assert len(details) == 1
    assert lines[-1] == "1 problem, 1 note."


def test_a_public_bind_without_a_public_address_is_told_by_doctor_and_config_check(
    command, tmp_path: Path
) -> None:
    peers = {"alice": {"tokens": ["sha256:" + "0" * 64]}}
    server = {"host": "0.0.0.0", "port": ports.free_port()}
    channels = {"a2a": {"security": {"peers": peers}}}
    write_settings(tmp_path, server=server, channels=channels)
    finding = one_finding(command, "settings")
    assert finding["verdict"] == "note"
    assert finding["detail"].startswith("server.publicBaseUrl: is not set")
    assert "warning server.publicBaseUrl: is not set" in command("config", "check").err
    address = {"publicBaseUrl": "http://127.0.0.1:1"}
    for settings in (
        {"server": {**server, **address}, "channels": channels},
        {"server": {**server, "host": "192.0.2.1"}, "channels": channels},
        {"server": server, "channels": {"a2a": {**channels["a2a"], "accounts": {"a": address}}}},
    ):
        write_settings(tmp_path, **settings)
        assert "publicBaseUrl" not in command("config", "check").err


def test_doctor_reports_an_issuer_that_does_not_answer(doctor, tmp_path: Path) -> None:
    def configure(url: str) -> None:
        issuer = {"issuer": url, "audience": ["gateway"], "name": "corp"}
        settings = {"channels": {"a2a": {"security": {"oidc": [issuer]}}}}
        (tmp_path / "openclaw-a2a.json5").write_text(json.dumps(settings), "utf-8")

    with serve_issuer() as issuer:
        configure(issuer.url)
        _, found = doctor()
        assert found["issuer corp"]["verdict"] == "ok"
        issuer.status = 500
        code, found = doctor()
        assert (code, found["issuer corp"]["verdict"]) == (1, "broken")
        assert "HTTP status 500" in found["issuer corp"]["detail"]
    _, found = doctor()
    assert found["issuer corp"]["verdict"] == "broken"
