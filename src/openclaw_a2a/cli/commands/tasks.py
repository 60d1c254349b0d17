"""`tasks`: list, show, watch, cancel and delete the tasks of a gateway."""

from datetime import datetime
from typing import Annotated, Literal

from cyclopts import App, Parameter

from openclaw_a2a.cli.commands.agent import show_events
from openclaw_a2a.cli.errors import DONE, confirm, usage_error
from openclaw_a2a.cli.flags import NO_CONNECTION, Connection, LimitFlag, YesFlag
from openclaw_a2a.cli.follow import TaskFollower
from openclaw_a2a.cli.render.stream import format_message, format_parts, state_name
from openclaw_a2a.cli.render.terminal import (
    ItemTable,
    describe_empty,
    indent,
    print_data,
    print_json,
    print_message,
    print_result,
)
from openclaw_a2a.cli.selection import (
    PAGE,
    connect,
    decode_response,
    find_task,
    list_tasks,
)
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.task import Task

app = App(
    name="tasks",
    help="List, show, watch, cancel and delete tasks. Ids may be cut to their unique beginning.",
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


TaskPrefix = Annotated[str, Parameter(help="The task's id, or its beginning.")]


def _time(moment: datetime | None) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment else "-"


_TABLE = ItemTable[Task](
    {
        "TASK": lambda task, _: task.id,
        "STATE": lambda task, _: state_name(task.status.state),
        "SINCE": lambda task, _: _time(task.status.timestamp),
        "LAST MESSAGE": lambda task, _: format_message(task.history[-1]) if task.history else "",
    },
    colours={
        "completed": "green",
        "failed": "red",
        "rejected": "red",
        "input-required": "yellow",
        "auth-required": "yellow",
        "canceled": "dim",
    },
    short_id=8,
)


@app.command(name="list")
def list_(
    *,
    state: Annotated[StateName | None, Parameter(help="Only tasks in this state.")] = None,
    context: Annotated[str | None, Parameter(help="Only tasks of this context.")] = None,
    limit: LimitFlag = 20,
    connection: Connection = NO_CONNECTION,
) -> int:
    """List tasks, the newest first."""
    if limit < 1:
        raise usage_error(f"--limit must be at least 1, not {limit}")
    params: JsonObject = {"pageSize": min(limit, PAGE), "historyLength": 1}
    if state:
        params["status"] = f"TASK_STATE_{state.upper().replace('-', '_')}"
    if context:
        params["contextId"] = context
    tasks: list[Task] = []
    total = 0
    with connect(connection) as client:
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
    filters = {"in state": state, "of context": context}
    empty = describe_empty("tasks", filters, f"No tasks. Make one: {hello}")
    _TABLE.print(tasks, empty=empty, total=total)
    return DONE


@app.command(name="show")
def show_task(task: TaskPrefix, /, *, connection: Connection = NO_CONNECTION) -> int:
    """Show a task with what was said and made."""
    with connect(connection) as client:
        body = client.call("GetTask", {"id": find_task(client, task)})
    shown = decode_response(body, Task)
    if connection.as_json:
        print_json(shown)
    else:
        _show_task(shown)
    return DONE


@app.command
def watch(task: TaskPrefix, /, *, connection: Connection = NO_CONNECTION) -> int:
    """Follow a task until it ends or waits for an answer; a lost connection is taken up again.

    With --json, one event per line.
    """
    with connect(connection) as client:
        follow = TaskFollower(client)
        events = follow.watch(find_task(client, task))
        return show_events(follow, events, connection)


@app.command
def cancel(task: TaskPrefix, /, *, connection: Connection = NO_CONNECTION) -> int:
    """Stop a task; returns when it has really stopped."""
    with connect(connection) as client:
        body = client.call("CancelTask", {"id": find_task(client, task)})
    ended = decode_response(body, Task)
    line = f"{ended.id}  {state_name(ended.status.state)}"
    print_result(ended, line, as_json=connection.as_json)
    return DONE


@app.command
def delete(
    task: TaskPrefix, /, *, yes: YesFlag = False, connection: Connection = NO_CONNECTION
) -> int:
    """Delete a task that has ended, with everything said and made."""
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
    print_data(f"state    {state_name(task.status.state)} since {_time(task.status.timestamp)}")
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
