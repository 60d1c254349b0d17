"""What moves on a terminal: a line while somebody waits, and lines that are drawn again."""

import shutil
import sys
import time
from collections.abc import Sequence

from openclaw_a2a.cli.output import clean, styled

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAME_S = 0.1
_CLEAR_LINE = "\r\x1b[2K"


class Waiting:
    """A line on standard error that moves while somebody waits; nothing where nobody looks."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._since = time.monotonic()
        self._frame = 0
        self._is_drawn = False

    def wait(self, seconds: float, state: str) -> None:
        """Let the time go by, and show what is waited for."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._draw(state)
            time.sleep(min(_FRAME_S, left))

    def clear(self) -> None:
        """Take the line away, so that something can be said."""
        if self._is_drawn:
            print(_CLEAR_LINE, end="", file=sys.stderr, flush=True)
        self._is_drawn = False

    def _draw(self, state: str) -> None:
        if not sys.stderr.isatty():
            return
        seconds = int(time.monotonic() - self._since)
        frame = FRAMES[self._frame % len(FRAMES)]
        words = cut(f"{frame} {clean(self._label)} · {state} · {seconds} s", _columns() - 1)
        line = styled(words, "dim", sys.stderr)
        print(f"{_CLEAR_LINE}{line}", end="", file=sys.stderr, flush=True)
        self._frame += 1
        self._is_drawn = True


Line = tuple[str, str | None]
"""A line, and its style."""


class Redrawn:
    """Lines on a terminal that take the place of those drawn before."""

    def __init__(self) -> None:
        self._height = 0

    def draw(self, lines: Sequence[Line]) -> None:
        """Draw the lines; what has no room on the terminal is left out at the end."""
        columns, rows = shutil.get_terminal_size()
        room = max(1, rows - 1)
        shown = [*lines] if len(lines) <= room else [*lines[: room - 1], ("…", "dim")]
        back = f"\x1b[{self._height}F" if self._height else ""
        words = [styled(cut(clean(one), columns - 1), style, sys.stdout) for one, style in shown]
        print(f"{back}\x1b[J" + "\n".join(words), flush=True)
        self._height = len(shown)

    def leave(self) -> None:
        """Let the lines stand: something was said below them."""
        self._height = 0


def cut(text: str, room: int) -> str:
    """The text on one line, with an ellipsis where it is too long."""
    return text if len(text) <= room else f"{text[: max(0, room - 1)]}…"


def _columns() -> int:
    return shutil.get_terminal_size().columns
