"""The deliveries of one kind: how they are brought, how many at once, and who comes next."""

from openclaw_a2a.model.delivery import Delivery, DeliveryId
from openclaw_a2a.ports import Courier
from openclaw_a2a.runtime.backoff import OutboxRules
from openclaw_a2a.runtime.fair import FairPlaces


class Round(FairPlaces[DeliveryId]):
    """One kind's deliveries. Kinds have places of their own: one that is slow delays no other."""

    def __init__(
        self,
        courier: Courier | None,
        rules: OutboxRules,
        *,
        only_ends: bool = False,
        is_steady: bool = False,
    ) -> None:
        """Without a courier nothing of this kind can be brought.

        `only_ends`: of what happens to a task nothing but pauses and its end is worth a look.
        `is_steady`: nobody but the outbox changes its deliveries, so that one which was read
        once is known.
        """
        super().__init__(rules.parallel)
        self.courier = courier
        self.only_ends = only_ends
        self.is_steady = is_steady
        self.rules = rules

    def lane(self, delivery: Delivery) -> str:
        """Whom a delivery goes to."""
        return "" if self.courier is None else self.courier.lane(delivery)
