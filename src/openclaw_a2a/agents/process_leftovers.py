"""Programs that outlived the gateway that started them: find them again, and end them."""

import os
import signal

from openclaw_a2a.agents.process_mark import is_left_behind
from openclaw_a2a.agents.process_stop import scan, stop
from openclaw_a2a.agents.process_tree import (
    Process,
    Processes,
    list_processes,
    read_pipes,
    with_descendants,
)
from openclaw_a2a.model.errors import AgentFailed


async def end_leftovers(name: str, *, grace_s: float) -> None:
    """End what gateways that are gone left running under `name`; nothing of it runs afterwards.

    Whoever is cancelled here has no more time: what is left is killed at once.

    Raises: AgentFailed when something refuses to end.
    """
    leftovers = Leftovers(name)
    await scan(leftovers)
    if not leftovers.alive:
        return
    try:
        await stop(leftovers, grace_s=grace_s, is_running=lambda: bool(leftovers.alive))
    finally:
        leftovers.send(signal.SIGKILL)
        leftovers.collect_orphans()
    if survivors := list(leftovers.alive):
        raise AgentFailed(
            f"Processes {survivors}, left by a gateway that was killed, are still there after"
            " SIGKILL; end them by hand.",
            details={"processes": survivors},
        )


class Leftovers(Processes):
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
        marked = {pid for pid in others if is_left_behind(pid, self._name)}
        sessions = {others[pid].session for pid in marked}
        pipes = frozenset[str]().union(*(read_pipes(pid) for pid in marked))
        found = [
            pid
            for pid, one in others.items()
            if one.session in sessions or self._is_known(one) or (pipes and pipes & read_pipes(pid))
        ]
        self._known = with_descendants(found, others)


def _ourselves(processes: dict[int, Process]) -> set[int]:
    own = processes.get(os.getpid())
    if own is None:
        return set()
    spared = set(with_descendants([own.pid], processes))
    while own is not None and own.parent not in spared:
        spared.add(own.parent)
        own = processes.get(own.parent)
    return spared
