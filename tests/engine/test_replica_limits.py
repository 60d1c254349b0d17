"""Several gateways on one database limit, hold and place the work of callers as one would."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest
from tests.conformance.asgi_client import AsgiClient, Response
from tests.conformance.conftest import peers, token_of
from tests.engine.test_replication import Replica, StartReplica, next_run, start_replica
from tests.postgres_server import PostgresServer

from openclaw_a2a.http import shared_rate_limit
from openclaw_a2a.model.agent_event import InputRequired, Reply, TextDelta
from openclaw_a2a.ports import Recovery

__all__ = ["start_replica"]

Json = Any
StandStill = Callable[[str], Awaitable[None]]
_SET_CLOCK = """
CREATE OR REPLACE FUNCTION {0}.rate_clock() RETURNS timestamptz LANGUAGE sql VOLATILE
  AS 'SELECT {1}'"""


@pytest.fixture
async def stand_still(postgres: PostgresServer) -> AsyncIterator[StandStill]:
    """`await stand_still(schema)`: no time passes for the rates of its gateways."""
    connection = await asyncpg.connect(postgres.url())
    stopped: list[str] = []

    async def stop(schema: str) -> None:
        stopped.append(schema)
        await connection.execute(_SET_CLOCK.format(schema, "timestamptz ''2026-01-01''"))

    yield stop
    for schema in stopped:
        await connection.execute(_SET_CLOCK.format(schema, "clock_timestamp()"))
    await connection.close()


@pytest.mark.parametrize("used", [1, 2], ids=["at one", "spread over both"])
async def test_callers_have_their_requests_a_minute_of_all_replicas_together(
    start_replica: StartReplica,
    stand_still: StandStill,
    monkeypatch: pytest.MonkeyPatch,
    used: int,
) -> None:
    # A replica that waits for the database no longer than usual counts alone on a busy machine.
    monkeypatch.setattr(shared_rate_limit, "_ANSWER_S", 240.0)
    limits = {**peers("alice", "bob"), "limits.perPeerRequests": 60}
    replicas = [await start_replica(**limits) for _ in range(2)]
    await stand_still(replicas[0].gateway.settings.store.schema)
    for name in ("alice", "bob"):
        clients = [
            one.client.with_headers(authorization=f"Bearer {token_of(name)}", a2a_version="1.0")
            for one in replicas[:used]
        ]
        answers = await asyncio.gather(
            *[clients[number % used].get("/a2a/rest/tasks") for number in range(100)]
        )
        accepted = [one for one in answers if one.status == 200]
        assert 54 <= len(accepted) <= 66
        refused = next(one for one in answers if one.status == 429)
        assert "limits.perPeerRequests" in refused.json["error"]["message"]
        assert int(refused.headers["retry-after"]) >= 1


# -------------------------------------------------------------------- the operator's decisions

PAIRING = {**peers("alice", "bob"), "channels.a2a.security.pairing": True}


async def decide(replica: Replica, task: Json, *, allow: bool = True) -> Response:
    """The answer to the operator's decision about a held task, at this replica."""
    body = json.dumps({"allow": allow}).encode()
    path, size = f"/operator/approvals/{task['id']}", str(len(body))
    return await operator(replica).post(path, body, content_length=size)


def operator(replica: Replica) -> AsgiClient:
    token = (replica.gateway.settings.data / "operator.token").read_text(encoding="ascii")
    return replica.client.with_headers(authorization=f"Bearer {token.strip()}")


def state_of(task: Json) -> str:
    return task["status"]["state"]


