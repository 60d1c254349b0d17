"""A work queue of objectives: each is processed by one worker at a time, and again if it changed.

An objective that is not in the queue is idle. It is in the queue at most once, and it is never
processed twice at the same time. An `add` during processing is not lost: the worker may have read
the state before the change, so the objective is queued again when the worker is done.
"""

import asyncio
from collections import deque
from enum import Enum

from openclaw_a2a.planning.model import ObjectiveId


class WorkState(Enum):
    """What the queue knows of an objective; idle ones are not in it."""

    QUEUED = "queued"
    PROCESSING = "processing"
    CHANGED = "changed while processing"


class WorkEvent(Enum):
    """What happens to an objective in the queue."""

    ADD = "add"
    GET = "get"
    DONE = "done"


TRANSITIONS: dict[tuple[WorkState | None, WorkEvent], WorkState | None] = {
    (None, WorkEvent.ADD): WorkState.QUEUED,
    (WorkState.QUEUED, WorkEvent.ADD): WorkState.QUEUED,
    (WorkState.PROCESSING, WorkEvent.ADD): WorkState.CHANGED,
    (WorkState.CHANGED, WorkEvent.ADD): WorkState.CHANGED,
    (WorkState.QUEUED, WorkEvent.GET): WorkState.PROCESSING,
    (WorkState.PROCESSING, WorkEvent.DONE): None,
    (WorkState.CHANGED, WorkEvent.DONE): WorkState.QUEUED,
}
"""From state and event to the next state (None: idle). Other pairs cannot happen."""


class WorkQueue:
    """Objectives to process, first come first served, now or after a delay."""

    def __init__(self) -> None:
        self.states: dict[ObjectiveId, WorkState] = {}
        self._queue: deque[ObjectiveId] = deque()
        self._is_filled = asyncio.Event()
        self._timers: dict[ObjectiveId, asyncio.TimerHandle] = {}

    def add(self, objective_id: ObjectiveId) -> None:
        """Have an objective processed, once more if it is being processed now."""
        self._move(objective_id, WorkEvent.ADD)

    def add_later(self, objective_id: ObjectiveId, delay_s: float) -> None:
        """Add an objective after a delay; of several delays the shortest counts."""
        loop = asyncio.get_running_loop()
        due = loop.time() + max(0.0, delay_s)
        timer = self._timers.pop(objective_id, None)
        if timer is not None:
            timer.cancel()
            due = min(due, timer.when())
        self._timers[objective_id] = loop.call_at(due, self._add_due, objective_id)

    async def get(self) -> ObjectiveId:
        """The next objective; the caller must call `done` with it."""
        while not self._queue:
            self._is_filled.clear()
            await self._is_filled.wait()
        objective_id = self._queue.popleft()
        self._move(objective_id, WorkEvent.GET)
        return objective_id

    def done(self, objective_id: ObjectiveId) -> None:
        """The processing of an objective has ended."""
        self._move(objective_id, WorkEvent.DONE)

    def close(self) -> None:
        """Cancel the delayed additions."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _add_due(self, objective_id: ObjectiveId) -> None:
        del self._timers[objective_id]
        self.add(objective_id)

    def _move(self, objective_id: ObjectiveId, event: WorkEvent) -> None:
        old = self.states.get(objective_id)
        new = TRANSITIONS[old, event]
        if new is None:
            del self.states[objective_id]
            return
        self.states[objective_id] = new
        if new is WorkState.QUEUED and old is not WorkState.QUEUED:
            self._queue.append(objective_id)
            self._is_filled.set()
