"""The table of task states: ends are ends, pauses wait, and everything can be reached."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.model.task import (
    ACTIVE,
    ALLOWED,
    PAUSED,
    TERMINAL,
    TaskState,
    is_active,
    is_paused,
    is_terminal,
)


def may_follow(old: TaskState, new: TaskState) -> bool:
    return new in ALLOWED.get(old, frozenset())


REAL = [state for state in TaskState if state is not TaskState.UNSPECIFIED]
states = st.sampled_from(list(TaskState))


def reachable_from(start: TaskState) -> set[TaskState]:
    found, open_ends = {start}, [start]
    while open_ends:
        steps = {new for new in TaskState if may_follow(open_ends[-1], new)} - found
        open_ends.pop()
        found |= steps
        open_ends.extend(steps)
    return found


def test_every_state_is_terminal_or_paused_or_active_and_only_one_of_these() -> None:
    assert set(REAL) == TERMINAL | PAUSED | ACTIVE
    for state in REAL:
        assert [is_terminal(state), is_paused(state), is_active(state)].count(True) == 1


def test_table_has_a_row_for_every_state_a_task_can_be_in() -> None:
    assert set(ALLOWED) == set(REAL)


def test_every_state_can_be_reached_from_submitted() -> None:
    assert reachable_from(TaskState.SUBMITTED) == set(REAL)


@pytest.mark.parametrize("state", sorted(TERMINAL, key=str))
def test_terminal_state_is_never_left_nor_entered_again(state: TaskState) -> None:
    assert reachable_from(state) == {state}
    assert not may_follow(state, state)


@pytest.mark.parametrize("state", sorted(ACTIVE | PAUSED, key=str))
def test_every_open_state_may_repeat_itself_and_may_fail_or_be_canceled(state: TaskState) -> None:
    assert may_follow(state, state)
    assert may_follow(state, TaskState.FAILED)
    assert may_follow(state, TaskState.CANCELED)


@pytest.mark.parametrize("state", sorted(PAUSED, key=str))
def test_paused_task_continues_only_when_a_message_makes_it_submitted(state: TaskState) -> None:
    assert may_follow(state, TaskState.SUBMITTED)
    assert not may_follow(state, TaskState.WORKING)
    assert not may_follow(state, TaskState.COMPLETED)


@given(states)
def test_no_task_becomes_or_leaves_unspecified(state: TaskState) -> None:
    assert not may_follow(state, TaskState.UNSPECIFIED)
    assert not may_follow(TaskState.UNSPECIFIED, state)


@given(st.lists(states, max_size=30))
def test_walk_along_the_table_has_at_most_one_terminal_state_and_it_is_the_last(
    wishes: list[TaskState],
) -> None:
    walk = [TaskState.SUBMITTED]
    for wish in wishes:
        if may_follow(walk[-1], wish):
            walk.append(wish)
    assert [state for state in walk[:-1] if is_terminal(state)] == []
