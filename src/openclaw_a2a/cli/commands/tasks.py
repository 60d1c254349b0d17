"""`tasks`: list, show, watch, cancel and delete the tasks of a gateway."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from cyclopts import App, Parameter

from openclaw_a2a.cli.commands.agent import show_events
from openclaw_a2a.cli.connection import (
    PAGE,
    TaskList,
    connect,
    decode_response,
    find_task,
    get_task,
    list_tasks,
)
from openclaw_a2a.cli.errors import DONE, confirm, usage_error
from openclaw_a2a.cli.flags import NO_CONNECTION, Connection, JsonFlag
from openclaw_a2a.cli.follow import TaskFollower
from openclaw_a2a.cli.render.stream import format_message, format_parts, state_name
from openclaw_a2a.cli.render.terminal import (
    is_narrow,
    print_data,
    print_json,
    print_message,
    print_table,
)
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.task import Task, TaskState

app = App(
    name="tasks",
    help="List, show, watch, cancel and delete tasks. Ids may be cut to their unique beginning.",
)

_COLOURS = {
    "completed": "green",
    "failed": "red",
    "rejected": "red",
    "input-required": "yellow",
    "auth-required": "yellow",
    "canceled": "dim",
}
_SHORT_ID = 8
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
class TaskFilters:
    """Which tasks to list."""

    state: Annotated[StateName | None, Parameter(help="Only tasks in this state.")] = None
    context: Annotated[str | None, Parameter(help="Only tasks of this context.")] = None
    limit: Annotated[int, Parameter(help="How many at most.")] = 20


ALL_TASKS = TaskFilters()
TaskPrefix = Annotated[str, Parameter(help="The task's id, or its beginning.")]


@app.command(name="list")
def list_(
    *,
    filters: TaskFilters = ALL_TASKS,
    as_json: JsonFlag = False,
    connection: Connection = NO_CONNECTION,
) -> int:
    """List tasks, the newest first."""
    params = _list_params(filters)
    with connect(connection) as client:
        pages = list_tasks(client, params)
        page = next(pages)
        tasks = list(page.tasks)
        while len(tasks) < filters.limit and page.next_page_token:
            page = next(pages, TaskList())
            tasks += page.tasks
        tasks = tasks[: filters.limit]
    if as_json:
        print_json({"tasks": tasks, "totalSize": page.total_size})
    elif not tasks:
        print_message(_nothing(filters, connection))
    else:
        _show_list(tasks, page.total_size)
    return DONE


@app.command(name="show")
def show_task(
    task: TaskPrefix, /, *, as_json: JsonFlag = False, connection: Connection = NO_CONNECTION
) -> int:
    """Show a task with what was said and made."""
    with connect(connection) as client:
        body = get_task(client, find_task(client, task))
    if as_json:
        print_json(decode_response(body, Task))
    else:
        _show_task(decode_response(body, Task))
    return DONE


@app.command
def watch(
    task: TaskPrefix, /, *, as_json: JsonFlag = False, connection: Connection = NO_CONNECTION
) -> int:
    """Follow a task until it ends or waits for an answer; a lost connection is taken up again.

    With --json, one event per line.
    """
    with connect(connection) as client:
        follow = TaskFollower(client)
        events = follow.watch(find_task(client, task))
        return show_events(follow, events, connection=connection, as_json=as_json)


@app.command
def cancel(
    task: TaskPrefix, /, *, as_json: JsonFlag = False, connection: Connection = NO_CONNECTION
) -> int:
    """Stop a task; returns when it has really stopped."""
    with connect(connection) as client:
        body = client.call("CancelTask", {"id": find_task(client, task)})
    ended = decode_response(body, Task)
    if as_json:
        print_json(ended)
    else:
        print_data(f"{ended.id}  {state_name(ended.status.state)}")
    return DONE


@app.command
def delete(
    task: TaskPrefix,
    /,
    *,
    yes: Annotated[bool, Parameter(negative=(), show_default=False, help="Do not ask.")] = False,
    as_json: JsonFlag = False,
    connection: Connection = NO_CONNECTION,
) -> int:
    """Delete a task that has ended, with everything said and made."""
    with connect(connection) as client:
        task_id = find_task(client, task)
        unasked = f"deleting task {task_id} cannot be undone and nobody can be asked"
        if not yes and not confirm(f"Delete task {task_id} for ever? [y/N] ", unasked):
            print_message("Nothing was deleted.")
            return DONE
        client.delete_task(task_id)
    if as_json:
        print_json({"deleted": task_id})
    else:
        print_data(f"{task_id}  deleted")
    return DONE


def _nothing(filters: TaskFilters, connection: Connection) -> str:
    state = f" in state {filters.state}" if filters.state else ""
    context = f" of context {filters.context}" if filters.context else ""
    if state or context:
        return f"No tasks{state}{context}."
    make = connection.command('send "hello"')
    return f"No tasks. Make one: {make}"


def _list_params(filters: TaskFilters) -> JsonObject:
    if filters.limit < 1:
        raise usage_error(f"--limit must be at least 1, not {filters.limit}")
    params: JsonObject = {"pageSize": min(filters.limit, PAGE), "historyLength": 1}
    if filters.state:
        name = filters.state.upper().replace("-", "_")
        params["status"] = TaskState(f"TASK_STATE_{name}").value
    if filters.context:
        params["contextId"] = filters.context
    return params


def _show_list(tasks: list[Task], total: int) -> None:
    rows = [("TASK", "STATE", "SINCE", "LAST MESSAGE")]
    for task in tasks:
        said = format_message(task.history[-1]) if task.history else ""
        shown_id = task.id[:_SHORT_ID] if is_narrow() else task.id
        rows.append((shown_id, state_name(task.status.state), _time(task.status.timestamp), said))
    print_table(rows, styles=_COLOURS)
    if total > len(tasks):
        print_message(f"{len(tasks)} of {total}; more with --limit", "dim")


def _show_task(task: Task) -> None:
    print_data(f"task     {task.id}")
    print_data(f"context  {task.context_id}")
    print_data(f"state    {state_name(task.status.state)} since {_time(task.status.timestamp)}")
    made = [one.parts for one in task.artifacts]
    last = [task.status.message.parts] if task.status.message else []
    whole = [*(message.parts for message in task.history), *last]
    for message in task.history:
        if message.parts in made:
            continue
        who = "user" if message.role.value == "ROLE_USER" else "agent"
        print_data(f"\n{who}:\n{_indented(format_message(message))}")
    for artifact in task.artifacts:
        # What was also said as one message has parts of a message, and not pieces of a text.
        text = format_parts(artifact.parts, are_pieces=artifact.parts not in whole)
        print_data(f"\nartifact {artifact.name or artifact.artifact_id}:\n{_indented(text)}")


def _time(moment: datetime | None) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment else "-"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
