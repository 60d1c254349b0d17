"""A queue in which one receiver with much to get does not hold up the others."""

from collections import Counter, OrderedDict, deque

from openclaw_a2a.model.delivery import DeliveryId


class FairQueue:
    """Deliveries that wait for a place: receivers take turns, each has at most some places."""

    def __init__(self, *, places: int, places_each: int) -> None:
        self._places = places
        self._places_each = places_each
        self._lanes: OrderedDict[str, deque[DeliveryId]] = OrderedDict()
        self._waiting: set[DeliveryId] = set()
        self._taken: Counter[str] = Counter()

    def __contains__(self, delivery_id: DeliveryId) -> bool:
        return delivery_id in self._waiting

    def add(self, delivery_id: DeliveryId, lane: str) -> None:
        """Let a delivery wait, once."""
        if delivery_id not in self._waiting:
            self._waiting.add(delivery_id)
            self._lanes.setdefault(lane, deque()).append(delivery_id)

    def take(self) -> tuple[DeliveryId, str] | None:
        """The next one that may go; its place is given back with `leave`."""
        if self._taken.total() >= self._places:
            return None
        for lane in self._lanes:
            if self._taken[lane] < self._places_each:
                return self._take_from(lane), lane
        return None

    def leave(self, lane: str) -> None:
        """A place is free again."""
        self._taken[lane] -= 1
        if not self._taken[lane]:
            del self._taken[lane]

    def _take_from(self, lane: str) -> DeliveryId:
        waiting = self._lanes[lane]
        delivery_id = waiting.popleft()
        self._waiting.discard(delivery_id)
        self._taken[lane] += 1
        self._lanes.move_to_end(lane)
        if not waiting:
            del self._lanes[lane]
        return delivery_id
