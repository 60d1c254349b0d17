"""Whatever happens to a durable store and to one in memory, they show the same."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import ClassVar, cast

import msgspec
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.contracts.store_samples import (
    ALICE,
    BOB,
    Draft,
    StoreHarness,
    direct,
    make_delivery,
    make_lines,
    make_record,
    make_run,
    next_version,
    project_task,
    time_at,
)
from tests.postgres_server import PostgresServer

from openclaw_a2a.model.delivery import DeliveryState
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import ContextId, OwnerId, RunId, TaskId
from openclaw_a2a.model.records import RunRecord, StoredTask
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import (
    Accepted,
    LogAppend,
    Record,
    Retention,
    Store,
    StoredLog,
    TaskKey,
    TaskQuery,
)
from openclaw_a2a.store.contents import LARGE_BYTES

NAMES = st.sampled_from(["a", "b", "c", "d"])
SCOPES = st.sampled_from([ALICE, BOB])
STATES = st.sampled_from([TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.COMPLETED])
TIMES = st.integers(0, 40)
TEXTS = st.sampled_from(["x", "x" * LARGE_BYTES, 'ä "\n' * LARGE_BYTES])
FENCES = st.sampled_from([1, 1, 1, 2, 3])
KINDS = st.sampled_from(["call", "handle"])
VERSIONS = st.integers(0, 3)
LOG_KINDS = ("objective", "diary")
LOG_IDS = ("obj-1", "obj_1", "obj-2", "x")
LOGS = st.tuples(st.sampled_from(LOG_KINDS), st.sampled_from(LOG_IDS))

Do = Callable[[Store], Awaitable[object]]


def shown(result: object) -> object:
    """A result in a form that does not tell how it was stored."""
    if isinstance(result, StoredTask):
        return result.head, project_task(result)
    if isinstance(result, Accepted):
        return "accepted"
    if isinstance(result, list):
        return [
            msgspec.structs.replace(one, ticket=0) if isinstance(one, RunRecord) else one
            for one in cast("list[object]", result)
        ]
    return result


def _scope_of(name: str) -> Scope:
    return ALICE if name in "ab" else BOB


class TwoStores(RuleBasedStateMachine):
    """Every step is done to both; outcomes and what readers see must agree."""

    kind = "sqlite"

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.memory = StoreHarness("memory", Path(self.folder.name)).store
        self.harness = self.make_harness()
        self.runner.run(self.harness.store.open())
        self.drafts: dict[str, Draft] = {}
        self.runs = 0
        self.changes = 0

    def make_harness(self) -> StoreHarness:
        return StoreHarness(self.kind, Path(self.folder.name))

    def teardown(self) -> None:
        self.runner.run(self.harness.store.close())
        self.runner.close()
        self.folder.cleanup()

    def both(self, do: Do) -> object:
        """Do it to both and compare; what came of it."""
        expected = self.runner.run(_outcome(do, self.memory))
        found = self.runner.run(_outcome(do, self.harness.store))
        assert found == expected
        return found

    @rule(
        name=NAMES,
        at=TIMES,
        is_task=st.booleans(),
        record=st.none() | NAMES,
        rests=st.sampled_from([None, TaskState.COMPLETED, TaskState.INPUT_REQUIRED]),
    )
    def submit(
        self, name: str, at: int, is_task: bool, record: str | None, rests: TaskState | None
    ) -> None:
        draft = Draft(name, scope=_scope_of(name))
        draft.run = self._new_run(draft.run)
        submission = msgspec.structs.replace(draft.submission(at), run=draft.run)
        if is_task and rests is not None:  # the agent answered, or paused, at once
            change = msgspec.structs.replace(draft.ended(rests, at), after=-1, resume=b"token")
            submission = msgspec.structs.replace(submission, commit=change)
        if record is not None:
            stored = make_record(record, kind="call", until=at)
            submission = msgspec.structs.replace(submission, record=stored)
        if not is_task:
            submission = msgspec.structs.replace(submission, commit=None)
        outcome = self.both(lambda store: store.tasks.submit(submission))
        if outcome == "accepted" and is_task:
            self.drafts[name] = draft

    @rule(name=NAMES, state=STATES, at=TIMES, fence=FENCES, whole=st.booleans(), text=TEXTS)
    def change(
        self, name: str, state: TaskState, at: int, fence: int, whole: bool, text: str
    ) -> None:
        draft = self.drafts.get(name)
        if draft is None:
            return
        before = draft.head, draft.task
        change = draft.chunk(text) if state is TaskState.WORKING else draft.status(state, at)
        if whole:
            change = draft.whole(change)
        if state is not TaskState.WORKING:
            change = msgspec.structs.replace(change, ends_run=True, resume=b"token")
        change = msgspec.structs.replace(change, fence=fence)
        if self.both(lambda store: store.tasks.commit(change)) is not None:
            draft.head, draft.task = before

    @rule(name=NAMES, message=NAMES, at=TIMES)
    def answer_a_pause(self, name: str, message: str, at: int) -> None:
        draft = self.drafts.get(name)
        if draft is None:
            return
        before = draft.head, draft.task, draft.run
        change = draft.whole(draft.status(TaskState.SUBMITTED, at))
        again = direct(f"more-{message}", scope=draft.head.scope, at=at)
        draft.run = self._new_run(msgspec.structs.replace(again.run, task_id=draft.head.id))
        change = msgspec.structs.replace(change, run_id=None)
        submission = msgspec.structs.replace(again, run=draft.run, commit=change)
        if self.both(lambda store: store.tasks.submit(submission)) != "accepted":
            draft.head, draft.task, draft.run = before

    @rule(number=st.integers(0, 5), fence=FENCES)
    def start(self, number: int, fence: int) -> None:
        run_id = self._recent_run(number)
        self.both(lambda store: store.tasks.start_run(run_id, fence=fence, attempt=2))

    @rule(number=st.integers(0, 5), fence=FENCES)
    def answer(self, number: int, fence: int) -> None:
        run_id = self._recent_run(number)
        self.both(lambda store: store.tasks.finish_run(run_id, fence=fence, answer=b"{}"))

    @rule(owner=st.sampled_from(["gateway-1", "x", "y"]))
    def claim(self, owner: str) -> None:
        self.both(lambda store: store.tasks.claim_runs(OwnerId(owner)))

    @rule(name=NAMES, scope=SCOPES)
    def delete(self, name: str, scope: Scope) -> None:
        if self.both(lambda store: store.tasks.delete_task(scope, TaskId(name))) is True:
            self.drafts.pop(name, None)

    @rule(kind=KINDS, name=NAMES, version=VERSIONS, at=TIMES)
    def put_record(self, kind: str, name: str, version: int, at: int) -> None:
        record = self._record(kind, name, version, at)
        self.both(lambda store: store.records.put_record(record))

    @rule(kind=KINDS, name=NAMES, version=VERSIONS, at=TIMES)
    def update_record(self, kind: str, name: str, version: int, at: int) -> None:
        record = self._record(kind, name, version, at)
        self.both(lambda store: store.records.update_record(record))

    @rule(kind=KINDS, name=NAMES)
    def change_a_kept_record(self, kind: str, name: str) -> None:
        stored = self.runner.run(_record(self.memory, kind, name))
        if stored is not None:
            self.changes += 1
            newer = next_version(stored, body=f"change {self.changes}".encode())
            assert self.both(lambda store: store.records.update_record(newer)) is True

    @rule(kind=KINDS, name=NAMES)
    def delete_record(self, kind: str, name: str) -> None:
        self.both(lambda store: store.records.delete_record(kind, name))

    @rule(log=LOGS, count=st.integers(1, 3), ending=st.sampled_from(["", "closes", "reopens"]))
    def append_to_a_log(self, log: tuple[str, str], count: int, ending: str) -> None:
        stored = self.runner.run(_log(self.memory, *log))
        after, was_closed = (0, False) if stored is None else (stored.sequence, stored.is_closed)
        stays_closed = ending == "closes" or (was_closed and ending != "reopens")
        bodies = make_lines(after, count, closes=stays_closed)
        words = {} if not ending else {ending: True}
        assert self.both(
            lambda store: store.logs.append_log(LogAppend(*log, bodies, after=after, **words))
        )

    @rule(log=LOGS, count=st.integers(0, 2), after=st.integers(-1, 4))
    def append_to_a_log_somewhere(self, log: tuple[str, str], count: int, after: int) -> None:
        stored = self.runner.run(_log(self.memory, *log))
        bodies = make_lines(
            after, count, closes=stored is not None and stored.is_closed and count > 0
        )
        self.both(lambda store: store.logs.append_log(LogAppend(*log, bodies, after=after)))

    @rule(log=LOGS)
    def delete_log(self, log: tuple[str, str]) -> None:
        self.both(lambda store: store.logs.delete_log(*log))

    @rule(log=LOGS)
    def read_log(self, log: tuple[str, str]) -> None:
        self.both(lambda store: store.logs.read_log(*log))

    @rule(
        kind=st.sampled_from(LOG_KINDS),
        after=st.sampled_from(["", *LOG_IDS, "obj-1x"]),
        limit=st.integers(1, 3),
    )
    def list_log_heads(self, kind: str, after: str, limit: int) -> None:
        self.both(lambda store: _log_page(store, kind, after, limit))

    @rule(name=NAMES, receiver=st.sampled_from(["one", "two"]), cursor=st.integers(-1, 4))
    def follow(self, name: str, receiver: str, cursor: int) -> None:
        row = make_delivery(name, receiver, cursor=cursor)
        self.both(lambda store: store.deliveries.put_delivery(row, within=2))

    @rule(
        name=NAMES,
        receiver=st.sampled_from(["one", "two"]),
        state=st.sampled_from(DeliveryState),
        cursor=st.integers(-1, 6),
    )
    def bring(self, name: str, receiver: str, state: DeliveryState, cursor: int) -> None:
        row = msgspec.structs.replace(make_delivery(name, receiver, cursor=cursor), state=state)
        self.both(lambda store: store.deliveries.update_delivery(row))

    @rule(
        ended=TIMES,
        keep=st.integers(0, 4),
        messages=TIMES,
        limit=st.integers(1, 3),
        records=st.none() | TIMES,
        unbrought=st.none() | TIMES,
        after=st.none() | st.tuples(TIMES, NAMES),
    )
    def purge_all(
        self, ended: int, keep: int, messages: int, limit: int, records, unbrought, after
    ) -> None:
        retention = Retention(
            time_at(ended),
            keep,
            time_at(messages),
            limit,
            records_before=None if records is None else time_at(records),
            undelivered_before=None if unbrought is None else time_at(unbrought),
            after=None if after is None else TaskKey(time_at(after[0]), TaskId(after[1])),
        )
        self.both(lambda store: store.tasks.purge(retention))
        gone = [name for name in self.drafts if self._is_gone(name)]
        for name in gone:
            del self.drafts[name]

    @rule()
    def reopen(self) -> None:
        self.runner.run(_reopened(self.harness))

    @rule(
        scope=SCOPES,
        limit=st.integers(1, 3),
        state=st.none() | STATES,
        context=st.none() | st.just("c-1"),
        since=st.none() | TIMES,
        after=st.none() | st.tuples(TIMES, NAMES),
    )
    def list_tasks(self, scope: Scope, limit: int, state, context, since, after) -> None:
        query = TaskQuery(
            scope,
            limit,
            context_id=None if context is None else ContextId(context),
            state=state,
            status_since=None if since is None else time_at(since),
            after=None if after is None else TaskKey(time_at(after[0]), TaskId(after[1])),
        )
        self.both(lambda store: _page(store, query))

    @invariant()
    def tasks_agree(self) -> None:
        for name in ("a", "b", "c", "d"):
            self.both(lambda store, name=name: _everything(store, name))

    @invariant()
    def records_agree(self) -> None:
        self.both(_records)

    @invariant()
    def logs_agree(self) -> None:
        self.both(_logs)

    def _record(self, kind: str, name: str, version: int, at: int) -> Record:
        self.changes += 1
        body = f"change {self.changes}".encode()
        record = make_record(name, kind=kind, until=at)
        return msgspec.structs.replace(record, body=body, version=version)

    def _new_run(self, run: RunRecord) -> RunRecord:
        self.runs += 1
        return msgspec.structs.replace(run, id=RunId(f"run-{self.runs}"))

    def _recent_run(self, number: int) -> RunId:
        return RunId(f"run-{self.runs - number}")

    def _is_gone(self, name: str) -> bool:
        return self.runner.run(_read(self.memory, name)) is None


class TwoStoresOneOfFiles(TwoStores):
    kind = "json-file"


class TwoStoresOneInPostgres(TwoStores):
    """Several writes wait for the database and share a batch, as they do under load.

    Leases are by the clock of the database, so they end and are looked for far apart.
    """

    server: ClassVar[PostgresServer]

    def make_harness(self) -> StoreHarness:
        self.pending: list[tuple[Do, object]] = []
        self.schema = self.server.borrow_schema()
        schema = self.runner.run(_entered(self.schema))
        return StoreHarness("postgres", Path(self.folder.name), self.server.url(), schema)

    def teardown(self) -> None:
        self.flush()
        self.runner.run(self.harness.store.close())
        self.runner.run(_left(self.schema))
        self.runner.close()
        self.folder.cleanup()

    def both(self, do: Do) -> object:
        expected = self.runner.run(_outcome(do, self.memory))
        self.pending.append((do, expected))
        if len(self.pending) >= 8:
            self.flush()
        return expected

    def flush(self) -> None:
        pending, self.pending = self.pending, []
        found = self.runner.run(_outcomes_at_once([do for do, _ in pending], self.harness.store))
        assert found == [expected for _, expected in pending]

    @rule()
    def reopen(self) -> None:
        self.flush()
        self.runner.run(_reopened(self.harness))

    @invariant()
    def tasks_agree(self) -> None:
        if not self.pending:
            super().tasks_agree()
            self.flush()

    @invariant()
    def records_agree(self) -> None:
        if not self.pending:
            super().records_agree()
            self.flush()

    @invariant()
    def logs_agree(self) -> None:
        if not self.pending:
            super().logs_agree()
            self.flush()


async def _entered(context: AbstractAsyncContextManager[str]) -> str:
    return await context.__aenter__()


async def _left(context: AbstractAsyncContextManager[str]) -> None:
    await context.__aexit__(None, None, None)


async def _outcomes_at_once(steps: list[Do], store: Store) -> list[object]:
    """What comes of all of them, without a pause between writes."""
    outcomes: list[Awaitable[object]] = []
    for do in steps:
        started = do(store)
        if not isinstance(started, asyncio.Future):
            # A read, or several writes: it comes after what was written until now.
            await asyncio.gather(*outcomes)
            started = asyncio.ensure_future(_outcome(lambda _, it=started: it, store))
            await started
            outcomes.append(started)
        else:
            outcomes.append(asyncio.ensure_future(_outcome(lambda _, it=started: it, store)))
    return list(await asyncio.gather(*outcomes))


async def _outcome(do: Do, store: Store) -> object:
    try:
        return shown(await do(store))
    except GatewayError as error:
        return type(error), error.message


async def _read(store: Store, name: str) -> object:
    return await store.tasks.read_task(None, TaskId(name))


async def _everything(store: Store, name: str) -> object:
    task_id = TaskId(name)
    message_id = make_run(name).message.message_id
    events = await store.tasks.read_events(None, task_id, after=0, limit=50)
    return (
        shown(await store.tasks.read_task(ALICE, task_id)),
        shown(await store.tasks.read_task(None, task_id)),
        await store.tasks.read_resume_token(task_id),
        [(entry.sequence, entry.state, entry.event) for entry in events],
        await store.tasks.find_duplicate(ALICE, message_id),
        await store.tasks.find_duplicate(BOB, message_id),
        await store.deliveries.list_task_deliveries(None, task_id),
    )


async def _record(store: Store, kind: str, name: str) -> Record | None:
    return await store.records.read_record(kind, name)


async def _records(store: Store) -> object:
    names = [(kind, name) for kind in ("call", "handle") for name in ("a", "b", "c", "d")]
    return (
        *[await store.records.read_record(kind, name) for kind, name in names],
        *[tuple(await store.records.list_records(kind)) for kind in ("call", "handle")],
    )


async def _log(store: Store, kind: str, log_id: str) -> StoredLog | None:
    return await store.logs.read_log(kind, log_id)


async def _logs(store: Store) -> object:
    return [await _log_page(store, kind, "", 9) for kind in LOG_KINDS]


async def _log_page(store: Store, kind: str, after: str, limit: int) -> object:
    heads = await store.logs.list_log_heads(kind, after=after, limit=limit)
    return (
        [(head.id, head.sequence, head.is_closed) for head in heads],
        await store.logs.list_open_logs(kind, after=after, limit=limit),
    )


async def _page(store: Store, query: TaskQuery) -> object:
    page = await store.tasks.list_tasks(query)
    return [shown(task) for task in page.tasks], page.has_more, page.total


async def _reopened(harness: StoreHarness) -> None:
    await harness.reopen()


TestSqliteAgainstMemory = TwoStores.TestCase
TestFilesAgainstMemory = TwoStoresOneOfFiles.TestCase
TestPostgresAgainstMemory = pytest.mark.usefixtures("server_of_machine")(
    TwoStoresOneInPostgres.TestCase
)


@pytest.fixture
def server_of_machine(postgres: PostgresServer) -> None:
    TwoStoresOneInPostgres.server = postgres


TestPostgresAgainstMemory.settings = settings(
    stateful_step_count=60,
    max_examples=25,
    # Not shrunk: that takes minutes here. The steps that failed are few, and printed.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
TestSqliteAgainstMemory.settings = settings(stateful_step_count=40)
TestFilesAgainstMemory.settings = settings(stateful_step_count=40)
