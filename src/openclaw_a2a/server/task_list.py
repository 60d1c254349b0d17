"""Pages of a caller's tasks, limited in number and in size."""

import base64
from datetime import datetime
from itertools import chain, repeat
from typing import Annotated

import msgspec

from openclaw_a2a.engine.tasks import queries
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import CorruptRecord, InvalidParams, Problem
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import TaskHead, encode_json
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import TaskKey, TaskPage, TaskQuery, TaskStore
from openclaw_a2a.protocol import v1
from openclaw_a2a.protocol.requests import ListRequest

log = get_logger(__name__)

PAGE_BYTES = 8 * 1024 * 1024
"""How large the tasks of a page may be together; a page has at least one task."""

READ_BYTES = 8 * PAGE_BYTES
"""How much may be read for one page, when most of it is left out of the response."""

_FIRST_READ = 8
_LARGE_BYTES = 256 * 1024
_CHUNK_BYTES = 256 * 1024

_TOKEN = tuple[Annotated[datetime, msgspec.Meta(tz=True)], str]
"""The position in the list that a page token stands for."""


async def list_tasks(tasks: TaskStore, scope: Scope, request: ListRequest) -> tuple[bytes, ...]:
    """A page of the caller's tasks, as the result of ListTasks, in chunks if it is large.

    A page ends early when its tasks are large; its token continues from there. The first read is
    small: it tells how large the tasks are, so that not much more is read than fits the page.
    """
    query = TaskQuery(
        scope=scope,
        limit=min(request.page_size, _FIRST_READ),
        context_id=request.context_id,
        state=request.state,
        status_since=request.status_since,
        after=_read_token(request.page_token),
        max_bytes=PAGE_BYTES,
        large_bytes=_LARGE_BYTES,
    )
    page = _Page(request, tasks)
    found = await tasks.list_tasks(query)
    total, is_full = found.total, await page.add(found)
    # Separate reads, each after a key: a task that changes in between moves to the front of the
    # list, so it may be missing here but does not come twice.
    while found.has_more and not is_full:
        query = msgspec.structs.replace(
            query, after=page.last, limit=page.next_limit(), counts=False
        )
        found = await tasks.list_tasks(query)
        is_full = await page.add(found)
    token = _write_token(page.last) if page.last and (page.is_cut or found.has_more) else ""
    around = v1.around_task_list(token, page_size=request.page_size, total=total)
    return page.encode(around)


class _Page:
    """The tasks of one page so far."""

    def __init__(self, request: ListRequest, tasks: TaskStore) -> None:
        self._request = request
        self._store = tasks
        self._size = 0
        self._read_size = 0
        self.tasks: list[tuple[bytes, ...]] = []
        """Each in chunks: large ones are never in one piece, which would take long to make."""
        self.last: TaskKey | None = None
        self.is_cut = False
        """True when a task that was read is left for the next page."""

    async def add(self, found: TaskPage) -> bool:
        """Add tasks until the page is full; True when it is."""
        for stored in found.tasks:
            head = stored.head
            try:
                if head.id in found.large:
                    task = await self._read_large(head)
                else:
                    task = (self._trim(queries.task_json(stored)),)
            except CorruptRecord as error:
                log.warning("store.record_damaged", id=head.id, reason=error.message)
                task = None
            if task is not None:
                self.is_cut = not self._has_room(sum(map(len, task)))
                if self.is_cut:
                    return True
                self.tasks.append(task)
            self.last = TaskKey(head.status_at, head.id)
        return len(self.tasks) >= self._request.page_size

    def encode(self, around: tuple[bytes, bytes]) -> tuple[bytes, ...]:
        """The page, in one piece unless it is large."""
        chunks, pieces, size = list[bytes](), [around[0]], 0
        commas = chain([b""], repeat(b","))
        parts = chain.from_iterable((next(commas), *task) for task in self.tasks)
        for piece in chain(parts, around[1:]):
            if size + len(piece) > _CHUNK_BYTES:
                chunks.append(b"".join(pieces))  # not a copy when it is one
                pieces, size = [], 0
            pieces.append(piece)
            size += len(piece)
        return (*chunks, b"".join(pieces))

    async def _read_large(self, head: TaskHead) -> tuple[bytes, ...] | None:
        """The task, read in small steps, and only what the page shows; None when it is gone."""
        outline = await self._store.read_outline(head.scope, head.id)
        # A list of one state has no task that has left this state since the page was read.
        if outline is None or outline.stored.head.state is not head.state:
            return None
        task = (await TaskProjection.from_large(outline.stored)).task()
        if not self._request.include_artifacts:
            task = msgspec.structs.replace(task, artifacts=())
        trimmed = self._trim(encode_json(task))
        contents = await self._store.read_contents(head.scope, head.id, outline.keys([trimmed]))
        return None if contents is None else tuple(outline.fill(trimmed, contents))

    def next_limit(self) -> int:
        """How many tasks to read next, so that not much more is read than fits the page."""
        average = self._read_size // len(self.tasks) + 1 if self.tasks else 1
        room = max(1, (READ_BYTES - self._read_size) // average)
        return min(room, self._request.page_size - len(self.tasks))

    def _trim(self, task: bytes) -> bytes:
        self._read_size += len(task)
        request = self._request
        return v1.trim_task(
            task, history_length=request.history_length, with_artifacts=request.include_artifacts
        )

    def _has_room(self, size: int) -> bool:
        self._size += size
        is_full = self._size > PAGE_BYTES or self._read_size > READ_BYTES
        return not self.tasks or not is_full


def _write_token(key: TaskKey) -> str:
    text = msgspec.json.encode([key.status_at, key.id])
    return base64.urlsafe_b64encode(text).decode("ascii").rstrip("=")


def _read_token(token: str) -> TaskKey | None:
    if not token:
        return None
    try:
        text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        status_at, task_id = msgspec.json.decode(text, type=_TOKEN)
    except (ValueError, UnicodeError):
        problem = Problem("pageToken", "is none that this agent gave; start without one")
        raise InvalidParams(f"pageToken {problem.message}", problems=(problem,)) from None
    return TaskKey(status_at, TaskId(task_id))
