"""What the outbox needs from the senders of deliveries."""

from datetime import datetime
from typing import Protocol

import msgspec

from openclaw_a2a.model.delivery import Delivery


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """The attempt succeeded, as far as there was something to send.

    `cursor` is the new position. `is_sent`: something reached the receiver, so the cursor must be
    saved. `has_more`: the next thing can be sent at once. `is_over`: nothing more will come.
    `next_check_at`: there is something to send by then, even if the task does not change.
    `skipped` is why what was sent was refused for good: it counts as sent, and is recorded.
    `saved` is the delivery as the sender has stored it itself, in one commit with its own data.
    """

    cursor: int
    is_sent: bool = True
    has_more: bool = False
    is_over: bool = False
    next_check_at: datetime | None = None
    skipped: str | None = None
    saved: Delivery | None = None


class DeliveryFailed(msgspec.Struct, frozen=True, gc=False):
    """The attempt failed.

    `retry_after_s` is the wait that the receiver asked for. `is_final`: do not try again.
    `is_refused`: the receiver works and rejected this delivery, so that others may succeed.
    `is_permanent`: it will never accept this content, and may accept what follows.
    """

    reason: str
    retry_after_s: float | None = None
    is_final: bool = False
    is_refused: bool = False
    is_permanent: bool = False


class Sender(Protocol):
    """Sends deliveries of one kind to their receivers."""

    def receiver(self, delivery: Delivery) -> str:
        """The receiver, for fairness: one receiver never holds all slots."""
        ...

    async def send(self, delivery: Delivery) -> Delivered | DeliveryFailed | None:
        """Send the next thing after the cursor. None: its task does not exist."""
        ...
