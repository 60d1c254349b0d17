"""A task handle as it is kept beyond a process: never with the credentials of its target."""

from datetime import datetime

import msgspec

from openclaw_a2a.outbound.config import Transport
from openclaw_a2a.outbound.handles import Handle, Progression, Revive
from openclaw_a2a.outbound.targets import Identity, Target


class KeptHandle(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What is written down of a handle."""

    name: str
    base_url: str
    card_path: str
    preferred_transports: tuple[Transport, ...]
    task_id: str
    created_at: datetime
    updated_at: datetime
    expires_at: datetime
    alias: str | None = None
    context_id: str | None = None
    heard: Progression = Progression()


_decoder = msgspec.json.Decoder(KeptHandle)


def encode_handle(handle: Handle) -> bytes:
    """The handle for a file or a record."""
    identity = handle.target.identity
    kept = KeptHandle(
        name=handle.name,
        base_url=identity.base_url,
        card_path=identity.card_path,
        preferred_transports=identity.preferred_transports,
        task_id=handle.task_id,
        created_at=handle.created_at,
        updated_at=handle.updated_at,
        expires_at=handle.expires_at,
        alias=handle.target.alias,
        context_id=handle.context_id,
        heard=handle.heard,
    )
    return msgspec.json.encode(kept)


def decode_handle(body: bytes, revive: Revive) -> Handle | None:
    """The handle with today's credentials; None when its target may not be used any more.

    Raises: msgspec.DecodeError.
    """
    kept = _decoder.decode(body)
    identity = Identity(kept.base_url, kept.card_path, kept.preferred_transports)
    target = revive(Target(identity, kept.alias))
    if target is None:
        return None
    return Handle(
        name=kept.name,
        target=target,
        task_id=kept.task_id,
        context_id=kept.context_id,
        created_at=kept.created_at,
        updated_at=kept.updated_at,
        expires_at=kept.expires_at,
        heard=kept.heard,
    )
