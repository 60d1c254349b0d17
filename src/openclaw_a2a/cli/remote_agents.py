"""`remote`: send work to remote agents, watch it, ask how it is, and cancel it."""

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from openclaw_a2a.cli.flags import JsonFlag
from openclaw_a2a.cli.remote_whom import ANYBODY, NOTHING_MORE, Message, Whom, misuse

if TYPE_CHECKING:
    from openclaw_a2a.cli.remote_call import Call
    from openclaw_a2a.cli.remote_subject import Subjects
    from openclaw_a2a.library.remote_agents import RemoteAgents

Work = Callable[["RemoteAgents", "Subjects", "Call"], Awaitable[int]]

app = App(
    name="remote",
    help="Send work to remote agents; watch it, ask how it is, cancel it. "
    "Targets are those of the settings: openclaw-a2a targets list.",
)

Follow = Annotated[
    bool | None,
    Parameter(
        show_default=False,
        help="Show the work as it goes: the default for people; with --json, one update per line.",
    ),
]
TaskName = Annotated[
    str | None,
    Parameter(help="The task's handle, id or its beginning; left out: the last one."),
]


@app.command
def send(
    *text: str,
    message: Message = NOTHING_MORE,
    whom: Whom = ANYBODY,
    follow: Follow = None,
    as_json: JsonFlag = False,
) -> int:
    """Send a message to a remote agent and show the answer as it comes.

    With --json the envelope of the tool remote_agent.

    Parameters
    ----------
    text
        What to say; - reads it from standard input.
    """

    async def go(remote: "RemoteAgents", subjects: "Subjects", call: "Call") -> int:
        from openclaw_a2a.library.remote_agents import build_send_request

        to, more = subjects.of_message(message)
        request = build_send_request(to, _words(text), more)
        if not request["parts"]:
            hello = whom.command('send "hello"')
            raise misuse("there is nothing to send", f"Say something: {hello}")
        is_followed = not as_json if follow is None else follow
        return await (call.follow if is_followed else call.ask)(remote, request)

    return _run(go, whom, as_json=as_json)


@app.command
def watch(task: TaskName = None, *, whom: Whom = ANYBODY, as_json: JsonFlag = False) -> int:
    """Follow a task at a remote agent until it ends or waits for an answer.

    With --json one update per line, and at last the envelope of the tool remote_agent.
    """
    return _run(_work("watch", task, whom), whom, as_json=as_json)


@app.command
def status(task: TaskName = None, *, whom: Whom = ANYBODY, as_json: JsonFlag = False) -> int:
    """Show how a task at a remote agent is now."""
    return _run(_work("status", task, whom), whom, as_json=as_json)


@app.command
def cancel(task: TaskName = None, *, whom: Whom = ANYBODY, as_json: JsonFlag = False) -> int:
    """Have a task at a remote agent stopped."""
    return _run(_work("cancel", task, whom), whom, as_json=as_json)


def _work(action: str, task: str | None, whom: Whom) -> Work:
    async def go(remote: "RemoteAgents", subjects: "Subjects", call: "Call") -> int:
        from openclaw_a2a.library.remote_agents import build_task_request

        to, naming = subjects.of_task(task)
        naming["timeout_s"] = whom.seconds
        request = build_task_request(action, to, naming)
        return await (call.follow if action == "watch" else call.look)(remote, request)

    return go


def _run(work: Work, whom: Whom, *, as_json: bool) -> int:
    """Do the work in this process; the gateway's store is left alone. The exit code."""
    import anyio

    from openclaw_a2a.cli.remote_call import Call
    from openclaw_a2a.cli.remote_memory import RemoteMemory
    from openclaw_a2a.cli.remote_subject import Subjects
    from openclaw_a2a.library.remote_agents import RemoteAgents
    from openclaw_a2a.settings.loading.load import read_outbound_section

    memory = RemoteMemory(read_outbound_section(whom.config).data)
    call = Call(whom, memory, as_json=as_json)
    agents = RemoteAgents(whom.config, may_use_any_url=True, folder=memory.handles)

    async def go() -> int:
        async with agents as remote:
            subjects = Subjects(remote, memory, whom)
            call.name_agent(subjects.agent)
            return await work(remote, subjects, call)

    try:
        return anyio.run(go)
    except KeyboardInterrupt:
        return call.interrupted()


def _words(text: tuple[str, ...]) -> str:
    if text == ("-",):
        return sys.stdin.read().rstrip("\n")
    return " ".join(text)
