"""Outcomes that one gateway gives to another arrive, whatever is lost between the two."""

import asyncio
from collections.abc import Iterable
from typing import Any

from tests.calls.call_gateway import SessionHost
from tests.calls.test_replicas import A, AgentWithoutSessions, Replica, StartReplica
from tests.calls.test_replicas import host as host
from tests.calls.test_replicas import start_replica as start_replica

from openclaw_a2a.store.postgres import replicas as replicas_module


def set_search(replica: Replica, polls: float) -> None:
    """How often a replica looks for deliveries that it was not told of."""
    assert replica.running is not None
    [engine] = replica.running.engines.values()
    assert engine.replication is not None
    engine.replication.search_polls = polls


def lose_delivery_notifications(replica: Replica) -> asyncio.Event:
    """Have a replica tell nobody that a delivery is theirs; set when it would have."""
    feed, is_lost = replica.store.replicas.feed, asyncio.Event()
    send = feed.send

    def send_others(receiver: Any, payload: str) -> None:
        if payload == "d":
            is_lost.set()
        else:
            send(receiver, payload)

    feed.send = send_others
    return is_lost


async def test_an_outcome_is_delivered_although_its_new_replica_is_not_told(
    start_replica: StartReplica, host: SessionHost
) -> None:
    left = await start_replica("left")
    right = await start_replica("right", kind=AgentWithoutSessions)
    set_search(left, 0.2)
    is_lost = lose_delivery_notifications(right)
    call = await right.call("a", "b")
    await is_lost.wait()
    [outcome] = await host.wait_messages(A)
    assert outcome["correlationId"] == call["correlationId"]


async def test_an_outcome_is_delivered_although_its_new_replica_did_not_listen_at_that_moment(
    start_replica: StartReplica, host: SessionHost
) -> None:
    left = await start_replica("left")
    right = await start_replica("right", kind=AgentWithoutSessions)
    set_search(left, 10_000)
    is_lost = lose_delivery_notifications(right)
    call = await right.call("a", "b")
    await is_lost.wait()
    feed = left.store.replicas.feed
    feed.listen(left.store.replicas.id, feed._listener)  # connects again
    [outcome] = await host.wait_messages(A)
    assert outcome["correlationId"] == call["correlationId"]


async def test_an_outcome_is_delivered_although_the_connection_is_lost_as_it_is_passed_on(
    start_replica: StartReplica, host: SessionHost
) -> None:
    left = await start_replica("left")
    right = await start_replica("right", kind=AgentWithoutSessions)
    set_search(left, 10_000)
    database, losses = right.store.replicas._database, [ConnectionResetError("the answer is lost")]
    fetch_once = database._fetch_once

    async def lose_answer(statement: str, values: Iterable[object]) -> Any:
        rows = await fetch_once(statement, values)
        if statement == replicas_module._GIVE_DELIVERY and losses:
            raise losses.pop()
        return rows

    database._fetch_once = lose_answer
    call = await right.call("a", "b")
    [outcome] = await host.wait_messages(A)
    assert outcome["correlationId"] == call["correlationId"]
    assert not losses
