"""A process that writes to a store without end and says what was acknowledged, to be killed."""

import asyncio
import itertools
import sys

import msgspec
from tests.contracts.store_samples import Draft, make_lines, make_record, next_version

from openclaw_a2a.model.task import TaskState
from openclaw_a2a.ports import LogAppend, Store
from openclaw_a2a.store import create_store
from openclaw_a2a.store.contents import LARGE_BYTES

LANES = 8
LINES = 20
"""So many lines has each change of a log."""


def make_text(name: str, number: int) -> str:
    """What a chunk of a task says; one of them is large enough to be stored by itself."""
    return f"{name} {number} " * (LARGE_BYTES // 4 if number == 1 else 1)


async def live(store: Store, name: str) -> None:
    """One task from its first message, which has a record, to its end, reported step by step.

    Each step is a change of several lines in its log, before it is told.
    """
    draft, record = Draft(name), make_record(name, kind="call")
    await store.tasks.submit(msgspec.structs.replace(draft.submission(), record=record))
    assert await store.logs.append_log(LogAppend("objective", name, make_lines(0, LINES), after=0))
    print(name, 0, flush=True)
    writes = [store.tasks.start_run(draft.run.id, fence=1, attempt=1)]
    writes.append(store.tasks.commit(draft.status(TaskState.WORKING, at=1)))
    writes += [store.tasks.commit(draft.chunk(make_text(name, number))) for number in range(3)]
    for sequence, write in enumerate(writes):
        await write
        print(name, sequence, flush=True)
    for sequence in range(1, 5):
        after = sequence * LINES
        lines = make_lines(after, LINES, closes=sequence == 4)
        assert await store.logs.append_log(
            LogAppend("objective", name, lines, after=after, closes=sequence == 4)
        )
    ended = store.tasks.commit(draft.ended(at=2))
    assert await store.records.update_record(next_version(record))
    await ended
    print(name, 5, flush=True)


async def lane(store: Store, prefix: str) -> None:
    for number in itertools.count():
        await live(store, f"{prefix}-{number}")


async def main(kind: str, path: str, label: str, url: str = "", schema: str = "") -> None:
    store = create_store(kind, path=path, url=url, schema=schema)
    await store.open()
    await asyncio.gather(*[lane(store, f"{label}-{number}") for number in range(LANES)])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
