"""The policy at submit and pairing: what a peer cannot get past, against real gateway processes."""

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import COMMAND, wait_until_ready
from tests.ports import free_port

Json = Any
DEADLINE_S = 240.0
EXTENSION = "https://github.com/zeroasterisk/a2a-opt/v1"


class RunningGateway:
    """A gateway process over a folder, whose operator and peers are the test."""

    def __init__(self, home: Path, process: "subprocess.Popen[bytes]", address: str) -> None:
        self.home = home
        self.process = process
        self.address = address

    def rpc(
        self, peer: str, method: str, params: Json, headers: dict[str, str] | None = None
    ) -> Json:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        own = {"A2A-Version": "1.0", "Authorization": f"Bearer token-of-{peer}"}
        return self._call("/a2a/jsonrpc", body, {**own, **(headers or {})})

    def stream_v03(self, peer: str, params: Json) -> str:
        """The whole answer to a message with a stream, in 0.3."""
        body = {"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": params}
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer token-of-{peer}",
        }
        request = urllib.request.Request(
            f"{self.address}/a2a/jsonrpc", json.dumps(body).encode(), headers
        )
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
            return response.read().decode()

    def send(
        self,
        peer: str,
        text: str,
        *,
        wait: bool = True,
        headers: dict[str, str] | None = None,
        **about: Json,
    ) -> Json:
        message = {
            "messageId": f"m-{text[:40]}",
            "role": "ROLE_USER",
            "parts": [{"text": text}],
            **about,
        }
        configuration = {} if wait else {"returnImmediately": True}
        params = {"message": message, "configuration": configuration}
        return self.rpc(peer, "SendMessage", params, headers)

    def state(self, peer: str, task_id: str) -> str:
        answer = self.rpc(peer, "GetTask", {"id": task_id})
        return answer["result"]["status"]["state"]

    def wait_state(self, peer: str, task_id: str, state: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while (found := self.state(peer, task_id)) != state:
            assert time.monotonic() < deadline, f"{found} instead of {state}"
            time.sleep(0.02)  # another process works; nothing here can be awaited

    def rest(self, peer: str, method: str, path: str) -> Json:
        headers = {"A2A-Version": "1.0", "Authorization": f"Bearer token-of-{peer}"}
        return self._call(f"/a2a/rest/{path}", None, headers, method)

    def operator(self, method: str, path: str, body: Json = None) -> Json:
        token = (self.home / "operator.token").read_text("utf-8").strip()
        headers = {"Authorization": f"Bearer {token}"}
        return self._call(f"/operator/{path}", body, headers, method)

    def command(self, *words: str) -> str:
        arguments = [*COMMAND, *words, "--data", str(self.home)]
        config = ["--config", str(self.home / "gateway.json5")]
        done = subprocess.run(
            [*arguments, *config],
            env={**os.environ, "HOME": str(self.home)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def audit(self, event: str, count: int = 1) -> list[Json]:
        """The entries of an event; there have to be so many."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            path = self.home / "audit.jsonl"
            text = path.read_text("utf-8") if path.exists() else ""
            lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
            found = [one for one in lines if one["event"] == event]
            if len(found) >= count:
                return found
            time.sleep(0.02)  # written by another process
        pytest.fail(f"there is no entry {event}")

    def agent_saw(self) -> list[str]:
        path = self.home / "seen"
        return path.read_text("utf-8").splitlines() if path.exists() else []

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def _call(self, path: str, body: Json, headers: dict[str, str], method: str = "POST") -> Json:
        data = None if body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json", **headers}
        request = urllib.request.Request(self.address + path, data, given, method=method)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            return {"status": error.code, **json.load(error)}


@contextmanager
def gateway(
    home: Path, security: Json, account: Json = None, more: Json = None
) -> Iterator[RunningGateway]:
    """Start a gateway over a folder; again for the same folder after a kill."""
    for peer in ("alice", "bob", "eve"):
        (home / peer).write_text(f"token-of-{peer}", "utf-8")
        (home / peer).chmod(0o600)
    peers = {one: {"tokens": [f"file:{home / one}"]} for one in ("alice", "bob", "eve")}
    # The agent writes what it is given: what it never saw was held back for sure.
    script = f"t=$(cat); printf '%s\\n' \"$t\" >> {home / 'seen'}; echo done"
    settings = {
        "server": {"stopSeconds": 0},
        "agents": {"main": {"adapter": "command", "command": ["sh", "-c", script]}},
        "channels": {
            "a2a": {
                "accounts": {"default": {"agentStyle": "task-generating", **(account or {})}},
                "security": {"peers": peers, **security},
            }
        },
    }
    settings["agents"]["main"]["input"] = "stdin"
    settings |= more or {}
    config = home / "gateway.json5"
    config.write_text(json.dumps(settings), "utf-8")
    port = free_port()
    arguments = ("--config", str(config), "--port", str(port), "--data", str(home))
    with (home / "log").open("ab") as log:
        process = subprocess.Popen(
            [*COMMAND, "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home,
            env={**os.environ, "HOME": str(home)},
        )
    try:
        address = f"http://127.0.0.1:{port}"
        wait_until_ready(address, process, home / "log")
        yield RunningGateway(home, process, address)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(240)


# ---------------------------------------------------------------- the audit log


def test_the_log_names_who_approved_a_peer_and_the_task_of_a_decision(tmp_path: Path) -> None:
    rules = [{"decision": "deny", "callers": ["bob"]}, {"decision": "allow", "callers": ["eve"]}]
    with gateway(tmp_path, {"pairing": True, "policy": {"rules": rules}}) as running:
        token = running.command("token", "create", "second", "--scope", "admin").strip()
        held = running.send("alice", "first")["result"]["task"]
        admin = {"Authorization": f"Bearer {token}"}
        path = f"/operator/approvals/{held['id']}"
        assert running._call(path, {"allow": True}, admin)["allowed"] is True
        running.wait_state("alice", held["id"], "TASK_STATE_COMPLETED")
        assert running.send("bob", "no")["status"] == 403
        [paired] = running.audit("peer-paired")
        assert (paired["who"], paired["target"]) == ("second", "alice")
        assert (paired["task"], paired["from"]) == (held["id"], "127.0.0.1")
        decided = {one["who"]: one.get("task") for one in running.audit("policy-decided", 2)}
        assert decided == {"alice": held["id"], "bob": None}


def test_changes_of_objectives_and_tool_calls_are_logged_whole(tmp_path: Path) -> None:
    opt = {"opt": {"enabled": True, "requireActivation": False}}
    with gateway(tmp_path, {}, more=opt) as running:
        made = running.operator("POST", "objectives", {"name": "goal"})["id"]
        running.rpc("alice", "objectives/update", {"id": made, "name": "mine"})
        first, second = running.audit("objective-changed", 2)
        assert (first["who"], first["target"], first["outcome"]) == ("operator", made, "ok")
        assert (second["who"], second["target"], second["outcome"]) == ("alice", made, "refused")
        assert (second["action"], second["from"]) == ("objectives/update", "127.0.0.1")
        # The policy let the peer's change through, and has no say in the operator's.
        assert (first.get("policy"), second.get("policy")) == (None, "allow")
        token = running.command("token", "create", "--tool", "tess").strip()
        arguments = {"agentId": "main", "skill": "x", "input": {}}
        admin = {"Authorization": f"Bearer {token}"}
        running._call("/tools/agent_call", arguments, admin)
        [refused] = running.audit("call-refused")
        assert (refused["who"], refused["from"]) == ("tess", "127.0.0.1")


def test_the_decision_of_the_policy_is_on_the_entry_of_every_message(tmp_path: Path) -> None:
    rules = [{"decision": "ask", "callers": ["eve"]}]
    with gateway(tmp_path, {"policy": {"rules": rules}}) as running:
        allowed = running.send("alice", "nobody decides about this")["result"]["task"]["id"]
        held = running.send("eve", "held")["result"]["task"]["id"]
        running.command("approvals", "allow", held)
        running.wait_state("eve", held, "TASK_STATE_COMPLETED")
        running.audit("task-released")
        found = {one["task"]: one.get("policy") for one in running.audit("task-submitted", 2)}
        assert found == {allowed: "allow", held: "ask"}
        # No entry of its own for the silent default.
        assert [one["who"] for one in running.audit("policy-decided")] == ["eve"]


def test_changes_that_are_refused_are_logged(tmp_path: Path) -> None:
    with gateway(tmp_path, {}, more={"push": {"allowPrivate": True}}) as running:
        task = running.send("alice", "of alice")["result"]["task"]["id"]
        hook = {"id": "hook", "url": "http://127.0.0.1:9/s3cret"}
        # Another caller's task is one that does not exist.
        for task_id in (task, "t-unknown"):
            running.rpc("eve", "CancelTask", {"id": task_id})
            running.rpc("eve", "CreateTaskPushNotificationConfig", {"taskId": task_id, **hook})
            about = {"taskId": task_id, "id": "hook"}
            running.rpc("eve", "DeleteTaskPushNotificationConfig", about)
            running.rest("eve", "DELETE", f"tasks/{task_id}")
        for event in ("task-canceled", "push-set", "push-deleted", "task-deleted"):
            first, second = running.audit(event, 2)
            assert (first["who"], first["task"], second["task"]) == ("eve", task, "t-unknown")
            assert (first["outcome"], first["reason"]) == ("refused", "task-not-found")
            assert (first["from"], first["account"]) == ("127.0.0.1", "default")
        assert "s3cret" not in (tmp_path / "audit.jsonl").read_text("utf-8")


def test_messages_that_are_refused_are_logged_in_every_binding(tmp_path: Path) -> None:
    with gateway(tmp_path, {}) as running:
        task = running.send("alice", "of alice")["result"]["task"]["id"]
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "s3cret"}]}
        file = {"raw": "czNjcmV0", "mediaType": "video/s3cret", "filename": "s3cret"}
        old = {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "s3cret"}]}
        refused = [
            ("task-continued", "task-not-found", {**message, "taskId": task}),
            ("task-submitted", "part-not-accepted", {**message, "parts": [file]}),
            ("task-submitted", "invalid-params", {**message, "parts": "s3cret"}),
        ]
        own = {"A2A-Version": "1.0", "Authorization": "Bearer token-of-eve"}
        for _, _, one in refused:
            running.rpc("eve", "SendMessage", {"message": one})
            running.rpc("eve", "SendStreamingMessage", {"message": one})
            running._call("/a2a/rest/message:send", {"message": one}, own)
        running.stream_v03("eve", {"message": {**old, "taskId": task}})
        found = [*running.audit("task-submitted", 7), *running.audit("task-continued", 4)]
        lines = [one for one in found if one["who"] == "eve"]
        seen = [(one["event"], one["reason"]) for one in lines]
        for event, reason, one in refused:
            assert seen.count((event, reason)) == (4 if "taskId" in one else 3)
        assert {one["outcome"] for one in lines} == {"refused"}
        assert {(one["target"], one["account"]) for one in lines} == {("main", "default")}
        assert {one["from"] for one in lines} == {"127.0.0.1"}
        assert {one.get("task") for one in lines} == {None, task}
        assert "s3cret" not in (tmp_path / "audit.jsonl").read_text("utf-8")


def test_a_peer_cannot_fill_the_log_with_what_is_refused(tmp_path: Path) -> None:
    rules = [{"decision": "deny", "callers": ["bob"]}]
    opt = {"opt": {"enabled": True, "requireActivation": False}}
    with gateway(tmp_path, {"policy": {"rules": rules}}, more=opt) as running:
        for number in range(60):
            running.rpc("eve", "CancelTask", {"id": f"t-{number}"})
            running.rpc("eve", "objectives/update", {"id": f"o-{number}", "name": "x"})
            assert running.send("bob", f"m {number}")["status"] == 403
    # Stopped: what was only counted is summed up.
    lines = [json.loads(one) for one in lines_of(tmp_path / "audit.jsonl")]
    for event, who in (
        ("task-canceled", "eve"),
        ("objective-changed", "eve"),
        ("policy-decided", "bob"),
        ("task-submitted", "bob"),
    ):
        own = [one for one in lines if (one["event"], one["who"]) == (event, who)]
        assert sum(one.get("count", 1) for one in own) == 60
        # Ten and one sum in each minute that this took.
        assert len(own) <= 33
        assert {one["outcome"] for one in own} == {"refused"}


def test_what_retention_deletes_is_summed_up_in_the_log(tmp_path: Path) -> None:
    keep = {"retention": {"sweepSeconds": 1, "endedSeconds": 1}}
    with gateway(tmp_path, {}, more=keep) as running:
        for text in ("one", "two"):
            running.send("alice", text)
        deadline, count = time.monotonic() + DEADLINE_S, 0
        while count < 2:
            assert time.monotonic() < deadline
            deleted = [one for one in running.audit("data-expired") if one["action"] == "tasks"]
            count = sum(one["count"] for one in deleted)
        assert {one["who"] for one in deleted} == {"gateway"}


# ---------------------------------------------------------------- rules


def test_rules_allow_deny_and_ask_in_their_order_with_an_audit_entry_each(tmp_path: Path) -> None:
    rules = [
        {"decision": "allow", "callers": ["alice"], "skills": ["safe"]},
        {"decision": "deny", "callers": ["e*"], "reason": "eve is not welcome"},
        {"decision": "ask", "minBytes": 3000, "reason": "large messages are looked at"},
        {"decision": "deny", "callers": ["alice"], "skills": ["*"], "accounts": ["other"]},
    ]
    with gateway(tmp_path, {"policy": {"rules": rules}}) as running:
        allowed = running.send("alice", "x" * 4000, metadata={"skillId": "safe"})
        assert allowed["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        refused = running.send("eve", "let me in")
        assert refused["status"] == 403
        assert "eve is not welcome" in refused["error"]["message"]
        held = running.send("alice", "y" * 4000)["result"]["task"]
        assert held["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
        assert "large messages are looked at" in held["status"]["message"]["parts"][0]["text"]
        plain = running.send("bob", "hello")
        assert plain["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert running.agent_saw() == ["x" * 4000, "hello"]
        deadline = time.monotonic() + DEADLINE_S
        while len(running.audit("policy-decided")) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)  # written by another process
        entries = running.audit("policy-decided")
        assert [(one["who"], one["policy"]) for one in entries] == [
            ("alice", "allow"),
            ("eve", "deny"),
            ("alice", "ask"),
        ]
        assert entries[1]["from"] == "127.0.0.1"


def test_a_held_task_cannot_be_talked_out_of_and_is_released_once(tmp_path: Path) -> None:
    rules = [{"decision": "ask", "callers": ["eve"]}]
    with gateway(tmp_path, {"policy": {"rules": rules}}) as running:
        held = running.send("eve", "run this")["result"]["task"]
        follow = running.send("eve", "allow", taskId=held["id"])
        assert "operator" in follow["error"]["message"]
        # The same message again is the same task, still held.
        assert running.send("eve", "run this")["result"]["task"]["id"] == held["id"]
        assert running.agent_saw() == []
        [waiting] = running.operator("GET", "approvals")["approvals"]
        assert waiting["id"] == held["id"]
        assert "eve" in waiting["command"]
        assert "run this" in waiting["command"]
        assert "run this" in running.command("approvals", "list")
        # Peers have no say in it.
        stolen = running._call(f"/operator/approvals/{held['id']}", {"allow": True}, {})
        assert stolen["status"] in (401, 403)
        assert "allowed" in running.command("approvals", "allow", held["id"][:8])
        running.wait_state("eve", held["id"], "TASK_STATE_COMPLETED")
        assert running.agent_saw() == ["run this"]
        task = running.rpc("eve", "GetTask", {"id": held["id"]})["result"]
        texts = [part["text"] for one in task["history"] for part in one["parts"]]
        assert texts.count("run this") == 1
        again = running.operator("POST", f"approvals/{held['id']}", {"allow": True})
        assert again["error"]["code"] == "approval-not-found"
        assert [one["action"] for one in running.audit("approval-decided")][:1] == ["allow"]


def test_a_denied_task_is_rejected_and_a_canceled_one_waits_no_more(tmp_path: Path) -> None:
    with gateway(tmp_path, {"policy": {"rules": [{"decision": "ask"}]}}) as running:
        first = running.send("eve", "one")["result"]["task"]["id"]
        second = running.send("eve", "two")["result"]["task"]["id"]
        assert "denied" in running.command("approvals", "deny", first)
        assert running.state("eve", first) == "TASK_STATE_REJECTED"
        running.rpc("eve", "CancelTask", {"id": second})
        assert running.state("eve", second) == "TASK_STATE_CANCELED"
        assert running.operator("GET", "approvals")["approvals"] == []
        assert running.agent_saw() == []


def test_a_held_task_survives_a_kill_and_is_then_allowed(tmp_path: Path) -> None:
    security = {"policy": {"rules": [{"decision": "ask"}]}}
    with gateway(tmp_path, security) as running:
        held = running.send("eve", "later")["result"]["task"]["id"]
        pending = running.send("eve", "at once", wait=False)["result"]["task"]["id"]
        running.kill()
    with gateway(tmp_path, security) as running:
        running.wait_state("eve", pending, "TASK_STATE_AUTH_REQUIRED")
        assert running.state("eve", held) == "TASK_STATE_AUTH_REQUIRED"
        for task_id in (held, pending):
            running.operator("POST", f"approvals/{task_id}", {"allow": True})
            running.wait_state("eve", task_id, "TASK_STATE_COMPLETED")
        assert running.agent_saw() == ["later", "at once"]


def test_a_peer_can_have_few_tasks_held_and_hides_no_others(tmp_path: Path) -> None:
    more = {"limits": {"perPeerHeld": 3}}
    with gateway(tmp_path, {"policy": {"rules": [{"decision": "ask"}]}}, more=more) as running:
        oldest = running.send("alice", "of alice")["result"]["task"]["id"]
        held = [running.send("eve", f"of eve {number}")["result"]["task"] for number in range(3)]
        refused = running.send("eve", "one too many")
        assert refused["status"] == 429
        assert "limits.perPeerHeld" in refused["error"]["message"]
        # A message that was accepted is still the same task.
        assert running.send("eve", "of eve 0")["result"]["task"]["id"] == held[0]["id"]
        # Others are not concerned, and one that was decided makes room.
        assert "result" in running.send("bob", "of bob")
        listed = [one["id"] for one in running.operator("GET", "approvals")["approvals"]]
        assert listed[:2] == [oldest, held[0]["id"]]
        assert len(listed) == 5
        running.operator("POST", f"approvals/{held[0]['id']}", {"allow": False})
        assert "result" in running.send("eve", "one more")
        assert running.send("eve", "and another")["status"] == 429


def test_many_messages_at_once_do_not_get_past_the_limit_of_held_tasks(tmp_path: Path) -> None:
    more = {"limits": {"perPeerHeld": 3}}
    with (
        gateway(tmp_path, {"pairing": True}, more=more) as running,
        ThreadPoolExecutor(12) as threads,
    ):
        answers = list(threads.map(lambda one: running.send("eve", f"burst {one}"), range(24)))
        assert sum("result" in one for one in answers) == 3
        assert {one["status"] for one in answers if "error" in one} == {429}
        assert len(running.operator("GET", "approvals")["approvals"]) == 3


def test_a_held_task_without_a_decision_is_rejected_in_the_end(tmp_path: Path) -> None:
    more = {"retention": {"heldSeconds": 1, "sweepSeconds": 0.2}}
    with gateway(tmp_path, {"policy": {"rules": [{"decision": "ask"}]}}, more=more) as running:
        held = running.send("eve", "forgotten")["result"]["task"]["id"]
        running.wait_state("eve", held, "TASK_STATE_REJECTED")
        status = running.rpc("eve", "GetTask", {"id": held})["result"]["status"]
        assert "nobody decided" in status["message"]["parts"][0]["text"].lower()
        assert running.operator("GET", "approvals")["approvals"] == []
        assert running.agent_saw() == []


def test_the_operator_sees_how_much_of_a_held_message_is_not_shown(tmp_path: Path) -> None:
    with gateway(tmp_path, {"policy": {"rules": [{"decision": "ask"}]}}) as running:
        parts = [
            {"text": "y" * 3000},
            {"data": {"run": "rm -rf /"}},
            {"raw": "aGVsbG8=", "mediaType": "text/plain", "filename": "notes.txt"},
            {"text": "short", "metadata": {"hint": 1}},
        ]
        held = running.send("eve", "parts", parts=parts, metadata={"skillId": "a", "more": {}})
        task_id = held["result"]["task"]["id"]
        [waiting] = running.operator("GET", "approvals")["approvals"]
        for expected in (
            "1007 more characters",
            "part 2: data, 18 bytes",
            "part 3: file, 5 bytes, 'text/plain', 'notes.txt'",
            "metadata of part 4: 'hint'",
            "metadata: 'skillId', 'more'",
            f"openclaw-a2a tasks show {task_id} --all --json",
        ):
            assert expected in waiting["warning"]
        listed = running.command("approvals", "list")
        assert "notes.txt" in listed
        shown = running.command("tasks", "show", task_id, "--all", "--json")
        assert "rm -rf /" in shown
        assert "y" * 3000 in shown


def test_a_held_message_of_many_parts_is_described_in_bounds(tmp_path: Path) -> None:
    with gateway(tmp_path, {"policy": {"rules": [{"decision": "ask"}]}}) as running:
        parts = [{"data": number} for number in range(900)]
        metadata = {f"{'k' * 200}{number}": 1 for number in range(500)}
        assert "result" in running.send("eve", "parts", parts=parts, metadata=metadata)
        [waiting] = running.operator("GET", "approvals")["approvals"]
        assert "880 more parts" in waiting["warning"]
        assert "480 more" in waiting["warning"].partition("metadata: ")[2]
        assert len(waiting["warning"]) < 10_000


def test_objectives_are_no_way_around_the_policy(tmp_path: Path) -> None:
    rules = [{"decision": "ask", "callers": ["eve"]}, {"decision": "deny", "callers": ["bob"]}]
    opt = {"enabled": True, "requireActivation": False}
    with gateway(tmp_path, {"policy": {"rules": rules}}, more={"opt": opt}) as running:
        for peer in ("eve", "bob"):
            refused = running.rpc(peer, "objectives/create", {"name": "mine"})
            assert refused["status"] == 403
        made = running.rpc("alice", "objectives/create", {"name": "hers"})["result"]["objective"]
        assert running.rpc("eve", "objectives/list", {})["result"]["objectives"] == []
        # A message that would create an objective and run it.
        about = {"opt/v1/objective": {"name": "by message"}, "opt/v1/preferObjective": True}
        extension = {"A2A-Extensions": EXTENSION}
        held = running.send("eve", "please", metadata=about, headers=extension)
        assert held["result"]["task"]["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
        denied = running.send("bob", "please", metadata=about, headers=extension)
        assert denied["status"] == 403
        for peer in ("eve", "bob"):
            assert running.rpc(peer, "objectives/list", {})["result"]["objectives"] == []
        assert running.agent_saw() == []
        assert made["id"]


def two_agents(home: Path) -> Json:
    """Settings in which steps of peers may name every agent; each agent writes its name."""
    script = f"cat > /dev/null; echo $0 >> {home / 'seen'}; echo done"
    agents = {
        name: {"adapter": "command", "command": ["sh", "-c", script, name], "input": "stdin"}
        for name in ("main", "worker")
    }
    opt = {"enabled": True, "requireActivation": False, "agents": ["*"]}
    return {"opt": opt, "agents": agents}


def work_for(agent: str, place: str, objective_id: str) -> tuple[str, Json]:
    """A change of an objective that names an agent."""
    metadata = {"agent": f" {agent} "}
    if place == "objective":
        return "objectives/create", {"name": "mine", "metadata": metadata}
    plan = {"objectiveId": objective_id, "name": "plan"}
    if place == "plan":
        return "plans/create", {**plan, "tasks": [{"name": "step"}], "metadata": metadata}
    return "plans/create", {**plan, "tasks": [{"name": "step", "metadata": metadata}]}


@pytest.mark.parametrize("place", ["objective", "plan", "step", "message"])
@pytest.mark.parametrize("limit", ["policy", "token"])
def test_a_step_reaches_no_agent_that_its_owner_may_not_ask(
    tmp_path: Path, limit: str, place: str
) -> None:
    rules = [{"decision": "deny", "callers": ["bob"], "agents": ["worker"], "reason": "not yours"}]
    with gateway(tmp_path, {"policy": {"rules": rules}}, more=two_agents(tmp_path)) as running:
        headers = {"A2A-Extensions": EXTENSION}
        if limit == "token":
            made = json.loads(
                running.command("token", "create", "carol", "--agent", "main", "--json")
            )
            headers["Authorization"] = f"Bearer {made['token']}"
        created = running.rpc("bob", "objectives/create", {"name": "mine"}, headers)
        objective_id = created["result"]["objective"]["id"]
        for agent in ("worker", "main"):
            if place == "message":
                step = {"name": "step", "metadata": {"agent": agent}}
                about = {"opt/v1/objective": {"name": "hers"}, "opt/v1/plan": {"tasks": [step]}}
                answer = running.send("bob", f"ask {agent}", metadata=about, headers=headers)
            else:
                answer = running.rpc("bob", *work_for(agent, place, objective_id), headers)
            if agent == "main":
                assert "result" in answer
                continue
            assert answer["status"] == 403
            assert "worker" in answer["error"]["message"] or "not yours" in str(answer)
        running.rpc("bob", "objectives/run", {"id": objective_id}, headers)
        if place in ("plan", "step"):
            deadline = time.monotonic() + DEADLINE_S
            while "main" not in running.agent_saw():
                assert time.monotonic() < deadline
                time.sleep(0.02)  # another process works
        assert "worker" not in running.agent_saw()


def test_a_step_is_decided_about_once_more_when_it_starts(tmp_path: Path) -> None:
    """The policy may have changed since the plan was made, or another agent may have made it."""
    more = two_agents(tmp_path)
    with gateway(tmp_path, {}, more=more) as running:
        made = running.rpc("bob", "objectives/create", {"name": "mine"})["result"]["objective"]
        for agent in ("worker", "main"):
            running.rpc("bob", *work_for(agent, "step", made["id"]))
    rules = [{"decision": "deny", "callers": ["bob"], "agents": ["worker"]}]
    with gateway(tmp_path, {"policy": {"rules": rules}}, more=more) as running:
        assert "result" in running.rpc("bob", "objectives/run", {"id": made["id"]})
        deadline = time.monotonic() + DEADLINE_S
        while True:
            found = running.rpc("bob", "objectives/get", {"id": made["id"]})["result"]["objective"]
            steps = [one["tasks"][0]["status"] for one in found["plans"]]
            if steps == ["failed", "completed"]:
                break
            assert time.monotonic() < deadline, steps
            time.sleep(0.02)  # another process works
        assert running.agent_saw() == ["main"]


# ---------------------------------------------------------------- the callable


def test_a_function_decides_and_one_that_fails_denies(tmp_path: Path) -> None:
    code = """
async def decide(request):
    if "boom" in request.message.parts[0].text:
        raise RuntimeError("secret of the operator")
    return {"alice": "allow", "bob": None}.get(request.caller, "deny")
"""
    (tmp_path / "own_policy.py").write_text(code, "utf-8")
    with gateway(tmp_path, {"policy": {"callable": "own_policy:decide"}}) as running:
        assert "result" in running.send("alice", "hello")
        assert "result" in running.send("bob", "hello too")
        assert running.send("eve", "hello three")["status"] == 403
        refused = running.send("alice", "boom")
        assert refused["status"] == 403
        assert "secret" not in json.dumps(refused)
        assert running.agent_saw() == ["hello", "hello too"]


def test_a_plain_function_that_blocks_holds_up_nobody_else_and_denies_at_its_deadline(
    tmp_path: Path,
) -> None:
    # Opening a pipe that nobody writes to blocks: here until the test has seen everything.
    code = f"""
from pathlib import Path

HOME = Path({str(tmp_path)!r})

def decide(request):
    if "stuck" in request.message.parts[0].text:
        with (HOME / "asked").open("a") as log:
            log.write(request.message.parts[0].text + "\\n")
        (HOME / "pipe").read_text()
    return "allow"
"""
    (tmp_path / "own_policy.py").write_text(code, "utf-8")
    os.mkfifo(tmp_path / "pipe")
    with (
        gateway(tmp_path, {"policy": {"callable": "own_policy:decide"}}) as running,
        ThreadPoolExecutor(20) as threads,
    ):
        waiting = [threads.submit(running.send, "eve", f"stuck {number}") for number in range(20)]
        deadline = time.monotonic() + DEADLINE_S
        while len(lines_of(tmp_path / "asked")) < 8:
            assert time.monotonic() < deadline
            time.sleep(0.02)  # another process works
        assert "result" in running.send("bob", "while eve waits")
        # Nobody lets the function go: what denies is its deadline.
        assert [one.result()["status"] for one in waiting] == [403] * 20
        # A few of each caller at a time, and not those that waited for them.
        assert len(lines_of(tmp_path / "asked")) == 8
        assert "result" in running.send("bob", "while the threads of eve hang")
        # They hang for ever, and the next message of eve has a thread all the same.
        assert "result" in running.send("eve", "while her own threads hang")
        # Their late `allow` lets nothing through.
        deadline = time.monotonic() + DEADLINE_S
        while (answer := running.send("eve", f"free {time.monotonic()}")).get("status") == 403:
            assert time.monotonic() < deadline, answer
            with suppress(OSError):  # nobody reads it any more
                os.close(os.open(tmp_path / "pipe", os.O_WRONLY | os.O_NONBLOCK))
        assert not [text for text in running.agent_saw() if "stuck" in text]
        [decided] = {
            one["policy"] for one in running.audit("policy-decided") if one["who"] == "bob"
        }
        assert decided == "allow"


def lines_of(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.exists() else []


def test_a_function_that_cannot_be_imported_stops_the_start(tmp_path: Path) -> None:
    security = {"policy": {"callable": "no_such_module:decide"}}
    with (
        pytest.raises(pytest.fail.Exception, match=r"policy\.callable"),
        gateway(tmp_path, security),
    ):
        pass


# ---------------------------------------------------------------- pairing


def test_the_first_message_of_a_peer_waits_for_its_approval_which_survives_a_kill(
    tmp_path: Path,
) -> None:
    with gateway(tmp_path, {"pairing": True}) as running:
        first = running.send("alice", "first")["result"]["task"]
        assert first["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
        assert "alice" in first["status"]["message"]["parts"][0]["text"]
        second = running.send("alice", "second")["result"]["task"]
        assert second["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
        assert running.agent_saw() == []
        running.command("approvals", "allow", first["id"])
        running.audit("peer-paired")  # a kill takes the entries of the last moment
        running.kill()
    with gateway(tmp_path, {"pairing": True}) as running:
        running.wait_state("alice", first["id"], "TASK_STATE_COMPLETED")
        third = running.send("alice", "third")["result"]["task"]
        assert third["status"]["state"] == "TASK_STATE_COMPLETED"
        other = running.send("bob", "of bob")["result"]["task"]
        assert other["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
        assert "alice" in running.command("approvals", "peers")
        assert "bob" not in running.command("approvals", "peers")
        assert running.audit("peer-paired")[0]["target"] == "alice"
        running.command("approvals", "revoke", "alice")
        running.kill()
    with gateway(tmp_path, {"pairing": True}) as running:
        fourth = running.send("alice", "fourth")["result"]["task"]
        assert fourth["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
        assert set(running.agent_saw()) <= {"first", "third"}


def test_objectives_are_no_way_around_pairing(tmp_path: Path) -> None:
    opt = {"enabled": True, "requireActivation": False}
    with gateway(tmp_path, {"pairing": True}, more={"opt": opt}) as running:
        refused = running.rpc("eve", "objectives/create", {"name": "mine"})
        assert refused["status"] == 403
        assert "eve" in refused["error"]["message"]
        about = {"opt/v1/objective": {"name": "by message"}, "opt/v1/preferObjective": True}
        extension = {"A2A-Extensions": EXTENSION}
        held = running.send("eve", "please", metadata=about, headers=extension)["result"]["task"]
        assert held["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
        assert running.rpc("eve", "objectives/list", {})["result"]["objectives"] == []
        assert running.agent_saw() == []
        running.command("approvals", "allow", held["id"])
        assert running.rpc("eve", "objectives/create", {"name": "mine"})["result"]["objective"]


# ---------------------------------------------------------------- lists of an account


def test_a_skill_that_an_account_does_not_list_is_refused(tmp_path: Path) -> None:
    with gateway(tmp_path, {}, {"allowedSkills": ["read*"]}) as running:
        assert "result" in running.send("alice", "one", metadata={"skillId": "read-mail"})
        assert "result" in running.send("alice", "two")
        refused = running.send("alice", "three", metadata={"skillId": "send-mail"})
        assert refused["status"] == 403
        assert "send-mail" in refused["error"]["message"]
        assert running.agent_saw() == ["one", "two"]


@pytest.mark.parametrize(
    "metadata",
    [
        {"skillId": "ok", "skill": "forbidden"},
        {"skill": "ok", "skillId": "forbidden"},
        {"skillId": ["forbidden"]},
        {"skillId": {"id": "forbidden"}},
        {"skillId": "ok", "skill": ["ok"]},
        {"SkillID": "forbidden"},
        {"skill_id": " Forbidden "},
    ],
)
def test_every_skill_that_a_message_names_is_decided_about(
    skills_gateway: RunningGateway, metadata: Json
) -> None:
    running = skills_gateway
    before = running.agent_saw()
    # The account lists `ok`; for `bob` there is a rule instead.
    for peer in ("alice", "bob"):
        assert running.send(peer, "named", metadata=metadata)["status"] == 403
    params = {
        "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "named"}]},
        "metadata": metadata,
    }
    assert running.rpc("alice", "SendMessage", params)["status"] == 403
    assert running.agent_saw() == before


def test_a_listed_skill_is_known_in_any_spelling(skills_gateway: RunningGateway) -> None:
    for number, metadata in enumerate(({"skillId": " OK "}, {"skill_id": "ok", "skill": "Ok"})):
        assert "result" in skills_gateway.send("alice", f"listed {number}", metadata=metadata)


@pytest.fixture(scope="module")
def skills_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    rules = [{"decision": "deny", "callers": ["bob"], "skills": ["forbidden"]}]
    home = tmp_path_factory.mktemp("skills")
    with gateway(home, {"policy": {"rules": rules}}, {"allowedSkills": ["ok"]}) as running:
        yield running
