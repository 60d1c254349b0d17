"""The table of delivery phases, driven pair by pair through the real outbox."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.engine.controlled_agent import ScriptedAgent
from tests.engine.harness import Harness
from tests.engine.outbox.outbox_harness import OutboxHarness

from openclaw_a2a.engine.outbox.delivery_tracking import TRANSITIONS, Phase, Signal, TrackedDelivery
from openclaw_a2a.model.agent_event import Reply
from openclaw_a2a.model.delivery import DeliveryState
from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.ports import Delivered

PAIRS = [(phase, signal) for phase, row in TRANSITIONS.items() for signal in row]
ENDS = {
    Signal.SENT: Delivered(0, is_sent=False),
    Signal.MORE: Delivered(0, is_sent=False, has_more=True),
    Signal.DONE: Delivered(0, is_sent=False, is_over=True),
    Signal.RETRY: StoreUnavailable("the disk is full"),
}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[OutboxHarness]:
    harness = Harness("memory", tmp_path, ScriptedAgent(Reply.of_text("hi")))
    await harness.open()
    task = await harness.ended(await harness.send())
    yield OutboxHarness(harness, task.id)
    await harness.close()


async def reach(rig: OutboxHarness, phase: Phase) -> None:
    """Bring the delivery to a phase by real operations."""
    await rig.put_row()
    await rig.check()
    if phase is Phase.QUEUED:
        return
    await rig.start()
    if phase is Phase.IDLE:
        await rig.end(ENDS[Signal.SENT])
    elif phase is Phase.SCHEDULED:
        await cause(rig, Signal.CHECK_LATER)
    elif phase is Phase.STALE:
        await cause(rig, Signal.WAKE)
    elif phase is Phase.REMOVED:
        await cause(rig, Signal.REMOVE)


async def cause(rig: OutboxHarness, signal: Signal) -> None:
    """Do what gives the delivery this signal."""
    if signal in ENDS:
        await rig.end(ENDS[signal])
    elif signal is Signal.CHECK_LATER:
        later = rig.harness.clock.now() + timedelta(seconds=60)
        await rig.end(Delivered(0, is_sent=False, next_check_at=later))
    elif signal is Signal.WAKE:
        await rig.put_row()
        await rig.check()
    elif signal is Signal.DEFER:
        await rig.put_row(DeliveryState.WAITING)
        await rig.check()
    elif signal is Signal.RESET:
        rig.outbox._reset(rig.row)
    elif signal is Signal.REMOVE:
        await rig.outbox.remove_delivery(rig.row)
    elif signal is Signal.DUE:
        rig.harness.clock.advance(61)
        rig.outbox._fire_timers()
    else:
        await rig.start()


@pytest.mark.parametrize(("phase", "signal"), PAIRS, ids=lambda one: one.name)
async def test_each_pair_of_the_table_moves_the_delivery_and_keeps_the_invariant(
    rig: OutboxHarness, phase: Phase, signal: Signal
) -> None:
    await reach(rig, phase)
    assert rig.phase is phase
    rig.check_invariant()
    await cause(rig, signal)
    assert rig.phase is TRANSITIONS[phase][signal]
    rig.check_invariant()


def test_the_table_allows_an_end_of_an_attempt_only_while_one_is_under_way() -> None:
    ends = {*ENDS, Signal.CHECK_LATER}
    for phase, row in TRANSITIONS.items():
        is_attempting = phase in {Phase.SENDING, Phase.STALE, Phase.REMOVED}
        assert ends <= set(row) if is_attempting else ends.isdisjoint(row)


async def test_a_signal_that_the_table_does_not_allow_is_an_error(rig: OutboxHarness) -> None:
    tracked = TrackedDelivery(rig.row, rig.channel)
    for phase in Phase:
        tracked.phase = phase
        for signal in set(Signal) - set(TRANSITIONS[phase]):
            with pytest.raises(KeyError):
                tracked.next_phase(signal)
