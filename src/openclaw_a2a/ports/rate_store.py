"""Request rates of callers that several gateways on one database share."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from openclaw_a2a.model.ids import PeerName


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
