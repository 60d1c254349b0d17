"""Runs a program for a request: starts it, reads it within limits, ends its process tree."""

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import IO, TypeVar, cast

import anyio
import msgspec

from openclaw_a2a.agents.concurrency import await_shielded
from openclaw_a2a.agents.process.tree import (
    TAG_VARIABLE,
    ProcessTree,
    new_tag,
    scan_in_thread,
    stop_processes,
)
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.model.errors import AgentError, AgentFailed, AgentUnavailable

TIMED_OUT = "timedOutAfterSeconds"
"""In the details of the error of a program that took too long."""

# Only where there is no pidfd (macOS).
_EXIT_POLL_S = 0.02
_COLLECT_TIMEOUT_S = 0.5
_PIECE_BYTES = 65_536
# 4 MB: a program that writes errors without end must not keep `drain` in its loop.
_MAX_DRAINED_PIECES = 64
_Result = TypeVar("_Result")


class ProcessSpec(msgspec.Struct, frozen=True):
    """What to start, and how.

    `environment` is the whole environment (None: the gateway's own), `variables` are added to it.
    `stdin` is written to the program's input; None: it reads nothing. After the program has ended,
    a descendant that still holds its output has `output_grace_s` to finish writing. By `run_name`
    the program can be found when this gateway is gone (`end_orphans`). Of its standard error the
    last `kept_error_bytes` are kept. `not_found` is the message when there is no such program.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] | None = None
    variables: Mapping[str, str] = {}
    cwd: str = ""
    stdin: bytes | None = None
    output_grace_s: float = 2.0
    run_name: str = ""
    kept_error_bytes: int = 16_384
    not_found: str = ""

    @property
    def program(self) -> str:
        """The name of the program, for messages."""
        return self.argv[0]


def start_process(spec: ProcessSpec) -> "ChildProcess":
    """Start a program in a session of its own. The caller must `kill_tree` it in any case.

    Raises: AgentUnavailable (no such program or directory, or it may not be run), AgentFailed
    (an argument or a variable cannot hold what it should).
    """
    _check(spec)
    inherited = spec.environment
    if inherited is None:
        inherited = os.environ  # noqa: TID251 - handed on to the program, not read
    variables = {**inherited, **spec.variables}
    tag = new_tag(spec.run_name)
    # The tag is how a later gateway finds what this one leaves behind when it is killed. This
    # gateway may itself run inside a program of another, so tags are added, never replaced.
    outer = variables.get(TAG_VARIABLE)
    variables[TAG_VARIABLE] = f"{outer}:{tag}" if outer else tag
    try:
        popen = subprocess.Popen(  # noqa: S603 - a list from the settings, never a shell
            spec.argv,
            stdin=subprocess.DEVNULL if spec.stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=spec.cwd or None,
            env=variables,
            # A session of its own: signals to our terminal do not reach it, and what it starts is
            # found by the session id even when it left the process group.
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise _start_error(spec, error) from error
    return ChildProcess(popen, spec, tag)


class ChildProcess:
    """A started program. Its standard error is read and its input is written in the background."""

    def __init__(self, popen: subprocess.Popen[bytes], spec: ProcessSpec, tag: str) -> None:
        self.pid = popen.pid
        self._popen = popen
        self._spec = spec
        self._tree = ProcessTree(popen, tag)
        self._output = OutputPipe(cast("IO[bytes]", popen.stdout))
        self._errors = ErrorPipe(cast("IO[bytes]", popen.stderr), kept_bytes=spec.kept_error_bytes)
        self._input = None if popen.stdin is None else InputPipe(popen.stdin, spec.stdin or b"")
        self._loop = asyncio.get_running_loop()
        self._exited = asyncio.Event()
        self._exit_code = 0
        self._timer: asyncio.TimerHandle | None = None
        self._killing: asyncio.Task[None] | None = None
        self._pidfd: int | None = None
        try:
            self._pidfd = os.pidfd_open(self.pid)  # becomes readable when the process ends
        except (AttributeError, OSError):  # no pidfd on this system: poll
            self._check_exit()
        else:
            # Not asyncio's child watcher: that would collect the program, and its id could be
            # reused while its descendants are still being signalled.
            self._loop.add_reader(self._pidfd, self._check_exit)

    async def read(self) -> bytes:
        """The next piece of the output, as soon as there is one; empty at its end."""
        return await self._output.read()

    async def wait(self) -> int:
        """The exit code, when the program has ended; negative: the signal that ended it."""
        await self._exited.wait()
        return self._exit_code

    def error_tail(self, characters: int = 2000) -> str:
        """The last part of what the program wrote to its standard error."""
        return self._errors.text(characters)

    async def kill_tree(self, *, grace_s: float) -> None:
        """End the program and everything it started, and collect it; nothing runs afterwards.

        First SIGTERM, then, `grace_s` later, SIGKILL. Runs to its end even when the caller is
        cancelled. May be called again, also to try again.

        Raises: AgentFailed when something refuses to end.
        """
        work = self._killing
        # All callers share one attempt; another one starts only after a failure.
        if work is None or (work.done() and (work.cancelled() or work.exception())):
            # A task of its own, which no turn and no stop of the engine cancels.
            work = Supervisor("processes").start("kill tree", self._kill_tree(grace_s))
            self._killing = work
        await await_shielded(work)

    # ---------------------------------------------------------------- the program ends by itself

    def _check_exit(self) -> None:
        code = self._tree.exit_code()
        if code is not None:
            self._close_pidfd()
            self._exit_code = code
            self._exited.set()
            # A descendant may hold the output open; it gets a little time to finish writing.
            self._timer = self._loop.call_later(self._spec.output_grace_s, self._output.end)
        elif self._pidfd is None:
            self._timer = self._loop.call_later(_EXIT_POLL_S, self._check_exit)

    def _close_pidfd(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    # ---------------------------------------------------------------- we end it

    async def _kill_tree(self, grace_s: float) -> None:
        tree = self._tree
        try:
            # Before anything is signalled: a program that ends first leaves descendants that can
            # no longer be found by their parent.
            await scan_in_thread(tree)
            if tree.is_running and not await stop_processes(tree, grace_s=grace_s):
                survivors = tree.alive or [self.pid]
                raise AgentFailed(
                    f"{self._spec.program} could not be stopped: processes {survivors} are still"
                    " there after SIGKILL; end them by hand.",
                    details={"processes": survivors},
                )
            tree.reap_zombies()
        finally:
            self._release()

    def _release(self) -> None:
        """Collect the program and close every descriptor. Never waits for the event loop."""
        if self._tree.is_running:  # the event loop is torn down: there is no time for a grace
            # Blocks, in the event loop: there is nothing left that could wait for a thread.
            self._tree.scan()
            self._tree.send(signal.SIGKILL)
        # Collected only now: until here its process id, and so its group, could not be reused.
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._popen.wait(timeout=_COLLECT_TIMEOUT_S)
            self._exit_code = self._exit_code or code
        self._errors.drain()  # `error_tail` is read after the end
        for pipe in (self._input, self._output, self._errors):
            if pipe is not None:
                pipe.close()
        self._close_pidfd()
        if self._timer is not None:
            self._timer.cancel()
        self._exited.set()  # also if it could not be collected: `wait` must not hang


# -------------------------------------------------------------------- its pipes


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
        """Stop waiting for output; what is in the pipe already can still be read.

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


