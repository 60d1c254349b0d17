"""Tasks, runs and messages for store tests, and the kinds of store they are tried on."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from openclaw_a2a.model.delivery import Delivery, delivery_id
from openclaw_a2a.model.ids import (
    AccountId,
    AgentId,
    ArtifactId,
    ContextId,
    MessageId,
    OwnerId,
    PeerName,
    RunId,
    SessionKey,
    TaskId,
)
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.records import (
    Entry,
    RunOptions,
    RunRecord,
    StoredTask,
    TaskHead,
    decode_task,
    encode_event,
    encode_json,
)
from openclaw_a2a.model.task import (
    Artifact,
    ArtifactUpdate,
    Event,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
    apply_event,
)
from openclaw_a2a.model.turn import Binding, Peer, Scope
from openclaw_a2a.ports import Commit, Record, Retention, Store, Submission
from openclaw_a2a.store import create_store
from openclaw_a2a.store.encryption import EncryptedStore

ALICE = Scope(PeerName("alice"), AccountId("default"))
BOB = Scope(PeerName("bob"), AccountId("default"))
ALICE_ELSEWHERE = Scope(PeerName("alice"), AccountId("other"))
OWNER = OwnerId("gateway-1")
_START = datetime(2026, 11, 15, 6, 0, tzinfo=UTC)


class StoreHarness:
    """One store of one kind, which can be closed and opened again."""

    def __init__(self, kind: str, folder: Path, url: str | None = None, schema: str = "") -> None:
        """`url` and `schema` are the place of a postgres store."""
        self.kind = kind
        self.path = folder / ("tasks" if kind == "json-file" else "state.db")
        self.url = url
        self.schema = schema
        self.store = self.make()

    async def reopen(self) -> Store:
        """What the next process would find."""
        await self.store.close()
        if self.store.is_durable:
            self.store = self.make()
        await self.store.open()
        return self.store

    @property
    def writer(self) -> Any:
        """The writer thread of the store, which is not part of the port."""
        return getattr(self.store, "_inner", self.store).writer

    def make(self) -> Store:
        """A new store on this path, not opened yet."""
        if self.kind == "encrypted":
            return EncryptedStore(create_store("sqlite", path=str(self.path)), [bytes(32)])
        if self.kind == "postgres":
            return create_store(
                "postgres", path=None, url=self.url, schema=self.schema, connections=3
            )
        return create_store(self.kind, path=None if self.kind == "memory" else str(self.path))


def time_at(seconds: float = 0) -> datetime:
    """A time of day, so many seconds after the tests begin."""
    return _START + timedelta(seconds=seconds)


def make_binding(context: str = "c-1", scope: Scope = ALICE) -> Binding:
    key = f"agent:main:a2a:{scope.principal}:{context}"
    return Binding(
        agent_id=AgentId("main"),
        account_id=scope.account,
        session_key=SessionKey(key),
        main_session_key=SessionKey("agent:main:main"),
        peer=Peer(context, "context-id"),
        created_at=time_at(),
        updated_at=time_at(),
    )


def make_message(message_id: str, text: str = "hello") -> Message:
    return Message(MessageId(message_id), Role.USER, (Part.of_text(text),))


class Draft:
    """Builds the changes of a task: each method makes the next one."""

    def __init__(self, name: str = "t-1", *, context: str = "c-1", scope: Scope = ALICE) -> None:
        self.name = name
        status = TaskStatus(TaskState.SUBMITTED, timestamp=time_at())
        self.task = Task(TaskId(name), ContextId(context), status)
        self.head = TaskHead(
            self.task.id,
            scope,
            self.task.context_id,
            TaskState.SUBMITTED,
            time_at(),
            time_at(),
            0,
            make_binding(context, scope),
        )
        self.run = make_run(name, context=context, scope=scope)

    def created(self, at: float = 0) -> Commit:
        """The change that makes the task."""
        self.head = msgspec.structs.replace(
            self.head, status_at=time_at(at), created_at=time_at(at)
        )
        status = TaskStatus(TaskState.SUBMITTED, timestamp=time_at(at))
        self.task = msgspec.structs.replace(self.task, status=status)
        return Commit(self.head, -1, (), encode_json(self.task))

    def submission(self, at: float = 0) -> Submission:
        """The message that makes the task."""
        return Submission(self.run, b"hash of " + self.name.encode(), time_at(at), self.created(at))

    def status(self, state: TaskState, at: float = 0, *, message_id: str | None = None) -> Commit:
        """A new status, guarded by the run."""
        message = None if message_id is None else Message(MessageId(message_id), Role.AGENT, ())
        if message is not None:
            message = msgspec.structs.replace(message, parts=(Part.of_text(f"I say {message_id}"),))
        status = TaskStatus(state, message, time_at(at))
        event = StatusUpdate(self.task.id, self.task.context_id, status)
        after = self.head.sequence
        self.head = msgspec.structs.replace(self.head, state=state, status_at=time_at(at))
        return self._change(after, (self._entry(event),))

    def chunk(self, text: str) -> Commit:
        """A little more of an artifact, guarded by the run."""
        after = self.head.sequence
        return self._change(after, (self._entry(self._chunk(text)),))

    def chunks(self, count: int) -> Commit:
        """Many pieces of an artifact in one change."""
        after = self.head.sequence
        entries = tuple(self._entry(self._chunk(str(number))) for number in range(count))
        return self._change(after, entries)

    def ended(self, state: TaskState = TaskState.COMPLETED, at: float = 0) -> Commit:
        """The last status, with the whole picture; the run is over."""
        change = self.status(state, at)
        snapshot = encode_json(self.task)
        return msgspec.structs.replace(change, snapshot=snapshot, ends_run=True)

    def paused(self, token: bytes, at: float = 0) -> Commit:
        """The agent waits for an answer and leaves a token."""
        change = self.ended(TaskState.INPUT_REQUIRED, at)
        return msgspec.structs.replace(change, resume=token)

    def whole(self, change: Commit) -> Commit:
        """The same change with a new snapshot."""
        return msgspec.structs.replace(change, snapshot=encode_json(self.task))

    def _chunk(self, text: str) -> ArtifactUpdate:
        artifact = Artifact(ArtifactId("a-1"), (Part.of_text(text),))
        has_some = bool(self.task.artifacts)
        return ArtifactUpdate(self.task.id, self.task.context_id, artifact, append=has_some)

    def _entry(self, event: Event) -> Entry:
        self.task = apply_event(self.task, event)
        self.head = msgspec.structs.replace(self.head, sequence=self.head.sequence + 1)
        state = event.status.state if isinstance(event, StatusUpdate) else None
        return Entry(self.head.sequence, encode_event(event), state)

    def _change(self, after: int, entries: tuple[Entry, ...]) -> Commit:
        return Commit(self.head, after, entries, run_id=self.run.id, fence=self.run.fence)


def make_run(
    name: str, *, context: str = "c-1", scope: Scope = ALICE, owner: OwnerId = OWNER
) -> RunRecord:
    binding = make_binding(context, scope)
    return RunRecord(
        id=RunId(f"run-{name}"),
        task_id=TaskId(name),
        context_id=ContextId(context),
        scope=scope,
        session_key=binding.session_key,
        message=make_message(f"m-{name}"),
        binding=binding,
        options=RunOptions(("text/plain",), is_task=True),
        owner=owner,
        is_started=False,
    )


def direct(name: str, *, scope: Scope = ALICE, at: float = 0) -> Submission:
    """A message that makes no task yet."""
    return Submission(make_run(name, scope=scope), b"hash of " + name.encode(), time_at(at))


def make_delivery(task: str = "t-1", name: str = "one", *, cursor: int = 0) -> Delivery:
    """A subscriber of a task that was notified up to the cursor."""
    return Delivery(
        id=delivery_id("push", TaskId(task), name),
        kind="push",
        task_id=TaskId(task),
        body=b"\x00body of " + name.encode(),
        cursor=cursor,
        next_at=time_at(),
        created_at=time_at(),
        updated_at=time_at(),
    )


def make_record(name: str = "one", *, kind: str = "handle", until: float = 60) -> Record:
    """A small record."""
    return Record(kind, name, b"\x00body of " + name.encode(), time_at(until))


def next_version(record: Record, body: bytes = b"newer") -> Record:
    """The next version of the record."""
    return msgspec.structs.replace(record, body=body, version=record.version + 1)


def make_lines(after: int, count: int, *, closes: bool = False) -> list[bytes]:
    """The next lines of a log, numbered as their store numbers them; the last may close it."""
    ops = ["task.update"] * count
    if closes:
        ops[-1] = "archive"
    return [
        b'{"v":1,"seq":%d,"op":"%b","data":{"said":"line \xc3\xa4"}}' % (number, op.encode())
        for number, op in enumerate(ops, start=after + 1)
    ]


async def put_finished(store: Store, name: str, at: float, *, scope: Scope = ALICE) -> Draft:
    """A task with three events that ended at a moment."""
    draft = Draft(name, scope=scope)
    await store.tasks.submit(draft.submission(at))
    await store.tasks.commit(draft.status(TaskState.WORKING, at))
    await store.tasks.commit(draft.chunk("something"))
    await store.tasks.commit(draft.ended(at=at))
    return draft


async def purge_all(store: Store, retention: Retention) -> int:
    """Purge to the end; how many tasks were deleted."""
    gone = await store.tasks.purge(retention)
    count = gone.count
    while gone.next_after is not None:
        gone = await store.tasks.purge(msgspec.structs.replace(retention, after=gone.next_after))
        count += gone.count
    return count


def project_task(stored: StoredTask | None) -> Task:
    """The task with all stored events applied."""
    assert stored is not None
    task = decode_task(stored.snapshot)
    for entry in stored.entries:
        task = apply_event(task, entry.event)
    return task


MakeHarness = Callable[[str], StoreHarness]
