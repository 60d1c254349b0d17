"""How the deliveries of one kind are sent: by whom, how many at once, and how often."""

import msgspec

from openclaw_a2a.engine.scheduling.fair_queue import FairSlots
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.delivery import Delivery, DeliveryId
from openclaw_a2a.ports import Sender


class DeliveryPolicy(msgspec.Struct, frozen=True):
    """Bounds of one channel. Without `attempt_timeout_s` the sender ends its attempts itself."""

    max_attempts: int = 12
    backoff: Backoff = Backoff()
    attempt_timeout_s: float | None = 30.0
    max_parallel: int = 32


class DeliveryChannel(FairSlots[DeliveryId]):
    """One kind of deliveries. Each kind has slots of its own: a slow one delays no other."""

    def __init__(
        self,
        sender: Sender | None,
        policy: DeliveryPolicy,
        *,
        final_states_only: bool = False,
        is_cacheable: bool = False,
    ) -> None:
        """Without a sender nothing of this kind can be delivered.

        `final_states_only`: only pauses and the end of a task are worth an attempt.
        `is_cacheable`: only the outbox changes the stored rows of this kind, so that a row which
        was read once need not be read again.
        """
        super().__init__(policy.max_parallel)
        self.sender = sender
        self.policy = policy
        self.final_states_only = final_states_only
        self.is_cacheable = is_cacheable

    def receiver(self, delivery: Delivery) -> str:
        """The receiver of a delivery, for fairness between receivers."""
        return "" if self.sender is None else self.sender.receiver(delivery)
