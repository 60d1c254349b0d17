"""What several gateways on one database count together: the requests of callers."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from openclaw_a2a.model.ids import PeerName


class RateBucket(NamedTuple):
    """How many requests a caller has, at most and refilled each second; none limited: 0, 0."""

    per_second: float
    capacity: float


class RateRequest(NamedTuple):
    """What a gateway asks for a caller.

    `spent`: requests that it has let begin beyond those it was given; negative: it gives so many
    back. `wanted`: how many it would like to let begin.
    """

    peer: PeerName
    spent: int
    wanted: int


class RateAnswer(NamedTuple):
    """How many requests a gateway may let begin, and what is used of each bucket now."""

    given: int
    used: tuple[float, float]


class RateStore(Protocol):
    """Buckets of requests that gateways take from."""

    async def take(
        self, requests: Sequence[RateRequest], buckets: tuple[RateBucket, RateBucket]
    ) -> dict[PeerName, RateAnswer]:
        """Take requests out of the buckets of a second and of a minute.

        Of little that is left each gets a part. Raises: StoreUnavailable.
        """
        ...
