"""A caller sees its own things only, and those of others look like things that do not exist.

The tables name every RPC method and address; a new one without an entry fails. `test_scopes.py`
does the same for the stores, `test_tool_isolation.py` for the tools.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.cli.conftest import COMMAND, served
from tests.planning.test_isolation import REST as PLANNING_REST
from tests.planning.test_isolation import RPC as PLANNING_RPC
from tests.ports import free_port

from openclaw_a2a.planning.service import PlanningService
from openclaw_a2a.protocol.versions import METHODS_V03, METHODS_V1
from openclaw_a2a.server import objectives_endpoint, rest
from openclaw_a2a.server.objectives_endpoint import SUBSCRIBE

Json = Any
DEADLINE_S = 240.0


class Peer:
    """One caller of a gateway process."""

    def __init__(self, address: str, name: str) -> None:
        headers = {"authorization": f"Bearer {token_of(name)}", "a2a-version": "1.0"}
        self.http = httpx2.Client(base_url=address, headers=headers, timeout=DEADLINE_S)

    def rpc(self, method: str, params: Json) -> Json:
        """The whole answer, also where a stream was asked for."""
        version = "0.3" if "/" in method else "1.0"
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = self.http.post("/a2a/jsonrpc", json=body, headers={"a2a-version": version})
        return answer.status_code, answer.text

    def result(self, method: str, params: Json) -> Json:
        """The result of a call that must go well."""
        _, text = self.rpc(method, params)
        answer = json.loads(text)
        assert "error" not in answer, answer
        return answer["result"]

    def rest(self, line: str, body: Json) -> Json:
        """The whole answer to a line such as `GET tasks`."""
        method, path = line.split()
        answer = self.http.request(method, f"/a2a/rest/{path}", json=body)
        return answer.status_code, answer.text


def token_of(name: str) -> str:
    return f"token-of-{name}-0123456789"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("isolation")


@pytest.fixture(scope="module")
def address(home: Path) -> Iterator[str]:
    """A gateway with two peers, push, objectives and all tools."""
    port = free_port()
    tokens = {
        name: {"tokens": ["sha256:" + hashlib.sha256(token_of(name).encode()).hexdigest()]}
        for name in ("alice", "bob")
    }
    settings = {
        "agents": {"main": {"adapter": "echo"}},
        "push": {"allowPrivate": True, "attempts": 1},
        "opt": {"enabled": True, "tools": True},
        "outbound": {"enabled": True},
        "tools": {"agentToAgent": {"enabled": True, "allow": ["*"]}},
        "channels": {
            "a2a": {
                "accounts": {
                    "default": {"defaultAgentId": "main", "agentStyle": "task-generating"}
                },
                "security": {"peers": tokens},
            }
        },
    }
    config = home / "gateway.json5"
    config.write_text(json.dumps(settings), encoding="utf-8")
    arguments = ("--config", str(config), "--port", str(port), "--data", str(home))
    with served([*COMMAND, "up", *arguments], home, port) as started:
        yield started


def message(**members: str) -> Json:
    return {
        "message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hi"}]} | members
    }


def message_03(**members: str) -> Json:
    part = {"kind": "text", "text": "hi"}
    content = {"kind": "message", "messageId": "m-2", "role": "user", "parts": [part]}
    return {"message": content | members}


HOOK = "http://127.0.0.1:9/hook"
RPC: list[tuple[str, Json]] = [
    ("SendMessage", message(taskId="TASK")),
    ("SendStreamingMessage", message(taskId="TASK")),
    ("GetTask", {"id": "TASK"}),
    ("CancelTask", {"id": "TASK"}),
    ("SubscribeToTask", {"id": "TASK"}),
    ("CreateTaskPushNotificationConfig", {"taskId": "TASK", "id": "PUSH", "url": HOOK}),
    ("GetTaskPushNotificationConfig", {"taskId": "TASK", "id": "PUSH"}),
    ("ListTaskPushNotificationConfigs", {"taskId": "TASK"}),
    ("DeleteTaskPushNotificationConfig", {"taskId": "TASK", "id": "PUSH"}),
    ("message/send", message_03(taskId="TASK")),
    ("message/stream", message_03(taskId="TASK")),
    ("tasks/get", {"id": "TASK"}),
    ("tasks/cancel", {"id": "TASK"}),
    ("tasks/resubscribe", {"id": "TASK"}),
    (
        "tasks/pushNotificationConfig/set",
        {"taskId": "TASK", "pushNotificationConfig": {"id": "PUSH", "url": HOOK}},
    ),
    (
        "tasks/pushNotificationConfig/get",
        {"id": "TASK", "pushNotificationConfigId": "PUSH"},
    ),
    ("tasks/pushNotificationConfig/list", {"id": "TASK"}),
    ("tasks/pushNotificationConfig/delete", {"id": "TASK", "pushNotificationConfigId": "PUSH"}),
]
REST: list[tuple[str, Json]] = [
    ("POST message:send", message(taskId="TASK")),
    ("POST message:stream", message(taskId="TASK")),
    ("GET tasks/TASK", None),
    ("DELETE tasks/TASK", None),
    ("POST tasks/TASK:cancel", {}),
    ("GET tasks/TASK:subscribe", None),
    ("POST tasks/TASK:subscribe", {}),
    ("POST tasks/TASK/pushNotificationConfigs", {"id": "PUSH", "url": HOOK}),
    ("GET tasks/TASK/pushNotificationConfigs", None),
    ("GET tasks/TASK/pushNotificationConfigs/PUSH", None),
    ("DELETE tasks/TASK/pushNotificationConfigs/PUSH", None),
]
NAMES_NOTHING = {
    "ListTasks": "test_lists_hold_the_callers_own_tasks",
    "GetExtendedAgentCard": "the card is the same for all callers",
    "agent/getAuthenticatedExtendedCard": "the card is the same for all callers",
    "objectives/create": "tests/planning/test_isolation.py",
    "objectives/list": "tests/planning/test_isolation.py",
    "GET extendedAgentCard": "the card is the same for all callers",
    "GET tasks": "test_lists_hold_the_callers_own_tasks",
    "POST objectives": "tests/planning/test_isolation.py",
    "GET objectives": "tests/planning/test_isolation.py",
}
"""Methods and addresses that name no object of a caller, and what shows their isolation."""


def test_every_rpc_method_has_a_case() -> None:
    tried = {method for method, _ in (*RPC, *PLANNING_RPC)}
    served_methods = METHODS_V1 | METHODS_V03 | PlanningService.METHODS | {SUBSCRIBE}
    assert served_methods - tried - set(NAMES_NOTHING) == set()


def test_every_address_has_a_case() -> None:
    tried = {line.partition("?")[0] for line, _ in (*REST, *PLANNING_REST)} | set(NAMES_NOTHING)
    patterns = {
        re.sub("(TASK|OBJ|PLAN|PUSH)", "{}", line).replace("Configs/{}", "Configs/{*}")
        for line in tried
    }
    routes = (*rest.ROUTER.routes, *objectives_endpoint.ROUTES.routes)
    assert {f"{method} {pattern}" for method, pattern in routes} - patterns == set()


@pytest.fixture(scope="module")
def alice(address: str) -> Iterator[Peer]:
    peer = Peer(address, "alice")
    with peer.http:
        yield peer


@pytest.fixture(scope="module")
def bob(address: str) -> Iterator[Peer]:
    peer = Peer(address, "bob")
    with peer.http:
        yield peer


@pytest.fixture
def hers(alice: Peer) -> tuple[str, str]:
    """The ids of a finished task of Alice and of its push configuration."""
    sent = {"messageId": f"m-{free_port()}", "role": "ROLE_USER", "parts": [{"text": "secret"}]}
    task_id = alice.result("SendMessage", {"message": sent})["task"]["id"]
    push = {"taskId": task_id, "id": "hers", "url": HOOK}
    alice.result("CreateTaskPushNotificationConfig", push)
    return task_id, "hers"


NOWHERE = ("0b5f8b7e-0000-4000-8000-000000000000", "none")


def named(value: Json, ids: tuple[str, str]) -> Json:
    return json.loads(json.dumps(value).replace("TASK", ids[0]).replace("PUSH", ids[1]))


@pytest.mark.slow
def test_things_of_another_caller_look_like_nothing_to_every_method_and_address(
    alice: Peer, bob: Peer, hers: tuple[str, str]
) -> None:
    before = alice.result("GetTask", {"id": hers[0]})
    for ask, cases in ((bob.rpc, RPC), (bob.rest, REST)):
        for what, body in cases:
            theirs, nobodys = (
                (status, text.replace(ids[0], "TASK").replace(ids[1], "PUSH"))
                for ids in (hers, NOWHERE)
                for status, text in [ask(named(what, ids), named(body, ids))]
            )
            assert theirs == nobodys, what
            assert "not found" in theirs[1], (what, theirs)
    assert alice.result("GetTask", {"id": hers[0]}) == before
    configs = alice.result("ListTaskPushNotificationConfigs", {"taskId": hers[0]})
    assert [one["id"] for one in configs["configs"]] == ["hers"]


@pytest.mark.slow
def test_lists_hold_the_callers_own_tasks(alice: Peer, bob: Peer, hers: tuple[str, str]) -> None:
    context = alice.result("GetTask", {"id": hers[0]})["contextId"]
    for filters in ({}, {"contextId": context}, {"status": "TASK_STATE_COMPLETED"}):
        listed = bob.result("ListTasks", filters)
        assert hers[0] not in json.dumps(listed)
    assert hers[0] not in bob.rest("GET tasks", None)[1]
    assert bob.result("ListTasks", {"contextId": context})["totalSize"] == 0


@pytest.mark.slow
def test_the_message_and_context_ids_of_one_caller_are_free_for_all_others(
    alice: Peer, bob: Peer
) -> None:
    ids = {"messageId": "shared-id", "contextId": "shared-context", "role": "ROLE_USER"}
    one, two = (
        peer.result("SendMessage", {"message": {**ids, "parts": [{"text": name}]}})["task"]
        for name, peer in (("alice", alice), ("bob", bob))
    )
    assert one["id"] != two["id"]
    assert "alice" in json.dumps(one)
    assert "alice" not in json.dumps(two)


@pytest.mark.slow
def test_references_to_tasks_of_another_caller_tell_nothing(
    bob: Peer, hers: tuple[str, str]
) -> None:
    answers = []
    for number, task_id in enumerate((hers[0], NOWHERE[0])):
        sent = {
            "messageId": f"reference-{number}-{free_port()}",
            "role": "ROLE_USER",
            "parts": [{"text": "look"}],
            "referenceTaskIds": [task_id],
        }
        status, text = bob.rpc("SendMessage", {"message": sent})
        assert "secret" not in text
        answers.append((status, "error" in json.loads(text)))
    assert answers[0] == answers[1]
