"""One peer takes what it can get: run slots, places in the queue, streams. The others are served.

Agents that wait for other agents hold nothing that those need.
"""

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.hostile.limited_gateway import DEADLINE_S, Peer, limited_gateway

Json = Any


def refusal(answer: httpx2.Response) -> str:
    assert answer.status_code == 429, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    return answer.json()["error"]["message"]


def test_one_peer_cannot_take_all_run_slots(tmp_path: Path) -> None:
    with limited_gateway(tmp_path, "hog", "guest", limits={"runs": 4}) as gateway:
        hog, guest = gateway.peer("hog"), gateway.peer("guest")
        tasks = [hog.start(f"hold {number}") for number in range(12)]
        hog.wait_state(tasks[0], "WORKING")
        assert guest.wait("hello") == "hello"
        assert gateway.started() == ["hold 0", "hello"]


def test_a_caller_without_a_run_is_next_however_many_of_another_wait(tmp_path: Path) -> None:
    with limited_gateway(tmp_path, "hog", "guest", limits={"runs": 1}) as gateway:
        hog, guest = gateway.peer("hog"), gateway.peer("guest")
        tasks = [hog.start(f"hold {number}") for number in range(12)]
        hog.wait_state(tasks[0], "WORKING")
        late = guest.start("hello")
        hog.rpc("CancelTask", {"id": tasks[0]["id"]})
        guest.wait_state(late, "COMPLETED")
        hog.wait_state(tasks[1], "WORKING")
        assert gateway.started() == ["hold 0", "hello", "hold 1"]


def test_one_peer_cannot_fill_the_queue(tmp_path: Path) -> None:
    limits = {"runs": 1, "queue": 8}
    with limited_gateway(tmp_path, "hog", "guest", limits=limits) as gateway:
        hog, guest = gateway.peer("hog"), gateway.peer("guest")
        for number in range(3):
            hog.start(f"hold {number}")
        assert "(limits.perPeerQueue)" in refusal(hog.send("hold"))
        guest.start("hold")


def test_one_peer_cannot_hold_all_streams(tmp_path: Path) -> None:
    with (
        limited_gateway(tmp_path, "hog", "guest", limits={"streams": 8}) as gateway,
        contextlib.ExitStack() as open_streams,
    ):
        for _ in range(2):
            stream = open_streams.enter_context(gateway.peer("hog").stream("hold"))
            assert stream.status_code == 200
        with gateway.peer("hog").stream("hold") as refused:
            assert "(limits.perPeerStreams)" in refusal(refused)
        stream = open_streams.enter_context(gateway.peer("guest").stream("hold"))
        assert stream.status_code == 200


def test_the_only_caller_of_a_gateway_may_use_all_of_it(tmp_path: Path) -> None:
    limits = {"runs": 4, "queue": 4, "streams": 4, "perPeerRate": 1, "perPeerRequests": 1}
    with (
        limited_gateway(tmp_path, limits=limits) as gateway,
        contextlib.ExitStack() as open_streams,
    ):
        local = gateway.peer()
        for number in range(4):
            streaming = gateway.peer().stream(f"hold {number}")
            assert open_streams.enter_context(streaming).status_code == 200
        for _ in range(4):
            local.start("wait")
        assert "(limits.queue)" in refusal(local.send("wait"))
        assert sorted(gateway.started()) == [f"hold {number}" for number in range(4)]


# ------------------------------------------------------------------ agents that wait for others


CALL = {"agent": "worker", "skill": "work", "input": {}, "wait": True}
DEBATE = {
    "topic": "which way",
    "input": {},
    "proposer": {"agent": "worker", "skill": "propose"},
    "critics": [{"agent": "critic"}],
    "resolver": {"agent": "critic", "skill": "resolve"},
    "wait": True,
}
COORDINATED = {
    "agent_call": CALL,
    "agent_call_batch": {"calls": [CALL] * 3, "concurrency": 3},
    "debate_call": DEBATE,
}
ONE_OF_ALL = {"runs": 1, "perAgentRuns": 1, "perPeerRuns": 1, "runSeconds": 60}


def boss_of(peer: Peer) -> Peer:
    peer.http.base_url = peer.http.base_url.join("/agents/boss")
    return peer


@pytest.mark.parametrize("tool", COORDINATED)
def test_an_agent_that_waits_for_others_does_not_hold_their_run_slot(
    tmp_path: Path, tool: str
) -> None:
    with limited_gateway(tmp_path, "guest", limits=ONE_OF_ALL) as gateway:
        boss = boss_of(gateway.peer("guest"))
        result = json.loads(boss.wait(json.dumps({"tool": tool, "input": COORDINATED[tool]})))
    answers = result.get("results", [result])
    assert {one["status"] for one in answers} <= {"completed", "resolved"}, result


REMOTE = {
    "remote_agent": {
        "action": "send",
        "target_alias": "self",
        "parts": [{"kind": "text", "text": "hello"}],
    },
    "agent_call": {**CALL, "agent": "target:self"},
}


@pytest.mark.parametrize("tool", REMOTE)
def test_an_agent_that_waits_for_a_remote_agent_does_not_hold_its_run_slot(
    tmp_path: Path, tool: str
) -> None:
    """The remote agent is one of the same gateway, as when two gateways call each other."""
    itself = {"alias": "self", "baseUrl": "http://127.0.0.1:PORT"}
    outbound = {"enabled": True, "targets": [itself]}
    with limited_gateway(tmp_path, limits=ONE_OF_ALL, outbound=outbound) as gateway:
        boss = boss_of(gateway.peer())
        result = boss.wait(json.dumps({"tool": tool, "input": REMOTE[tool]}))
        assert len(gateway.started()) == 1
    assert "hello" in result or json.loads(result)["status"] == "completed", result


def test_steps_that_wait_for_other_agents_do_not_hold_their_run_slot(tmp_path: Path) -> None:
    with limited_gateway(tmp_path, limits=ONE_OF_ALL, opt={"enabled": True}) as gateway:
        local = gateway.peer()
        made = local.rpc("objectives/create", {"name": "Party"}).json()["result"]["objective"]
        steps = [{"name": str(number), "metadata": {"agent": "boss"}} for number in range(3)]
        steps.append({"name": "last", "dependencies": ["task-0", "task-1", "task-2"]})
        plan = {"objectiveId": made["id"], "name": "plan", "tasks": steps}
        assert "result" in local.rpc("plans/create", plan).json()
        assert "result" in local.rpc("objectives/run", {"id": made["id"]}).json()
        deadline = time.monotonic() + DEADLINE_S
        while (shown := get_objective(local, made["id"]))["status"] != "completed":
            assert time.monotonic() < deadline, shown
            assert shown["status"] not in ("failed", "canceled", "blocked"), shown


def get_objective(peer: Peer, objective_id: str) -> Json:
    params = {"id": objective_id, "includePlans": True, "includeTasks": True}
    return peer.rpc("objectives/get", params).json()["result"]["objective"]
