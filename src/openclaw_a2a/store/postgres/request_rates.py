"""The requests of callers that count against their rates, over all replicas."""

from collections.abc import Sequence
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from openclaw_a2a.model.ids import PeerName
from openclaw_a2a.ports import RateAnswer, RateBucket, RateRequest

if TYPE_CHECKING:
    from openclaw_a2a.store.postgres.database import PostgresDatabase

_FORGET_EVERY_S = 60.0

# The rows are locked in one order: replicas that ask for the same callers never wait in a circle.
# A quarter of what is left at once, so that others find some; a fiftieth of the whole is too
# little to share.
_TAKE = """
WITH asked AS (
  SELECT peer, spent, wanted
  FROM unnest($1::text[], $2::float8[], $3::float8[]) AS x(peer, spent, wanted)
), locked AS MATERIALIZED (
  SELECT r.peer, r.second_used, r.minute_used, r.at, x.spent, x.wanted
  FROM request_rate r JOIN asked x ON x.peer = r.peer ORDER BY r.peer FOR UPDATE OF r
), timed AS MATERIALIZED (
  SELECT peer, second_used, minute_used, at, spent, wanted, greatest(at, rate_clock()) AS now
  FROM locked
), used AS MATERIALIZED (
  SELECT peer, wanted, now,
    greatest(0, greatest(0, second_used - extract(epoch FROM now - at)::float8 * $4::float8)
      + spent) AS second_used,
    greatest(0, greatest(0, minute_used - extract(epoch FROM now - at)::float8 * $6::float8)
      + spent) AS minute_used
  FROM timed
), shared AS MATERIALIZED (
  SELECT peer, wanted, now, second_used, minute_used, greatest(0, floor(least(
    wanted, $5::float8 - second_used, $7::float8 - minute_used,
    greatest(1, $5::float8 / 50, ($5::float8 - second_used) / 4),
    greatest(1, $7::float8 / 50, ($7::float8 - minute_used) / 4)))) AS given
  FROM used
)
UPDATE request_rate r
SET second_used = s.second_used + s.given, minute_used = s.minute_used + s.given, at = s.now
FROM shared s WHERE r.peer = s.peer
RETURNING r.peer, s.given::bigint, r.second_used, r.minute_used"""
_ADD = """
INSERT INTO request_rate (peer, second_used, minute_used, at)
SELECT peer, 0, 0, rate_clock() FROM unnest($1::text[]) AS x(peer) ORDER BY peer
ON CONFLICT DO NOTHING"""
_FORGET = """
DELETE FROM request_rate WHERE peer IN (
  SELECT peer FROM request_rate WHERE at < rate_clock() - interval '10 minutes'
  FOR UPDATE SKIP LOCKED)"""


class PostgresRates:
    """The shared buckets of callers."""

    def __init__(self, database: "PostgresDatabase") -> None:
        self._database = database
        self._forgotten_at = monotonic()

    async def take(
        self, requests: Sequence[RateRequest], buckets: tuple[RateBucket, RateBucket]
    ) -> dict[PeerName, RateAnswer]:
        found = await self._take(requests, buckets)
        new = [one for one in requests if one.peer not in found]
        if new:
            await self._database.fetch(_ADD, [one.peer for one in new])
            found |= await self._take(new, buckets)
        if monotonic() - self._forgotten_at > _FORGET_EVERY_S:
            self._forgotten_at = monotonic()
            await self._database.fetch(_FORGET)
        return found

    async def _take(
        self, requests: Sequence[RateRequest], buckets: tuple[RateBucket, RateBucket]
    ) -> dict[PeerName, RateAnswer]:
        peers, spent, wanted = zip(*requests, strict=True)
        values: list[float] = []
        for bucket in buckets:
            values += bucket if bucket.per_second else (1.0, inf)
        rows = await self._database.fetch(
            _TAKE,
            list(peers),
            [float(one) for one in spent],
            [float(one) for one in wanted],
            *values,
        )
        return {PeerName(row[0]): RateAnswer(row[1], (row[2], row[3])) for row in rows}
