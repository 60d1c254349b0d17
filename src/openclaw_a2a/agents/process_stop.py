"""How processes are ended: asked first, then made to."""

import signal
from collections.abc import Callable

import anyio
import anyio.to_thread

from openclaw_a2a.agents.process_tree import Processes

_FIRST_LOOK_S = 0.002
_SLOWEST_LOOK_S = 0.05
_KILL_S = 5.0


async def stop(members: Processes, *, grace_s: float, is_running: Callable[[], bool]) -> bool:
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


async def scan(members: Processes) -> None:
    """Look for members again, beside everything else that goes on."""
    # A limiter of its own: ending a program must not wait for a free worker thread.
    await anyio.to_thread.run_sync(members.scan, limiter=anyio.CapacityLimiter(1))


async def _die_within(seconds: float, members: Processes, is_running: Callable[[], bool]) -> None:
    pause_s = _FIRST_LOOK_S
    with anyio.move_on_after(seconds):
        while is_running():
            await anyio.sleep(pause_s)
            pause_s = min(pause_s * 2, _SLOWEST_LOOK_S)
            members.look()
