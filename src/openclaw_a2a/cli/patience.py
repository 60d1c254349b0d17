"""Waits for a gateway that went away, for a while and not for ever."""

import time
from collections.abc import Callable
from typing import TypeVar

from openclaw_a2a.cli.failure import code_of
from openclaw_a2a.cli.output import say
from openclaw_a2a.model.errors import AgentError, AgentUnavailable

PATIENCE_S = 60.0
LOST = "connection-lost"
GONE = "gateway-gone"
_DRAINING = "draining"
_TEMPORARY = frozenset({_DRAINING, "overloaded", "http-502", "http-503", "http-504"})
_PAUSES_S = (0.1, 0.3, 1.0, 2.0)
_Answer = TypeVar("_Answer")


class Patience:
    """What is put up with while a gateway is away; each answer makes it whole again."""

    def __init__(self, seconds: float = PATIENCE_S) -> None:
        self._seconds = seconds
        self._away_since: float | None = None
        self._attempts = 0
        self._has_answered = False

    def ask(self, question: Callable[[], _Answer], before_saying: Callable[[], None]) -> _Answer:
        """The answer of a gateway that may go away for a while once it was there.

        Raises: AgentError.
        """
        while True:
            try:
                answer = question()
            except AgentError as error:
                if not is_temporary(error):
                    raise
                before_saying()
                self.bear(error, is_going_on=self._has_answered)
                self.pause()
            else:
                self.restore()
                return answer

    def bear(self, error: AgentError, *, is_going_on: bool) -> None:
        """Put up with a failure, and say so once.

        While something is going on at the gateway it may be away for any reason. Otherwise it
        must have been there first: a lost connection or a gateway that stops.

        Raises: the error when waiting will not help; AgentUnavailable when patience ends.
        """
        now = time.monotonic()
        if self._away_since is None:
            if not is_going_on and code_of(error) not in {LOST, _DRAINING}:
                raise error
            self._away_since = now
            say(f"{_reason(error)}; trying again for {self._seconds:g} s", "dim")
        elif not is_temporary(error):
            raise error
        if now - self._away_since >= self._seconds:
            message = f"the gateway did not come back within {self._seconds:g} s"
            raise AgentUnavailable(message, details={"code": GONE}) from None

    def restore(self) -> None:
        """The gateway has answered."""
        self._away_since = None
        self._has_answered = True

    def note_progress(self) -> None:
        """More than an answer came: the next pause is a short one."""
        self._attempts = 0

    def pause(self) -> None:
        """Wait before asking again, longer each time."""
        time.sleep(_PAUSES_S[min(self._attempts, len(_PAUSES_S) - 1)])
        self._attempts += 1


def is_temporary(error: AgentError) -> bool:
    """True when the same question may be answered later."""
    return isinstance(error, AgentUnavailable) or code_of(error) in _TEMPORARY


def _reason(error: AgentError) -> str:
    return "the gateway is stopping" if code_of(error) == _DRAINING else error.message
