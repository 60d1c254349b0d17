"""A gateway that shares its store with others, for people."""

from datetime import datetime

from openclaw_a2a.model.ids import AgentId, OwnerId
from openclaw_a2a.model.message import JsonStruct


class ReplicaStatus(JsonStruct, frozen=True, omit_defaults=False):
    """A replica that is alive."""

    id: OwnerId
    name: str
    host: str
    pid: int
    version: str
    agents: tuple[AgentId, ...]
    since: datetime
    lease_left_seconds: float
    """How long it counts as alive without renewing its lease."""
    is_draining: bool
    is_this: bool
    """True for the one that answers."""
    runs: int
    streams: int
    lag_ms: float | None
    """How long its last notification to itself took; None: it gets none, and polls instead."""
