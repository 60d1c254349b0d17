"""Deletes objectives that ended long ago."""

from contextlib import suppress
from datetime import timedelta

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import PlanItemNotFound, StatusChangeNotAllowed
from openclaw_a2a.planning.executor import StepExecutor
from openclaw_a2a.planning.model import ObjectiveId, Timestamp, to_timestamp
from openclaw_a2a.planning.repository import ObjectiveRepository
from openclaw_a2a.planning.state import ObjectiveState
from openclaw_a2a.planning.transitions import OBJECTIVE_ENDED, transition_error

log = get_logger(__name__)


class ObjectiveRetention:
    """Deletes completed, failed and canceled objectives that did not change for `max_age_s`."""

    def __init__(
        self,
        engine: Engine,
        repository: ObjectiveRepository,
        executor: StepExecutor,
        *,
        max_age_s: float,
    ) -> None:
        self._engine = engine
        self._repository = repository
        self._executor = executor
        self._max_age = timedelta(seconds=max_age_s)

    async def run(self, interval_s: float) -> None:
        """Purge again and again."""
        while True:
            # Not at the start: the archived objectives need not be known before the first request.
            await self._engine.clock.sleep(interval_s)
            try:
                await self.purge()
            except Exception:  # the next purge may succeed
                log.exception("planning.purge_failed")

    async def purge(self) -> int:
        """Delete what is old enough; how many objectives were deleted."""
        before = to_timestamp(self._engine.clock.now() - self._max_age)
        index = await self._repository.load_index()
        deleted = 0
        for objective_id in index.unchanged_since(before, OBJECTIVE_ENDED):
            deleted += await self._delete(objective_id, before)
        return deleted

    async def _delete(self, objective_id: ObjectiveId, before: Timestamp) -> bool:
        async def check(state: ObjectiveState) -> None:
            # Under the lock of the objective: it may have been resumed since the index was read.
            objective = state.objective
            if objective.status not in OBJECTIVE_ENDED or objective.updated_at >= before:
                change = (objective.status.value, "deleted")
                raise transition_error(("objective", state.id), change, "it was changed")
            await self._executor.check_idle(state)

        with suppress(PlanItemNotFound, StatusChangeNotAllowed):
            await self._repository.delete(objective_id, check)
            return True
        return False
