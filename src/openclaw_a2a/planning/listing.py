"""In-memory index of all objectives: list pages in creation order, and plan id to objective."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import merge
from itertools import islice

import msgspec

from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.model import (
    Objective,
    ObjectiveId,
    ObjectiveStatus,
    PlanId,
    Timestamp,
    parse_timestamp,
)
from openclaw_a2a.planning.state import ObjectiveState

ListPosition = tuple[Timestamp, ObjectiveId]
"""The sort key of lists. Creation time first: it never changes, so pages stay stable."""

_SEPARATOR = "~"


class ObjectiveSummary(msgspec.Struct, frozen=True):
    """What lists and plan lookups need of an objective, as of log sequence `sequence`."""

    objective: Objective
    owner: Scope
    plan_ids: tuple[PlanId, ...]
    sequence: int

    @classmethod
    def of(cls, state: ObjectiveState) -> "ObjectiveSummary":
        """The summary of a state."""
        return cls(state.objective, state.owner, tuple(state.plans), state.seq)

    @property
    def position(self) -> ListPosition:
        """Where the objective stands in lists."""
        return self.objective.created_at, self.objective.id


class ObjectivePage(msgspec.Struct, frozen=True):
    """One page of a list, newest first; `total` counts all pages."""

    objectives: list[Objective]
    total: int
    next_token: str | None


def parse_page_token(token: str) -> ListPosition | None:
    """The position after which a page starts; None for a token that we did not issue."""
    written, _, objective_id = token.partition(_SEPARATOR)
    created_at = parse_timestamp(written)
    return (created_at, ObjectiveId(objective_id)) if created_at and objective_id else None


class ObjectiveIndex:
    """Summaries sorted per owner and status, so that a page costs the same for any total."""

    def __init__(self) -> None:
        self._summaries: dict[ObjectiveId, ObjectiveSummary] = {}
        self._positions: dict[Scope, dict[ObjectiveStatus, list[ListPosition]]] = {}
        self._plans: dict[PlanId, ObjectiveId] = {}

    def __contains__(self, objective_id: ObjectiveId) -> bool:
        return objective_id in self._summaries

    def ids(self) -> set[ObjectiveId]:
        """The ids of all objectives."""
        return set(self._summaries)

    def put(self, summary: ObjectiveSummary) -> None:
        """Add an objective, or replace its summary."""
        objective, old = summary.objective, self._summaries.get(summary.objective.id)
        self._summaries[objective.id] = summary
        # Plans are never removed from an objective, so there is nothing to take out here.
        self._plans |= dict.fromkeys(summary.plan_ids, objective.id)
        if old is not None:
            was = old.objective
            is_same_place = was.created_at == objective.created_at and old.owner == summary.owner
            if is_same_place and was.status is objective.status:
                return
            self._remove_position(old)
        by_status = self._positions.setdefault(summary.owner, {})
        insort(by_status.setdefault(objective.status, []), summary.position)

    def remove(self, objective_id: ObjectiveId) -> None:
        """Remove an objective and its plans."""
        old = self._summaries.pop(objective_id, None)
        if old is not None:
            self._remove_position(old)
            for plan_id in old.plan_ids:
                self._plans.pop(plan_id, None)

    def find_plan(self, plan_id: PlanId) -> ObjectiveId | None:
        """The objective that has this plan, or has reserved its id."""
        return self._plans.get(plan_id)

    def reserve_plan(self, plan_id: PlanId, objective_id: ObjectiveId) -> bool:
        """Reserve a plan id for an objective; False when another objective has it."""
        # In memory only: a crash frees the id together with the change that it was reserved for.
        return self._plans.setdefault(plan_id, objective_id) == objective_id

    def release_plan(self, plan_id: PlanId, objective_id: ObjectiveId) -> None:
        """Give up a reserved plan id."""
        if self._plans.get(plan_id) == objective_id:
            del self._plans[plan_id]

    def page(
        self,
        limit: int,
        *,
        scope: Scope | None,
        status: ObjectiveStatus | None = None,
        after: ListPosition | None = None,
    ) -> ObjectivePage:
        """The objectives that `scope` may see (None: all), newest first, after a position."""
        lists: list[list[ListPosition]] = []
        for owner in self._positions if scope is None else (scope,):
            by_status = self._positions.get(owner, {})
            lists += by_status.values() if status is None else [by_status.get(status, [])]
        newest = merge(*(_descending(one, after) for one in lists), reverse=True)
        ids = [objective_id for _, objective_id in islice(newest, limit + 1)]
        found = [self._summaries[objective_id].objective for objective_id in ids[:limit]]
        token = None
        if len(ids) > limit:
            # The whole position, not only the id: it stays valid when that objective is deleted.
            token = f"{found[-1].created_at}{_SEPARATOR}{found[-1].id}"
        return ObjectivePage(found, sum(map(len, lists)), token)

    def unchanged_since(
        self, before: Timestamp, statuses: frozenset[ObjectiveStatus]
    ) -> list[ObjectiveId]:
        """The objectives with one of these statuses whose last change was before a time."""
        found: list[ObjectiveId] = []
        for by_status in self._positions.values():
            for status in statuses & by_status.keys():
                # Nothing changes before it is created, so later positions cannot qualify.
                keys = by_status[status]
                old = keys[: bisect_left(keys, (before, ObjectiveId("")))]
                found += [
                    key for _, key in old if self._summaries[key].objective.updated_at < before
                ]
        return found

    def _remove_position(self, old: ObjectiveSummary) -> None:
        by_status = self._positions[old.owner]
        keys = by_status[old.objective.status]
        del keys[bisect_left(keys, old.position)]
        if not keys:
            del by_status[old.objective.status]
        if not by_status:
            del self._positions[old.owner]


def _descending(keys: list[ListPosition], after: ListPosition | None) -> Iterator[ListPosition]:
    start = len(keys) if after is None else bisect_left(keys, after)
    return (keys[index] for index in range(start - 1, -1, -1))
