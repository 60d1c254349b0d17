"""What happens to writes and reads while PostgreSQL is restarted, killed, or cut off."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import asyncpg
import msgspec
import pytest
from tests.contracts.store_samples import (
    ALICE,
    Draft,
    direct,
    make_lines,
    make_record,
    next_version,
)
from tests.postgres_server import PostgresServer
from tests.store.postgres.conftest import make_store

from openclaw_a2a.model.errors import GatewayError, StoreLocked, StoreUnavailable
from openclaw_a2a.model.ids import OwnerId, TaskId
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.ports import Accepted, LogAppend, Store
from openclaw_a2a.store.group_writer import MAX_GROUP
from openclaw_a2a.store.postgres import link as link_module
from openclaw_a2a.store.postgres.link import LinkState
from openclaw_a2a.store.postgres.store import PostgresStore
from openclaw_a2a.store.rules import Lease

DEADLINE_S = 240.0


async def in_thread(work: Callable[[], None]) -> None:
    await anyio.to_thread.run_sync(work)


class Progress:
    """Counts what was acknowledged, and lets a test wait for a number."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._grown = anyio.Event()

    def add(self, name: str) -> None:
        self.names.append(name)
        grown, self._grown = self._grown, anyio.Event()
        grown.set()

    async def wait(self, count: int) -> None:
        while len(self.names) < count:
            await self._grown.wait()


async def write_tasks(store: Store, name: str, count: int, progress: Progress) -> None:
    """Tasks with their events, one after the other."""
    for number in range(count):
        draft = Draft(f"{name}-{number}")
        await store.tasks.submit(draft.submission())
        await store.tasks.commit(draft.status(TaskState.WORKING, at=1))
        await store.tasks.commit(draft.chunk("a"))
        await store.tasks.commit(draft.ended(at=2))
        progress.add(draft.name)


