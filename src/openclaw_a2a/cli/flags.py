"""Options that several commands share."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

JsonFlag = Annotated[
    bool, Parameter(name="--json", negative=(), show_default=False, help="Print JSON.")
]
ConfigFlag = Annotated[
    Path | None, Parameter(name="--config", help="The settings file, instead of the usual places.")
]


@Parameter(name="*")
@dataclass(frozen=True)
class Connection:
    """Which gateway or agent to talk to, and as whom."""

    url: Annotated[
        str | None,
        Parameter(
            help="Address of the agent or of its card; left out: the gateway of the settings."
        ),
    ] = None
    token: Annotated[str | None, Parameter(help="Bearer token; better: OPENCLAW_A2A_TOKEN.")] = None
    config: ConfigFlag = None

    def command(self, words: str) -> str:
        """A command to type next, for the same agent. A token is never part of it."""
        flags = {"--url": self.url, "--config": str(self.config) if self.config else None}
        given = [f" {name} {shlex.quote(value)}" for name, value in flags.items() if value]
        return f"openclaw-a2a {words}{''.join(given)}"


NO_CONNECTION = Connection()
