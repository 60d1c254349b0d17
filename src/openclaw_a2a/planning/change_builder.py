"""Builds a change of an objective: operations that take effect together or not at all."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Self

import msgspec

from openclaw_a2a.planning.model import PlanLimits, Timestamp, next_timestamp, to_timestamp
from openclaw_a2a.planning.operations import AnyOperationData, ObjectiveCreated, Operation
from openclaw_a2a.planning.state import ObjectiveState, apply, initial_state


class CommandContext(msgspec.Struct, frozen=True):
    """What a command needs from outside: the time, fresh ids (without prefix), the limits."""

    now: datetime
    new_id: Callable[[], str]
    limits: PlanLimits = PlanLimits()


class Change(msgspec.Struct, frozen=True):
    """Operations to append to the log, and the state after them."""

    state: ObjectiveState
    operations: tuple[Operation, ...] = ()


class ChangeBuilder:
    """Collects the operations of one change, all with the same time.

    `state` shows their effect. The state that the builder started from is not modified.
    """

    def __init__(self, state: ObjectiveState, at: Timestamp) -> None:
        self.state = state
        self._at = at
        self._operations: list[Operation] = []

    @classmethod
    def for_state(cls, state: ObjectiveState, now: datetime) -> Self:
        """A builder whose time is after all earlier operations, even if the clock is not."""
        return cls(state.copy(), next_timestamp(state.at, to_timestamp(now)))

    @classmethod
    def for_new_objective(cls, created: ObjectiveCreated, now: datetime) -> Self:
        """A builder whose first operation creates the objective."""
        operation = Operation(1, to_timestamp(now), created)
        builder = cls(initial_state(created, operation), operation.at)
        builder._operations.append(operation)
        return builder

    def record(self, data: AnyOperationData) -> None:
        """Add an operation."""
        operation = Operation(self.state.seq + 1, self._at, data)
        state, _ = apply(self.state, operation)
        self.state = state or self.state
        self._operations.append(operation)

    def build(self) -> Change:
        """The change with all operations so far."""
        return Change(self.state, tuple(self._operations))


Step = Callable[[ObjectiveState], Change]


def chain_changes(state: ObjectiveState, steps: Sequence[Step]) -> Change:
    """One change with the operations of all steps; each gets the state that the last one left."""
    operations: list[Operation] = []
    for step in steps:
        change = step(state)
        state = change.state
        operations += change.operations
    return Change(state, tuple(operations))
