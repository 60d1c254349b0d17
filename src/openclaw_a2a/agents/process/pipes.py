"""Our ends of a program's three pipes, read and written without ever blocking."""

import asyncio
import contextlib
import os
from typing import IO

KEPT_BYTES = 16_384
"""How much of a program's errors is kept, unless more is asked for."""

_PIECE_BYTES = 65_536
_MOST_PIECES = 64


class OutputPipe:
    """What a program writes to its standard output."""

    def __init__(self, pipe: IO[bytes]) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        self._moved = asyncio.Event()
        self._is_ended = False

    async def read(self) -> bytes:
        """The next piece, as soon as there is one; empty: there is no more."""
        while not self._pipe.closed:
            if not self._is_ended:
                await self._activity()
            if not self._pipe.closed:
                with contextlib.suppress(BlockingIOError):
                    return os.read(self._pipe.fileno(), _PIECE_BYTES)
            if self._is_ended:
                break
        return b""

    def end(self) -> None:
        """Wait for no more; what is in the pipe already can still be read."""
        self._is_ended = True
        self._moved.set()

    def close(self) -> None:
        """Let go of the pipe; whoever reads learns that there is no more."""
        self.end()
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()

    async def _activity(self) -> None:
        self._moved.clear()
        self._loop.add_reader(self._pipe.fileno(), self._moved.set)
        try:
            await self._moved.wait()
        finally:
            if not self._pipe.closed:
                self._loop.remove_reader(self._pipe.fileno())


class ErrorPipe:
    """What a program writes to its standard error: read all the time, the last part kept."""

    def __init__(self, pipe: IO[bytes], *, kept_bytes: int = KEPT_BYTES) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        self._kept = bytearray()
        self._kept_bytes = kept_bytes
        self._loop.add_reader(pipe.fileno(), self._take)

    def text(self, characters: int) -> str:
        """The last so many characters of what has been written until now."""
        self.drain()
        return self._kept.decode("utf-8", "replace").strip()[-characters:]

    def drain(self) -> None:
        """Read what is in the pipe now."""
        for _ in range(_MOST_PIECES):
            if not self._take():
                break

    def close(self) -> None:
        """Let go of the pipe; the text stays."""
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()

    def _take(self) -> bool:
        """Take one piece, no more, so that a flood of errors starves nobody; False: none there."""
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


class InputPipe:
    """What a program reads from its standard input: written as it takes it, then closed."""

    def __init__(self, pipe: IO[bytes], content: bytes) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        self._rest = memoryview(content)
        self._loop.add_writer(pipe.fileno(), self._give)

    def close(self) -> None:
        """Let go of the pipe, whether everything was taken or not."""
        if not self._pipe.closed:
            self._loop.remove_writer(self._pipe.fileno())
            self._pipe.close()

    def _give(self) -> None:
        try:
            written = os.write(self._pipe.fileno(), self._rest[:_PIECE_BYTES])
        except BlockingIOError:
            return
        except OSError:  # the program does not want to read (on): that is its own affair
            written = len(self._rest)
        self._rest = self._rest[written:]
        if not self._rest:
            self.close()
