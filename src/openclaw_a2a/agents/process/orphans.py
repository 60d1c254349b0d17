"""The mark a program and all it starts inherit: whose they are, and which gateway began them."""

import hashlib
import os
import re
import secrets
import signal

from openclaw_a2a.agents.process.tree import (
    ProcessInfo,
    ProcessSet,
    list_processes,
    read_environment,
    read_pipes,
    read_process,
    scan,
    stop,
    with_descendants,
)
from openclaw_a2a.model.errors import AgentFailed

TAG_VARIABLE = "A2A_PROCESS_MARK"
"""Inherited by everything a program starts, so that all of it can be found again."""


def new_tag(name: str) -> str:
    """A mark no other program has, by which a later gateway can find what is called `name`."""
    gateway = read_process(os.getpid())
    started = gateway.started if gateway is not None else 0
    return f"{_digest(name)}-{os.getpid()}-{started}-{secrets.token_hex(8)}"


def is_orphan(pid: int, name: str) -> bool:
    """True for a process that belongs to `name` and whose gateway is gone."""
    pattern = rf"{_digest(name)}-(\d+)-(\d+)-".encode()
    found = re.findall(pattern, read_environment(pid))
    return bool(found) and not any(_runs(int(one), int(started)) for one, started in found)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def _runs(pid: int, started: int) -> bool:
    process = read_process(pid)
    return process is not None and process.started == started and not process.is_zombie


async def end_orphans(name: str, *, grace_s: float) -> None:
    """End what gateways that are gone left running under `name`; nothing of it runs afterwards.

    Whoever is cancelled here has no more time: what is left is killed at once.

    Raises: AgentFailed when something refuses to end.
    """
    leftovers = OrphanProcesses(name)
    await scan(leftovers)
    if not leftovers.alive:
        return
    try:
        await stop(leftovers, grace_s=grace_s, is_running=lambda: bool(leftovers.alive))
    finally:
        leftovers.send(signal.SIGKILL)
        leftovers.reap_zombies()
    if survivors := list(leftovers.alive):
        raise AgentFailed(
            f"Processes {survivors}, left by a gateway that was killed, are still there after"
            " SIGKILL; end them by hand.",
            details={"processes": survivors},
        )


class OrphanProcesses(ProcessSet):
    """The processes of one name whose gateway is gone.

    They are known by their mark; further ones by a parent, a session or a pipe of a marked one.
    A program may itself have started this gateway anew: then we, those we descend from and those
    we started have its mark, but are no leftovers.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def scan(self) -> None:
        """Look for members again. Reads all of /proc, so call it in a worker thread."""
        processes = {one.pid: one for one in list_processes()}
        spared = _ourselves(processes)
        others = {pid: one for pid, one in processes.items() if pid not in spared}
        marked = {pid for pid in others if is_orphan(pid, self._name)}
        sessions = {others[pid].session for pid in marked}
        pipes = frozenset[str]().union(*(read_pipes(pid) for pid in marked))
        found = [
            pid
            for pid, one in others.items()
            if one.session in sessions or self._is_known(one) or (pipes and pipes & read_pipes(pid))
        ]
        self._known = with_descendants(found, others)


def _ourselves(processes: dict[int, ProcessInfo]) -> set[int]:
    own = processes.get(os.getpid())
    if own is None:
        return set()
    spared = set(with_descendants([own.pid], processes))
    while own is not None and own.parent not in spared:
        spared.add(own.parent)
        own = processes.get(own.parent)
    return spared
