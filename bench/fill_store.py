#!/usr/bin/env python3
"""Fill a store with ended tasks, as a gateway stores them, each with a message id of its own.

Run: python fill_store.py --store sqlite --path FILE --count 100000

It writes through the store and not through a gateway: a start is measured with what was stored,
and nothing of the process that stored it.
"""

import argparse
import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from openclaw_a2a.model.ids import (
    LOCAL_PEER,
    AccountId,
    AgentId,
    ArtifactId,
    ContextId,
    MessageId,
    OwnerId,
    RunId,
    SessionKey,
    TaskId,
)
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.records import (
    Entry,
    RunOptions,
    RunRecord,
    TaskHead,
    encode_event,
    encode_json,
)
from openclaw_a2a.model.task import (
    Artifact,
    ArtifactUpdate,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
    apply_event,
)
from openclaw_a2a.model.turn import Binding, Peer, Scope
from openclaw_a2a.ports import Commit, Store, Submission
from openclaw_a2a.store import create_store

SCOPE = Scope(LOCAL_PEER, AccountId("default"))
OWNER = OwnerId("bench")
AT_ONCE = 500
"""So many tasks share the commits of the store."""


def make_task(number: int, at: datetime) -> Iterator[Submission | Commit]:
    """The writes of one task: its message, its work, its end."""
    task_id, context_id = TaskId(f"task-{number:032}"), ContextId(f"context-{number:029}")
    message_id, run_id = MessageId(f"message-{number:029}"), RunId(f"run-{number:033}")
    text = (Part.of_text(f"echo:{number}"),)
    message = Message(message_id, Role.USER, text, context_id, task_id)
    answer = Message(MessageId(f"answer-{number:030}"), Role.AGENT, text, context_id, task_id)
    session = SessionKey(f"agent:bench:a2a:local:{context_id}")
    binding = Binding(
        agent_id=AgentId("bench"),
        account_id=SCOPE.account,
        session_key=session,
        main_session_key=SessionKey("agent:bench:main"),
        peer=Peer(context_id, "context-id"),
        created_at=at,
        updated_at=at,
    )
    states = TaskState.SUBMITTED, TaskState.WORKING, TaskState.COMPLETED
    statuses = [TaskStatus(state, timestamp=at) for state in states[:2]]
    statuses.append(TaskStatus(states[2], answer, at))
    submitted, working, completed = (StatusUpdate(task_id, context_id, one) for one in statuses)
    artifact = Artifact(ArtifactId("assistant-output-0001"), text, name="assistant-output-1")
    output = ArtifactUpdate(task_id, context_id, artifact, last_chunk=True)
    task = Task(task_id, context_id, statuses[0], history=(message,))
    opened = encode_json(task)
    for event in (working, output, completed):
        task = apply_event(task, event)

    def head(state: TaskState, sequence: int) -> TaskHead:
        return TaskHead(task_id, SCOPE, context_id, state, at, at, sequence, binding)

    first = (Entry(1, encode_event(submitted), states[0]),)
    rest = (
        Entry(2, encode_event(working), states[1]),
        Entry(3, encode_event(output)),
        Entry(4, encode_event(completed), states[2]),
    )
    run = RunRecord(
        id=run_id,
        task_id=task_id,
        context_id=context_id,
        scope=SCOPE,
        session_key=session,
        message=message,
        binding=binding,
        options=RunOptions(is_task=True),
        owner=OWNER,
        is_started=False,
    )
    yield Submission(run, run_id.encode(), at, Commit(head(states[0], 1), -1, first, opened))
    yield Commit(head(states[2], 4), 1, rest, encode_json(task), run_id, 1, ends_run=True)


async def fill(store: Store, count: int) -> None:
    await store.open()
    begin = datetime.now(UTC) - timedelta(hours=1)
    for start in range(0, count, AT_ONCE):
        writes = []
        for number in range(start, min(start + AT_ONCE, count)):
            # From 1, as the rows are numbered: a copy has the number of its row.
            for write in make_task(number + 1, begin + timedelta(milliseconds=10 * number)):
                is_first = isinstance(write, Submission)
                writes.append((store.tasks.submit if is_first else store.tasks.commit)(write))
        await asyncio.gather(*writes)
    await store.close()


def fill_store(kind: str, path: str, count: int) -> None:
    """A store of this kind with so many ended tasks."""
    asyncio.run(fill(create_store(kind, path=path), count))


def clone_tasks(path: Path, count: int) -> None:
    """Let a SQLite store that `fill_store` has filled have so many tasks, by copies of its rows.

    Faster than to store them one by one. What a gateway added since is deleted; none may run.
    """
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA synchronous = OFF")
        database.execute("PRAGMA cache_size = -1000000")
        (known,) = database.execute(f"SELECT count(*) FROM task WHERE {_IS_FILLED}").fetchone()
        database.execute("DELETE FROM message WHERE message_id NOT LIKE 'message-0%'")
        for table, number in (("task", "number"), ("event", "task"), ("snapshot", "task")):
            database.execute(f"DELETE FROM {table} WHERE {number} > ?", (known,))
        while known < count:
            # Twice as many with each round; the ids of copies go on where those before end.
            base = {"known": known, "most": count - known}
            for statement in _CLONE:
                database.execute(statement, base)
            known = min(2 * known, count)
        database.execute("UPDATE tally SET count = ? WHERE state = 3", (count,))
        database.commit()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


_IS_FILLED = "id LIKE 'task-0%'"
_NEW_BODY = """CAST(replace(CAST({body} AS TEXT),
  printf('%029d', {number}), printf('%029d', {number} + :known)) AS BLOB)"""
_CLONE = (
    f"""
INSERT INTO snapshot SELECT task + :known, sequence, {_NEW_BODY.format(body="body", number="task")}
FROM snapshot WHERE task <= :most""",
    f"""
INSERT INTO event SELECT task + :known, sequence, state,
  {_NEW_BODY.format(body="body", number="task")} FROM event WHERE task <= :most""",
    f"""
INSERT INTO task SELECT number + :known, printf('task-%032d', number + :known), principal,
  account, printf('context-%029d', number + :known), state, status_at - 10000 * :known,
  created_at - 10000 * :known, sequence,
  {_NEW_BODY.format(body="binding", number="number")}, resume
FROM task WHERE number <= :most""",
    """
INSERT INTO message SELECT number + :known, principal, account,
  printf('message-%029d', number + :known), body_hash, printf('run-%033d', number + :known),
  printf('task-%032d', number + :known), created_at, answer
FROM message WHERE number <= :most""",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", default="sqlite", choices=["sqlite", "json-file"])
    parser.add_argument("--path", required=True)
    parser.add_argument("--count", type=int, default=100_000)
    args = parser.parse_args()
    fill_store(args.store, args.path, args.count)


if __name__ == "__main__":
    main()
