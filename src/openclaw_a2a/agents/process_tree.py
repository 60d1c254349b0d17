"""Which processes belong to a program we started, wherever they have moved since."""

import contextlib
import os
import signal

import msgspec

_PROC = "/proc"
_PIECE_BYTES = 65_536
_SHORT_BYTES = 1024
"""A stat file is never longer, so it is read in one go."""


class Process(msgspec.Struct, frozen=True):
    """A process at one moment; `started` tells it from a later one with the same id."""

    pid: int
    parent: int
    session: int
    started: int
    is_zombie: bool


class ProcessTree:
    """A program and its descendants.

    A descendant is known by its parent, by the session the program was started in, or by the mark
    in the environment it inherited; so one that moved to a session of its own and lost its parent
    is still found. Where there is no /proc only the program's own process group is known.
    """

    def __init__(self, root: int, mark: str) -> None:
        self.root = root
        self._mark = mark.encode()
        self._known: dict[int, Process] = {}
        root_process = read_process(root)
        self._started = root_process.started if root_process is not None else 0

    def scan(self) -> None:
        """Look for members again. Reads all of /proc, so call it in a worker thread."""
        processes = {one.pid: one for one in list_processes() if one.started >= self._started}
        session = self.root if self._owns(processes.get(self.root)) else None
        members = {
            pid: one
            for pid, one in processes.items()
            if one.session == session or self._is_known(one) or _has_mark(pid, self._mark)
        }
        children: dict[int, list[Process]] = {}
        for one in processes.values():
            children.setdefault(one.parent, []).append(one)
        waiting = list(members)
        while waiting:
            for child in children.get(waiting.pop(), ()):
                if child.pid not in members:
                    members[child.pid] = child
                    waiting.append(child.pid)
        self._known = members

    def look(self) -> None:
        """Look only at the members known so far."""
        seen = (read_process(pid) for pid in self._known)
        self._known = {one.pid: one for one in seen if one is not None and self._is_known(one)}

    @property
    def alive(self) -> tuple[int, ...]:
        """The members that still run."""
        return tuple(one.pid for one in self._known.values() if not one.is_zombie)

    def send(self, signal_number: signal.Signals) -> None:
        """Signal every member."""
        if self._owns(read_process(self.root)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.root, signal_number)
        for pid in self.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal_number)

    def collect_orphans(self) -> None:
        """Collect ended members, never the root, that became our children: we may be process 1."""
        for one in self._known.values():
            if one.is_zombie and one.parent == os.getpid() and one.pid != self.root:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(one.pid, os.WNOHANG)

    def _owns(self, root: Process | None) -> bool:
        """False when the root was collected and somebody else has its process id now."""
        return root is None or root.started == self._started

    def _is_known(self, process: Process) -> bool:
        known = self._known.get(process.pid)
        return known is not None and known.started == process.started


def list_processes() -> list[Process]:
    """All processes that can be seen; none where there is no /proc."""
    try:
        names = os.listdir(_PROC)  # noqa: PTH208 - paths of hundreds of processes are not needed
    except FileNotFoundError:
        return []
    found = (read_process(int(name)) for name in names if name.isdigit())
    return [one for one in found if one is not None]


def read_process(pid: int) -> Process | None:
    """One process; None when there is none with this id."""
    content = _read(pid, "stat")
    # The program's name stands in brackets and may itself hold anything, also brackets.
    fields = content.rpartition(b")")[2].split()
    if len(fields) < 20:
        return None
    return Process(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        started=int(fields[19]),
        is_zombie=fields[0] in (b"Z", b"X"),
    )


def _has_mark(pid: int, mark: bytes) -> bool:
    return mark in _read(pid, "environ")


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
