"""Replicas get a notification, an answer or a new name in the middle of something."""

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest
from tests.calls.test_delivery_order import over
from tests.engine.controlled_agent import TIMEOUT_S
from tests.engine.test_replica_limits import PAIRING, decide
from tests.engine.test_replication import Replica, StartReplica, start_replica

from openclaw_a2a.calls.outcome_delivery import OutcomeDelivery
from openclaw_a2a.calls.repository import CallRepository
from openclaw_a2a.calls.session_hosts import SessionHosts
from openclaw_a2a.engine.replication import Replication
from openclaw_a2a.model.agent_event import Reply
from openclaw_a2a.model.call import CALL_KIND
from openclaw_a2a.model.delivery import delivery_id
from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.model.ids import OwnerId, SessionKey
from openclaw_a2a.store.postgres import replicas as replicas_module
from openclaw_a2a.store.postgres.change_feed import ChangeFeed, channel_of

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


class LosesAnswers(Part):
    """Cannot store the first answers to requests."""

    def __init__(self, inner: Any, count: int) -> None:
        super().__init__(inner)
        self.count = count
        self.is_lost = asyncio.Event()

    async def answer_handoff(self, number: int, answer: bytes) -> None:
        self.count -= 1
        if self.count >= 0:
            self.is_lost.set()
            raise StoreUnavailable("the database is away")
        await self._inner.answer_handoff(number, answer)


def lose_answers(replica: Replica, count: int) -> LosesAnswers:
    replication: Any = replication_of(replica)
    replication.store = LosesAnswers(replication.store, count)
    return replication.store


