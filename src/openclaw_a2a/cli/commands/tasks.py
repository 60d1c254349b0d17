"""`tasks`: list, show, watch, cancel and delete the tasks of a gateway."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from cyclopts import App, Parameter

from openclaw_a2a.cli.admin_client import OperatorTasks
from openclaw_a2a.cli.commands.agent import SavedFiles, SaveFlag, show_events
from openclaw_a2a.cli.errors import DONE, code_of, usage_error
from openclaw_a2a.cli.follow import TaskFollower
from openclaw_a2a.cli.options import (
    NO_CONNECTION,
    PAGE,
    AdminOptions,
    Connection,
    LimitFlag,
    YesFlag,
    confirm,
    connect,
    decode_response,
    find_task,
    list_tasks,
    switch,
)
from openclaw_a2a.cli.render.stream import format_message, format_parts
from openclaw_a2a.cli.render.terminal import (
    ItemTable,
    describe_empty,
    indent,
    print_data,
    print_json,
    print_message,
    print_result,
)
from openclaw_a2a.cli.resource import Resource
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.task import Task
from openclaw_a2a.server.admin.tasks import TaskView

if TYPE_CHECKING:
    from openclaw_a2a.cli.a2a_client import Client

app = App(
    name="tasks",
    help="List, show, watch, cancel and delete tasks. Ids can be shortened to a unique prefix.",
)

StateName = Literal[
    "submitted",
    "working",
    "completed",
    "failed",
    "canceled",
    "rejected",
    "input-required",
    "auth-required",
]


@Parameter(name="*")
@dataclass(frozen=True)
class TaskConnection(Connection):
    """Whose tasks are meant, and the gateway or agent that has them."""

    all_callers: Annotated[
        bool,
        switch(
            "Tasks of every caller of the gateway on this machine, as its operator.", name="--all"
        ),
    ] = False

    def command(self, words: str) -> str:
        """A command to type next, for the tasks of the same callers."""
        return super().command(f"{words} --all" if self.all_callers else words)

    def answer_hint(self, task_id: str) -> str:
        """What to do about a task that waits for an answer."""
        return "Its caller can answer it." if self.all_callers else super().answer_hint(task_id)

    @contextmanager
    def connect_as_caller(self) -> Generator["Client"]:
        """A client for the caller's own tasks; without a valid token the error mentions --all."""
        with connect(self) as client:
            try:
                yield client
            except GatewayError as error:
                if code_of(error) == "unauthenticated":
                    error.details["nextStep"] = (
                        "Give a token with --token or OPENCLAW_A2A_TOKEN; with --all, the operator "
                        "of the gateway on this machine sees the tasks of every caller."
                    )
                raise

    @contextmanager
    def connect(self, prefix: str) -> Generator[tuple["Client | OperatorTasks", str]]:
        """A client, and the id of the task that is meant by its beginning."""
        if not self.all_callers:
            with self.connect_as_caller() as client:
                yield client, find_task(client, prefix)
            return
        with _TASKS.connect(self.operator) as admin:
            yield OperatorTasks(admin), _TASKS.find(admin, prefix)

    @property
    def operator(self) -> AdminOptions:
        """How to call the gateway as its operator."""
        return AdminOptions(self.url, self.config, self.data, self.as_json)


OWN_TASKS = TaskConnection()


@Parameter(name="*")
@dataclass(frozen=True)
class ListFilters:
    """Which tasks are listed."""

    state: Annotated[StateName | None, Parameter(help="Only tasks in this state.")] = None
    context: Annotated[str | None, Parameter(help="Only tasks of this context.")] = None
    caller: Annotated[str | None, Parameter(help="Only tasks of this caller (with --all).")] = None
    account: Annotated[str | None, Parameter(help="Only tasks of this account (with --all).")] = (
        None
    )

    @property
    def protocol_state(self) -> str | None:
        """The state in the words of the protocol."""
        return f"TASK_STATE_{self.state.upper().replace('-', '_')}" if self.state else None


ALL = ListFilters()
TaskPrefix = Annotated[str, Parameter(help="The task's id, or its beginning.")]


def _time(moment: datetime | None) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment else "-"


_COLOURS = {
    "completed": "green",
    "failed": "red",
    "rejected": "red",
    "input-required": "yellow",
    "auth-required": "yellow",
    "canceled": "dim",
}
_TABLE = ItemTable[Task](
    {
        "TASK": lambda task, _: task.id,
        "STATE": lambda task, _: task.status.state.label,
        "SINCE": lambda task, _: _time(task.status.timestamp),
        "LAST MESSAGE": lambda task, _: format_message(task.history[-1]) if task.history else "",
    },
    colours=_COLOURS,
    short_id=8,
    optional=("SINCE",),
)
_TASKS = Resource[TaskView](
    path="tasks",
    noun="task",
    item_type=TaskView,
    table=ItemTable(
        {
            "TASK": lambda task, _: task.id,
            "STATE": lambda task, _: task.state.label,
            "SINCE": lambda task, _: _time(task.status_at),
            "CALLER": lambda task, _: task.caller,
            "AGENT": lambda task, _: task.agent or "-",
            "ACCOUNT": lambda task, _: task.account,
        },
        colours=_COLOURS,
        short_id=8,
        optional=("SINCE",),
        min_cells={"CALLER": 12, "AGENT": 12, "ACCOUNT": 12},
    ),
    not_found="task-not-found",
    list_hint="See the tasks there are: openclaw-a2a tasks list --all",
    empty="No tasks, of no caller.",
    filters={"status": "in state", "caller": "of caller", "account": "of account"},
)


