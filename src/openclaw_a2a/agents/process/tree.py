"""Finds and ends all processes of a program, also after a crash of this gateway."""

import contextlib
import hashlib
import os
import re
import secrets
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from pathlib import Path

import anyio
import anyio.to_thread
import psutil

from openclaw_a2a.model.errors import AgentFailed

TAG_VARIABLE = "A2A_PROCESS_MARK"
"""Inherited by everything a program starts, so that all of it can be found again."""

_STANDARD_STREAMS = (0, 1, 2)
_FIRST_POLL_S = 0.002
_SLOWEST_POLL_S = 0.05
# A process in uninterruptible sleep ignores SIGKILL; after this the task fails and names it.
_KILL_TIMEOUT_S = 5.0


class ProcessSet(ABC):
    """The processes of a tree at the last scan.

    A `psutil.Process` is compared and signalled by its id and its start time, so a later process
    with the same id is never taken for a member. A member that has lost its parent is found by its
    session, by the tag in its inherited environment or, on Linux, by a pipe that is its input,
    output or error stream: a process is found as long as it kept one of the four.
    """

    def __init__(self) -> None:
        self._members: set[psutil.Process] = set()

    @abstractmethod
    def scan(self) -> None:
        """Find the members again. Looks at every process, so it belongs in a worker thread."""

    def refresh(self) -> None:
        """Forget members that are gone; cheaper than a scan."""
        self._members = {member for member in self._members if member.is_running()}

    @property
    def alive(self) -> list[int]:
        """The ids of the members that still run. Zombies do not."""
        return sorted(member.pid for member in self._members if not is_zombie(member))

    @property
    def is_running(self) -> bool:
        """True while anything of it runs."""
        return bool(self.alive)

    def send(self, signal_number: signal.Signals) -> None:
        """Signal every member."""
        for member in self._members:
            with contextlib.suppress(psutil.Error):
                member.send_signal(signal_number)

    def reap_zombies(self) -> None:
        """Collect ended members that became our children: we may be process 1 of a container."""
        for member in self._members:
            with contextlib.suppress(psutil.Error, ChildProcessError):
                if is_zombie(member) and member.ppid() == os.getpid():
                    os.waitpid(member.pid, os.WNOHANG)

    def _find_members(
        self,
        others: list[psutil.Process],
        tagged: list[psutil.Process],
        sessions: Collection[int | None],
        pipes: frozenset[str],
    ) -> None:
        found = [
            process
            for process in others
            if process in self._members
            or read_session(process) in sessions
            or (pipes and not pipes.isdisjoint(read_pipes(process)))
        ]
        self._members = with_descendants([*tagged, *found], others)


class ProcessTree(ProcessSet):
    """A program that we started, and its descendants."""

    def __init__(self, popen: subprocess.Popen[bytes], tag: str) -> None:
        super().__init__()
        self._popen = popen
        self._root = psutil.Process(popen.pid)
        self._tag = tag
        pipes = (popen.stdin, popen.stdout, popen.stderr)
        inodes = [os.fstat(pipe.fileno()).st_ino for pipe in pipes if pipe is not None]
        self._pipes = frozenset(f"pipe:[{inode}]" for inode in inodes)  # as `read_pipes` names them

    def scan(self) -> None:
        """Find the members again. Looks at every process, so it belongs in a worker thread."""
        own = os.getpid()  # we hold the other ends of the pipes
        others = [process for process in list_processes() if process.pid != own]
        tagged = [process for process in others if self._tag in read_tags(process)]
        # The id of a collected program may have been reused for another session.
        session = [self._root.pid] if self._root.is_running() else []
        self._find_members(others, tagged, session, self._pipes)

    @property
    def is_running(self) -> bool:
        """True while anything of it runs."""
        return bool(self.alive) or self.exit_code() is None

    def exit_code(self) -> int | None:
        """The exit code of the ended program, without collecting it where that can be avoided.

        Until it is collected, its process id (and so its group and session) cannot be reused, and
        it is safe to signal.
        """
        popen = self._popen
        if popen.returncode is not None or not hasattr(os, "waitid"):
            return popen.poll()
        try:
            status = os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return popen.poll()
        if status is None:
            return None
        return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status

    def send(self, signal_number: signal.Signals) -> None:
        """Signal every member, and the whole process group of the program."""
        # The group catches a process that was started after the scan. Its id is safe to use only
        # while the program is not collected; after that it may be reused.
        if self._root.is_running():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._root.pid, signal_number)
        super().send(signal_number)

    def reap_zombies(self) -> None:
        """Collect ended members, but never the program itself: that is left to `Popen`."""
        self._members.discard(self._root)
        super().reap_zombies()


async def stop_processes(members: ProcessSet, *, grace_s: float) -> bool:
    """Send SIGTERM; to what still runs after `grace_s`, SIGKILL, again and again for a while.

    False: something runs even then.
    """
    members.send(signal.SIGTERM)
    members.send(signal.SIGCONT)  # a stopped process could not act on SIGTERM
    # Again after each signal: a process may have started others before the signal reached it.
    await scan_in_thread(members)
    await _wait_ended(grace_s, members)
    await scan_in_thread(members)
    deadline = anyio.current_time() + _KILL_TIMEOUT_S
    while members.is_running:
        if anyio.current_time() > deadline:
            return False
        members.send(signal.SIGKILL)
        await _wait_ended(_SLOWEST_POLL_S, members)
        # A member may have started another process between the scan and its own end.
        await scan_in_thread(members)
    return True


