"""Retries while a gateway is away, for a limited time."""

import time
from collections.abc import Callable
from typing import TypeVar

from openclaw_a2a.cli.errors import code_of
from openclaw_a2a.cli.render.terminal import print_message
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.errors import AgentError, AgentUnavailable

RECONNECT_S = 60.0
CONNECTION_LOST = "connection-lost"
GATEWAY_GONE = "gateway-gone"
_DRAINING = "draining"
_TEMPORARY = frozenset({_DRAINING, "overloaded", "http-502", "http-503", "http-504"})
_BACKOFF = Backoff(first_s=0.1, max_s=2.0, factor=3.0, jitter=0.0)
_Answer = TypeVar("_Answer")


class Reconnect:
    """Tolerates failures for `seconds` since the last answer."""

    def __init__(self, seconds: float = RECONNECT_S) -> None:
        self._seconds = seconds
        self._away_since: float | None = None
        self._attempts = 0
        self._has_answered = False

    def call(self, request: Callable[[], _Answer], before_message: Callable[[], None]) -> _Answer:
        """Call until the gateway answers; it must have answered once before.

        Raises: AgentError.
        """
        while True:
            try:
                answer = request()
            except AgentError as error:
                if not is_temporary(error):
                    raise
                before_message()
                self.tolerate(error, is_in_progress=self._has_answered)
                self.pause()
            else:
                self.mark_answered()
                return answer

    def tolerate(self, error: AgentError, *, is_in_progress: bool) -> None:
        """Accept a failure, and print the first one.

        While work is in progress at the gateway, any temporary failure is tolerated. Otherwise
        only those of a gateway that was there: a lost connection, or one that is draining.

        Raises: the error when retrying will not help; AgentUnavailable when the time is over.
        """
        now = time.monotonic()
        if self._away_since is None:
            if not is_in_progress and code_of(error) not in {CONNECTION_LOST, _DRAINING}:
                raise error
            self._away_since = now
            print_message(f"{_reason(error)}; trying again for {self._seconds:g} s", "dim")
        elif not is_temporary(error):
            raise error
        if now - self._away_since >= self._seconds:
            message = f"the gateway did not come back within {self._seconds:g} s"
            raise AgentUnavailable(message, details={"code": GATEWAY_GONE}) from None

    def mark_answered(self) -> None:
        """Start the time limit again: the gateway has answered."""
        self._away_since = None
        self._has_answered = True

    def reset_delay(self) -> None:
        """Start again with the shortest delay."""
        self._attempts = 0

    def pause(self) -> None:
        """Sleep before the next attempt, longer each time."""
        self._attempts += 1
        time.sleep(_BACKOFF.delay_s(self._attempts))


def is_temporary(error: AgentError) -> bool:
    """True when the same request may succeed later."""
    return isinstance(error, AgentUnavailable) or code_of(error) in _TEMPORARY


def _reason(error: AgentError) -> str:
    return "the gateway is stopping" if code_of(error) == _DRAINING else error.message
