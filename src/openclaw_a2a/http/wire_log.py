"""Holds the newest requests and responses in memory, for the dashboard."""

from collections import deque
from collections.abc import Iterator

from openclaw_a2a.http.asgi import HeldExchange, HttpRequest


class WireLog:
    """The newest A2A requests with their responses, at most `limit`, in memory for the dashboard.

    Serving a request only keeps references to bytes that exist anyway: nothing is copied, decoded
    or indexed. A page that shows them searches, and hides the secrets.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._requests: deque[HttpRequest] = deque()

    def hold(self, request: HttpRequest) -> None:
        """Hold a request from now on, in the place of the oldest one."""
        requests = self._requests
        if len(requests) == self.limit:
            requests.popleft().wire = None  # an open stream must release its bytes, too
        request.wire = HeldExchange()
        requests.append(request)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[tuple[HttpRequest, HeldExchange]]:
        """The exchanges, the oldest first."""
        for request in list(self._requests):
            if request.wire is not None:
                yield request, request.wire