@pytest.mark.parametrize("how", [PostgresServer.stop, PostgresServer.kill])
async def test_writes_under_way_survive_a_restart_of_the_database(
    own_server: PostgresServer, how: Callable[[PostgresServer], None]
) -> None:
    store = make_store(own_server)
    await store.open()
    writers, each = 8, 60
    progress = Progress()

    async def restart() -> None:
        for number in (1, 2, 3):
            await progress.wait(number * writers * each // 5)
            await in_thread(lambda: how(own_server))
            await in_thread(own_server.start)

    with anyio.fail_after(2 * DEADLINE_S):
        work = [write_tasks(store, f"w{number}", each, progress) for number in range(writers)]
        await asyncio.gather(*work, restart())
    expected = set(progress.names)
    assert len(expected) == writers * each
    for name in expected:
        events = await store.tasks.read_events(ALICE, TaskId(name), after=0, limit=10)
        assert [event.sequence for event in events] == [1, 2, 3]
    assert await store.tasks.count_tasks() == len(expected)
    await store.check()
    await store.close()


async def wait_state(store: PostgresStore, state: LinkState) -> None:
    with anyio.fail_after(DEADLINE_S):
        while store.link.state is not state:
            await anyio.lowlevel.checkpoint()


async def test_a_lost_database_is_noticed_at_once_and_named_until_it_is_back(
    own_server: PostgresServer,
) -> None:
    store = make_store(own_server)
    await store.open()
    await store.check()
    await in_thread(own_server.stop)
    await wait_state(store, LinkState.RECOVERING)
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1"):
        await store.check()
    waiting = store.tasks.submit(direct("t-1"))
    await in_thread(own_server.start)
    with anyio.fail_after(DEADLINE_S):
        assert isinstance(await waiting, Accepted)
    await store.check()
    await store.close()


async def test_after_the_hold_time_writes_fail_and_the_store_still_comes_back(
    own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "HOLD_S", 0.2)
    store = make_store(own_server)
    await store.open()
    await in_thread(own_server.stop)
    await wait_state(store, LinkState.RECOVERING)
    with anyio.fail_after(DEADLINE_S):
        with pytest.raises(StoreUnavailable):
            await store.tasks.submit(direct("t-1"))
        await wait_state(store, LinkState.DOWN)
        with pytest.raises(StoreUnavailable):
            await store.tasks.submit(direct("t-2"))
        await in_thread(own_server.start)
        await wait_state(store, LinkState.CONNECTED)
        assert isinstance(await store.tasks.submit(direct("t-3")), Accepted)
    claimed = await store.tasks.claim_runs(OwnerId("b"))
    assert [run.task_id for run in claimed] == ["t-3"]
    await store.close()


async def test_work_that_was_stored_although_its_write_was_given_up_goes_to_another_replica(
    own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sender was told that the database is away, so nobody works on it where it was sent."""
    monkeypatch.setattr(link_module, "HOLD_S", 0.2)
    a, b = make_store(own_server, lease=Lease(60, "a")), make_store(own_server, lease=Lease(60))
    await a.open()
    await b.open()

    class StoppedAfterwards(CutConnection):
        async def _cut(self, send: Callable[[], Awaitable[Any]]) -> Any:
            await send()
            await in_thread(own_server.stop)
            raise ConnectionResetError("cut by the test")

    before, submission = a.link.name, direct("t-1")
    run = msgspec.structs.replace(submission.run, owner=OwnerId(before))
    submission = msgspec.structs.replace(submission, run=run)
    a.link._connection = StoppedAfterwards(a.link._connection, after=True)
    with anyio.fail_after(DEADLINE_S):
        with pytest.raises(StoreUnavailable):
            await a.tasks.submit(submission)
        await wait_state(a, LinkState.DOWN)
        await in_thread(own_server.start)
        await wait_state(a, LinkState.CONNECTED)
        await wait_state(b, LinkState.CONNECTED)
        claimed = await b.tasks.claim_runs(OwnerId(b.link.name))
    assert [run.task_id for run in claimed] == ["t-1"]
    assert a.link.name != before
    await a.close()
    await b.close()


class CutConnection:
    """A connection that is lost around the batches: before they reach the server, or after."""

    def __init__(self, inner: Any, *, after: bool) -> None:
        self._inner = inner
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def fetchrow(self, text: str, *values: object) -> Any:
        return await self._cut(lambda: self._inner.fetchrow(text, *values))

    async def _cut(self, send: Callable[[], Awaitable[Any]]) -> Any:
        if self._after:
            await send()
        self._inner.terminate()
        raise ConnectionResetError("cut by the test")


@pytest.mark.parametrize("after", [False, True], ids=["before-the-commit", "after-the-commit"])
async def test_a_batch_whose_answer_is_lost_is_done_exactly_once(
    store: PostgresStore, after: bool
) -> None:
    draft, record = Draft("t-1"), make_record("r-1")
    await store.records.put_record(record)
    link = store.link
    link._connection = CutConnection(link._connection, after=after)
    with anyio.fail_after(DEADLINE_S):
        outcomes = await asyncio.gather(
            store.tasks.submit(draft.submission()),
            store.tasks.submit(direct("t-2")),
            store.records.update_record(next_version(record)),
        )
    accepted = [one for one in outcomes if isinstance(one, Accepted)]
    assert len(accepted) == 2
    assert accepted[0].ticket < accepted[1].ticket
    assert outcomes[2] is True
    claimed = await store.tasks.claim_runs(OwnerId("b"))
    assert [(run.id, run.ticket) for run in claimed] == [
        ("run-t-1", accepted[0].ticket),
        ("run-t-2", accepted[1].ticket),
    ]
    stored = await store.records.read_record(record.kind, record.id)
    assert stored == next_version(record)


async def test_writes_wait_when_the_connection_is_lost_between_two_batches_of_their_group(
    store: PostgresStore,
) -> None:
    link, lines = store.link, make_lines(0, 1)

    class LostAfterwards(CutConnection):
        async def _cut(self, send: Callable[[], Awaitable[Any]]) -> Any:
            row = await send()
            link.note_loss(ConnectionResetError("cut by the test"))
            return row

    assert await store.logs.append_log(LogAppend("objective", "one", lines, after=0))
    link._connection = LostAfterwards(link._connection, after=True)
    with anyio.fail_after(DEADLINE_S):
        # One statement cannot delete a log and make it again.
        outcomes = await asyncio.gather(
            store.logs.delete_log("objective", "one"),
            store.logs.append_log(LogAppend("objective", "one", lines, after=0)),
        )
    assert outcomes == [True, True]


async def test_a_batch_that_ends_every_connection_is_given_up_and_the_next_is_written(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = store.link
    use = link._use

    async def use_and_cut(connection: Any) -> None:
        await use(connection)
        link._connection = CutConnection(connection, after=False)

    link._connection = CutConnection(link._connection, after=False)
    monkeypatch.setattr(link, "_use", use_and_cut)
    with anyio.fail_after(DEADLINE_S):
        with pytest.raises(StoreUnavailable, match="5 times"):
            await store.tasks.submit(direct("t-1"))
        monkeypatch.undo()
        link._connection = link.connection._inner
        assert isinstance(await store.tasks.submit(direct("t-2")), Accepted)


async def test_a_commit_in_doubt_is_acknowledged_only_when_the_standby_has_it(
    own_server: PostgresServer,
) -> None:
    """A session that is ended while it waits for a standby leaves a commit that can be seen."""
    store = make_store(own_server)
    await store.open()
    await store.tasks.submit(direct("t-1"))
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid <> $1"
    connection = await asyncpg.connect(f"{own_server.url()}?synchronous_commit=local")
    try:
        with anyio.fail_after(DEADLINE_S):
            await connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            await connection.execute("SELECT pg_reload_conf()")
            names = "SHOW synchronous_standby_names"
            while await connection.fetchval(names) != "nobody":
                await anyio.lowlevel.checkpoint()
            number, writing = 2, store.tasks.submit(direct("t-2"))
            while not await connection.fetchval(waiting, 0):
                await anyio.lowlevel.checkpoint()
                if writing.done():  # the server had not told its sessions of the standby yet
                    number, writing = number + 1, store.tasks.submit(direct(f"t-{number + 1}"))
            assert store.link._backend is not None
            old = store.link._backend[0]
            await connection.execute("SELECT pg_terminate_backend($1)", old)
            while not writing.done() and not await connection.fetchval(waiting, old):
                await anyio.lowlevel.checkpoint()
            assert not writing.done()
            await connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            await connection.execute("SELECT pg_reload_conf()")
            assert isinstance(await writing, Accepted)
    finally:
        await connection.close()
    await store.close()


async def test_a_dead_writer_leaves_no_write_waiting_and_the_store_can_be_closed(
    postgres: PostgresServer, schema: str
) -> None:
    store = make_store(postgres, schema)
    await store.open()
    await store.tasks.submit(direct("first"))
    writes = [store.tasks.submit(direct(f"t-{number}")) for number in range(2 * MAX_GROUP)]
    assert store.writer._task is not None
    store.writer._task.cancel()
    with anyio.fail_after(DEADLINE_S):
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        assert all("has died" in str(one) for one in outcomes)
        with pytest.raises(StoreUnavailable, match="has died"):
            await store.check()
        await store.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.tasks.submit(direct("t-1"))


async def test_a_store_has_one_gateway_and_the_error_names_it(
    store: PostgresStore, postgres: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "STORE_WAIT_S", 0.2)
    second = make_store(postgres, schema)
    with pytest.raises(StoreLocked, match=r"process \d+ on .+ uses postgres://") as refused:
        await second.open()
    assert refused.value.details["pid"]
    await store.tasks.submit(direct("t-1"))


async def test_a_gateway_that_lost_the_store_to_another_one_says_so_and_does_not_write(
    postgres: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "HOLD_S", 0.5)
    first, second = make_store(postgres, schema), make_store(postgres, schema)
    await first.open()
    await first.tasks.submit(direct("t-1"))
    # The first one is cut off, and the second is faster than its way back.
    link = first.link
    connection, link._connection = link._connection, None
    await connection.close()
    await second.open()
    link.note_loss(ConnectionResetError("cut by the test"))
    with anyio.fail_after(DEADLINE_S):
        with pytest.raises(StoreUnavailable, match="uses postgres://"):
            await first.tasks.submit(direct("t-2"))
        claimed = await second.tasks.claim_runs(OwnerId("b"))
        assert [run.task_id for run in claimed] == ["t-1"]
        await second.close()
        # Now the first gets the store again; what it had is not its own any more.
        link.state = LinkState.DOWN if link.state is LinkState.RECOVERING else link.state
        await wait_state(first, LinkState.CONNECTED)
        with pytest.raises(GatewayError):
            await first.tasks.start_run(claimed[0].id, fence=1, attempt=1)
    assert link.takeovers == 1
    await first.close()


async def test_the_session_of_a_lost_connection_is_ended_before_its_batch_is_looked_for(
    store: PostgresStore, postgres: PostgresServer
) -> None:
    """A server that has not noticed the loss would keep the lock, and could still commit."""
    link = store.link
    old = link._connection
    backend = old.get_server_pid()
    link._connection = None
    link.note_loss(ConnectionResetError("cut by the test"))
    store.writer.wake()
    with anyio.fail_after(DEADLINE_S):
        assert isinstance(await store.tasks.submit(direct("t-1")), Accepted)
    connection = await asyncpg.connect(postgres.url())
    try:
        alive = await connection.fetchval(
            "SELECT true FROM pg_stat_activity WHERE pid = $1", backend
        )
    finally:
        await connection.close()
    assert alive is None
    old.terminate()


async def test_reads_wait_for_a_database_that_restarts(own_server: PostgresServer) -> None:
    store = make_store(own_server)
    await store.open()
    await store.tasks.submit(Draft("t-1").submission())
    await in_thread(own_server.stop)
    with anyio.fail_after(DEADLINE_S):
        reading = store.tasks.read_task(ALICE, TaskId("t-1"))
        found, _ = await asyncio.gather(reading, in_thread(own_server.start))
    assert found is not None
    await store.close()


async def test_a_store_that_is_closed_while_it_connects_again_is_closed(
    postgres: PostgresServer, schema: str
) -> None:
    store = make_store(postgres, schema)
    await store.open()
    store.link.note_loss(ConnectionResetError("cut by the test"))
    store.writer.wake()
    await anyio.lowlevel.checkpoint()
    waiting = store.tasks.submit(direct("t-1"))
    with anyio.fail_after(DEADLINE_S):
        await store.close()
    assert isinstance(await waiting, Accepted)


async def test_an_idle_store_that_is_closed_while_it_connects_again_is_closed(
    postgres: PostgresServer, schema: str
) -> None:
    store = make_store(postgres, schema)
    await store.open()
    store.link.note_loss(ConnectionResetError("cut by the test"))
    store.writer.wake()
    await anyio.lowlevel.checkpoint()
    with anyio.fail_after(DEADLINE_S):
        await store.close()
