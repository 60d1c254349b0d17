"""Past every limit: 413 or 429, when to come back, an error that names the setting, and no task.

The table has a row for each limit; a new key of `limits` without one fails.
"""

import base64
import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import msgspec
import pytest
from tests.hostile.limited_gateway import DEADLINE_S, RPC, LimitedGateway, Peer, limited_gateway

from openclaw_a2a.settings import Limits

Json = Any
Attempt = Callable[[LimitedGateway, Peer], Json]
HOOK = "http://127.0.0.1:9/hook"


def message(**members: Json) -> Json:
    given = {"messageId": "refused", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    return {"message": given | members, "configuration": {"returnImmediately": True}}


def send(peer: Peer, *parts: Json, **members: Json) -> httpx2.Response:
    return peer.rpc("SendMessage", message(parts=list(parts), **members))


def too_large_body(_: LimitedGateway, peer: Peer) -> Json:
    return send(peer, {"text": "x" * 400_000})


def too_many_values(_: LimitedGateway, peer: Peer) -> Json:
    return send(peer, {"data": [1.5] * 20_000})


def too_many_parts(_: LimitedGateway, peer: Peer) -> Json:
    return send(peer, *[{"text": "hi"}] * 4)


def too_large_text(_: LimitedGateway, peer: Peer) -> Json:
    return send(peer, {"text": "\N{EURO SIGN}" * 700})


def too_large_data(_: LimitedGateway, peer: Peer) -> Json:
    return send(peer, {"data": {"numbers": list(range(1000))}})


def too_large_file(_: LimitedGateway, peer: Peer) -> Json:
    raw = base64.b64encode(b"x" * 2001).decode()
    return send(peer, {"raw": raw, "mediaType": "text/plain", "filename": "a.txt"})


def too_many_references(_: LimitedGateway, peer: Peer) -> Json:
    return send(peer, {"text": "hi"}, referenceTaskIds=["a", "b"])


def too_many_messages(_: LimitedGateway, peer: Peer) -> Json:
    task = peer.start("ask 1")
    for number in range(10):
        peer.wait_state(task, "INPUT_REQUIRED")
        answer = peer.send(f"ask {number}", taskId=task["id"])
        if answer.status_code != 200:
            return answer
    raise AssertionError("the history has no end")


def full_session(_: LimitedGateway, peer: Peer) -> Json:
    for _ in range(2):
        peer.start("hold", contextId="busy")
    return peer.send("hold", contextId="busy")


def full_queue_of_one(_: LimitedGateway, peer: Peer) -> Json:
    for _ in range(3):
        peer.start("hold")
    return peer.send("hold")


def full_queue(gateway: LimitedGateway, peer: Peer) -> Json:
    for name in ("one", "two"):
        gateway.peer(name).start("hold")
    return peer.send("hold")


def streams_of_one(gateway: LimitedGateway, peer: Peer) -> Json:
    gateway.clients.enter_context(peer.stream("hold"))
    with peer.stream("hold") as refused:
        return refused


def all_streams(gateway: LimitedGateway, peer: Peer) -> Json:
    gateway.clients.enter_context(gateway.peer("one").stream("hold"))
    with peer.stream("hold") as refused:
        return refused


def many_requests(_: LimitedGateway, peer: Peer) -> Json:
    answers = [peer.rpc("ListTasks", {}) for _ in range(3)]
    assert answers[0].status_code == 200
    return answers[-1]


def unfinished_bodies(gateway: LimitedGateway, peer: Peer) -> Json:
    first = socket.create_connection(("127.0.0.1", gateway.port))
    gateway.clients.callback(first.close)
    headers = [f"{name}: {value}" for name, value in peer.http.headers.items()]
    headers += [f"host: 127.0.0.1:{gateway.port}", "content-length: 250000"]
    headers += ["content-type: application/json"]
    head = "\r\n".join([f"POST {RPC} HTTP/1.1", *headers, "", ""])
    first.sendall(head.encode() + b" " * 200_000)
    deadline = time.monotonic() + DEADLINE_S  # until the gateway has received that
    while (answer := peer.rpc("ListTasks", {"filler": "x" * 100_000})).status_code == 200:
        assert time.monotonic() < deadline
    return answer


def many_webhooks(_: LimitedGateway, peer: Peer) -> Json:
    task, peer.last_message = peer.start("hold"), ""
    method = "CreateTaskPushNotificationConfig"
    assert "result" in peer.rpc(method, {"taskId": task["id"], "id": "1", "url": HOOK}).json()
    return peer.rpc(method, {"taskId": task["id"], "id": "2", "url": HOOK})


def many_objectives(_: LimitedGateway, peer: Peer) -> Json:
    assert "result" in peer.rpc("objectives/create", {"name": "first"}).json()
    return peer.rpc("objectives/create", {"name": "second"})


def many_steps(_: LimitedGateway, peer: Peer) -> Json:
    made = peer.rpc("objectives/create", {"name": "first"}).json()["result"]["objective"]
    plan = {"name": "plan", "tasks": [{"name": "a"}, {"name": "b"}]}
    return peer.http.post(f"/a2a/rest/objectives/{made['id']}/plans", json=plan)


def many_plans(_: LimitedGateway, peer: Peer) -> Json:
    made = peer.rpc("objectives/create", {"name": "first"}).json()["result"]["objective"]
    path = f"/a2a/rest/objectives/{made['id']}/plans"
    assert peer.http.post(path, json={"name": "plan"}).status_code < 300
    return peer.http.post(path, json={"name": "another"})


SMALL: Json = {
    "limits": {
        "parts": 3,
        "partBytes": 2000,
        "bodyValues": 10_000,
        "referenceTasks": 1,
        "historyMessages": 4,
        "sessionQueue": 1,
        "perPeerRuns": 1,
        "perPeerQueue": 2,
        "perPeerStreams": 1,
    },
    "push": {"perTask": 1, "allowPrivate": True},
    "opt": {
        "enabled": True,
        "maxObjectivesPerPeer": 1,
        "maxPlansPerObjective": 1,
        "maxTasksPerPlan": 1,
    },
}
FULL: Json = {"limits": {"runs": 1, "queue": 1, "perPeerQueue": 1}}
STREAMS: Json = {"limits": {"streams": 1}}
SLOW: Json = {"limits": {"perPeerRate": 0.01}}
FEW: Json = {"limits": {"perPeerRate": 0, "perPeerRequests": 1}}
BODIES: Json = {"limits": {"bodiesBytes": 800_000}}
FEW_OBJECTIVES: Json = {"opt": {"enabled": True, "maxObjectives": 1, "maxObjectivesPerPeer": 9}}
GATEWAYS = {
    "small": SMALL,
    "full": FULL,
    "streams": STREAMS,
    "slow": SLOW,
    "few": FEW,
    "bodies": BODIES,
    "objectives": FEW_OBJECTIVES,
}

TABLE: list[tuple[str, str, int, Attempt]] = [
    ("channels.a2a.accounts.default.maxBodyBytes", "small", 413, too_large_body),
    ("limits.parts", "small", 413, too_many_parts),
    ("limits.bodyValues", "small", 413, too_many_values),
    ("limits.partBytes", "small", 413, too_large_text),
    ("limits.partBytes", "small", 413, too_large_data),
    ("limits.partBytes", "small", 413, too_large_file),
    ("limits.referenceTasks", "small", 413, too_many_references),
    ("limits.historyMessages", "small", 413, too_many_messages),
    ("limits.sessionQueue", "small", 429, full_session),
    ("limits.perPeerQueue", "small", 429, full_queue_of_one),
    ("limits.queue", "full", 429, full_queue),
    ("limits.perPeerStreams", "small", 429, streams_of_one),
    ("limits.streams", "streams", 429, all_streams),
    ("limits.perPeerRate", "slow", 429, many_requests),
    ("limits.perPeerRequests", "few", 429, many_requests),
    ("limits.bodiesBytes", "bodies", 429, unfinished_bodies),
    ("push.perTask", "small", 429, many_webhooks),
    ("opt.maxObjectivesPerPeer", "small", 429, many_objectives),
    ("opt.maxObjectives", "objectives", 429, many_objectives),
    ("opt.maxPlansPerObjective", "small", 413, many_plans),
    ("opt.maxTasksPerPlan", "small", 413, many_steps),
]
NO_REFUSAL = {
    "runs": "a run beyond it waits",
    "perPeerRuns": "a run beyond it waits",
    "perAgentRuns": "a run beyond it waits",
    "perPeerHeld": "of messages that wait for approval: tests/hostile/test_policy.py",
    "referenceBytes": "tasks beyond it are left out, and the agent is told",
    "pendingCalls": "the tool has a result with the error, below",
    "perAgentCalls": "the tool has a result with the error, below",
    "artifactBytes": "the task fails, below",
    "eventBytes": "the task fails, below",
    "runSeconds": "the task fails, below",
    "cancelSeconds": "a cancellation that takes longer is refused: tests/conformance",
    "queuedReplies": "for hosts; tests/engine/test_background_replies.py",
    "joinDeltas": "no limit",
    "perAddressFailures": "of those who are no peers: tests/hostile/test_credentials.py",
    "answerBytes": "answers beyond it are refused: tests/conformance/test_large_tasks.py",
    "inflightEvents": "an agent that is faster than the disk waits",
    **dict.fromkeys(
        (
            "connections",
            "perAddressConnections",
            "headers",
            "headerBytes",
            "unsentBytes",
            "connectionUnsentBytes",
        ),
        "before there is a request: tests/hostile/test_connections.py, test_endless_heads.py",
    ),
}
PEERS = [f"peer-{number}" for number in range(len(TABLE))]


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], LimitedGateway]]:
    """Gateways with small limits, each started when it is needed."""
    with contextlib.ExitStack() as running:
        started: dict[str, LimitedGateway] = {}

        def start(name: str) -> LimitedGateway:
            if name not in started:
                home = tmp_path_factory.mktemp(name)
                gateway = limited_gateway(home, "one", "two", *PEERS, **GATEWAYS[name])
                started[name] = running.enter_context(gateway)
            return started[name]

        yield start


