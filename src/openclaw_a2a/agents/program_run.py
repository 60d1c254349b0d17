"""One run of a program for an adapter: what it writes, within its limits, and how it ends."""

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar

import anyio

from openclaw_a2a.agents.process import Child, Launch, spawn
from openclaw_a2a.agents.program_requests import ProgramRequest
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable

MOST_OUTPUT_BYTES = 128 * 1024 * 1024
"""What a program may write for one request."""

_Result = TypeVar("_Result")


class StaleSession(Exception):
    """The program would not go on with its session and did not say why."""


def start(launch: Launch, request: ProgramRequest, not_found: Callable[[], str]) -> Child:
    """Start the program of a request; `not_found` says what to tell when there is none.

    Raises: CancelledByAdapter, AgentUnavailable, AgentFailed.
    """
    request.check()
    try:
        request.child = spawn(launch)
    except AgentUnavailable as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise AgentUnavailable(not_found()) from error
        raise
    return request.child


class ProgramRun:
    """A program that runs for a request; `async with` it, and nothing of it is left afterwards."""

    def __init__(
        self, program: str, child: Child, request: ProgramRequest, *, timeout_s: float
    ) -> None:
        self.program = program
        self._child = child
        self._request = request
        self._timeout_s = timeout_s
        self._room = MOST_OUTPUT_BYTES
        self._rest()

    async def __aenter__(self) -> Self:
        """The run."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End whatever still runs."""
        await self._request.end()
        self._request.child = None

    async def output(self) -> str:
        """Everything it writes. Raises: AgentFailed (too much, or too slow)."""
        pieces: list[bytes] = []
        while piece := await self._read():
            pieces.append(piece)
        return b"".join(pieces).decode("utf-8", "replace")

    async def lines(self) -> AsyncIterator[str]:
        """What it writes, line by line; each has its own time. Raises: AgentFailed."""
        rest: list[bytes] = []
        while piece := await self._read():
            *ended, begun = piece.split(b"\n")
            for line in ended:
                yield b"".join([*rest, line]).decode("utf-8", "replace")
                rest = []
                self._rest()
            rest.append(begun)
        self._request.check()  # the last line of a program that we ended may be half a line
        if last := b"".join(rest):
            yield last.decode("utf-8", "replace")

    async def check_exit(self, *, may_be_stale: bool) -> None:
        """Wait for its end. With `may_be_stale` it wrote nothing and went on with a session.

        Raises: CancelledByAdapter (we ended it), StaleSession, AgentFailed (it failed).
        """
        exit_code = await self._in_time(self._child.wait())
        self._request.check()
        if exit_code == 0:
            return
        errors = self._child.error_tail()
        if exit_code > 0 and may_be_stale and not errors:
            raise StaleSession
        ended = f"ended with exit code {exit_code}"
        if exit_code < 0:
            ended = f"was ended by signal {_signal_name(-exit_code)}"
        reason = f": {errors}" if errors else " and gave no reason."
        raise AgentFailed(f"{self.program} {ended}{reason}")

    def _rest(self) -> None:
        """Its time begins anew."""
        self._deadline = anyio.current_time() + self._timeout_s

    async def _read(self) -> bytes:
        piece = await self._in_time(self._child.read())
        self._room -= len(piece)
        if self._room < 0:
            raise AgentFailed(
                f"{self.program} wrote more than {MOST_OUTPUT_BYTES} bytes and was ended;"
                " have it write less."
            )
        return piece

    async def _in_time(self, result: Awaitable[_Result]) -> _Result:
        try:
            with anyio.fail_after(self._deadline - anyio.current_time()):
                return await result
        except TimeoutError:
            raise AgentFailed(
                f"{self.program} did not finish within {self._timeout_s:g} seconds and was ended;"
                " ask for less, or raise timeout."
            ) from None


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else str(number)
