"""`remote`: send work to remote agents, watch it, ask how it is, and cancel it."""

import shlex
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from openclaw_a2a.cli.flags import ConfigFlag, JsonFlag
from openclaw_a2a.model.errors import InvalidRequest


@Parameter(name="*")
@dataclass(frozen=True)
class RemoteOptions:
    """Which remote agent is meant, and how long it may take."""

    target: Annotated[
        str | None,
        Parameter(help="Alias of the remote agent; left out: the default target, or the only one."),
    ] = None
    url: Annotated[str | None, Parameter(help="Its address, instead of an alias.")] = None
    timeout: Annotated[
        float | None, Parameter(help="Seconds to wait at most; left out: an hour.")
    ] = None
    config: ConfigFlag = None

    @property
    def name(self) -> str | None:
        """What was given, if anything."""
        return self.target or self.url

    @property
    def seconds(self) -> float:
        """How long to wait. Raises: InvalidRequest."""
        if self.timeout is None:
            return 3600.0
        if not 0 < self.timeout < float("inf"):
            raise InvalidRequest("--timeout must be above 0", details={"code": "usage"})
        return self.timeout

    def command(self, words: str) -> str:
        """A command to type next, with the same settings."""
        given = f" --config {shlex.quote(str(self.config))}" if self.config else ""
        return f"openclaw-a2a remote {words}{given}"


DEFAULT_TARGET = RemoteOptions()


@Parameter(name="*")
@dataclass(frozen=True)
class MessageOptions:
    """What goes along with the text, and what it belongs to."""

    task: Annotated[
        str | None, Parameter(help="Continue this task (handle, id or its beginning).")
    ] = None
    context: Annotated[str | None, Parameter(help="Continue this context.")] = None
    continue_last: Annotated[
        bool,
        Parameter(
            name="--continue",
            negative=(),
            show_default=False,
            help="Go on with the last task or context.",
        ),
    ] = False
    file: Annotated[
        list[str] | None,
        Parameter(negative=(), help="Send this file (or web address) too; may be repeated."),
    ] = None
    data: Annotated[str | None, Parameter(help="Send this JSON object too.")] = None
    require_task: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Take no direct answer, only a task.")
    ] = False


NO_OPTIONS = MessageOptions()


def remote_usage_error(message: str, next_step: str) -> InvalidRequest:
    """The error for a command line that cannot be meant so."""
    return InvalidRequest(message, details={"code": "usage", "nextStep": next_step})


if TYPE_CHECKING:
    from openclaw_a2a.cli.remote_request import RemoteRequest, TargetArguments
    from openclaw_a2a.library.remote_agents import RemoteAgents

Work = Callable[["RemoteAgents", "TargetArguments", "RemoteRequest"], Awaitable[int]]

app = App(
    name="remote",
    help="Send messages to remote agents; watch, query and cancel their tasks. "
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
    message: MessageOptions = NO_OPTIONS,
    whom: RemoteOptions = DEFAULT_TARGET,
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

    async def go(remote: "RemoteAgents", subjects: "TargetArguments", call: "RemoteRequest") -> int:
        from openclaw_a2a.library.remote_agents import build_send_request

        to, more = subjects.resolve_message(message)
        request = build_send_request(to, _words(text), more)
        if not request["parts"]:
            hello = whom.command('send "hello"')
            raise remote_usage_error("there is nothing to send", f"Say something: {hello}")
        is_followed = not as_json if follow is None else follow
        return await (call.follow if is_followed else call.execute)(remote, request)

    return _run(go, whom, as_json=as_json)


@app.command
def watch(
    task: TaskName = None, *, whom: RemoteOptions = DEFAULT_TARGET, as_json: JsonFlag = False
) -> int:
    """Follow a task at a remote agent until it ends or waits for an answer.

    With --json one update per line, and at last the envelope of the tool remote_agent.
    """
    return _run(_work("watch", task, whom), whom, as_json=as_json)


@app.command
def status(
    task: TaskName = None, *, whom: RemoteOptions = DEFAULT_TARGET, as_json: JsonFlag = False
) -> int:
    """Show how a task at a remote agent is now."""
    return _run(_work("status", task, whom), whom, as_json=as_json)


@app.command
def cancel(
    task: TaskName = None, *, whom: RemoteOptions = DEFAULT_TARGET, as_json: JsonFlag = False
) -> int:
    """Have a task at a remote agent stopped."""
    return _run(_work("cancel", task, whom), whom, as_json=as_json)


def _work(action: str, task: str | None, whom: RemoteOptions) -> Work:
    async def go(remote: "RemoteAgents", subjects: "TargetArguments", call: "RemoteRequest") -> int:
        from openclaw_a2a.library.remote_agents import build_task_request

        to, naming = subjects.resolve_task(task)
        naming["timeout_s"] = whom.seconds
        request = build_task_request(action, to, naming)
        return await (call.follow if action == "watch" else call.show_task)(remote, request)

    return go


def _run(work: Work, whom: RemoteOptions, *, as_json: bool) -> int:
    """Do the work in this process; the gateway's store is left alone. The exit code."""
    import anyio

    from openclaw_a2a.cli.remote_request import LastRemoteTask, RemoteRequest, TargetArguments
    from openclaw_a2a.library.remote_agents import RemoteAgents
    from openclaw_a2a.settings.load import read_outbound_section

    memory = LastRemoteTask(read_outbound_section(whom.config).data)
    call = RemoteRequest(whom, memory, as_json=as_json)
    agents = RemoteAgents(whom.config, may_use_any_url=True, folder=memory.handles)

    async def go() -> int:
        async with agents as remote:
            subjects = TargetArguments(remote, memory, whom)
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