@app.command(name="list")
def list_(
    *,
    filters: ListFilters = ALL,
    limit: LimitFlag = 20,
    connection: TaskConnection = OWN_TASKS,
) -> int:
    """List tasks, the newest first; with --all those of every caller, by creation time."""
    if connection.all_callers:
        if filters.context:
            raise usage_error("--context selects among the tasks of one caller, not with --all")
        return _TASKS.list(
            connection.operator,
            limit=limit,
            status=filters.protocol_state,
            caller=filters.caller,
            account=filters.account,
        )
    if filters.caller or filters.account:
        raise usage_error("--caller and --account select among the tasks of all: add --all")
    if limit < 1:
        raise usage_error(f"--limit must be at least 1, not {limit}")
    params: JsonObject = {"pageSize": min(limit, PAGE), "historyLength": 1}
    if filters.protocol_state:
        params["status"] = filters.protocol_state
    if filters.context:
        params["contextId"] = filters.context
    tasks: list[Task] = []
    total = 0
    with connection.connect_as_caller() as client:
        for page in list_tasks(client, params):
            tasks += page.tasks
            total = page.total_size
            if len(tasks) >= limit:
                break
    tasks = tasks[:limit]
    if connection.as_json:
        print_json({"tasks": tasks, "totalSize": total})
        return DONE
    hello = connection.command('send "hello"')
    chosen = {"in state": filters.state, "of context": filters.context}
    empty = describe_empty("tasks", chosen, f"No tasks. Make one: {hello}")
    _TABLE.print(tasks, empty=empty, total=total)
    return DONE


@app.command(name="show")
def show_task(
    task: TaskPrefix, /, *, save: SaveFlag = None, connection: TaskConnection = OWN_TASKS
) -> int:
    """Show a task with its messages and artifacts; with --all also its owner."""
    files = SavedFiles(save) if save else None
    if connection.all_callers:
        with _TASKS.connect(connection.operator) as admin:
            view = decode_response(admin.get("tasks", _TASKS.find(admin, task)), TaskView)
        document, shown = view, view.task
        about = {"caller": view.caller, "account": view.account, "agent": view.agent or "-"}
    else:
        with connection.connect_as_caller() as client:
            body = client.call("GetTask", {"id": find_task(client, task)})
        document = shown = decode_response(body, Task)
        about = {}
    if connection.as_json:
        print_json(document)
    else:
        for name, value in about.items():
            print_data(f"{name:<8} {value}")
        if shown is not msgspec.UNSET:
            _show_task(shown)
    if files is not None and shown is not msgspec.UNSET:
        files.add_task(shown)
        files.write()
    return DONE


@app.command
def watch(task: TaskPrefix, /, *, connection: TaskConnection = OWN_TASKS) -> int:
    """Follow a task until it ends or waits for an answer; reconnects after a lost connection.

    With --json, one event per line.
    """
    with connection.connect(task) as (client, task_id):
        follow = TaskFollower(client)
        events = follow.watch(task_id)
        return show_events(follow, events, connection)


@app.command
def cancel(task: TaskPrefix, /, *, connection: TaskConnection = OWN_TASKS) -> int:
    """Cancel a task; returns when it has stopped."""
    with connection.connect(task) as (client, task_id):
        body = client.call("CancelTask", {"id": task_id})
    ended = decode_response(body, Task)
    line = f"{ended.id}  {ended.status.state.label}"
    print_result(ended, line, as_json=connection.as_json)
    return DONE


@app.command
def delete(
    task: TaskPrefix, /, *, yes: YesFlag = False, connection: Connection = NO_CONNECTION
) -> int:
    """Delete an ended task with its messages and artifacts."""
    with connect(connection) as client:
        task_id = find_task(client, task)
        unasked = f"deleting task {task_id} cannot be undone and nobody can be asked"
        if not yes and not confirm(f"Delete task {task_id} for ever? [y/N] ", unasked):
            print_message("Nothing was deleted.")
            return DONE
        client.delete_task(task_id)
    print_result({"deleted": task_id}, f"{task_id}  deleted", as_json=connection.as_json)
    return DONE


def _show_task(task: Task) -> None:
    print_data(f"task     {task.id}")
    print_data(f"context  {task.context_id}")
    print_data(f"state    {task.status.state.label} since {_time(task.status.timestamp)}")
    made = [one.parts for one in task.artifacts]
    last = [task.status.message.parts] if task.status.message else []
    whole = [*(message.parts for message in task.history), *last]
    for message in task.history:
        if message.parts in made:
            continue
        who = "user" if message.role.value == "ROLE_USER" else "agent"
        print_data(f"\n{who}:\n{indent(format_message(message))}")
    for artifact in task.artifacts:
        # What was also said as one message has parts of a message, and not pieces of a text.
        text = format_parts(artifact.parts, are_pieces=artifact.parts not in whole)
        print_data(f"\nartifact {artifact.name or artifact.artifact_id}:\n{indent(text)}")