@pytest.mark.parametrize(
    ("row", "setting", "gateway", "status", "attempt"),
    [(row, *rest) for row, rest in enumerate(TABLE)],
    ids=[f"{setting}-{attempt.__name__}" for setting, _, _, attempt in TABLE],
)
def test_a_request_past_a_limit_is_refused_by_name_and_stores_nothing(
    gateways: Callable[[str], LimitedGateway],
    row: int,
    setting: str,
    gateway: str,
    status: int,
    attempt: Attempt,
) -> None:
    running = gateways(gateway)
    peer = running.peer(PEERS[row])
    try:
        answer = attempt(running, peer)
        assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        assert setting in error["message"]
        found = [one for one in error.get("data") or error["details"] if "metadata" in one]
        assert [one["metadata"].get("setting") for one in found] == [setting]
        if status == 429:
            assert int(answer.headers["retry-after"]) >= 1
        if gateway not in ("slow", "few"):
            listed = peer.rpc("ListTasks", {}).json()["result"]["tasks"]
            stored = {one["messageId"] for task in listed for one in task["history"]}
            assert stored.isdisjoint({"refused", peer.last_message})
    finally:
        running.clients.close()  # its streams make room for the next row


def test_every_limit_has_a_row() -> None:
    names = {field.encode_name for field in msgspec.structs.fields(Limits)}
    rows = {setting.removeprefix("limits.") for setting, _, _, _ in TABLE}
    assert names - rows == set(NO_REFUSAL)


