"""One run of a program for an adapter: what it writes, within its limits, and how it ends."""

from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self

from openclaw_a2a.agents.process import Child, Launch, spawn
from openclaw_a2a.agents.program_limits import BoundedProgram, ProgramLimits
from openclaw_a2a.agents.program_requests import ProgramRequest
from openclaw_a2a.model.errors import AgentUnavailable

MOST_OUTPUT_BYTES = 128 * 1024 * 1024
"""What a program may write for one request."""


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
        self._bounded = BoundedProgram(child, ProgramLimits(program, timeout_s, MOST_OUTPUT_BYTES))

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
        while piece := await self._bounded.read():
            pieces.append(piece)
        return b"".join(pieces).decode("utf-8", "replace")

    async def lines(self) -> AsyncIterator[str]:
        """What it writes, line by line; each has its own time. Raises: AgentFailed."""
        rest: list[bytes] = []
        while piece := await self._bounded.read():
            *ended, begun = piece.split(b"\n")
            for line in ended:
                yield b"".join([*rest, line]).decode("utf-8", "replace")
                rest = []
                self._bounded.begin_time()
            rest.append(begun)
        self._request.check()  # the last line of a program that we ended may be half a line
        if last := b"".join(rest):
            yield last.decode("utf-8", "replace")

    async def check_exit(self, *, may_be_stale: bool) -> None:
        """Wait for its end. With `may_be_stale` it wrote nothing and went on with a session.

        Raises: CancelledByAdapter (we ended it), StaleSession, AgentFailed (it failed).
        """
        exit_code = await self._bounded.exit_code()
        self._request.check()
        if exit_code == 0:
            return
        if exit_code > 0 and may_be_stale and not self._child.error_tail():
            raise StaleSession
        raise self._bounded.failure(exit_code)
