"""The dashboard's pages as JSON: read once, followed live, and acted on, with the admin token."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

import httpx2

from openclaw_a2a.cli.a2a_client import connection_lost, transport_errors
from openclaw_a2a.cli.admin_client import GatewayAccess, read_body
from openclaw_a2a.cli.options import decode_response
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable, ParseFailed
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.net.http_client import HttpClient
from openclaw_a2a.net.sse_reader import SseReader

_ANSWER_S = 60.0
_CONNECT_S = 5.0
_SILENCE_S = 60.0
"""A stream that is silent for so long is dead: the gateway sends heartbeats more often."""
_BACKOFF = Backoff(first_s=0.2, max_s=5.0, factor=2.0, jitter=0.0)
_OK = 200


class DashboardClient:
    """Calls the dashboard of one gateway."""

    def __init__(self, access: GatewayAccess) -> None:
        self.address = access.address
        wait = httpx2.Timeout(_ANSWER_S, connect=_CONNECT_S)
        self._http = HttpClient(headers=access.headers, timeout=wait)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def read(self, page: str) -> JsonObject:
        """A page as it is now. Raises: AgentUnavailable, AgentFailed, NotAllowed."""
        with transport_errors(self.address):
            answer = await self._http.get(self.address + page)
        return self._decode(answer.status_code, answer.content)

    async def act(self, path: str, form: Mapping[str, str]) -> str:
        """Submit a form of a page; returns the message about the result.

        Raises: AgentUnavailable, AgentFailed, NotAllowed.
        """
        with transport_errors(self.address):
            answer = await self._http.post(self.address + path, json=dict(form))
        return str(self._decode(answer.status_code, answer.content).get("message", "Done."))

    async def follow(
        self, page: str, note_connection: Callable[[AgentUnavailable | None], None]
    ) -> AsyncGenerator[JsonObject]:
        """Yields the page whenever it has changed; without end.

        The gateway renders a page only while it is followed. A lost connection is opened again
        after the last event: an unchanged page is not sent again. `note_connection` is called with
        the error when the connection fails, and with None when it works.

        Raises: AgentFailed, NotAllowed (the gateway refuses).
        """
        seen, attempts = "", 0
        while True:
            try:
                async with aclosing(self._read_stream(page, seen, note_connection)) as events:
                    async for number, document in events:
                        seen, attempts = number, 0
                        yield document
                failure = connection_lost(self.address)
            except AgentUnavailable as error:
                failure = error
            attempts += 1
            note_connection(failure)
            await asyncio.sleep(_BACKOFF.delay_s(attempts))

    async def _read_stream(
        self, page: str, seen: str, note_connection: Callable[[AgentUnavailable | None], None]
    ) -> AsyncGenerator[tuple[str, JsonObject]]:
        query = {"at": page, "as": "json"} | ({"seen": seen} if seen else {})
        wait = httpx2.Timeout(_ANSWER_S, connect=_CONNECT_S, read=_SILENCE_S)
        reader, url = SseReader(), f"{self.address}/dashboard/live"
        with transport_errors(self.address):
            async with self._http.stream("GET", url, params=query, timeout=wait) as answer:
                if answer.status_code != _OK:  # then its body is the error, which this raises
                    self._decode(answer.status_code, await answer.aread())
                note_connection(None)
                async for chunk in answer.aiter_raw():
                    for event in self._feed(reader, chunk):
                        yield event

    def _feed(self, reader: SseReader, chunk: bytes) -> list[tuple[str, JsonObject]]:
        try:
            events = reader.feed(chunk)
        except ParseFailed as error:
            details = {"code": "stream-unreadable"}
            raise AgentFailed(error.message, details=details) from None
        return [(one.id or "", self._decode(_OK, one.data.encode())) for one in events]

    def _decode(self, status: int, body: bytes) -> JsonObject:
        return decode_response(read_body(self.address, status, body), JsonObject)
