"""Pages of a caller's tasks, limited in number and in size."""

import asyncio
import base64
from datetime import datetime
from typing import Annotated

import msgspec

from openclaw_a2a.engine.tasks import queries
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import CorruptRecord, InvalidParams, Problem
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import StoredTask
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import TaskKey, TaskQuery, TaskStore
from openclaw_a2a.protocol import v1
from openclaw_a2a.protocol.requests import ListRequest

log = get_logger(__name__)

PAGE_BYTES = 8 * 1024 * 1024
"""How large the tasks of a page may be together; a page has at least one task."""

READ_BYTES = 8 * PAGE_BYTES
"""How much may be read for one page, when most of it is left out of the response."""

_FIRST_READ = 8
_LARGE_BYTES = 256 * 1024

_TOKEN = tuple[Annotated[datetime, msgspec.Meta(tz=True)], str]
"""The position in the list that a page token stands for."""


async def list_tasks(tasks: TaskStore, scope: Scope, request: ListRequest) -> bytes:
    """A page of the caller's tasks, as the result of ListTasks.

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
    )
    page = _Page(request)
    found = await tasks.list_tasks(query)
    total, is_full = found.total, await page.add(found.tasks)
    # Separate reads, each after a key: a task that changes in between moves to the front of the
    # list, so it may be missing here but does not come twice.
    while found.has_more and not is_full:
        query = msgspec.structs.replace(query, after=page.last, limit=page.next_limit())
        found = await tasks.list_tasks(query)
        is_full = await page.add(found.tasks)
    token = _write_token(page.last) if page.last and (page.is_cut or found.has_more) else ""
    return v1.encode_task_list(page.tasks, token, page_size=request.page_size, total=total)


class _Page:
    """The tasks of one page so far."""

    def __init__(self, request: ListRequest) -> None:
        self._request = request
        self._size = 0
        self._read_size = 0
        self.tasks: list[bytes] = []
        self.last: TaskKey | None = None
        self.is_cut = False
        """True when a task that was read is left for the next page."""

    async def add(self, found: tuple[StoredTask, ...]) -> bool:
        """Add tasks until the page is full; True when it is."""
        for stored in found:
            try:
                task = queries.task_json(stored)
            except CorruptRecord as error:
                log.warning("store.record_damaged", id=stored.head.id, reason=error.message)
                self.last = TaskKey(stored.head.status_at, stored.head.id)
                continue
            self.is_cut = not self._add_task(stored, task)
            if self.is_cut:
                return True
            if len(task) > _LARGE_BYTES:
                await asyncio.sleep(0)  # let other requests run between large tasks
        return len(self.tasks) >= self._request.page_size

    def next_limit(self) -> int:
        """How many tasks to read next, so that not much more is read than fits the page."""
        average = self._read_size // len(self.tasks) + 1 if self.tasks else 1
        room = max(1, (READ_BYTES - self._read_size) // average)
        return min(room, self._request.page_size - len(self.tasks))

    def _add_task(self, stored: StoredTask, task: bytes) -> bool:
        self._read_size += len(task)
        if self.tasks and self._read_size > READ_BYTES:
            return False
        request = self._request
        trimmed = v1.trim_task(
            task, history_length=request.history_length, with_artifacts=request.include_artifacts
        )
        self._size += len(trimmed)
        if self.tasks and self._size > PAGE_BYTES:
            return False
        self.tasks.append(trimmed)
        self.last = TaskKey(stored.head.status_at, stored.head.id)
        return True


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
