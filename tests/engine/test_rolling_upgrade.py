"""Two versions of the gateway at once: the older one on the newer one's schema and requests."""

import asyncio
import json
from typing import Any

import pytest
from tests.engine.controlled_agent import TIMEOUT_S
from tests.engine.test_replication import Replica, StartReplica, next_run, start_replica, text_of
from tests.postgres_server import PostgresServer
from tests.replicas.cluster import repeat_until
from tests.store.postgres.next_schema import apply_next

from openclaw_a2a.model.agent_event import Reply, TextDelta
from openclaw_a2a.model.ids import OwnerId
from openclaw_a2a.ports import Recovery
from openclaw_a2a.store.postgres.replicas import PostgresReplicas

__all__ = ["start_replica"]

Json = Any


def replicas_of(replica: Replica) -> PostgresReplicas:
    """The part of its store that replicas share."""
    gateway = replica.gateway
    found = gateway.engines[gateway.settings.store].store.replicas
    assert isinstance(found, PostgresReplicas)
    return found


async def ask(sender: Replica, receiver: Replica, body: Json) -> Json:
    """What a replica answers to a request, whatever it is."""
    store = replicas_of(sender)
    number = await store.hand_off(OwnerId(replicas_of(receiver).id), json.dumps(body).encode())
    found: list[bytes] = []

    async def is_answered() -> bool:
        answer = await store.take_answer(number)
        found.extend([] if answer is None else [answer])
        return bool(found)

    assert await repeat_until(is_answered, deadline_s=TIMEOUT_S)
    return json.loads(found[0])


@pytest.mark.parametrize("start_replica", ["replicas_next"], indirect=True)
async def test_replicas_of_the_version_before_work_on_the_next_schema(
    start_replica: StartReplica, postgres: PostgresServer
) -> None:
    a = await start_replica(Recovery.REPEAT)
    task = await a.send("before", blocking=False)
    run = await a.agent.next_run()
    schema = a.gateway.settings.store.schema
    await apply_next(postgres.url(), schema)
    b = await start_replica(Recovery.REPEAT)
    # A stream at the other one, a message of the same session, and its hand-off.
    async with b.stream("SubscribeToTask", {"id": task["id"]}) as next_event:
        assert (await next_event())["task"]["id"] == task["id"]
        follow_up = asyncio.create_task(b.send("next", contextId=task["contextId"]))
        run.tell(TextDelta("one "))
        run.end(Reply.of_text("one two"))
        while (event := await next_event()) is not None:
            last = event
    assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    _, second = await next_run(a, b)
    second.end(Reply.of_text("three"))
    assert text_of(await follow_up) == "three"
    # One of them dies, and the other one takes over.
    task = await a.send("last", blocking=False)
    await a.agent.next_run()
    a.pause()
    again = await b.agent.next_run()
    again.end(Reply.of_text("taken over"))

    async def is_over() -> bool:
        found = (await b.call("GetTask", {"id": task["id"]}))["result"]
        return text_of(found) == "taken over"

    assert await repeat_until(is_over, deadline_s=TIMEOUT_S)


async def test_a_request_may_have_members_of_a_newer_version(start_replica: StartReplica) -> None:
    a, b = await start_replica(), await start_replica()
    task = await a.send("hello", blocking=False)
    await a.agent.next_run()
    body = {"type": "cancel", "scope": None, "task_id": task["id"], "grace": {"seconds": 3}}
    assert "code" not in await ask(b, a, body)
    state = (await b.call("GetTask", {"id": task["id"]}))["result"]["status"]["state"]
    assert state == "TASK_STATE_CANCELED"


async def test_a_request_may_lack_members_that_an_older_version_does_not_know(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(), await start_replica()
    message = {"messageId": "m-old", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    scope = {"principal": "local", "account": "default"}
    asked = asyncio.create_task(
        ask(b, a, {"type": "message", "scope": scope, "message": message, "is_blocking": False})
    )
    run = await a.agent.next_run()
    answer = await asked
    assert answer["task_id"]
    run.end(Reply.of_text("done"))


@pytest.mark.parametrize("body", [{"type": "of-a-newer-version"}, {"type": "cancel"}, [1]])
async def test_a_request_that_is_not_known_is_refused_and_may_be_sent_again(
    start_replica: StartReplica, body: Json
) -> None:
    a, b = await start_replica(), await start_replica()
    answer = await ask(b, a, body)
    assert answer["code"] == "overloaded"
    assert "does not know" in answer["message"]


async def test_a_notification_that_is_not_known_is_passed_over(start_replica: StartReplica) -> None:
    a, b = await start_replica(), await start_replica()
    for payload in ("z of a newer version", "", "a not-a-number", "h more"):
        replicas_of(b).feed.send(OwnerId(replicas_of(a).id), payload)
    task = await a.send("hello", blocking=False)
    run = await a.agent.next_run()
    async with b.stream("SubscribeToTask", {"id": task["id"]}) as next_event:
        assert (await next_event())["task"]["id"] == task["id"]
        run.end(Reply.of_text("done"))
        while (event := await next_event()) is not None:
            last = event
    assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert replicas_of(a).feed.lag_ms is not None
