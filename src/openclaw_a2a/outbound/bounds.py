"""How much of an answer is read, and in which form."""

from collections.abc import AsyncIterator

import httpx

CONNECT_S = 10.0
MOST_BYTES = 64 * 1024 * 1024
"""How much of one answer is read, unless said otherwise."""


class AnswerTooLarge(httpx.ReadError):
    """The peer sent more than we read of one answer."""


class AnswerUnreadable(httpx.ReadError):
    """The peer sent an answer in a form that we did not ask for."""


class _BoundedStream(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, limit: int) -> None:
        self._stream = stream
        self._left = limit
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._left -= len(chunk)
            if self._left < 0:
                raise AnswerTooLarge(f"the answer is larger than {self._limit} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class BoundedTransport(httpx.AsyncBaseTransport):
    """Another transport whose answers end with an error past a number of bytes."""

    def __init__(self, inner: httpx.AsyncBaseTransport, *, limit: int) -> None:
        self._inner = inner
        self._limit = limit

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request; what comes back is bounded."""
        response = await self._inner.handle_async_request(request)
        try:
            self._check(response)
        except httpx.ReadError:
            await response.aclose()
            raise
        if isinstance(response.stream, httpx.AsyncByteStream):
            response.stream = _BoundedStream(response.stream, self._limit)
        return response

    def _check(self, response: httpx.Response) -> None:
        # Packed answers are not asked for: a few bytes of them can become very many.
        coding = response.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("", "identity"):
            raise AnswerUnreadable(f"the answer is packed ({coding}), which was not asked for")
        length = response.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._limit:
            raise AnswerTooLarge(
                f"the answer is larger than {self._limit} bytes: it has {length} bytes"
            )

    async def aclose(self) -> None:
        """Close the transport below."""
        await self._inner.aclose()
