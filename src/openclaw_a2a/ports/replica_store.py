"""What gateways on one database share besides data: sessions, requests, leases and rates."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from openclaw_a2a.model.delivery import DeliveryId
from openclaw_a2a.model.ids import AgentId, OwnerId, PeerName, RunId, SessionKey, TaskId
from openclaw_a2a.model.records import RunRecord
from openclaw_a2a.model.replica import ReplicaStatus
from openclaw_a2a.ports.log_store import LogLine

NOBODY = OwnerId("nobody")
"""The owner of runs that were given up: whoever has their agent takes them."""


class HeldSession(msgspec.Struct, frozen=True, gc=False):
    """The replica that decides about the next run of a session. `number` identifies the hold."""

    owner: OwnerId
    number: int = -1


class Handoff(msgspec.Struct, frozen=True, gc=False):
    """A request that another replica accepted and this one carries out."""

    number: int
    body: bytes


class SharedLog(msgspec.Struct, frozen=True, gc=False):
    """A log as the replicas share it; `lines` are the requested ones.

    `number` distinguishes it from a deleted log with the same id. `owner` works on the objective
    that it describes; for a closed log it has no meaning.
    """

    id: str
    number: int
    sequence: int
    is_closed: bool
    owner: OwnerId
    lines: tuple[LogLine, ...] = ()


class ReplicaCounts(msgspec.Struct):
    """What happened between this replica and the others since it was started."""

    taken_over: int = 0
    """Dead replicas whose work this one took."""
    lost: int = 0
    """How often others took this one for dead."""
    stale_writes: int = 0
    """Batches of writes that were refused because of that."""
    claims: int = 0
    claim_s: float = 0.0
    """How often it searched for work of dead replicas, and how long that took in total."""


class RateBucket(NamedTuple):
    """A token bucket: its refill rate and its capacity; 0 and 0 mean unlimited."""

    per_second: float
    capacity: float


class RateRequest(NamedTuple):
    """The request of a gateway for tokens of a caller.

    `spent`: requests that it admitted beyond its tokens; a negative number returns unused tokens.
    `wanted`: how many tokens it would like to have.
    """

    peer: PeerName
    spent: int
    wanted: int


class RateAnswer(NamedTuple):
    """How many tokens the gateway gets, and how much of each bucket is used now."""

    given: int
    used: tuple[float, float]


class RateStore(Protocol):
    """Token buckets that gateways share."""

    async def take(
        self, requests: Sequence[RateRequest], buckets: tuple[RateBucket, RateBucket]
    ) -> dict[PeerName, RateAnswer]:
        """Take tokens from the buckets of a second and of a minute.

        If few are left, each request gets a part of them. Raises: StoreUnavailable.
        """
        ...


class ReplicaListener(Protocol):
    """Callbacks of a replica for events of other replicas."""

    def on_changed(self, tasks: Iterable[TaskId] | None) -> None:
        """Called when these tasks changed elsewhere (None: any task may have changed)."""
        ...

    def on_logs_changed(self, logs: Iterable[tuple[str, str]] | None) -> None:
        """Called when these logs (kind and id) changed elsewhere (None: any may have)."""
        ...

    def on_handoff(self) -> None:
        """There may be requests for this replica."""
        ...

    def on_answer(self, number: int) -> None:
        """Called when a request that this replica handed off is answered."""
        ...

    def on_deliveries(self) -> None:
        """Called when another replica has passed deliveries to this one."""
        ...

    def on_lost(self) -> None:
        """Called when others took over the runs of this replica, which has a new id now."""
        ...


class ReplicaStore(Protocol):
    """Sessions, requests and take-overs between the gateways of one database."""

    id: OwnerId
    """Of this replica; another one after it was taken for dead."""
    lease_s: float
    is_draining: bool
    """True when the operator wants this replica to accept nothing new."""
    takes_logs: bool
    """True when this replica works on what logs describe, and takes over those of others."""
    poll_s: float
    """How often to ask for changes; short when no notifications come."""
    lag_ms: float | None
    """How long the last notification to itself took; None: it gets none, and asks instead."""
    are_notifications_missing: bool
    """True when a notification of this replica to itself did not arrive."""
    counts: ReplicaCounts
    rates: RateStore
    """The requests of callers at all replicas."""

    async def start(
        self, listener: ReplicaListener, agents: Iterable[AgentId], hosts: Iterable[str]
    ) -> None:
        """Announce the agents and session hosts of this replica, and listen to the others."""
        ...

    async def hold_session(self, session_key: SessionKey) -> HeldSession:
        """Hold a session, unless another replica does: then that one. Raises: StoreUnavailable."""
        ...

    def release_session(self, session_key: SessionKey, number: int) -> None:
        """Release the session, so that another replica can hold it."""
        ...

    async def find_owner(self, task_id: TaskId) -> OwnerId | None:
        """The replica that has unfinished runs of a task."""
        ...

    async def find_run(self, session_keys: Iterable[SessionKey]) -> RunRecord | None:
        """The run that another replica has started in one of these sessions."""
        ...

    def pop_has_taken(self) -> bool:
        """True when deliveries or logs were taken over since this was asked."""
        ...

    def pop_taken(self, kind: str) -> set[DeliveryId]:
        """The deliveries of a kind that were taken over since this was asked."""
        ...

    async def list_hosts(self, agent_id: AgentId) -> set[str]:
        """The session hosts of the replicas that have an agent; if none has both, of all.

        Also of replicas that are gone for a short time.
        """
        ...

    async def pass_on(self, delivery_id: DeliveryId, hosts: Iterable[str]) -> bool:
        """Give a delivery to another replica with these session hosts; False: there is none."""
        ...

    async def take_delivery(self, delivery_id: DeliveryId) -> None:
        """Make this replica the one that sends a delivery."""
        ...

    async def find_replica(self, agent_id: AgentId, *, may_drain: bool = False) -> OwnerId | None:
        """Another live replica that has an agent; of several the one with the fewest runs."""
        ...

    async def give_up_runs(self, run_ids: Collection[RunId]) -> set[RunId]:
        """Let others take these runs of this replica; those that are this one's still.

        Raises: StoreUnavailable.
        """
        ...

    async def notify_takers(self) -> bool:
        """True when runs that were given up are not taken yet; then the others are notified."""
        ...

    async def read_sequences(self, task_ids: Iterable[TaskId]) -> dict[TaskId, int]:
        """How far tasks are."""
        ...

    def publish(self, task_ids: Iterable[TaskId]) -> None:
        """Tell the others that tasks changed, other than by a commit of theirs."""
        ...

    async def list_shared_logs(self, kind: str) -> list[SharedLog]:
        """All open logs of a kind, without their lines."""
        ...

    async def read_shared_log(
        self, kind: str, log_id: str, *, number: int, after: int
    ) -> SharedLog | None:
        """A log with its lines after `after`, open or closed.

        With all its lines if it is not the one with this number (0: whichever there is).
        """
        ...

    async def hand_off(self, receiver: OwnerId, body: bytes) -> int:
        """Store a request for another replica; its number."""
        ...

    async def take_handoffs(self, after: int) -> list[Handoff]:
        """The unanswered requests for this replica with a higher number, in order."""
        ...

    async def answer_handoff(self, number: int, answer: bytes) -> None:
        """Store the answer to a request, and notify the replica that sent it."""
        ...

    async def withdraw(self, number: int) -> None:
        """Forget a request that is not answered."""
        ...

    async def take_answer(self, number: int) -> bytes | None:
        """The answer to a request of this replica, which is deleted then; None: not yet."""
        ...

    async def find_expired(self) -> bool:
        """True when the lease of another replica is over."""
        ...

    async def renew(self, *, runs: int, streams: int) -> None:
        """Renew the lease; every write renews it, too. Raises: StoreUnavailable."""
        ...

    async def list_replicas(self) -> list[ReplicaStatus]:
        """All that are alive, oldest first."""
        ...

    async def drain(self, replica: OwnerId) -> bool:
        """Ask a replica to accept nothing new; False when there is none."""
        ...
