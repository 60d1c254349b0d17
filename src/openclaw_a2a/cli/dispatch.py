"""Finds and runs the command that a command line names, and turns failures into exit codes."""

import os
import sys
from importlib.metadata import version

from cyclopts import App, CycloptsError

from openclaw_a2a.cli.errors import INTERRUPTED, report_failure, report_usage
from openclaw_a2a.cli.overview import ALIASES, COMMANDS
from openclaw_a2a.cli.render.terminal import print_message
from openclaw_a2a.model.errors import GatewayError

_USAGES = {
    "send": "Usage: openclaw-a2a send [OPTIONS] TEXT...",
    "call": "Usage: openclaw-a2a call [OPTIONS] AGENT SKILL [INPUT]",
    "debate": "Usage: openclaw-a2a debate [OPTIONS] FILE",
}


def build_commands() -> App:
    """The commands; the code of each is loaded when it is used."""
    app = App(
        name="openclaw-a2a",
        version=lambda: version("openclaw-a2a"),
        version_flags=["--version"],
        help_format="plaintext",
        result_action="return_value",
    )
    for name, (place, _) in COMMANDS.items():
        more = {"usage": _USAGES[name]} if name in _USAGES else {}
        app.command(f"openclaw_a2a.cli.commands.{place}", name, alias=ALIASES.get(name), **more)
    return app


def dispatch(arguments: list[str]) -> int:
    """Run one command line; its exit code."""
    try:
        result = build_commands()(_plain(arguments), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return report_usage(str(error), arguments)
    except GatewayError as error:
        return report_failure(error)
    except KeyboardInterrupt:
        print_message("Interrupted.")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough; the interpreter must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return result if isinstance(result, int) else 0


def _plain(arguments: list[str]) -> list[str]:
    """The arguments with a lone `-` where the parser takes it for text and not for an option."""
    if "-" not in arguments or "--" in arguments:
        return arguments
    return [*(one for one in arguments if one != "-"), "--", "-"]
