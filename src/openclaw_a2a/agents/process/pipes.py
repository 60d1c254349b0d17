"""Our ends of a program's three pipes, read and written without blocking the event loop."""

import asyncio
import contextlib
import os
from typing import IO

_PIECE_BYTES = 65_536
# 4 MB: a program that writes errors without end must not keep `drain` in its loop.
_MAX_DRAINED_PIECES = 64


class _Pipe:
    """One end of a pipe, watched by the event loop that it was made in."""

    def __init__(self, pipe: IO[bytes]) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Close our end. May be called again."""
        if not self._pipe.closed:
            # Before the descriptor is closed: its number may be reused at once.
            self._loop.remove_reader(self._pipe.fileno())
            self._loop.remove_writer(self._pipe.fileno())
            self._pipe.close()


class OutputPipe(_Pipe):
    """The standard output of a program."""

    def __init__(self, pipe: IO[bytes]) -> None:
        super().__init__(pipe)
        self._readable = asyncio.Event()
        self._is_ended = False

    async def read(self) -> bytes:
        """The next piece, as soon as there is one; empty at the end."""
        while not self._pipe.closed:
            if not self._is_ended:
                # Watched only while its output is read: a program that writes faster than that is
                # held back by the full pipe, and nothing piles up here.
                self._readable.clear()
                self._loop.add_reader(self._pipe.fileno(), self._readable.set)
                try:
                    await self._readable.wait()
                finally:
                    if not self._pipe.closed:
                        self._loop.remove_reader(self._pipe.fileno())
            # `end` or `close` may have woken us instead of the program.
            if not self._pipe.closed:
                with contextlib.suppress(BlockingIOError):
                    return os.read(self._pipe.fileno(), _PIECE_BYTES)
            if self._is_ended:
                break
        return b""

    def end(self) -> None:
        """Wait for no more; what is in the pipe already can still be read.

        A descendant of the program may hold the other end open for ever.
        """
        self._is_ended = True
        self._readable.set()

    def close(self) -> None:
        """Close our end; a pending `read` returns the end."""
        self.end()
        super().close()


class ErrorPipe(_Pipe):
    """The standard error of a program: always drained, so that it never blocks; the end is kept."""

    def __init__(self, pipe: IO[bytes], *, kept_bytes: int) -> None:
        super().__init__(pipe)
        self._kept = bytearray()
        self._kept_bytes = kept_bytes
        # Read from the start, because a full error pipe would block the program.
        self._loop.add_reader(pipe.fileno(), self._read_piece)

    def text(self, characters: int) -> str:
        """The last so many characters of what has been written until now."""
        self.drain()
        return self._kept.decode("utf-8", "replace").strip()[-characters:]

    def drain(self) -> None:
        """Read what is in the pipe now."""
        for _ in range(_MAX_DRAINED_PIECES):
            if not self._read_piece():
                break

    def _read_piece(self) -> bool:
        """Read one piece, no more: a flood of errors must not starve the event loop."""
        if self._pipe.closed:
            return False
        try:
            piece = os.read(self._pipe.fileno(), _PIECE_BYTES)
        except BlockingIOError:
            return False
        self._kept += piece
        del self._kept[: -self._kept_bytes]
        if not piece:
            self.close()
        return bool(piece)


class InputPipe(_Pipe):
    """The standard input of a program: written as fast as it reads, then closed."""

    def __init__(self, pipe: IO[bytes], content: bytes) -> None:
        super().__init__(pipe)
        self._rest = memoryview(content)
        self._loop.add_writer(pipe.fileno(), self._write_piece)

    def _write_piece(self) -> None:
        try:
            written = os.write(self._pipe.fileno(), self._rest[:_PIECE_BYTES])
        except BlockingIOError:
            return
        except OSError:  # the program closed its input: what it does not read is not needed
            written = len(self._rest)
        self._rest = self._rest[written:]
        if not self._rest:
            self.close()
