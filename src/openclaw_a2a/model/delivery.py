"""Durable deliveries of task events to receivers outside the engine; push configurations."""

import hashlib
from datetime import datetime
from enum import Enum
from typing import NewType
from urllib.parse import urlsplit

import msgspec

from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.message import JsonStruct

DeliveryId = NewType("DeliveryId", str)


class DeliveryState(Enum):
    """The stored state of a delivery.

    IDLE        no attempt has failed; events after the cursor are sent at once
    SKIPPED     as IDLE; but something was refused for good and skipped, as `reason` says
    WAITING     an attempt failed; the next one is at `next_at`
    DEAD        given up for `reason`; only a redelivery by hand continues it
    """

    IDLE = "idle"
    SKIPPED = "skipped"
    WAITING = "waiting"
    DEAD = "dead"


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One receiver of the events of a task, or of its outcome.

    `kind` selects the sender and the format of `body`. `cursor` is the sequence number of the last
    event that was sent (-1: none, not even the creation of the task). `attempts` counts the failed
    and refused attempts since the last success.
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
    """The id of the delivery with this name for a kind and task; always the same."""
    digest = hashlib.blake2b(digest_size=12)
    for part in (kind, task_id, name):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(encoded))
        digest.update(encoded)
    return DeliveryId(digest.hexdigest())


def new_delivery(
    kind: str,
    task_id: TaskId,
    name: str,
    body: bytes,
    *,
    cursor: int,
    now: datetime,
    due_at: datetime | None = None,
) -> Delivery:
    """The delivery with this name; events after the cursor are sent.

    `due_at`: there is something to send by then, even if the task does not change.
    """
    found = delivery_id(kind, task_id, name)
    return Delivery(found, kind, task_id, body, cursor, due_at or now, now, now)


def delivered_up_to(
    delivery: Delivery,
    cursor: int,
    *,
    now: datetime,
    skipped: str | None = None,
    attempts: int = 0,
) -> Delivery:
    """The delivery after an attempt that succeeded; `skipped` is what was refused for good."""
    return msgspec.structs.replace(
        delivery,
        cursor=cursor,
        state=DeliveryState.IDLE if skipped is None else DeliveryState.SKIPPED,
        attempts=attempts,
        next_at=now,
        updated_at=now,
        reason=skipped,
    )


PUSH_KIND = "push"
"""The kind of deliveries that are push notifications."""


class PushConfig(JsonStruct, frozen=True):
    """A webhook of one task.

    `version` is the protocol version of the request that created it; notifications are sent in
    the same one. Token and credentials are shown to the webhook only.
    """

    id: str
    task_id: TaskId
    url: str
    version: str = msgspec.field(name="wire")  # its name in stored data
    created_at: datetime
    token: str | None = None
    schemes: tuple[str, ...] = ()
    credentials: str | None = None

    @property
    def host(self) -> str:
        """The part of the URL that the operator may see."""
        parts = urlsplit(self.url)
        return parts.netloc.rpartition("@")[2]

    def __repr__(self) -> str:
        return f"PushConfig(id={self.id!r}, task_id={self.task_id!r}, host={self.host!r})"
