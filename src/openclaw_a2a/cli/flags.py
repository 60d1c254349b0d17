"""Options that several commands share."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from openclaw_a2a.model.ids import Json
from openclaw_a2a.settings import local_gateway


def switch(help_text: str, *, name: str | None = None) -> Parameter:
    """A flag that is off unless it is given; it has no opposite."""
    return Parameter(name=name, negative=(), show_default=False, help=help_text)


JsonFlag = Annotated[bool, switch("Print JSON.", name="--json")]
ConfigFlag = Annotated[
    Path | None, Parameter(name="--config", help="The settings file, instead of the usual places.")
]
YesFlag = Annotated[bool, switch("Do not ask.")]
LimitFlag = Annotated[int, Parameter(help="How many at most.")]
DataFlag = Annotated[Path | None, Parameter(help="The data folder.")]


def data_override(data: Path | None) -> dict[str, Json]:
    """The data folder of the command line, as an override of the settings."""
    return {"data": str(data.expanduser().absolute())} if data else {}


def format_command(words: str, **flags: object) -> str:
    """A command to type next, with the flags that have a value."""
    given = [f" --{name} {shlex.quote(str(value))}" for name, value in flags.items() if value]
    return f"openclaw-a2a {words}{''.join(given)}"


@Parameter(name="*")
@dataclass(frozen=True)
class FolderOptions:
    """The gateway whose data folder is meant, and the form of the output."""

    config: ConfigFlag = None
    data: Annotated[Path | None, Parameter(help="The data folder of the gateway.")] = None
    as_json: JsonFlag = False

    def folder(self) -> Path:
        """Its data folder. Raises: SettingsInvalid."""
        return local_gateway(self.config, overrides=data_override(self.data)).data


DEFAULT_FOLDER = FolderOptions()


@Parameter(name="*")
@dataclass(frozen=True)
class Connection:
    """The address of a gateway or agent, the token for it, and the form of the output."""

    as_json: JsonFlag = False
    url: Annotated[
        str | None,
        Parameter(
            help="Address of the agent or of its card; left out: the gateway that runs with the "
            "data folder, or that of the settings."
        ),
    ] = None
    token: Annotated[str | None, Parameter(help="Bearer token; better: OPENCLAW_A2A_TOKEN.")] = None
    config: ConfigFlag = None
    data: Annotated[Path | None, Parameter(help="The data folder of the gateway.")] = None

    def command(self, words: str) -> str:
        """A command to type next, for the same agent. A token is never part of it."""
        return format_command(words, url=self.url, config=self.config, data=self.data)

    def answer_hint(self, task_id: str) -> str:
        """What to do about a task that waits for an answer."""
        answer = self.command(f'send --task {task_id} "..."')
        return f"Answer with: {answer}"


NO_CONNECTION = Connection()
