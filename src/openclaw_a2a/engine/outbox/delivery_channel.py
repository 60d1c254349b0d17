"""How long to wait before the next try of a delivery."""

import msgspec

from openclaw_a2a.engine.scheduling.fair_queue import FairSlots
from openclaw_a2a.model.delivery import Delivery, DeliveryId
from openclaw_a2a.ports import Sender


class DeliveryPolicy(msgspec.Struct, frozen=True):
    """Bounds of one outbox. Without `attempt_s` couriers see to it that their tries end."""

    max_attempts: int = 12
    first_delay_s: float = 1.0
    max_delay_s: float = 3600.0
    attempt_timeout_s: float | None = 30.0
    max_parallel: int = 32


def pause_s(
    attempts: int, rules: DeliveryPolicy, *, roll: float, retry_after_s: float | None = None
) -> float:
    """The pause after so many failed tries.

    It doubles with each try up to its most, and `roll` (0 to 1) takes away up to half of it, so
    that receivers which failed together are not tried together. A receiver that says when to
    come again is not tried before, as long as that is within the most.
    """
    doubled = rules.first_delay_s * 2.0 ** min(attempts - 1, 60)
    pause = min(doubled, rules.max_delay_s) * (1.0 - roll / 2.0)
    return max(pause, min(retry_after_s or 0.0, rules.max_delay_s))


class DeliveryChannel(FairSlots[DeliveryId]):
    """One kind's deliveries. Kinds have places of their own: one that is slow delays no other."""

    def __init__(
        self,
        courier: Sender | None,
        rules: DeliveryPolicy,
        *,
        only_ends: bool = False,
        is_steady: bool = False,
    ) -> None:
        """Without a courier nothing of this kind can be brought.

        `only_ends`: of what happens to a task nothing but pauses and its end is worth a look.
        `is_steady`: nobody but the outbox changes its deliveries, so that one which was read
        once is known.
        """
        super().__init__(rules.max_parallel)
        self.sender = courier
        self.only_ends = only_ends
        self.is_steady = is_steady
        self.rules = rules

    def receiver(self, delivery: Delivery) -> str:
        """Whom a delivery goes to."""
        return "" if self.sender is None else self.sender.receiver(delivery)
