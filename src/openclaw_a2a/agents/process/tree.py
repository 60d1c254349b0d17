"""Which processes belong to a program we started, wherever they have moved since."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

_PROC = "/proc"
_PIECE_BYTES = 65_536
_STREAMS = (0, 1, 2)
_SHORT_BYTES = 1024
"""A stat file is never longer, so it is read in one go."""


class ProcessInfo(msgspec.Struct, frozen=True):
    """A process at one moment; `started` tells it from a later one with the same id."""

    pid: int
    parent: int
    session: int
    started: int
    is_zombie: bool


class ProcessSet:
    """Some processes, as they were when they were last looked at."""

    def __init__(self) -> None:
        self._known: dict[int, ProcessInfo] = {}

    def scan(self) -> None:
        """Look for members again."""
        self.refresh()

    def refresh(self) -> None:
        """Look only at the members known so far."""
        seen = (read_process(pid) for pid in self._known)
        self._known = {one.pid: one for one in seen if one is not None and self._is_known(one)}

    @property
    def alive(self) -> tuple[int, ...]:
        """The members that still run."""
        return tuple(one.pid for one in self._known.values() if not one.is_zombie)

    def send(self, signal_number: signal.Signals) -> None:
        """Signal every member."""
        for pid in self.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal_number)

    def reap_zombies(self) -> None:
        """Collect ended members that became our children: we may be process 1."""
        for one in self._known.values():
            if one.is_zombie and one.parent == os.getpid():
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(one.pid, os.WNOHANG)

    def _is_known(self, process: ProcessInfo) -> bool:
        known = self._known.get(process.pid)
        return known is not None and known.started == process.started


class ProcessTree(ProcessSet):
    """A program and its descendants.

    A descendant is known by its parent, by the session the program was started in, by the mark in
    the environment it inherited, or by one of the program's own `pipes`, when that is its input,
    output or error stream. So it is found as long as it kept one of the four. Where there is no
    /proc only the program's own process group is known.
    """

    def __init__(self, root: int, mark: str, *, pipes: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.root = root
        self._mark = mark.encode()
        self._pipes = pipes
        root_process = read_process(root)
        self._started = root_process.started if root_process is not None else 0

    def scan(self) -> None:
        """Look for members again. Reads all of /proc, so call it in a worker thread."""
        own = os.getpid()  # holds the other ends of the pipes
        processes = {
            one.pid: one
            for one in list_processes()
            if one.started >= self._started and one.pid != own
        }
        session = self.root if self._owns(processes.get(self.root)) else None
        found = [
            pid
            for pid, one in processes.items()
            if one.session == session or self._is_known(one) or self._has_sign(pid)
        ]
        self._known = with_descendants(found, processes)

    def send(self, signal_number: signal.Signals) -> None:
        """Signal every member."""
        if self._owns(read_process(self.root)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.root, signal_number)
        super().send(signal_number)

    def reap_zombies(self) -> None:
        """Collect ended members, never the root, that became our children: we may be process 1."""
        self._known.pop(self.root, None)
        super().reap_zombies()

    def _has_sign(self, pid: int) -> bool:
        return self._mark in read_environment(pid) or not self._pipes.isdisjoint(read_pipes(pid))

    def _owns(self, root: ProcessInfo | None) -> bool:
        """False when the root was collected and somebody else has its process id now."""
        return root is None or root.started == self._started


def with_descendants(
    pids: Iterable[int], processes: Mapping[int, ProcessInfo]
) -> dict[int, ProcessInfo]:
    """These processes and all that descend from them."""
    children: dict[int, list[int]] = {}
    for one in processes.values():
        children.setdefault(one.parent, []).append(one.pid)
    members: dict[int, ProcessInfo] = {}
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        if pid not in members:
            members[pid] = processes[pid]
            waiting += children.get(pid, ())
    return members


def list_processes() -> list[ProcessInfo]:
    """All processes that can be seen; none where there is no /proc."""
    try:
        names = os.listdir(_PROC)  # noqa: PTH208 - paths of hundreds of processes are not needed
    except FileNotFoundError:
        return []
    found = (read_process(int(name)) for name in names if name.isdigit())
    return [one for one in found if one is not None]


def read_process(pid: int) -> ProcessInfo | None:
    """One process; None when there is none with this id."""
    content = _read(pid, "stat")
    # The program's name stands in brackets and may itself hold anything, also brackets.
    fields = content.rpartition(b")")[2].split()
    if len(fields) < 20:
        return None
    return ProcessInfo(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        started=int(fields[19]),
        is_zombie=fields[0] in (b"Z", b"X"),
    )


def read_environment(pid: int) -> bytes:
    """The variables a process was started with; empty when they cannot be seen."""
    return _read(pid, "environ")


def read_pipes(pid: int) -> frozenset[str]:
    """The pipes that are a process's input, output or error stream; none when not to be seen."""
    streams: set[str] = set()
    for number in _STREAMS:
        with contextlib.suppress(OSError):
            streams.add(str(Path(f"{_PROC}/{pid}/fd/{number}").readlink()))
    return frozenset(stream for stream in streams if stream.startswith("pipe:"))


def pipe_name(descriptor: int) -> str:
    """What `read_pipes` calls the pipe that we have here."""
    return f"pipe:[{os.fstat(descriptor).st_ino}]"


def _read(pid: int, name: str) -> bytes:
    """The file's content; empty when the process ended meanwhile or belongs to somebody else."""
    # Plain descriptors: this is done for every process there is, and costs a third of a file.
    try:
        descriptor = os.open(f"{_PROC}/{pid}/{name}", os.O_RDONLY)
    except OSError:
        return b""
    try:
        return _read_all(descriptor)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _read_all(descriptor: int) -> bytes:
    content = piece = os.read(descriptor, _PIECE_BYTES)
    while len(piece) > _SHORT_BYTES and (piece := os.read(descriptor, _PIECE_BYTES)):
        content += piece
    return content


_FIRST_LOOK_S = 0.002
_SLOWEST_LOOK_S = 0.05
_KILL_S = 5.0


async def stop(members: ProcessSet, *, grace_s: float, is_running: Callable[[], bool]) -> bool:
    """Send SIGTERM, then, `grace_s` later, SIGKILL; False: something still runs after that."""
    members.send(signal.SIGTERM)
    members.send(signal.SIGCONT)  # a stopped process could not act on it
    await scan(members)
    await _die_within(grace_s, members, is_running)
    await scan(members)
    deadline = anyio.current_time() + _KILL_S
    while is_running():
        if anyio.current_time() > deadline:
            return False
        members.send(signal.SIGKILL)
        await _die_within(_SLOWEST_LOOK_S, members, is_running)
        await scan(members)
    return True


async def scan(members: ProcessSet) -> None:
    """Look for members again, beside everything else that goes on."""
    # A limiter of its own: ending a program must not wait for a free worker thread.
    await anyio.to_thread.run_sync(members.scan, limiter=anyio.CapacityLimiter(1))


async def _die_within(seconds: float, members: ProcessSet, is_running: Callable[[], bool]) -> None:
    pause_s = _FIRST_LOOK_S
    with anyio.move_on_after(seconds):
        while is_running():
            await anyio.sleep(pause_s)
            pause_s = min(pause_s * 2, _SLOWEST_LOOK_S)
            members.refresh()
