"""`audit`: what a real gateway and the commands write into one log, shown, filtered and checked."""

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import COMMAND, Finished, served
from tests.ports import free_port

TOKENS = {"alice": "alice-secret-token-1", "bob": "bob-secret-token-2"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audited")


@pytest.fixture(scope="module")
def gateway(home: Path) -> Iterator[str]:
    peers = {}
    for name, token in TOKENS.items():
        (home / name).write_text(token, "utf-8")
        (home / name).chmod(0o600)
        peers[name] = {"tokens": [f"file:{home / name}"]}
    account = {"agentStyle": "task-generating"}
    settings = {
        "server": {"stopSeconds": 0},
        "agents": {"main": {"adapter": "echo"}},
        "push": {"allowPrivate": True},
        "opt": {"enabled": True, "requireActivation": False},
        "channels": {"a2a": {"accounts": {"default": account}, "security": {"peers": peers}}},
    }
    config = home / "gateway.json5"
    config.write_text(json.dumps(settings), "utf-8")
    port = free_port()
    arguments = ("--config", str(config), "--port", str(port), "--data", str(home))
    with served([*COMMAND, "up", *arguments], home, port) as address:
        yield address


def rpc(
    address: str,
    method: str,
    params: object,
    peer: str = "alice",
    *,
    headers: dict[str, str] | None = None,
) -> dict[str, object]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {
        **(headers or {}),
        "Content-Type": "application/json",
        "A2A-Version": "1.0",
        "Authorization": f"Bearer {TOKENS.get(peer, peer)}",
    }
    request = urllib.request.Request(
        f"{address}/a2a/jsonrpc", json.dumps(body).encode(), headers, method="POST"
    )
    with urllib.request.urlopen(request, timeout=240) as response:
        return json.load(response)


def message(text: str) -> dict[str, object]:
    return {"message": {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}}


def test_everything_that_changes_something_is_in_the_log_and_the_chain_holds(
    command: Callable[..., Finished], gateway: str, home: Path
) -> None:
    data = ("--data", str(home), "--config", str(home / "gateway.json5"))
    sent = rpc(gateway, "SendMessage", message("s3cret-content"))
    task = sent["result"]["task"]["id"]  # type: ignore[index] - JSON
    rpc(gateway, "CancelTask", {"id": task})
    webhook = {"url": "http://127.0.0.1:9/?key=s3cret-hook", "token": "s3cret-hook-token"}
    push = {"taskId": task, "id": "hook", **webhook}
    rpc(gateway, "CreateTaskPushNotificationConfig", push)
    rpc(gateway, "DeleteTaskPushNotificationConfig", {"taskId": task, "id": "hook"})
    rpc(gateway, "objectives/create", {"name": "s3cret-goal"}, "bob")
    for _ in range(3):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            rpc(gateway, "GetTask", {"id": task}, "s3cret-wrong-token")
    made = command("token", "create", "--tool", "tess", *data)
    assert command("token", "revoke", "tess", *data).code == 0
    # The operator, over the admin endpoint: it has ended, so the cancellation is refused.
    operator = {"Authorization": f"Bearer {(home / 'operator.token').read_text('utf-8').strip()}"}
    cancel = f"{gateway}/operator/tasks/{task}/cancel"
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(urllib.request.Request(cancel, headers=operator, method="POST"))

    def shown(*filters: str) -> list[dict[str, object]]:
        listed = command("audit", *filters, "--json", *data)
        assert listed.code == 0, listed.err
        return listed.lines

    wanted = {
        ("task-submitted", "alice", "ok"),
        ("task-canceled", "alice", "refused"),
        ("push-set", "alice", "ok"),
        ("push-deleted", "alice", "ok"),
        ("objective-changed", "bob", "ok"),
        ("token-created", "operator", "ok"),
        ("token-revoked", "operator", "ok"),
        ("task-canceled", "operator", "refused"),
    }
    lines, deadline = shown(), time.monotonic() + 240
    while time.monotonic() < deadline and not wanted <= {
        (one["event"], one["who"], one["outcome"]) for one in lines
    }:  # type: ignore[comparison-overlap] - JSON
        lines = shown()  # written within moments, by another process
    assert wanted <= {(one["event"], one["who"], one["outcome"]) for one in lines}  # type: ignore[comparison-overlap] - JSON
    [first] = shown("--what", "task-submitted")
    assert (first["task"], first["from"], first["account"]) == (task, "127.0.0.1", "default")
    assert {one["who"] for one in shown("--who", "bob")} == {"bob"}
    assert {one["task"] for one in shown("--task", str(task)[:8])} == {task}
    assert shown("--since", "1h") == lines
    assert shown("--until", "1h") == []
    assert shown("-n", "2") == lines[-2:]
    texts = "".join(path.read_text("utf-8") for path in home.glob("audit*"))
    for secret in ("s3cret", made.out.strip(), *TOKENS.values()):
        assert secret not in texts
    table = command("audit", *data)
    assert "task-submitted" in table.out
    checked = command("audit", "verify", *data)
    assert (checked.code, checked.err) == (0, "")
    assert "all as they were written" in checked.out


def test_failed_authentication_is_summed_up_when_the_gateway_stops(
    command: Callable[..., Finished], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("right", "utf-8")
    token.chmod(0o600)
    security = {"peers": {"alice": {"tokens": [f"file:{token}"]}}}
    settings = {
        "agents": {"main": {"adapter": "echo"}},
        "channels": {"a2a": {"security": security}},
    }
    config = tmp_path / "gateway.json5"
    config.write_text(json.dumps(settings), "utf-8")
    port = free_port()
    data = ("--data", str(tmp_path), "--config", str(config))
    with served([*COMMAND, "up", *data, "--port", str(port)], tmp_path, port) as address:
        for _ in range(4):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                rpc(address, "GetTask", {"id": "x"}, "wrong")
    [line] = command("audit", "--what", "authentication-failed", "--json", *data).lines
    assert (line["count"], line["from"], line["outcome"]) == (4, "127.0.0.1", "refused")


def test_a_line_that_was_edited_is_named(command: Callable[..., Finished], tmp_path: Path) -> None:
    data = ("--data", str(tmp_path))
    for name in ("ann", "ben", "cem"):
        command("token", "create", "--tool", name, *data)
    path = tmp_path / "audit.jsonl"
    path.write_bytes(path.read_bytes().replace(b"ben", b"bob"))
    found = command("audit", "verify", *data)
    assert found.code == 1
    assert found.out.startswith("audit.jsonl:2  line 2 of the log was changed\n")
    report = command("audit", "verify", "--json", *data).json
    assert report["problems"] == [
        {"file": "audit.jsonl", "line": 2, "problem": "line 2 of the log was changed"}
    ]


def settings_of_alice(home: Path, **others: object) -> Path:
    (home / "token").write_text(TOKENS["alice"], "utf-8")
    (home / "token").chmod(0o600)
    security = {"peers": {"alice": {"tokens": [f"file:{home / 'token'}"]}}}
    account = {"agentStyle": "task-generating"}
    settings = {
        "server": {"stopSeconds": 0},
        "agents": {"main": {"adapter": "echo"}},
        "channels": {"a2a": {"accounts": {"default": account}, "security": security}},
        **others,
    }
    (home / "gateway.json5").write_text(json.dumps(settings), "utf-8")
    return home / "gateway.json5"


def test_a_log_that_was_removed_under_a_gateway_is_missed_for_good(
    command: Callable[..., Finished], tmp_path: Path
) -> None:
    config, port = settings_of_alice(tmp_path), free_port()
    data = ("--data", str(tmp_path), "--config", str(config))
    with served([*COMMAND, "up", *data, "--port", str(port)], tmp_path, port) as address:
        assert command("audit", "verify", *data).code == 0
        for text in ("one", "two"):
            rpc(address, "SendMessage", message(text))
        deadline = time.monotonic() + 240
        while len(command("audit", "--json", *data).lines) < 2:
            assert time.monotonic() < deadline
        for path in tmp_path.glob("audit.jsonl*"):
            path.unlink()
        found = command("audit", "verify", *data)
        assert (found.code, "lines 1 to 2 of the log are missing" in found.out) == (1, True)
        rpc(address, "SendMessage", message("three"))
        while not command("audit", "--what", "task", "--json", *data).lines:
            assert time.monotonic() < deadline
        found = command("audit", "verify", *data)
        assert (found.code, "lines 1 to 2 of the log are missing" in found.out) == (1, True)
    lines = command("audit", "--json", *data).lines
    assert (lines[0]["n"], lines[0]["event"]) == (3, "audit-lost")
    # All that knows of it: then at least that there is none.
    for path in [*tmp_path.glob("audit.jsonl*"), tmp_path / ".audit-anchor"]:
        path.unlink()
    found = command("audit", "verify", *data)
    assert (found.code, "audit.jsonl:0  is missing" in found.out) == (1, True)


def test_what_a_peer_made_up_cannot_pose_as_a_line_of_the_log(
    command: Callable[..., Finished], tmp_path: Path
) -> None:
    forged = "2026-01-01T00:00:00  operator  peer-paired  mallory  ok"
    skill = f"x\x1b[2K\r\n{forged}\n\x9b\u202e"
    config, port = settings_of_alice(tmp_path), free_port()
    settings = json.loads(config.read_text("utf-8"))
    settings["channels"]["a2a"]["accounts"]["default"]["allowedSkills"] = ["translate"]
    config.write_text(json.dumps(settings), "utf-8")
    data = ("--data", str(tmp_path), "--config", str(config))
    with served([*COMMAND, "up", *data, "--port", str(port)], tmp_path, port) as address:
        with (tmp_path / "followed").open("wb") as file:
            following = subprocess.Popen([*COMMAND, "audit", "--follow", *data], stdout=file)
        try:
            sent = message("one")
            sent["message"]["metadata"] = {"skillId": skill}  # type: ignore[index] - JSON
            # Until it follows: which is not to be seen from outside.
            shown, deadline = "", time.monotonic() + 240
            while shown.count("policy-decided") < 2 and time.monotonic() < deadline:
                sent["message"]["messageId"] = str(time.monotonic())  # type: ignore[index] - JSON
                with pytest.raises(urllib.error.HTTPError, match=r"403|429"):
                    rpc(address, "SendMessage", sent)
                time.sleep(0.2)  # another process reads; more would be too many requests
                shown = (tmp_path / "followed").read_text("utf-8")
        finally:
            following.terminate()
            following.wait(240)
    lines = shown.splitlines()
    assert any("policy-decided" in one for one in lines)
    table = command("audit", *data).out
    for line in [*lines, *table.splitlines()]:
        assert not line.strip().startswith("2026-01-01")
        assert not set(line) & set("\x1b\x9b\r\u202e")
    stored = command("audit", "--what", "policy", "--json", *data).lines
    assert all(one["reason"].isprintable() for one in stored)


def test_behind_a_trusted_proxy_the_client_is_logged_and_every_wrong_token_counted(
    command: Callable[..., Finished], tmp_path: Path
) -> None:
    server = {"stopSeconds": 0, "trustedProxies": ["127.0.0.1"]}
    opt = {"enabled": True, "requireActivation": False}
    config = settings_of_alice(tmp_path, server=server, opt=opt, limits={"perAddressFailures": 2})
    port, forwarded = free_port(), {"X-Forwarded-For": "192.0.2.66, 203.0.113.7"}
    data = ("--data", str(tmp_path), "--config", str(config))
    with served([*COMMAND, "up", *data, "--port", str(port)], tmp_path, port) as address:
        task = rpc(address, "SendMessage", message("one"), headers=forwarded)
        rpc(address, "CancelTask", {"id": task["result"]["task"]["id"]}, headers=forwarded)  # type: ignore[index] - JSON
        rpc(address, "objectives/create", {"name": "goal"}, headers=forwarded)
        for status in ("401", "401", "429", "429"):
            with pytest.raises(urllib.error.HTTPError, match=status):
                rpc(address, "GetTask", {"id": "x"}, "wrong", headers=forwarded)
        rpc(address, "SendMessage", message("two"))
    lines = command("audit", "--json", *data).lines
    assert [(one["event"], one["from"], one.get("count")) for one in lines] == [
        ("task-submitted", "203.0.113.7", None),
        ("task-canceled", "203.0.113.7", None),
        ("objective-changed", "203.0.113.7", None),
        ("task-submitted", "127.0.0.1", None),
        ("authentication-failed", "203.0.113.7", 4),
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--since", "yesterday"), "--since must be"),
        (("--until", "2026-13-01"), "--until must be"),
        (("--limit", "-1"), "--limit must be"),
    ],
)
def test_a_wrong_filter_is_refused(
    command: Callable[..., Finished], arguments: tuple[str, ...], says: str
) -> None:
    refused = command("audit", *arguments)
    assert refused.code == 2
    assert says in refused.err


def test_targets_are_in_the_log(command: Callable[..., Finished], tmp_path: Path) -> None:
    assert command("targets", "add", "far", "https://agent.example").code == 0
    assert command("targets", "remove", "far", "--yes").code == 0
    lines = command("audit", "--json").lines
    assert [(one["event"], one["target"]) for one in lines] == [
        ("target-added", "far"),
        ("target-removed", "far"),
    ]
    assert (tmp_path / ".openclaw-a2a" / "audit.jsonl").stat().st_mode & 0o077 == 0
