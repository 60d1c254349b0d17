"""What a program writes and how it ends, within its limits of time and size."""

import signal
from collections.abc import Awaitable
from typing import TypeVar

import anyio
import msgspec

from openclaw_a2a.agents.process import Child
from openclaw_a2a.model.errors import AgentFailed

_Result = TypeVar("_Result")


class ProgramLimits(msgspec.Struct, frozen=True):
    """How long a program may take and how much it may write; `or_raise_*` is said past a limit."""

    program: str
    timeout_s: float
    most_bytes: int
    or_raise_time: str = "timeout"
    or_raise_size: str = ""


class BoundedProgram:
    """A running program that is read within its limits."""

    def __init__(self, child: Child, limits: ProgramLimits) -> None:
        self._child = child
        self._limits = limits
        self._room = limits.most_bytes
        self.begin_time()

    def begin_time(self) -> None:
        """Its time begins anew."""
        self._deadline = anyio.current_time() + self._limits.timeout_s

    async def read(self) -> bytes:
        """What it writes next; empty: nothing more. Raises: AgentFailed (past a limit)."""
        piece = await self._in_time(self._child.read())
        self._room -= len(piece)
        if self._room < 0:
            limits = self._limits
            more = f", or raise {limits.or_raise_size}" if limits.or_raise_size else ""
            raise AgentFailed(
                f"{limits.program} wrote more than {limits.most_bytes} bytes and was ended;"
                f" have it write less{more}."
            )
        return piece

    async def exit_code(self) -> int:
        """How it ended; negative: by that signal. Raises: AgentFailed (it did not in time)."""
        return await self._in_time(self._child.wait())

    def failure(self, exit_code: int) -> AgentFailed:
        """The error for an end that was no success."""
        ended = f"{self._limits.program} {exit_words(exit_code)}"
        errors = self._child.error_tail()
        return AgentFailed(f"{ended}: {errors}" if errors else f"{ended} and gave no reason.")

    async def _in_time(self, result: Awaitable[_Result]) -> _Result:
        try:
            with anyio.fail_after(self._deadline - anyio.current_time()):
                return await result
        except TimeoutError:
            limits = self._limits
            raise AgentFailed(
                f"{limits.program} did not finish within {limits.timeout_s:g} seconds and was"
                f" ended; ask for less, or raise {limits.or_raise_time}."
            ) from None


def exit_words(exit_code: int) -> str:
    """How a program ended, in words."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    number = -exit_code
    known = number in set(signal.Signals)
    return f"was ended by signal {signal.Signals(number).name if known else number}"
