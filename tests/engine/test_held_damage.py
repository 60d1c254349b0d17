"""A held task whose stored data is damaged does not keep the gateway from its other work."""

from typing import Any

import pytest
from tests.conformance.conftest import peers
from tests.engine.controlled_agent import TIMEOUT_S
from tests.engine.test_replica_limits import PAIRING, decide, operator, state_of
from tests.engine.test_replication import StartReplica, start_replica
from tests.replicas.cluster import repeat_until

from openclaw_a2a.model.agent_event import Reply

__all__ = ["start_replica"]

Json = Any

CONTENT = (
    "UPDATE snapshot SET body = 'x' WHERE task = $1",
    "UPDATE event SET body = 'x' WHERE task = $1",
)
TOKEN = ("UPDATE task SET resume = substr(resume, 1, length(resume) - 3) WHERE number = $1",)
HELD = {**PAIRING, **peers("alice", "bob", "carol")}
EXPIRES_AT_ONCE = {
    "retention.heldSeconds": 1,
    "retention.endedSeconds": 1,
    "retention.sweepSeconds": 1,
}


@pytest.mark.parametrize("damage", [CONTENT, TOKEN], ids=["content", "token"])
async def test_a_damaged_held_task_keeps_nothing_else_from_expiring(
    start_replica: StartReplica, damage: tuple[str, ...]
) -> None:
    a = await start_replica(**HELD)
    names = ("carol", "alice", "bob")
    ended, damaged, held = [await a.as_peer(name).send(name) for name in names]
    assert (await decide(a, ended)).status == 200
    (await a.agent.next_run("carol")).end(Reply.of_text("done"))
    await a.as_peer("carol").wait_ended(ended["id"])
    connection = await a.link.address.connect()
    try:
        number = await connection.fetchval("SELECT number FROM task WHERE id = $1", damaged["id"])
        for statement in damage:
            await connection.execute(statement, number)
    finally:
        await connection.close()
    listed = await operator(a).get("/operator/approvals")
    assert held["id"] in [one["id"] for one in listed.json["approvals"]]
    b = await start_replica(**HELD, **EXPIRES_AT_ONCE)

    async def is_swept() -> bool:
        found = await a.as_peer("carol").call("GetTask", {"id": ended["id"]})
        return "error" in found

    assert await repeat_until(is_swept, deadline_s=TIMEOUT_S)
    found = await b.as_peer("bob").call("GetTask", {"id": held["id"]})
    # The sweep that deletes ended tasks first rejects held ones; it may have deleted this by now.
    assert "error" in found or state_of(found["result"]) == "TASK_STATE_REJECTED"