# -------------------------------------------------------------------- its limits


class ProcessLimits(msgspec.Struct, frozen=True):
    """How long a program may take and how much it may write; hints name the settings to raise."""

    program: str
    timeout_s: float
    max_bytes: int
    timeout_hint: str = "timeout"
    size_hint: str = ""


class LimitedProcess:
    """A running program that is read within its limits. `left_s`: what is left of the timeout."""

    def __init__(
        self, child: ChildProcess, limits: ProcessLimits, *, left_s: float | None = None
    ) -> None:
        self.child = child
        self.limits = limits
        self._bytes_left = limits.max_bytes
        self._deadline = anyio.current_time() + (limits.timeout_s if left_s is None else left_s)

    def restart_timeout(self) -> None:
        """Start the whole timeout again."""
        self._deadline = anyio.current_time() + self.limits.timeout_s

    async def read(self) -> bytes:
        """The next piece of the output; empty at its end. Raises: AgentFailed (past a limit)."""
        piece = await self._in_time(self.child.read())
        self._bytes_left -= len(piece)
        # The caller's `finally` ends the program.
        if self._bytes_left < 0:
            limits = self.limits
            more = f", or raise {limits.size_hint}" if limits.size_hint else ""
            raise AgentFailed(
                f"{limits.program} wrote more than {limits.max_bytes} bytes and was ended;"
                f" have it write less{more}."
            )
        return piece

    async def read_all(self) -> bytes:
        """The whole output. Raises: AgentFailed (past a limit)."""
        output = bytearray()
        while piece := await self.read():
            output += piece
        return bytes(output)

    async def exit_code(self) -> int:
        """How it ended; negative: by that signal. Raises: AgentFailed (it took too long)."""
        return await self._in_time(self.child.wait())

    def failure(self, exit_code: int) -> AgentFailed:
        """The error for an exit code that means failure."""
        ended = f"{self.limits.program} {describe_exit(exit_code)}"
        errors = self.child.error_tail()
        return AgentFailed(f"{ended}: {errors}" if errors else f"{ended} and gave no reason.")

    async def _in_time(self, result: Awaitable[_Result]) -> _Result:
        try:
            with anyio.fail_after(self._deadline - anyio.current_time()):
                return await result
        except TimeoutError:
            raise timed_out(self.limits) from None


