"""The order of objectives in lists, kept so that a page costs the same however many there are."""

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
    Timestamp,
    parse_timestamp,
)

ListPosition = tuple[Timestamp, ObjectiveId]
"""Where an objective is in the order: the newest is last."""
_BETWEEN = "~"
_Places = dict[ObjectiveStatus, list[ListPosition]]


class IndexEntry(msgspec.Struct, frozen=True):
    """An objective without its plans, and whose it is."""

    objective: Objective
    owner: Scope | None

    @property
    def place(self) -> ListPosition:
        """Its place in the order."""
        return self.objective.created_at, self.objective.id


class ObjectivePage(msgspec.Struct, frozen=True):
    """Some objectives, the newest first, how many there are in all, and the token for more."""

    objectives: list[Objective]
    total: int
    next_token: str | None


def parse_page_token(token: str) -> ListPosition | None:
    """The place behind which a page begins; None when it is no token of ours."""
    written, _, objective_id = token.partition(_BETWEEN)
    moment = parse_timestamp(written)
    return (moment, ObjectiveId(objective_id)) if moment is not None and objective_id else None


def _token(last: Objective) -> str:
    """The place and not only the id, so that it is good when the objective is gone."""
    return f"{last.created_at}{_BETWEEN}{last.id}"


class ObjectiveIndex:
    """Every objective that is known, by owner and status."""

    def __init__(self) -> None:
        self._known: dict[ObjectiveId, IndexEntry] = {}
        self._places: dict[Scope | None, _Places] = {}

    def put(self, objective: Objective, owner: Scope | None) -> None:
        """Take an objective in, or what has become of it."""
        old, new = self._known.get(objective.id), IndexEntry(objective, owner)
        self._known[objective.id] = new
        if old is not None:
            is_moved = (old.owner, old.place) != (owner, new.place)
            if not is_moved and old.objective.status is objective.status:
                return
            self._remove(old)
        insort(self._places.setdefault(owner, {}).setdefault(objective.status, []), new.place)

    def remove(self, objective_id: ObjectiveId) -> None:
        """Leave an objective out from now on."""
        old = self._known.pop(objective_id, None)
        if old is not None:
            self._remove(old)

    def page(
        self,
        limit: int,
        *,
        scope: Scope | None,
        status: ObjectiveStatus | None = None,
        after: ListPosition | None = None,
    ) -> ObjectivePage:
        """The next objectives that the scope sees (None: everybody's), after a place."""
        places = [*self._seen(scope, status)]
        newest = merge(*(_down(one, after) for one in places), reverse=True)
        ids = [objective_id for _, objective_id in islice(newest, limit + 1)]
        found = [self._known[objective_id].objective for objective_id in ids[:limit]]
        token = _token(found[-1]) if len(ids) > limit else None
        return ObjectivePage(found, sum(map(len, places)), token)

    def _seen(
        self, scope: Scope | None, status: ObjectiveStatus | None
    ) -> Iterator[list[ListPosition]]:
        owners = self._places if scope is None else (None, scope)
        for owner in owners:
            places = self._places.get(owner, {})
            yield from places.values() if status is None else [places.get(status, [])]

    def _remove(self, old: IndexEntry) -> None:
        places = self._places[old.owner]
        keys = places[old.objective.status]
        del keys[bisect_left(keys, old.place)]
        if not keys:
            del places[old.objective.status]
        if not places:
            del self._places[old.owner]


def _down(keys: list[ListPosition], after: ListPosition | None) -> Iterator[ListPosition]:
    """The places from the last on, or from the one before another."""
    place = len(keys) if after is None else bisect_left(keys, after)
    return (keys[index] for index in range(place - 1, -1, -1))
