"""Long work on the event loop gives way to other work."""

from collections.abc import Coroutine
from typing import Any

from openclaw_a2a.engine.scheduling.fair_queue import CallerPacer, Pacer


def is_over_at_once(waiting: Coroutine[Any, Any, Any]) -> bool:
    """True for a coroutine that ends without waiting for anything."""
    try:
        waiting.send(None)
    except StopIteration:
        return True
    waiting.close()
    return False


async def test_the_next_work_of_a_caller_waits_and_that_of_others_does_not() -> None:
    pacer = CallerPacer()
    assert is_over_at_once(pacer.wait("busy"))
    pacer.note("busy", 3600)
    assert not is_over_at_once(pacer.wait("busy"))
    assert is_over_at_once(pacer.wait("other"))


async def test_callers_that_do_nothing_any_more_are_forgotten() -> None:
    pacer = CallerPacer()
    for number in range(5000):
        pacer.note(f"caller-{number}", 0)
    assert len(pacer._free_at) < 2000


async def test_short_work_is_not_interrupted_and_long_work_is() -> None:
    pacer = Pacer()
    pauses = 0
    while not await pacer.pause():
        pauses += 1
    assert pauses > 0
