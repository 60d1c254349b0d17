"""Admin routes for tasks: list, show, follow and cancel those of every caller."""

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from openclaw_a2a.engine.tasks import queries
from openclaw_a2a.engine.tasks.cancel import cancel_task
from openclaw_a2a.http.sse_stream import EventStream, SseStreams
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.ids import AccountId, AgentId, ContextId, PeerName, TaskId
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.records import StoredTask, TaskHead, decode_task
from openclaw_a2a.model.task import Task, TaskState
from openclaw_a2a.ports import TaskFilter
from openclaw_a2a.protocol import v1
from openclaw_a2a.server.admin.endpoint import AdminEndpoint, AdminRequest, read_limit, read_status

if TYPE_CHECKING:
    from openclaw_a2a.engine.engine import Engine

log = get_logger(__name__)


class TaskView(JsonStruct, frozen=True, omit_defaults=False):
    """A task and its owner. `task` is left out of lists."""

    id: TaskId
    context_id: ContextId
    caller: PeerName
    account: AccountId
    agent: AgentId | None
    """None while no agent was chosen."""
    state: TaskState
    status_at: datetime
    created_at: datetime
    task: Task | msgspec.UnsetType = msgspec.UNSET


class TaskViewList(JsonStruct, frozen=True, omit_defaults=False):
    """The newest tasks, last created first, and how many there are."""

    tasks: tuple[TaskView, ...]
    total_size: int


class TasksAdmin:
    """Lists, shows, follows and cancels tasks of all callers, in the stores of all engines."""

    def __init__(self, engines: "Collection[Engine]", streams: SseStreams) -> None:
        self._engines = engines
        self._streams = streams

    def add_to(self, endpoint: AdminEndpoint) -> None:
        """Add the routes."""
        root = "/operator/tasks"
        endpoint.add_route("GET", root, self.list)
        endpoint.add_route("GET", f"{root}/{{}}", self.show)
        endpoint.add_route("POST", f"{root}/{{}}/cancel", self.cancel, event="task-canceled")
        endpoint.add_stream(f"{root}/{{}}/events", self.follow, self._streams)

    async def list(self, request: AdminRequest) -> TaskViewList:
        """The newest tasks, filtered by `limit`, `status`, `caller` and `account`.

        Raises: InvalidParams.
        """
        limit, query = read_limit(request), request.query
        caller, account = query.get("caller"), query.get("account")
        chosen = TaskFilter(
            principal=None if caller is None else PeerName(caller),
            account=None if account is None else AccountId(account),
            state=read_status(request, TaskState),
        )
        heads: list[TaskHead] = []
        total = 0
        for engine in self._engines:
            found = await engine.store.tasks.list_recent_tasks(limit, chosen)
            heads += [one.head for one in found]
            total += await engine.store.tasks.count_tasks(chosen)
        heads.sort(key=lambda head: (head.created_at, head.id), reverse=True)
        return TaskViewList(tuple(map(_view, heads[:limit])), total)

    async def show(self, request: AdminRequest) -> TaskView:
        """One task with its messages and artifacts. Raises: TaskNotFound."""
        _, stored = await self._find(request)
        return _view(stored.head, decode_task(queries.task_json(stored)))

    async def cancel(self, request: AdminRequest) -> TaskView:
        """Stop a task; the task when it has stopped.

        Raises: TaskNotFound, TaskNotCancelable, TaskNotLive, AgentUnavailable.
        """
        engine, stored = await self._find(request)
        head = stored.head
        await cancel_task(engine, None, head.id)
        log.info("tasks.canceled_by_operator", task_id=head.id, caller=head.scope.principal)
        return await self.show(request)

    async def follow(self, request: AdminRequest) -> EventStream:
        """The task as it is, then its events until it ends or pauses; with a cursor only those.

        Raises: TaskNotFound, InvalidParams (the cursor).
        """
        engine, stored = await self._find(request)
        found = await queries.subscribe(engine, None, stored.head.id, cursor=request.cursor)
        first = None if found.snapshot is None else v1.wrap_task(found.snapshot)
        return EventStream(first, found.head.sequence, found.subscription)

    async def _find(self, request: AdminRequest) -> "tuple[Engine, StoredTask]":
        engine, measured = await queries.find_any_task(self._engines, request.segments[0])
        return engine, await queries.get_task(engine, None, measured.head.id)


def _view(head: TaskHead, task: Task | msgspec.UnsetType = msgspec.UNSET) -> TaskView:
    return TaskView(
        id=head.id,
        context_id=head.context_id,
        caller=head.scope.principal,
        account=head.scope.account,
        agent=None if head.binding is None else head.binding.agent_id,
        state=head.state,
        status_at=head.status_at,
        created_at=head.created_at,
        task=task,
    )
