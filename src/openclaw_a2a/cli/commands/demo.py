"""`demo`: a gateway with scripted agents, to see the dashboard alive."""

import tempfile
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from openclaw_a2a.cli.demo import Demo
from openclaw_a2a.cli.options import format_command
from openclaw_a2a.cli.render.terminal import print_message


def demo(
    *,
    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="Port to listen on; 0 takes any free one.")] = 9900,
    data: Annotated[
        Path | None,
        Parameter(help="Folder for its data; left out: one that is removed at the end."),
    ] = None,
    pace: Annotated[float, Parameter(help="How long pauses are, in parts of the usual.")] = 1.0,
    rounds: Annotated[
        int | None, Parameter(help="How often callers come; left out: until it is stopped.")
    ] = None,
) -> int:
    """Start a gateway with scripted agents, to see the dashboard alive.

    Callers that are made up keep the agents busy. The agents stream, use tools, call each other,
    debate, ask for an approval and for an answer, fail, and work through plans. No OpenClaw and no
    model is needed, and your own data is not touched. Open the link that is printed.
    """
    from openclaw_a2a.app.lifecycle import serve_gateway

    with tempfile.TemporaryDirectory(prefix="openclaw-a2a-demo-") as made:
        folder = data or Path(made)
        script = Demo(folder, pace=pace, rounds=rounds)
        loaded = script.load(host=host, port=port)
        print_message("This is a demo: its agents follow a script, and its callers are made up.")
        # Its data is not where other commands look.
        print_message(f"In another terminal: {format_command('top', data=folder)}")
        return serve_gateway(loaded, script.build)
