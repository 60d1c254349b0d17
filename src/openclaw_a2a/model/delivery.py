"""What is to be brought to somebody outside, and how far it has been brought."""

import hashlib
from datetime import datetime
from enum import Enum
from typing import NewType

import msgspec

from openclaw_a2a.model.ids import TaskId

DeliveryId = NewType("DeliveryId", str)


class DeliveryState(Enum):
    """Where a delivery stands.

    IDLE        no try has failed; what the task says beyond the cursor is brought at once
    WAITING     a try failed; the next one is at `next_at`
    DEAD        given up; `reason` says why, and nothing happens before somebody asks for it
    """

    IDLE = "idle"
    WAITING = "waiting"
    DEAD = "dead"


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One receiver of what happens to a task, or of one thing that became of it.

    `kind` says who brings it and what `body` holds. `cursor` is how far it has been brought, for
    a follower of a task the sequence of the last event (-1: not even that the task exists).
    `attempts` counts the tries of what comes next.
    """

    id: DeliveryId
    kind: str
    task_id: TaskId
    body: bytes
    cursor: int
    next_at: datetime
    created_at: datetime
    updated_at: datetime
    state: DeliveryState = DeliveryState.IDLE
    attempts: int = 0
    reason: str | None = None


def delivery_id(kind: str, task_id: TaskId, name: str) -> DeliveryId:
    """The id of the delivery with this name among those of its kind and task: always the same."""
    digest = hashlib.blake2b(digest_size=12)
    for part in (kind, task_id, name):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(encoded))
        digest.update(encoded)
    return DeliveryId(digest.hexdigest())
