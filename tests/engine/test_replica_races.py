"""What replicas do when a notification, an answer or a new name comes in the middle of something."""

import asyncio
from typing import Any

import asyncpg
import pytest
from tests.engine.controlled_agent import TIMEOUT_S
from tests.engine.test_replication import Replica, StartReplica, start_replica

from openclaw_a2a.engine.replication import Replication
from openclaw_a2a.model.errors import StoreUnavailable

__all__ = ["start_replica"]

Json = Any

CANCELED = "TASK_STATE_CANCELED"


class Part:
    """A part of the store of a replica, of which a test changes some methods."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def replication_of(replica: Replica) -> Replication:
    found = replica.gateway.engines[replica.gateway.settings.store].replication
    assert found is not None
    return found


class LosesFirstAnswer(Part):
    """Cannot store the first answer to a request."""

    is_lost = False

    async def answer_handoff(self, number: int, answer: bytes) -> None:
        if not self.is_lost:
            self.is_lost = True
            raise StoreUnavailable("the database is away")
        await self._inner.answer_handoff(number, answer)


async def test_a_task_is_canceled_although_the_answer_of_the_other_replica_was_not_stored(
    start_replica: StartReplica,
) -> None:
    """The request is carried out once more, when the task is canceled already."""
    a, b = await start_replica(), await start_replica()
    replication: Any = replication_of(b)
    store = replication._store = LosesFirstAnswer(replication._store)
    task = await b.send("one", blocking=False)
    await b.agent.next_run()
    canceling = asyncio.create_task(a.call("CancelTask", {"id": task["id"]}))
    while not canceling.done():
        replication.on_handoff()  # not only with the next look
        await asyncio.wait({canceling}, timeout=0.1)
    assert store.is_lost
    assert (await canceling)["result"]["status"]["state"] == CANCELED


async def test_a_request_that_is_stored_again_after_a_lost_connection_is_made_once(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(), await start_replica()
    database: Any = a.gateway.engines[a.gateway.settings.store].store
    fetch_once, inserts = database._fetch_once, 0

    async def lose_first_insert(statement: str, values: Any) -> Any:
        nonlocal inserts
        found = await fetch_once(statement, values)
        if "INSERT INTO handoff" in statement:
            inserts += 1
            if inserts == 1:
                raise asyncpg.ConnectionDoesNotExistError("after it was stored")
        return found

    database._fetch_once = lose_first_insert
    task = await b.send("one", blocking=False)
    await b.agent.next_run()
    connection = await a.link.address.connect()
    try:
        canceled = await a.call("CancelTask", {"id": task["id"]})
        assert canceled["result"]["status"]["state"] == CANCELED
        assert inserts == 2
        assert await connection.fetchval("SELECT count(*) FROM handoff") == 0
    finally:
        await connection.close()


class AnsweredWhileItIsRead(Part):
    """The answer to a request comes while it is looked for, and is not found by that read."""

    poll_s = 600.0
    listener: Replication

    async def take_answer(self, number: int) -> bytes | None:
        found = await self._inner.take_answer(number)
        if found is not None and not vars(self).get("is_told"):
            self.is_told, self.found = True, found
            self.listener.on_answer(number)
            return None
        return found or self.found


async def test_an_answer_that_comes_while_it_is_looked_for_is_read_at_once(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(), await start_replica()
    replication: Any = replication_of(a)
    store = replication._store = AnsweredWhileItIsRead(replication._store)
    store.listener, store.found = replication, None
    task = await b.send("one", blocking=False)
    await b.agent.next_run()
    canceled = await a.call("CancelTask", {"id": task["id"]})
    assert canceled["result"]["status"]["state"] == CANCELED
    assert store.is_told
