"""`remote`: send messages to remote agents; watch, query and cancel their tasks."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from openclaw_a2a.cli.commands.agent import join_text
from openclaw_a2a.cli.flags import ConfigFlag, JsonFlag, format_command
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
        return format_command(f"remote {words}", config=self.config)


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
    """The error for a wrong command line, with the next step."""
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
    options: RemoteOptions = DEFAULT_TARGET,
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

    async def go(remote: "RemoteAgents", targets: "TargetArguments", call: "RemoteRequest") -> int:
        from openclaw_a2a.library.remote_agents import build_send_request

        to, more = targets.resolve_message(message)
        request = build_send_request(to, join_text(text), more)
        if not request["parts"]:
            hello = options.command('send "hello"')
            raise remote_usage_error("there is nothing to send", f"Say something: {hello}")
        is_followed = not as_json if follow is None else follow
        return await (call.follow if is_followed else call.execute)(remote, request)

    return _run(go, options, as_json=as_json)


@app.command
def watch(
    task: TaskName = None, *, options: RemoteOptions = DEFAULT_TARGET, as_json: JsonFlag = False
) -> int:
    """Follow a task at a remote agent until it ends or waits for an answer.

    With --json one update per line, and at last the envelope of the tool remote_agent.
    """
    return _run(_work("watch", task, options), options, as_json=as_json)


@app.command
def status(
    task: TaskName = None, *, options: RemoteOptions = DEFAULT_TARGET, as_json: JsonFlag = False
) -> int:
    """Show how a task at a remote agent is now."""
    return _run(_work("status", task, options), options, as_json=as_json)


@app.command
def cancel(
    task: TaskName = None, *, options: RemoteOptions = DEFAULT_TARGET, as_json: JsonFlag = False
) -> int:
    """Have a task at a remote agent stopped."""
    return _run(_work("cancel", task, options), options, as_json=as_json)


def _work(action: str, task: str | None, options: RemoteOptions) -> Work:
    async def go(remote: "RemoteAgents", targets: "TargetArguments", call: "RemoteRequest") -> int:
        from openclaw_a2a.library.remote_agents import build_task_request

        to, naming = targets.resolve_task(task)
        naming["timeout_s"] = options.seconds
        request = build_task_request(action, to, naming)
        return await (call.follow if action == "watch" else call.show_task)(remote, request)

    return go


def _run(work: Work, options: RemoteOptions, *, as_json: bool) -> int:
    """Do the work in this process; the gateway's store is left alone. The exit code."""
    import anyio

    from openclaw_a2a.cli.remote_request import LastRemoteTask, RemoteRequest, TargetArguments
    from openclaw_a2a.library.remote_agents import RemoteAgents
    from openclaw_a2a.settings.load import read_outbound_section

    memory = LastRemoteTask(read_outbound_section(options.config).data)
    call = RemoteRequest(options, memory, as_json=as_json)
    agents = RemoteAgents(options.config, may_use_any_url=True, folder=memory.handles)

    async def go() -> int:
        async with agents as remote:
            targets = TargetArguments(remote, memory, options)
            call.name_agent(targets.agent)
            return await work(remote, targets, call)

    try:
        return anyio.run(go)
    except KeyboardInterrupt:
        return call.interrupted()
