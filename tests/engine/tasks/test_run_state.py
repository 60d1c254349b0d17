"""The table of run states, driven pair by pair through real runs of an engine."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.engine.controlled_agent import ControlledAgent
from tests.engine.harness import Harness, in_time

from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.engine.tasks.run_state import TRANSITIONS, RunSignal, RunState
from openclaw_a2a.model.agent_event import InputRequired, Reply
from openclaw_a2a.ports import Recovery

PAIRS = [(state, signal) for state, row in TRANSITIONS.items() for signal in row]
REFUSED = [
    (state, signal) for state in RunState for signal in RunSignal if (state, signal) not in PAIRS
]
CANCELS = {
    (RunState.QUEUED, RunSignal.INTERRUPT),
    (RunState.QUEUED, RunSignal.REJECT),
    (RunState.WORKING, RunSignal.INTERRUPT),
    (RunState.WORKING, RunSignal.REJECT),
    (RunState.WORKING, RunSignal.FORCE),
    (RunState.STOPPING, RunSignal.FORCE),
    (RunState.CLOSING, RunSignal.FORCE),
    (RunState.REJECTED, RunSignal.FORCE),
}
"""The only pairs that may cancel the asyncio task of a run."""


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    opened = Harness("memory", tmp_path, ControlledAgent(Recovery.FAIL), cancel_s=0.05)
    await opened.open()
    yield opened
    await opened.close()


async def reach(harness: Harness, state: RunState) -> ActiveRun:
    """A run that real operations have brought to a state, and that stays there."""
    agent = harness.agents["main"]
    assert isinstance(agent, ControlledAgent)
    if state in (RunState.SUBMITTING, RunState.QUEUED):
        if state is RunState.QUEUED:
            await harness.send(context="c")  # holds the turn of the session
        else:
            harness.store.hold()
        run = await harness.send(context="c", waits=state is RunState.QUEUED)
        assert isinstance(run, ActiveRun)
        await harness.all_is_quiet()
        return run
    if state is RunState.REJECTED:
        agent.recovery = Recovery.REPEAT  # it starts before the store has answered
        harness.store.hold()
    run = await harness.send(waits=state is not RunState.REJECTED)
    assert isinstance(run, ActiveRun)
    conducted = await agent.next_run()
    if state is RunState.WORKING:
        return run
    if state is RunState.OVER:
        conducted.end(Reply.of_text("done"))
        await harness.ended(run)
    elif state is RunState.ENDING:
        await harness.store_is_quiet()
        harness.store.hold()
        conducted.end(Reply.of_text("done"))
        await harness.store.wait_held("commit")
    else:
        conducted.may_stop.clear()
        if state is RunState.CLOSING:
            conducted.tell(InputRequired("which one?"))
        elif state is RunState.STOPPING:
            run.request_cancel()
        else:
            assert run.submission is not None
            answer = asyncio.get_running_loop().create_future()
            answer.set_exception(ConnectionError("the store is gone"))
            run.on_submitted(run.submission, answer)
        await in_time(conducted.stopping.wait())
    await harness.all_is_quiet()
    return run


@pytest.mark.parametrize(("state", "signal"), PAIRS)
async def test_signal_leads_to_the_state_of_the_table_and_cancels_only_where_it_may(
    harness: Harness, state: RunState, signal: RunSignal
) -> None:
    run = await reach(harness, state)
    assert run.state is state
    assert run.task is not None
    before = run.task.cancelling()
    assert run.apply(signal) is TRANSITIONS[state][signal]
    assert run.state is TRANSITIONS[state][signal]
    is_cancelled = run.task.cancelling() > before
    assert is_cancelled == ((state, signal) in CANCELS)
    run.state = state  # what follows is the business of other tests
    run.task.cancel()


@pytest.mark.parametrize(("state", "signal"), REFUSED)
async def test_signal_that_the_table_does_not_allow_changes_nothing(
    harness: Harness, state: RunState, signal: RunSignal
) -> None:
    run = await reach(harness, state)
    with pytest.raises(KeyError):
        run.apply(signal)
    assert run.state is state


def test_every_state_can_be_left_and_only_the_last_one_is_final() -> None:
    for state, row in TRANSITIONS.items():
        is_final = set(row.values()) == {state}
        assert is_final == (state is RunState.OVER)
        assert RunSignal.INTERRUPT in row, "a run may be interrupted at any time"
        assert RunSignal.REJECT in row, "the store may answer at any time"


async def test_run_without_its_agent_fails_in_the_words_of_the_engine(harness: Harness) -> None:
    harness.agents.clear()
    task = await harness.ended(await harness.send())
    assert task.status.message is not None
    assert task.status.message.parts[0].text == "there is no agent main"
