"""A change in the making: operations are recorded and take effect as they come, or not at all."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Self

import msgspec

from openclaw_a2a.planning.model import PlanLimits, Timestamp, next_timestamp, to_timestamp
from openclaw_a2a.planning.operations import AnyOperationData, ObjectiveCreated, Operation
from openclaw_a2a.planning.state import ObjectiveState, apply_in_place, initial_state


class CommandContext(msgspec.Struct, frozen=True):
    """What a change takes from outside: the time, fresh ids (without prefix), the limits."""

    now: datetime
    new_id: Callable[[], str]
    limits: PlanLimits = PlanLimits()


class Change(msgspec.Struct, frozen=True):
    """What is to be written, and the state it leads to."""

    state: ObjectiveState
    operations: tuple[Operation, ...] = ()


class ChangeBuilder:
    """Operations that follow each other within one change, all at the same moment.

    `state` shows their effect; the state that the draft began with stays as it was.
    """

    def __init__(self, state: ObjectiveState, at: Timestamp) -> None:
        self.state = state
        self._at = at
        self._operations: list[Operation] = []

    @classmethod
    def for_state(cls, state: ObjectiveState, now: datetime) -> Self:
        """A draft at a moment later than everything before, even when the clock is not."""
        return cls(state.copy(), next_timestamp(state.at, to_timestamp(now)))

    @classmethod
    def for_new_objective(cls, fact: ObjectiveCreated, now: datetime) -> Self:
        """A draft that begins with a new objective."""
        operation = Operation(1, to_timestamp(now), fact)
        draft = cls(initial_state(fact, operation), operation.at)
        draft._operations.append(operation)
        return draft

    def record(self, fact: AnyOperationData) -> None:
        """Let it happen."""
        operation = Operation(self.state.seq + 1, self._at, fact)
        state, _ = apply_in_place(self.state, operation)
        self.state = state or self.state
        self._operations.append(operation)

    def build(self) -> Change:
        """The change as a whole."""
        return Change(self.state, tuple(self._operations))


def chain_changes(
    state: ObjectiveState, steps: Sequence[Callable[[ObjectiveState], Change]]
) -> Change:
    """All steps, one after the other, as one change."""
    made = [Change(state)]
    for step in steps:
        made.append(step(made[-1].state))
    operations = tuple(one for change in made for one in change.operations)
    return Change(made[-1].state, operations)
