"""The newest A2A exchanges, held in memory for the dashboard: what came in and what went out.

Serving a request only keeps references to bytes that exist anyway: nothing is copied, decoded or
indexed. An exchange is searched for, and its secrets are hidden, when a page shows it. An exchange
is its `HttpRequest`, with a `HeldExchange` while it is one of the newest.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:  # `asgi` has requests hold what is defined here
    from openclaw_a2a.http.asgi import Header, HttpRequest

HELD_BYTES = 32 * 1024
"""How much of a body, or of a stream, is held: the beginning."""


class HeldExchange(msgspec.Struct, gc=False):
    """What is held of one request and its response.

    The code that reads or sends a body sets `received` or `sent` to its beginning: a slice of a
    body that is no larger than `HELD_BYTES` is the body itself. `frames` are the chunks of a
    stream; `ended_at` is on the monotonic clock, None while the response is being sent.
    """

    received: bytes = b""
    received_size: int = 0
    headers: "Sequence[Header]" = ()
    sent: bytes = b""
    sent_size: int = 0
    frames: list[bytes] | None = None
    ended_at: float | None = None

    def add_frames(self, chunks: Sequence[bytes]) -> None:
        """Chunks of a stream are sent."""
        frames = self.frames
        if frames is None:
            frames = self.frames = []
        for chunk in chunks:
            if self.sent_size < HELD_BYTES:
                frames.append(chunk[: HELD_BYTES - self.sent_size])
            self.sent_size += len(chunk)

    def mentions(self, text: bytes) -> bool:
        """True when the text is in a body or a frame."""
        if text in self.received or text in self.sent:
            return True
        return self.frames is not None and text in b"".join(self.frames)


class WireLog:
    """The newest exchanges, at most `limit` of them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._requests: deque[HttpRequest] = deque()

    def hold(self, request: "HttpRequest") -> None:
        """Hold a request from now on, in the place of the oldest one."""
        requests = self._requests
        if len(requests) == self.limit:
            requests.popleft().wire = None  # an open stream must release its bytes, too
        request.wire = HeldExchange()
        requests.append(request)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> "Iterator[tuple[HttpRequest, HeldExchange]]":
        """The exchanges, the oldest first."""
        for request in list(self._requests):
            if request.wire is not None:
                yield request, request.wire
