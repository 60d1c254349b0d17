"""Programs: start one, read what it writes, and end it with everything it started."""

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

from openclaw_a2a.agents.await_shielded import await_shielded
from openclaw_a2a.agents.process.orphans import TAG_VARIABLE, new_tag
from openclaw_a2a.agents.process.pipes import KEPT_BYTES, ErrorPipe, InputPipe, OutputPipe
from openclaw_a2a.agents.process.tree import ProcessTree, pipe_name, scan, stop
from openclaw_a2a.model.errors import AgentError, AgentFailed, AgentUnavailable

_EXIT_POLL_S = 0.02
_RELEASE_S = 0.5


class ProcessSpec(msgspec.Struct, frozen=True):
    """What to start, and how.

    `environment` is the whole environment (None: the gateway's own), `variables` are added to it.
    `stdin` is fed to the program; None: it reads nothing. After the program has ended, what still
    holds its output has `linger_s` to finish writing. By its `name` the program can be found when
    this gateway is gone (`end_leftovers`). Of its errors the last `kept_error_bytes` are kept.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] | None = None
    variables: Mapping[str, str] = {}
    cwd: str = ""
    stdin: bytes | None = None
    output_grace_s: float = 2.0
    run_name: str = ""
    kept_error_bytes: int = KEPT_BYTES

    @property
    def program(self) -> str:
        """What the program is called, for people."""
        return self.argv[0]


def start_process(launch: ProcessSpec) -> "ChildProcess":
    """Start a program in a session of its own. Whoever starts one must `kill_tree` it.

    Raises: AgentUnavailable (no such program or directory, or it may not be run), AgentFailed
    (what the program is to be given does not fit into an argument or a variable).
    """
    _check(launch)
    mark = new_tag(launch.run_name)
    try:
        popen = subprocess.Popen(  # noqa: S603 - a list from the settings, never a shell
            launch.argv,
            stdin=subprocess.DEVNULL if launch.stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=launch.cwd or None,
            env=_environment(launch, mark),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise _not_started(launch, error) from error
    pipes = (popen.stdin, popen.stdout, popen.stderr)
    names = frozenset(pipe_name(pipe.fileno()) for pipe in pipes if pipe is not None)
    return ChildProcess(popen, launch, tree=ProcessTree(popen.pid, mark, pipes=names))


class ChildProcess:
    """A program that was started. Its errors are drained and its input is fed all the time."""

    def __init__(
        self, popen: subprocess.Popen[bytes], launch: ProcessSpec, *, tree: ProcessTree
    ) -> None:
        self.pid = popen.pid
        self._popen = popen
        self._launch = launch
        self._tree = tree
        self._output = OutputPipe(cast("IO[bytes]", popen.stdout))
        kept_bytes = launch.kept_error_bytes
        self._errors = ErrorPipe(cast("IO[bytes]", popen.stderr), kept_bytes=kept_bytes)
        self._feed = (
            InputPipe(popen.stdin, launch.stdin or b"") if popen.stdin is not None else None
        )
        self._loop = asyncio.get_running_loop()
        self._exited = asyncio.Event()
        self._exit_code = 0
        self._timer: asyncio.TimerHandle | None = None
        self._exit_handle = _open_exit_handle(self.pid)
        self._ending: asyncio.Task[None] | None = None
        self._watch_exit()

    async def read(self) -> bytes:
        """The next piece of what the program writes, as soon as there is one; empty: no more."""
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

        First SIGTERM, then, `grace_s` later, SIGKILL. Goes on to its end even when the caller is
        cancelled. May be called again, also to try again.

        Raises: AgentFailed when something refuses to end.
        """
        if self._ending is None or _has_failed(self._ending):
            self._ending = asyncio.ensure_future(self._end(grace_s))
        await await_shielded(self._ending)

    # ---------------------------------------------------------------- the program's own end

    def _watch_exit(self) -> None:
        if self._exit_handle is None:
            self._note_exit()
        else:
            self._loop.add_reader(self._exit_handle, self._note_exit)

    def _note_exit(self) -> None:
        code = _peek_exit_code(self._popen)
        if code is not None:
            self._close_exit_handle()
            self._exit_code = code
            self._exited.set()
            self._timer = self._loop.call_later(self._launch.output_grace_s, self._output.end)
        elif self._exit_handle is None:
            self._timer = self._loop.call_later(_EXIT_POLL_S, self._note_exit)

    def _close_exit_handle(self) -> None:
        if self._exit_handle is not None:
            self._loop.remove_reader(self._exit_handle)
            os.close(self._exit_handle)
            self._exit_handle = None

    # ---------------------------------------------------------------- the end we make

    async def _end(self, grace_s: float) -> None:
        try:
            await scan(self._tree)
            if self._is_running() and not await stop(
                self._tree, grace_s=grace_s, is_running=self._is_running
            ):
                raise self._refused()
            self._tree.reap_zombies()
        finally:
            self._release()

    def _is_running(self) -> bool:
        return bool(self._tree.alive) or _peek_exit_code(self._popen) is None

    def _refused(self) -> AgentFailed:
        survivors = list(self._tree.alive) or [self.pid]
        return AgentFailed(
            f"{self._launch.program} could not be stopped: processes {survivors} are still there"
            " after SIGKILL; end them by hand.",
            details={"processes": survivors},
        )

    def _release(self) -> None:
        if self._is_running():  # the event loop was torn down before the end
            self._tree.scan()
            self._tree.send(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._popen.wait(timeout=_RELEASE_S)
            self._exit_code = self._exit_code or code
        self._errors.drain()
        for pipe in (self._feed, self._output, self._errors):
            if pipe is not None:
                pipe.close()
        self._close_exit_handle()
        if self._timer is not None:
            self._timer.cancel()
        self._exited.set()


def _has_failed(work: asyncio.Task[None]) -> bool:
    return work.done() and (work.cancelled() or work.exception() is not None)


def _check(launch: ProcessSpec) -> None:
    if launch.cwd and not Path(launch.cwd).is_dir():
        raise AgentUnavailable(
            f"The working directory {launch.cwd} of {launch.program} does not exist;"
            " create it or name another."
        )
    if any("\0" in argument for argument in launch.argv):
        raise AgentFailed(
            f"The message holds a NUL character, which no argument of {launch.program} can carry;"
            ' leave it out, or have the program read its message with input: "stdin".'
        )
    for name, value in launch.variables.items():
        if "\0" in value:
            raise AgentFailed(
                f"The environment variable {name} for {launch.program} would hold a NUL"
                " character; send an id without it."
            )


def _environment(launch: ProcessSpec, mark: str) -> dict[str, str]:
    own = launch.environment
    if own is None:
        own = os.environ  # noqa: TID251 - handed on to the program, not read
    whole = {**own, **launch.variables}
    outer = whole.get(TAG_VARIABLE)  # we may ourselves be part of somebody's tree
    whole[TAG_VARIABLE] = f"{outer}:{mark}" if outer else mark
    return whole


def _not_started(launch: ProcessSpec, error: OSError | ValueError) -> AgentError:
    program = launch.program
    if isinstance(error, FileNotFoundError):
        return AgentUnavailable(
            f"The program {program} (or the interpreter it names) was not found; install it or"
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


def _open_exit_handle(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None where there is no such."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _peek_exit_code(popen: subprocess.Popen[bytes]) -> int | None:
    """The exit code of an ended program; it is not collected where that can be avoided.

    As long as it is not, its process id (and so its group and session) cannot be given away.
    """
    if popen.returncode is not None or not hasattr(os, "waitid"):
        return popen.poll()
    try:
        status = os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return popen.poll()
    if status is None:
        return None
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status


_Result = TypeVar("_Result")


class ProcessLimits(msgspec.Struct, frozen=True):
    """How long a program may take and how much it may write; `or_raise_*` is said past a limit."""

    program: str
    timeout_s: float
    most_bytes: int
    or_raise_time: str = "timeout"
    or_raise_size: str = ""


class LimitedProcess:
    """A running program that is read within its limits."""

    def __init__(self, child: ChildProcess, limits: ProcessLimits) -> None:
        self._child = child
        self._limits = limits
        self._room = limits.most_bytes
        self.restart_timeout()

    def restart_timeout(self) -> None:
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
        ended = f"{self._limits.program} {describe_exit(exit_code)}"
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


def describe_exit(exit_code: int) -> str:
    """How a program ended, in words."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    number = -exit_code
    known = number in set(signal.Signals)
    return f"was ended by signal {signal.Signals(number).name if known else number}"