async def scan_in_thread(members: ProcessSet) -> None:
    """Scan without blocking the event loop."""
    # A limiter of its own: ending a program must not wait for a free worker thread.
    await anyio.to_thread.run_sync(members.scan, limiter=anyio.CapacityLimiter(1))


async def _wait_ended(seconds: float, members: ProcessSet) -> None:
    pause_s = _FIRST_POLL_S
    with anyio.move_on_after(seconds):
        while members.is_running:
            await anyio.sleep(pause_s)
            pause_s = min(pause_s * 2, _SLOWEST_POLL_S)
            members.refresh()


# -------------------------------------------------------------------- facts about processes


def list_processes() -> list[psutil.Process]:
    """All processes that can be seen."""
    found: list[psutil.Process] = []
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error):
            found.append(psutil.Process(pid))
    return found


def with_descendants(
    processes: Iterable[psutil.Process], others: Iterable[psutil.Process]
) -> set[psutil.Process]:
    """These processes and those of the `others` that descend from them."""
    children: dict[int, list[psutil.Process]] = {}
    for process in others:
        with contextlib.suppress(psutil.Error):
            children.setdefault(process.ppid(), []).append(process)
    members: set[psutil.Process] = set()
    waiting = list(processes)
    while waiting:
        process = waiting.pop()
        if process not in members:
            members.add(process)
            waiting += children.get(process.pid, ())
    return members


def is_zombie(process: psutil.Process) -> bool:
    """True when the process has ended; it may still have to be collected by its parent."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


def read_session(process: psutil.Process) -> int | None:
    """The session of a process; None when it cannot be seen."""
    try:
        return os.getsid(process.pid)
    except OSError:
        return None


def read_tags(process: psutil.Process) -> list[str]:
    """The tags of the programs that a process belongs to, the outermost first."""
    try:
        return process.environ().get(TAG_VARIABLE, "").split(":")
    except (psutil.Error, OSError):
        return []


def read_pipes(process: psutil.Process) -> frozenset[str]:
    """The pipes that are a process's input, output or error stream; empty except on Linux."""
    streams: set[str] = set()
    for number in _STANDARD_STREAMS:
        with contextlib.suppress(OSError):
            streams.add(str(Path(f"/proc/{process.pid}/fd/{number}").readlink()))
    return frozenset(stream for stream in streams if stream.startswith("pipe:"))


_TAG = re.compile(r"(?P<run>[0-9a-f]{32})-(?P<pid>\d+)-(?P<started>\d+)-")
_START_TOLERANCE_S = 5.0
"""Start times are derived from the time of boot, which moves when the clock is set."""


def new_tag(run_name: str) -> str:
    """A tag that no other program has, by which a later gateway can find what ran as `run_name`."""
    started = int(psutil.Process().create_time())
    return f"{_digest(run_name)}-{os.getpid()}-{started}-{secrets.token_hex(8)}"


async def end_orphans(run_name: str, *, grace_s: float) -> None:
    """End what gateways that are gone left running as `run_name`; nothing of it runs afterwards.

    A caller that is cancelled here is out of time: what is left is killed at once.

    Raises: AgentFailed when something refuses to end.
    """
    orphans = OrphanProcesses(run_name)
    await scan_in_thread(orphans)
    if not orphans.alive:
        return
    try:
        await stop_processes(orphans, grace_s=grace_s)
    finally:
        # Also when the caller is cancelled, so nothing may be awaited here.
        orphans.send(signal.SIGKILL)
        orphans.reap_zombies()
    if survivors := orphans.alive:
        raise AgentFailed(
            f"Processes {survivors}, left by a gateway that was killed, are still there after"
            " SIGKILL; end them by hand.",
            details={"processes": survivors},
        )


class OrphanProcesses(ProcessSet):
    """The processes of one run whose gateway is gone.

    They are found by their tag; further ones by a parent, a session or a pipe of a tagged one.
    """

    def __init__(self, run_name: str) -> None:
        super().__init__()
        self._digest = _digest(run_name)

    def scan(self) -> None:
        """Find the members again. Looks at every process, so it belongs in a worker thread."""
        # A program may itself have restarted this gateway: then we, our ancestors and what we
        # started have its tag too, but are no orphans.
        own, processes = psutil.Process(), list_processes()
        spared = {*with_descendants([own], processes), *own.parents()}
        others = [process for process in processes if process not in spared]
        tagged = [process for process in others if self._is_orphan(process)]
        sessions = {read_session(process) for process in tagged} - {None}
        pipes = frozenset[str]().union(*(read_pipes(process) for process in tagged))
        self._find_members(others, tagged, sessions, pipes)

    def _is_orphan(self, process: psutil.Process) -> bool:
        """True for a process of this run whose gateway is gone."""
        tags = [match for tag in read_tags(process) if (match := _TAG.match(tag))]
        ours = [tag for tag in tags if tag["run"] == self._digest]
        return bool(ours) and not any(_runs(int(one["pid"]), int(one["started"])) for one in ours)


def _digest(run_name: str) -> str:
    return hashlib.sha256(run_name.encode()).hexdigest()[:32]


def _runs(pid: int, started: int) -> bool:
    try:
        gateway = psutil.Process(pid)
        is_same = abs(gateway.create_time() - started) < _START_TOLERANCE_S
    except psutil.Error:
        return False
    return is_same and not is_zombie(gateway)