def timed_out(limits: ProcessLimits) -> AgentFailed:
    """The error for a program that took too long."""
    return AgentFailed(
        f"{limits.program} did not finish within {limits.timeout_s:g} seconds and was"
        f" ended; ask for less, or raise {limits.timeout_hint}.",
        details={TIMED_OUT: limits.timeout_s},
    )


def describe_exit(exit_code: int) -> str:
    """How a program ended, as the end of a sentence."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    number = -exit_code
    known = number in set(signal.Signals)
    return f"was ended by signal {signal.Signals(number).name if known else number}"


def expand_directory(path: str) -> str:
    """A working directory from the settings; empty stays empty: the gateway's own."""
    return str(Path(path).expanduser()) if path else ""


def _check(spec: ProcessSpec) -> None:
    if spec.cwd and not Path(spec.cwd).is_dir():
        raise AgentUnavailable(
            f"The working directory {spec.cwd} of {spec.program} does not exist;"
            " create it or name another."
        )
    if any("\0" in argument for argument in spec.argv):
        raise AgentFailed(
            f"The message holds a NUL character, which no argument of {spec.program} can carry;"
            ' leave it out, or have the program read its message with input: "stdin".'
        )
    for name, value in spec.variables.items():
        if "\0" in value:
            raise AgentFailed(
                f"The environment variable {name} for {spec.program} would hold a NUL"
                " character; send an id without it."
            )


def _start_error(spec: ProcessSpec, error: OSError | ValueError) -> AgentError:
    program = spec.program
    if isinstance(error, FileNotFoundError):
        return AgentUnavailable(
            spec.not_found
            or f"The program {program} (or the interpreter it names) was not found; install it or"
            " correct the command."
        )
    if isinstance(error, PermissionError):
        return AgentUnavailable(
            f"The program {program} may not be run; make it executable or correct the command."
        )
    if isinstance(error, OSError) and error.errno == errno.E2BIG:
        return AgentFailed(
            f"The message is too long to be an argument of {program}; send a shorter one, or have"
            ' the program read its message with input: "stdin".'
        )
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return AgentUnavailable(f"The program {program} could not be started: {reason}.")
