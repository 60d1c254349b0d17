"""The places for deliveries of one kind: how many are brought at once, and who comes next."""

from collections.abc import Iterator

from openclaw_a2a.model.delivery import Delivery, DeliveryId
from openclaw_a2a.ports import Courier
from openclaw_a2a.runtime.backoff import OutboxRules
from openclaw_a2a.runtime.fair import FairQueue


class Round:
    """One kind's deliveries. Kinds have places of their own: one that is slow delays no other."""

    def __init__(
        self, courier: Courier | None, rules: OutboxRules, *, only_ends: bool = False
    ) -> None:
        """Without a courier nothing of this kind can be brought.

        `only_ends`: of what happens to a task nothing but pauses and its end is worth a look.
        """
        self.courier = courier
        self.only_ends = only_ends
        self.rules = rules
        each = max(1, rules.parallel // 4)
        self.fresh = FairQueue(places=rules.parallel, places_each=each)
        # Who failed before may fail again and take its time: half the places are for the others.
        self.again = FairQueue(places=max(1, rules.parallel // 2), places_each=each)
        self._under_way = 0

    def lane(self, delivery: Delivery) -> str:
        """Whom a delivery goes to."""
        return "" if self.courier is None else self.courier.lane(delivery)

    def take(self) -> Iterator[tuple[FairQueue, DeliveryId, str]]:
        """Who may go now, those who wait for another try first; each gives its place back."""
        for queue in (self.again, self.fresh):
            while self._under_way < self.rules.parallel:
                taken = queue.take()
                if taken is None:
                    break
                self._under_way += 1
                yield queue, *taken

    def leave(self, queue: FairQueue, lane: str) -> None:
        """A place is free again."""
        queue.leave(lane)
        self._under_way -= 1