@pytest.mark.parametrize(
    ("setting", "value", "text"),
    [
        ("artifactBytes", 50_000, "long"),
        ("eventBytes", 50_000, "long"),
        ("runSeconds", 0.5, "hold"),
    ],
)
def test_an_agent_past_a_limit_fails_its_task_with_the_name_of_the_setting(
    tmp_path_factory: pytest.TempPathFactory, setting: str, value: float, text: str
) -> None:
    home = tmp_path_factory.mktemp("agent")
    with limited_gateway(home, "guest", limits={setting: value}) as gateway:
        guest = gateway.peer("guest")
        status = guest.send(text, waits=True).json()["result"]["task"]["status"]
        assert status["state"] == "TASK_STATE_FAILED"
        assert f"(limits.{setting})" in status["message"]["parts"][0]["text"]


def test_calls_between_agents_are_limited_in_all_and_for_each_agent(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home = tmp_path_factory.mktemp("calls")
    limits = {"pendingCalls": 2, "perAgentCalls": 1}
    with limited_gateway(home, limits=limits, tools=CALLS | {"perTokenCalls": 1}) as gateway:
        held = {"agent": "main", "skill": "hold", "input": {}}
        assert gateway.call_tool("boss", "agent_call", held).json()["status"] == "pending"
        refused = gateway.call_tool("boss", "agent_call", held).json()
        assert refused["status"] == "error"
        assert "(limits.perAgentCalls)" in refused["error"]
        assert gateway.call_tool("worker", "agent_call", held).json()["status"] == "pending"
        refused = gateway.call_tool("critic", "agent_call", held).json()
        assert "(limits.pendingCalls)" in refused["error"]


CALLS: Json = {"agentToAgent": {"enabled": True, "allow": ["*"]}}
