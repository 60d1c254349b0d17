"""The table of engine states, driven pair by pair, and what an engine accepts in each state."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.engine.controlled_agent import ControlledAgent
from tests.engine.harness import ALICE, Harness

from openclaw_a2a.engine.engine_state import (
    INTERRUPTING,
    TRANSITIONS,
    EngineSignal,
    EngineState,
)
from openclaw_a2a.engine.tasks.submit import SubmitRequest, submit
from openclaw_a2a.model.errors import Draining
from openclaw_a2a.model.ids import MessageId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.ports import Recovery

ORDER = list(EngineState)
WAYS: dict[EngineState, tuple[EngineSignal, ...]] = {
    EngineState.SERVING: (),
    EngineState.DRAINING: (EngineSignal.DRAIN,),
    EngineState.FINISHING: (EngineSignal.FINISH,),
    EngineState.STOPPING: (EngineSignal.STOP,),
    EngineState.FORCING: (EngineSignal.STOP, EngineSignal.FORCE),
}
"""The shortest way to each state."""
WANTED = {
    EngineSignal.DRAIN: EngineState.DRAINING,
    EngineSignal.FINISH: EngineState.FINISHING,
    EngineSignal.STOP: EngineState.STOPPING,
    EngineSignal.FORCE: EngineState.FORCING,
}
"""Where each signal leads, unless the engine is further already."""


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    opened = Harness("memory", tmp_path, ControlledAgent(Recovery.FAIL), cancel_s=0.05)
    await opened.open()
    yield opened
    await opened.close()


def reach(harness: Harness, state: EngineState) -> None:
    for signal in WAYS[state]:
        harness.engine.apply(signal)
    assert harness.engine.state is state


@pytest.mark.parametrize("signal", EngineSignal)
@pytest.mark.parametrize("state", EngineState)
async def test_a_signal_moves_an_engine_forward_or_not_at_all(
    harness: Harness, state: EngineState, signal: EngineSignal
) -> None:
    reach(harness, state)
    if signal is EngineSignal.FORCE and state not in INTERRUPTING:
        with pytest.raises(KeyError):
            harness.engine.apply(signal)
        assert harness.engine.state is state
        return
    harness.engine.apply(signal)
    assert harness.engine.state is max(state, WANTED[signal], key=ORDER.index)


def test_only_an_engine_that_has_interrupted_its_runs_is_forced() -> None:
    forced = {state for state, row in TRANSITIONS.items() if EngineSignal.FORCE in row}
    assert forced == INTERRUPTING


@pytest.mark.parametrize("is_part_of_run", [False, True])
@pytest.mark.parametrize("state", EngineState)
async def test_an_engine_that_ends_accepts_at_most_what_its_own_runs_need(
    harness: Harness, state: EngineState, is_part_of_run: bool
) -> None:
    reach(harness, state)
    message = Message(MessageId("m-1"), Role.USER, (Part.of_text("hello"),))
    request = SubmitRequest(ALICE, message, is_part_of_run=is_part_of_run)
    is_accepted = state is EngineState.SERVING or (state is EngineState.DRAINING and is_part_of_run)
    if is_accepted:
        await submit(harness.engine, request, harness.rules)
        return
    with pytest.raises(Draining):
        await submit(harness.engine, request, harness.rules)


async def test_a_drain_that_is_followed_by_two_stops_ends_in_force(harness: Harness) -> None:
    assert await harness.engine.drain(0) == 0
    assert harness.engine.state is EngineState.FINISHING
    await harness.engine.stop()
    assert harness.engine.state is EngineState.FORCING
    await harness.engine.stop()
    await harness.engine.drain(0)
    assert harness.engine.state is EngineState.FORCING
