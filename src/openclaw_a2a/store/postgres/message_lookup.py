"""Message ids are looked up in groups: those asked for during a query share the next one.

Every message that comes in is looked up before it is accepted. One query for all that wait costs
the gateway and the database little more than one for a single message.
"""

import asyncio

from openclaw_a2a.ports import MessageKey
from openclaw_a2a.store.postgres.address import DatabaseRow, Fetch

_FIND = """
SELECT m.principal, m.account, m.message_id, m.run, m.task, m.answer, m.body_hash
FROM unnest($1::text[], $2::text[], $3::text[]) AS x(principal, account, message_id)
JOIN message m USING (principal, account, message_id)"""
_MAX_KEYS = 512


class _Group:
    """Keys that share a query. `rows` is None until it has answered, and when it was given up."""

    def __init__(self) -> None:
        self.keys: set[MessageKey] = set()
        self.rows: dict[MessageKey, DatabaseRow] | None = None
        self.error: Exception | None = None
        self.is_over = asyncio.Event()


class MessageLookup:
    """Finds idempotency records. One query is under way at a time.

    The first caller of a group makes its query; no background task does.
    """

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._collecting: _Group | None = None
        self._turn = asyncio.Lock()

    async def find(self, key: MessageKey) -> DatabaseRow | None:
        """The row of a message: run, task, answer and body hash follow the key.

        Raises: StoreUnavailable.
        """
        if not all(part.isascii() and part.isprintable() for part in key):
            # A text that PostgreSQL may not take must not spoil the query of others.
            return (await self._read({key})).get(key)
        while True:
            group = self._collecting
            if group is None or len(group.keys) >= _MAX_KEYS:
                group = self._collecting = _Group()
                group.keys.add(key)
                await self._lead(group)
            else:
                group.keys.add(key)
                await group.is_over.wait()
            if group.error is not None:
                raise group.error
            if group.rows is not None:
                return group.rows.get(key)
            # The caller that made the query was cancelled: another one makes it again.

    async def _lead(self, group: _Group) -> None:
        try:
            async with self._turn:
                # Closed now: a key that comes later may have been stored after the query began.
                if self._collecting is group:
                    self._collecting = None
                group.rows = await self._read(group.keys)
        except Exception as error:  # raised in each request that waits
            group.error = error
        finally:
            if self._collecting is group:
                self._collecting = None
            group.is_over.set()

    async def _read(self, keys: set[MessageKey]) -> dict[MessageKey, DatabaseRow]:
        rows = await self._fetch(_FIND, *map(list, zip(*keys, strict=True)))
        return {(row[0], row[1], row[2]): row for row in rows}
