"""What the outbox needs from those who bring deliveries."""

from datetime import datetime
from typing import Protocol

import msgspec

from openclaw_a2a.model.delivery import Delivery


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """A delivery went well, as far as there was something to bring.

    `cursor` is how far it is now. `is_sent`: something was handed over, so the cursor must be
    kept. `has_more`: there is something to bring at once. `is_over`: nothing more is expected.
    `again_at`: by then there is something to bring, even if nothing happens to the task.
    """

    cursor: int
    is_sent: bool = True
    has_more: bool = False
    is_over: bool = False
    next_check_at: datetime | None = None


class DeliveryFailed(msgspec.Struct, frozen=True, gc=False):
    """A try failed: why, when to come again if the receiver said so, and whether to give up.

    `is_refused`: the receiver is there and would not have this one, so that others may fare better.
    """

    reason: str
    retry_after_s: float | None = None
    is_final: bool = False
    is_refused: bool = False


class Sender(Protocol):
    """Brings deliveries of one kind to their receivers."""

    def receiver(self, delivery: Delivery) -> str:
        """Whom it goes to; one receiver never takes all the places."""
        ...

    async def send(self, delivery: Delivery) -> Delivered | DeliveryFailed | None:
        """Bring the next thing after the cursor. None: its task is not there."""
        ...
