"""`up`: start the gateway."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from openclaw_a2a.cli.commands.config import agent_problems
from openclaw_a2a.cli.flags import ConfigFlag
from openclaw_a2a.model.ids import Json
from openclaw_a2a.settings import load_settings


def up(
    *,
    config: ConfigFlag = None,
    host: Annotated[str | None, Parameter(help="Address to listen on.")] = None,
    port: Annotated[int | None, Parameter(help="Port to listen on.")] = None,
    data: Annotated[Path | None, Parameter(help="The data folder.")] = None,
) -> int:
    """Start the gateway and serve until it is stopped (Ctrl-C).

    Without any settings the agents of the OpenClaw on this machine answer at
    http://127.0.0.1:9900, or one that echoes where there is no OpenClaw.
    """
    given: dict[str, Json] = {
        "server.host": host,
        "server.port": port,
        "data": str(data.expanduser().absolute()) if data else None,
    }
    overrides = {key: value for key, value in given.items() if value is not None}
    loaded = load_settings(config, overrides=overrides)
    problems = agent_problems(loaded.settings)
    if problems:
        raise loaded.invalid(problems)

    from openclaw_a2a.app import serve

    return serve(loaded)
