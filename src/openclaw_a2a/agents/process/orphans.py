"""Programs that outlived the gateway that started them: found by their tag, and ended."""

import hashlib
import os
import re
import secrets
import signal

import psutil

from openclaw_a2a.agents.process.tree import (
    ProcessSet,
    is_zombie,
    list_processes,
    read_pipes,
    read_session,
    read_tags,
    scan_in_thread,
    stop_processes,
    with_descendants,
)
from openclaw_a2a.model.errors import AgentFailed

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
        await stop_processes(orphans, grace_s=grace_s, is_running=lambda: bool(orphans.alive))
    finally:
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

    They are found by their tag; further ones by a parent, a session or a pipe of a tagged one. A
    program may itself have restarted this gateway: then we, our ancestors and what we started have
    its tag too, but are no orphans.
    """

    def __init__(self, run_name: str) -> None:
        super().__init__()
        self._digest = _digest(run_name)

    def scan(self) -> None:
        """Find the members again. Looks at every process, so it belongs in a worker thread."""
        processes = list_processes()
        spared = _own_family(processes)
        others = [process for process in processes if process not in spared]
        tagged = [process for process in others if self._is_orphan(process)]
        sessions = {read_session(process) for process in tagged} - {None}
        pipes = frozenset[str]().union(*(read_pipes(process) for process in tagged))
        found = [
            process
            for process in others
            if process in self._members
            or read_session(process) in sessions
            or (pipes and not pipes.isdisjoint(read_pipes(process)))
        ]
        self._members = with_descendants([*tagged, *found], others)

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


def _own_family(processes: list[psutil.Process]) -> set[psutil.Process]:
    own = psutil.Process()
    return {*with_descendants([own], processes), *own.parents()}
