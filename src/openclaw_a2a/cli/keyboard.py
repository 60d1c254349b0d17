"""Keys of a terminal: decodes what it sends, and switches line editing off and on."""

import codecs
import sys
import termios
import tty
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager

_SEQUENCES: Mapping[bytes, str] = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[C": "right",
    b"\x1bOC": "right",
    b"\x1b[D": "left",
    b"\x1bOD": "left",
    b"\x1b[5~": "page-up",
    b"\x1b[6~": "page-down",
    b"\x1b[H": "home",
    b"\x1b[1~": "home",
    b"\x1b[F": "end",
    b"\x1b[4~": "end",
    b"\x1b[Z": "left",
}
_LONG_BEGINNINGS = frozenset(one[:3] for one in _SEQUENCES if len(one) > 3)
_CONTROLS: Mapping[str, str] = {
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x15": "clear",
    "\x0c": "redraw",
}


class KeyReader:
    """Decodes the bytes of a terminal into keys: named keys, or single characters."""

    def __init__(self) -> None:
        self._bytes = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def has_rest(self) -> bool:
        """True after an escape that may be the beginning of a sequence."""
        return bool(self._bytes)

    def feed(self, data: bytes) -> Iterator[str]:
        """Add bytes, and return the keys that are complete."""
        self._bytes += data
        while self._bytes:
            if not self._bytes.startswith(b"\x1b"):
                text = self._bytes.partition(b"\x1b")[0]
                self._bytes = self._bytes[len(text) :]
                for character in self._decoder.decode(text):
                    yield _CONTROLS.get(character, character)
                continue
            found = next((one for one in _SEQUENCES if self._bytes.startswith(one)), None)
            if found is not None:
                self._bytes = self._bytes[len(found) :]
                yield _SEQUENCES[found]
            elif len(self._bytes) < 3 or self._bytes in _LONG_BEGINNINGS:
                return  # more may come
            else:
                yield from self.flush()

    def flush(self) -> Iterator[str]:
        """Call when no more bytes came: a lone escape is a key, an unknown sequence is none."""
        is_escape, self._bytes = self._bytes == b"\x1b", b""
        if is_escape:
            yield "escape"


@contextmanager
def raw_terminal() -> Generator[Callable[[bool], None]]:
    """Read keys one by one, without echo. The yielded function switches this off and on again."""
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)

    def switch(is_raw: bool) -> None:
        if is_raw:
            tty.setcbreak(number, termios.TCSADRAIN)
        else:
            termios.tcsetattr(number, termios.TCSADRAIN, before)

    try:
        switch(True)
        yield switch
    finally:
        switch(False)
