"""`remote`: send messages to remote agents; watch, query and cancel their tasks."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from openclaw_a2a.cli.errors import usage_error
from openclaw_a2a.cli.options import ConfigFlag, JsonFlag, format_command, switch

if TYPE_CHECKING:
    from openclaw_a2a.cli.remote_request import RemoteRequest


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
            raise usage_error("--timeout must be above 0")
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
        bool, switch("Go on with the last task or context.", name="--continue")
    ] = False
    file: Annotated[
        list[str] | None,
        Parameter(negative=(), help="Send this file (or web address) too; may be repeated."),
    ] = None
    data: Annotated[str | None, Parameter(help="Send this JSON object too.")] = None
    require_task: Annotated[bool, switch("Take no direct answer, only a task.")] = False


NO_OPTIONS = MessageOptions()


app = App(
    name="remote",
    help="Send messages to remote agents; watch and cancel their tasks. "
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
    str | None, Parameter(help="The task's handle, id or its beginning; left out: the last one.")
]


@app.command
def send(
    *text: Annotated[str, Parameter(help="What to say; - reads it from standard input.")],
    message: MessageOptions = NO_OPTIONS,
    options: RemoteOptions = DEFAULT_TARGET,
    follow: Follow = None,
    as_json: JsonFlag = False,
) -> int:
    """Send a message to a remote agent and show the answer as it comes.

    With --json the envelope of the tool remote_agent.
    """
    is_followed = not as_json if follow is None else follow
    return _run(
        lambda request: request.send(text, message, is_followed=is_followed), options, as_json
    )


@app.command
def watch(
    task: TaskName = None, *, options: RemoteOptions = DEFAULT_TARGET, as_json: JsonFlag = False
) -> int:
    """Follow a task at a remote agent until it ends or waits for an answer.

    With --json one update per line, and at last the envelope of the tool remote_agent.
    """
    return _run(lambda request: request.act("watch", task), options, as_json)


@app.command
def status(
    task: TaskName = None, *, options: RemoteOptions = DEFAULT_TARGET, as_json: JsonFlag = False
) -> int:
    """Show how a task at a remote agent is now."""
    return _run(lambda request: request.act("status", task), options, as_json)


@app.command
def cancel(
    task: TaskName = None, *, options: RemoteOptions = DEFAULT_TARGET, as_json: JsonFlag = False
) -> int:
    """Have a task at a remote agent stopped."""
    return _run(lambda request: request.act("cancel", task), options, as_json)


def _run(
    work: Callable[["RemoteRequest"], Awaitable[int]], options: RemoteOptions, as_json: bool
) -> int:
    """Do the work in this process; the gateway's store is left alone. The exit code."""
    from openclaw_a2a.cli.remote_request import LastRemoteTask, RemoteRequest, run_with_agents
    from openclaw_a2a.library.remote_agents import RemoteAgents
    from openclaw_a2a.settings.load import read_outbound_section

    memory = LastRemoteTask(read_outbound_section(options.config).data)
    agents = RemoteAgents(options.config, may_use_any_url=True, folder=memory.handles)
    request = RemoteRequest(agents, memory, options, as_json=as_json)
    try:
        return run_with_agents(agents, lambda _: work(request))
    except KeyboardInterrupt:
        # Ctrl-C has cancelled the work and closed its connections; the remote task goes on.
        return request.interrupted()
