"""The command `openclaw-a2a`. What only shows the overview loads nothing else."""

import codecs
import os
import sys

_ESCAPES = "openclaw-a2a-escapes"


def main() -> None:
    """Run the command line; ends the process with its exit code."""
    _prepare_standard_streams()
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout.fileno())
        code = 1
    try:
        sys.stderr.flush()
    except OSError:  # nobody reads the log any more, which is no failure of the command
        _discard(sys.stderr.fileno())
    sys.exit(code)


def _discard(fileno: int) -> None:
    """Drop what a stream holds: its reader has left, and at exit Python would fail to write it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), fileno)


def run(arguments: list[str]) -> int:
    """Run one command line; its exit code (see the overview)."""
    if arguments in ([], ["-h"], ["--help"], ["help"]):
        from openclaw_a2a.cli.overview import overview

        print(overview(os.get_terminal_size().columns if sys.stdout.isatty() else None))
        return 0
    from openclaw_a2a.cli.dispatch import dispatch

    return dispatch(arguments)


def _prepare_standard_streams() -> None:
    """Have all three streams, and let every text be printed in every locale."""
    codecs.register_error(_ESCAPES, _escape_unencodable)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:  # it was closed before we started (`>&-`)
            nothing = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nothing, mode, encoding="utf-8"))
        elif mode == "w":
            stream.reconfigure(errors=_ESCAPES)


def _escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    """The escapes of JSON for what an encoding does not have, so that JSON stays JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    escapes = (f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))
    return "".join(escapes), error.end
