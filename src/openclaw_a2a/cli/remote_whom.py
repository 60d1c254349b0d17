"""What the commands for remote agents are told: which agent, and what goes to it."""

import shlex
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from openclaw_a2a.cli.flags import ConfigFlag
from openclaw_a2a.model.errors import InvalidRequest


@Parameter(name="*")
@dataclass(frozen=True)
class Whom:
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


ANYBODY = Whom()


@Parameter(name="*")
@dataclass(frozen=True)
class Message:
    """What goes along with the text, and what it belongs to."""

    task: Annotated[
        str | None, Parameter(help="Continue this task (handle, id or its beginning).")
    ] = None
    context: Annotated[str | None, Parameter(help="Continue this context.")] = None
    go_on: Annotated[
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


NOTHING_MORE = Message()


def misuse(message: str, next_step: str) -> InvalidRequest:
    """The error for a command line that cannot be meant so."""
    return InvalidRequest(message, details={"code": "usage", "nextStep": next_step})