async def test_a_held_message_is_decided_at_any_replica_once(start_replica: StartReplica) -> None:
    a, b = await start_replica(**PAIRING), await start_replica(**PAIRING)
    alice = a.as_peer("alice")
    held = await alice.send("first")
    assert state_of(held) == "TASK_STATE_AUTH_REQUIRED"
    listed = (await operator(b).get("/operator/approvals")).json["approvals"]
    assert [one["id"] for one in listed] == [held["id"]]
    answers = await asyncio.gather(*[decide(one, held) for one in (a, b, b, a)])
    assert sorted(one.status for one in answers) == [200, 404, 404, 404]
    _, run = await next_run(a, b)
    run.end(Reply.of_text("done"))
    # The peer is known at both from now on.
    for replica in (a, b):
        sending = asyncio.create_task(replica.as_peer("alice").send("next"))
        (await replica.agent.next_run("next")).end(Reply.of_text("done"))
        assert state_of(await sending) == "TASK_STATE_COMPLETED"
    assert len(a.agent.turns) + len(b.agent.turns) == 3
    known = (await operator(b).get("/operator/peers")).json["peers"]
    assert [one["id"] for one in known] == ["alice"]


async def test_an_approval_that_is_taken_back_at_one_replica_is_gone_at_all(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(**PAIRING), await start_replica(**PAIRING)
    held = await a.as_peer("alice").send("first")
    assert (await decide(b, held)).status == 200
    _, run = await next_run(a, b)
    run.end(Reply.of_text("done"))
    revoked = await operator(a).post("/operator/peers/alice/revoke", b"{}")
    assert revoked.status == 200
    again = await b.as_peer("alice").send("again")
    assert state_of(again) == "TASK_STATE_AUTH_REQUIRED"


async def test_of_two_decisions_at_two_replicas_one_counts(start_replica: StartReplica) -> None:
    rules = [{"decision": "ask"}]
    settings = {**peers("bob"), "channels.a2a.security.policy.rules": rules}
    a, b = await start_replica(**settings), await start_replica(**settings)
    for number in range(4):
        held = await a.as_peer("bob").send(f"{number}")
        allowed, denied = await asyncio.gather(decide(a, held), decide(b, held, allow=False))
        assert sorted((allowed.status, denied.status)) == [200, 404]
        if allowed.status == 200:
            (await a.agent.next_run()).end(Reply.of_text("done"))
        else:
            task = (await b.as_peer("bob").call("GetTask", {"id": held["id"]}))["result"]
            assert state_of(task) == "TASK_STATE_REJECTED"
    assert a.agent.is_idle
    assert b.agent.is_idle


async def test_a_held_message_is_let_go_where_its_session_is(start_replica: StartReplica) -> None:
    ask = [{"decision": "ask", "minBytes": 300}]
    settings = {**peers("alice"), "channels.a2a.security.policy.rules": ask}
    a, b = await start_replica(**settings), await start_replica(**settings)
    alice = a.as_peer("alice")
    working = asyncio.create_task(alice.send("short", contextId="c-1"))
    run = await a.agent.next_run("short")
    holding = asyncio.create_task(b.as_peer("alice").send("x" * 400, contextId="c-1"))
    run.end(Reply.of_text("done"))
    await working
    held = await holding
    assert state_of(held) == "TASK_STATE_AUTH_REQUIRED"
    busy = asyncio.create_task(alice.send("busy", contextId="c-1"))
    run = await a.agent.next_run("busy")
    assert (await decide(b, held)).status == 200
    assert b.agent.is_idle, "two runs of one session at once"
    run.end(Reply.of_text("done"))
    await busy
    (await a.agent.next_run("x" * 400)).end(Reply.of_text("allowed"))
    async with b.as_peer("alice").stream("SubscribeToTask", {"id": held["id"]}) as next_event:
        while await next_event() is not None:
            pass
    task = (await b.as_peer("alice").call("GetTask", {"id": held["id"]}))["result"]
    assert state_of(task) == "TASK_STATE_COMPLETED"


# -------------------------------------------------------------------- agents that live somewhere


def placed(name: str) -> dict[str, Json]:
    """Settings of a replica with this name, where the agent is at the left one only."""
    return {"store.replicaName": name, "agents.main.replicas": ["left"]}


async def test_work_for_an_agent_goes_to_the_replica_that_has_it(
    start_replica: StartReplica,
) -> None:
    left, right = await start_replica(**placed("left")), await start_replica(**placed("right"))
    listed = (await operator(right).get("/operator/replicas")).json["replicas"]
    assert {one["name"]: one["agents"] for one in listed} == {"left": ["main"], "right": []}
    sending = asyncio.create_task(right.send("hello"))
    (await left.agent.next_run("hello")).end(InputRequired("when?"))
    asked = await sending
    assert state_of(asked) == "TASK_STATE_INPUT_REQUIRED"
    answering = asyncio.create_task(right.send("today", taskId=asked["id"]))
    (await left.agent.next_run("today")).end(Reply.of_text("booked"))
    assert state_of(await answering) == "TASK_STATE_COMPLETED"
    paused = asyncio.create_task(right.send("again"))
    (await left.agent.next_run("again")).end(InputRequired("when?"))
    canceled = await right.call("CancelTask", {"id": (await paused)["id"]})
    assert state_of(canceled["result"]) == "TASK_STATE_CANCELED"
    assert right.agent.turns == []


async def test_work_for_an_agent_that_no_running_replica_has_is_refused_with_the_reason(
    start_replica: StartReplica,
) -> None:
    left, right = await start_replica(**placed("left")), await start_replica(**placed("right"))
    await left.stop()
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    body = json.dumps({"message": message}).encode()
    refused = await right.client.post("/a2a/rest/message:send", body, a2a_version="1.0")
    assert refused.status == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert "agents.main.replicas" in refused.json["error"]["message"]
    assert (await right.call("ListTasks", {}))["result"]["tasks"] == []
    again = await start_replica(**placed("left"))
    sending = asyncio.create_task(
        right.client.post("/a2a/rest/message:send", body, a2a_version="1.0")
    )
    (await again.agent.next_run("hello")).end(Reply.of_text("done"))
    assert state_of((await sending).json["task"]) == "TASK_STATE_COMPLETED"


async def test_a_held_message_is_let_go_where_its_agent_is(start_replica: StartReplica) -> None:
    ask = {**peers("alice"), "channels.a2a.security.policy.rules": [{"decision": "ask"}]}
    left = await start_replica(**ask, **placed("left"))
    right = await start_replica(**ask, **placed("right"))
    held = await right.as_peer("alice").send("hello")
    assert state_of(held) == "TASK_STATE_AUTH_REQUIRED"
    assert (await decide(right, held)).status == 200
    (await left.agent.next_run("hello")).end(Reply.of_text("done"))


# -------------------------------------------------------------------- figures


async def read_metrics(replica: Replica) -> dict[str, float]:
    response = await operator(replica).get("/metrics")
    assert response.status == 200
    assert response.media_type == "text/plain"
    lines = response.body.decode().splitlines()
    named = [one.split() for one in lines if not one.startswith("#")]
    return {name.removeprefix("openclaw_a2a_"): float(value) for name, value in named}


async def test_the_figures_of_a_replica_count_runs_take_overs_and_refused_writes(
    start_replica: StartReplica,
) -> None:
    # A long lease: none of its renewals notices the loss before the write of the run does.
    a = await start_replica(Recovery.REPEAT, lease_s=600)
    b = await start_replica(Recovery.REPEAT)
    assert (await a.client.get("/metrics")).status == 401
    waiting = asyncio.create_task(a.send("one"))
    lost = await a.agent.next_run()
    before = await read_metrics(a)
    assert (before["runs"], before["queued_runs"], before["streams"]) == (1, 0, 0)
    assert before["stale_writes_refused_total"] == 0
    a.pause()
    lost.tell(TextDelta("late "))  # its commit lets the lease run out
    again = await b.agent.next_run("one")
    a.resume()
    lost.tell(TextDelta("later "))
    await asyncio.wait_for(lost.stopped.wait(), 240)
    again.end(Reply.of_text("done"))
    await waiting
    first, second = await read_metrics(a), await read_metrics(b)
    assert first["replica_lost_total"] == 1
    assert first["stale_writes_refused_total"] >= 1
    assert second["lease_takeovers_total"] == 1
    assert second["claims_total"] >= 1
    assert second["claim_seconds_total"] > 0
