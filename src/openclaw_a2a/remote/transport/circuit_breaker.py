"""How healthy peers are: after several failures in a row nobody asks for a while."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import msgspec

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.remote.credentials import hide
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure
from openclaw_a2a.remote.transport.peer_errors import is_network_trouble

FAILURES = 5
"""So many failures in a row open the circuit."""

FIRST_PAUSE = timedelta(seconds=5)
LONGEST_PAUSE = timedelta(minutes=2)
_MOST_DOUBLINGS = 10


class _State(msgspec.Struct, frozen=True):
    failures: int = 0
    closed_until: datetime | None = None
    is_trying: bool = False
    reason: str = ""


class CircuitBreaker:
    """One circuit breaker for each address."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._states: dict[str, _State] = {}

    def check(self, url: str) -> None:
        """Raises RemoteFailure while the peer is left alone; then lets one caller try."""
        state = self._states.get(url)
        if state is None or state.closed_until is None:
            return
        if self._now() >= state.closed_until and not state.is_trying:
            self._states[url] = msgspec.structs.replace(state, is_trying=True)
            return
        raise RemoteFailure(
            ErrorCode.PEER,
            f"{url} failed {state.failures} times in a row and is not asked before "
            f"{_instant(state.closed_until)}; the last time: {state.reason}",
            {
                "errorName": "CircuitOpen",
                "retry_at": _instant(state.closed_until),
                "hint": "wait until retry_at, or check the peer",
            },
        )

    @asynccontextmanager
    async def watching(self, url: str, secrets: tuple[str, ...] = ()) -> AsyncGenerator[None]:
        """Around a call to the peer: learns from how it went, never the call's secrets.

        Raises: RemoteFailure.
        """
        self.check(url)
        try:
            yield
        except RemoteFailure as failure:
            if is_network_trouble(failure):
                self.failed(url, hide(failure.message, secrets))
            else:
                self.succeeded(url)
            raise
        except BaseException:
            self.trying_ended(url)
            raise
        self.succeeded(url)

    def succeeded(self, url: str) -> None:
        """The peer answered, whatever it said."""
        self._states.pop(url, None)

    def failed(self, url: str, reason: str) -> None:
        """The peer could not be reached."""
        state = self._states.get(url, _State())
        if state.closed_until is not None and not state.is_trying:
            return  # it was asked before the circuit opened: that failure is counted already
        failures = state.failures + 1
        until = None
        if failures >= FAILURES:
            doublings = min(failures - FAILURES, _MOST_DOUBLINGS)
            until = self._now() + min(FIRST_PAUSE * 2**doublings, LONGEST_PAUSE)
        self._states[url] = _State(failures, until, reason=reason)

    def trying_ended(self, url: str) -> None:
        """The one who tried went away without an answer: the next may try."""
        state = self._states.get(url)
        if state is not None and state.is_trying:
            self._states[url] = msgspec.structs.replace(state, is_trying=False)

    def shown(self, url: str) -> JsonObject | None:
        """Why the peer is left alone and until when; None when it is asked."""
        state = self._states.get(url)
        if state is None or state.closed_until is None:
            return None
        return {"retry_at": _instant(state.closed_until), "reason": state.reason}


def _instant(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
