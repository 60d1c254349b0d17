"""The command `openclaw-a2a`. What only shows the overview loads nothing else."""

import sys


def main() -> None:
    """Run the command line; ends the process with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; its exit code (see the overview)."""
    if arguments in ([], ["-h"], ["--help"], ["help"]):
        from openclaw_a2a.cli.overview import overview

        print(overview())
        return 0
    from openclaw_a2a.cli.dispatch import dispatch

    return dispatch(arguments)
