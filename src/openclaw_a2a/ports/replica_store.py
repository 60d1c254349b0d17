"""What several gateways on one database share besides data: who works on what."""

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

import msgspec

from openclaw_a2a.model.ids import AgentId, OwnerId, SessionKey, TaskId


class HeldSession(msgspec.Struct, frozen=True, gc=False):
    """Who decides about the next run of a session. `number` names this hold of it."""

    owner: OwnerId
    number: int = -1


class Handoff(msgspec.Struct, frozen=True, gc=False):
    """A request that another replica accepted and this one carries out."""

    number: int
    body: bytes


class ReplicaStatus(msgspec.Struct, frozen=True, gc=False):
    """A replica, for people."""

    id: OwnerId
    name: str
    host: str
    pid: int
    version: str
    agents: tuple[AgentId, ...]
    since: datetime
    lease_left_s: float
    """How long it is taken for alive without another sign of it."""
    is_draining: bool
    runs: int
    streams: int
    lag_ms: float | None
    """How long its last notification to itself took; None: it gets none, and asks instead."""


class ReplicaListener(Protocol):
    """What a replica does when it hears of the others."""

    def on_changed(self, tasks: Iterable[TaskId] | None) -> None:
        """These tasks changed elsewhere; None: any may have."""
        ...

    def on_handoff(self) -> None:
        """There may be requests for this replica."""
        ...

    def on_answer(self, number: int) -> None:
        """A request that this replica handed off is answered."""
        ...

    def on_lost(self) -> None:
        """Others took this replica for dead: its runs are theirs, and it has a new id."""
        ...


class ReplicaStore(Protocol):
    """Sessions, requests and take-overs between the gateways of one database."""

    id: OwnerId
    """Of this replica; another one after it was taken for dead."""
    lease_s: float
    poll_s: float
    """How often to ask for changes; short when no notifications come."""

    async def start(self, listener: ReplicaListener, agents: Iterable[AgentId]) -> None:
        """Say which agents are here, and listen to the others until the store is closed."""
        ...

    async def hold_session(self, session_key: SessionKey) -> HeldSession:
        """Hold a session, unless another replica does: then that one. Raises: StoreUnavailable."""
        ...

    def release_session(self, session_key: SessionKey, number: int) -> None:
        """Let others decide about the session."""
        ...

    async def find_owner(self, task_id: TaskId) -> OwnerId | None:
        """The replica that has unfinished runs of a task."""
        ...

    async def read_sequences(self, task_ids: Iterable[TaskId]) -> dict[TaskId, int]:
        """How far tasks are."""
        ...

    def publish(self, task_ids: Iterable[TaskId]) -> None:
        """Tell the others that tasks changed, other than by a commit of theirs."""
        ...

    async def hand_off(self, receiver: OwnerId, body: bytes) -> int:
        """Store a request for another replica; its number."""
        ...

    async def take_handoffs(self, after: int) -> list[Handoff]:
        """The unanswered requests for this replica with a higher number, in order."""
        ...

    async def answer_handoff(self, number: int, answer: bytes) -> None:
        """Store the answer to a request, and tell who asked."""
        ...

    async def take_answer(self, number: int) -> bytes | None:
        """The answer to a request of this replica, which is then forgotten; None: not yet."""
        ...

    async def find_expired(self) -> bool:
        """True when the lease of another replica is over."""
        ...

    async def renew(self, *, runs: int, streams: int) -> None:
        """Keep the lease, which writes keep as well. Raises: StoreUnavailable."""
        ...

    async def leave(self) -> None:
        """Give everything to the others, at once."""
        ...

    async def list_replicas(self) -> list[ReplicaStatus]:
        """All that are alive, oldest first."""
        ...

    async def drain(self, replica: OwnerId) -> bool:
        """Ask a replica to accept nothing new; False when there is none."""
        ...