async def test_a_task_is_canceled_although_the_answer_of_the_other_replica_was_not_stored(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(), await start_replica()
    store = lose_answers(b, 1)
    task = await b.send("one", blocking=False)
    await b.agent.next_run()
    canceled = await a.call("CancelTask", {"id": task["id"]})
    assert canceled["result"]["status"]["state"] == CANCELED
    assert store.is_lost.is_set()


async def test_a_task_is_canceled_although_the_other_replica_is_gone_before_its_answer(
    start_replica: StartReplica,
) -> None:
    """The request is carried out once more, when the task is canceled already."""
    a, b = await start_replica(), await start_replica()
    store = lose_answers(b, 1_000_000)
    task = await b.send("one", blocking=False)
    await b.agent.next_run()
    canceling = asyncio.create_task(a.call("CancelTask", {"id": task["id"]}))
    await asyncio.wait_for(store.is_lost.wait(), TIMEOUT_S)
    async with b.taken_for_dead():
        pass
    await a.take_over()
    assert (await canceling)["result"]["status"]["state"] == CANCELED
    store.count = 0


async def test_a_held_task_is_allowed_although_the_answer_of_the_other_replica_was_not_stored(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(**PAIRING), await start_replica(**PAIRING)
    held = await a.as_peer("alice").send("first")
    here: Any = replication_of(a)
    kept: list[Any] = []

    async def hold_at_b(session_key: SessionKey) -> Any:
        kept.append(await replication_of(b).hold(session_key))
        return b.name

    here.hold = hold_at_b
    store = lose_answers(b, 1)
    assert (await decide(a, held)).status == 200
    assert store.is_lost.is_set()
    (await b.agent.next_run("first")).end(Reply.of_text("done"))
    await a.as_peer("alice").wait_ended(held["id"])
    kept[0].release()


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
    store = replication.store = AnsweredWhileItIsRead(replication.store)
    store.listener, store.found = replication, None
    task = await b.send("one", blocking=False)
    await b.agent.next_run()
    canceled = await a.call("CancelTask", {"id": task["id"]})
    assert canceled["result"]["status"]["state"] == CANCELED
    assert store.is_told


class FakeConnection:
    """A connection of a change feed; the replica gets another name while it begins to listen."""

    def __init__(self, address: "FakeAddress") -> None:
        self._address = address
        self.is_open = True

    async def add_listener(self, channel: str, _receive: Any) -> None:
        address = self._address
        address.channels.put_nowait(channel)
        if channel == channel_of(OwnerId("old")):
            address.feed.listen(OwnerId("new"), address.listener)

    async def execute(self, _statement: str, *_values: object) -> None:
        assert self.is_open

    def terminate(self) -> None:
        self.is_open = False


class FakeAddress:
    """Where a change feed connects."""

    feed: ChangeFeed
    listener: Any = None

    def __init__(self) -> None:
        self.channels: asyncio.Queue[str] = asyncio.Queue()
        self.connections: list[FakeConnection] = []

    async def connect(self) -> FakeConnection:
        self.connections.append(FakeConnection(self))
        return self.connections[-1]


async def test_a_replica_that_is_renamed_while_it_begins_to_listen_hears_its_new_name() -> None:
    address: Any = FakeAddress()
    feed = address.feed = ChangeFeed(address, lambda: None, lambda: None)
    feed.listen(OwnerId("old"), address.listener)
    running = asyncio.create_task(feed.run())
    try:
        for name in ("old", "new"):
            async with asyncio.timeout(TIMEOUT_S):
                assert await address.channels.get() == channel_of(OwnerId(name))
        assert [one.is_open for one in address.connections] == [False, True]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_replica_that_comes_while_the_list_of_replicas_is_read_is_seen_at_once(
    start_replica: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas_module, "_WATCH_S", 600.0)
    a = await start_replica(lease_s=3600)
    replicas: Any = a.gateway.engines[a.gateway.settings.store].store.replicas
    database, reads = replicas._database, asyncio.Queue[None]()

    class Notified(Part):
        has_told = False

        async def fetch(self, statement: str, *values: object) -> Any:
            found = await self._inner.fetch(statement, *values)
            if statement == replicas_module._OTHERS:
                reads.put_nowait(None)
                if not self.has_told:
                    self.has_told = True
                    replicas.feed._receive(None, 0, "", "j")
            return found

    replicas._database = Notified(database)
    try:
        replicas.feed._receive(None, 0, "", "j")
        for _ in range(2):
            await asyncio.wait_for(reads.get(), TIMEOUT_S)
    finally:
        replicas._database = database


class LosesItsName(Part):
    """Another replica takes this one for dead while a session is acquired."""

    listener: Replication
    is_lost = False

    async def hold_session(self, session_key: SessionKey) -> Any:
        found = await self._inner.hold_session(session_key)
        if not self.is_lost:
            self.is_lost = True
            self.listener.on_lost()
            # As the others do then: from now on another one may have it.
            await self.inner_free(session_key)
        return found

    async def inner_free(self, session_key: SessionKey) -> None:
        connection = await self._inner._database.link.address.connect()
        try:
            taken = "UPDATE session SET owner = $2 WHERE key = $1"
            await connection.execute(taken, session_key, self.other)
        finally:
            await connection.close()

    other: str = ""


async def test_a_session_that_is_acquired_while_this_replica_is_taken_for_dead_is_not_held(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(), await start_replica()
    replication: Any = replication_of(a)
    store = replication.store = LosesItsName(replication.store)
    store.listener, store.other = replication, b.name
    async with asyncio.timeout(TIMEOUT_S):
        assert await replication.hold(SessionKey("agent:main:c-1")) == b.name


async def test_two_replicas_that_send_a_decision_to_each_other_do_not_wait_for_each_other(
    start_replica: StartReplica,
) -> None:
    """The session was at the other one when the first one asked, and is here by now."""
    a, b = await start_replica(**PAIRING), await start_replica(**PAIRING)
    held = await a.as_peer("alice").send("first")
    replication: Any = replication_of(a)
    hold, kept = replication.hold, []

    async def hold_late(session_key: SessionKey) -> Any:
        if kept:
            return await hold(session_key)
        kept.append(await hold(session_key))
        return b.name

    replication.hold = hold_late
    assert (await decide(a, held)).status == 200
    (await a.agent.next_run("first")).end(Reply.of_text("done"))
    await a.as_peer("alice").wait_ended(held["id"])
    kept[0].release()


class RenamedWhileItReads(Part):
    """Records of a replica that is taken for dead, or not, while they are listed."""

    rename: Callable[[], None]

    async def list_records(self, kind: str) -> Any:
        found = await self._inner.list_records(kind)
        self.rename()
        return found


class Renamed(Part):
    """The store of a replica with another name."""

    id = OwnerId("renamed")


@pytest.mark.parametrize("is_renamed", [False, True], ids=["not renamed", "renamed"])
async def test_a_replica_that_is_renamed_while_it_reads_calls_takes_none_over(
    start_replica: StartReplica, *, is_renamed: bool
) -> None:
    a = await start_replica()
    engine = a.gateway.engines[a.gateway.settings.store]
    replication: Any = replication_of(a)
    before, records = replication.store, RenamedWhileItReads(engine.store.records)
    calls = CallRepository(records, engine.store.deliveries, is_shared=True)  # type: ignore[arg-type]
    delivery = OutcomeDelivery(
        engine, calls, hosts=SessionHosts({}), post_webhook=None, wake=lambda _: None
    )

    def rename() -> None:
        if is_renamed:
            replication.store = Renamed(before)
            delivery.drop()

    records.rename = rename
    call = over(1)
    await engine.store.records.put_record(calls.to_record(call))
    taken = {delivery_id(CALL_KIND, call.task_id, call.id)}
    try:
        await delivery.take_over(taken, replication.id)
    finally:
        replication.store = before
    assert (calls.find(call.id) is None) is is_renamed
