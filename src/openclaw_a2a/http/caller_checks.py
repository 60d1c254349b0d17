"""Checks the credentials of callers again while their streams are open."""

import asyncio
import itertools
from collections.abc import Callable
from typing import NamedTuple

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.http.asgi import HttpRequest
from openclaw_a2a.model.errors import GatewayError, IssuerUnavailable

_CHECKS_AT_ONCE = 64

CheckCaller = Callable[[HttpRequest], None]
"""Verifies the credentials of a request again. Raises: GatewayError if they are not valid now."""


class CheckedCaller(NamedTuple):
    """A request whose caller is checked."""

    request: HttpRequest
    check: CheckCaller
    end: Callable[[GatewayError], None]


class CallerChecks:
    """Ends streams whose callers' credentials were revoked or have expired.

    One timer serves all streams, and sending an event costs nothing. Busy streams are checked as
    often as idle ones.
    """

    def __init__(self, interval_s: float, supervisor: Supervisor) -> None:
        self._interval_s = interval_s
        # Insertion order is the order of the times: every stream gets the same interval.
        self._due: dict[CheckedCaller, float] = {}
        self._timer = supervisor.timer("caller checks", self._check_due)

    def add(
        self, request: HttpRequest, check: CheckCaller, end: Callable[[GatewayError], None]
    ) -> CheckedCaller:
        """Check the caller at intervals until `remove`, and call `end` once it fails."""
        one = CheckedCaller(request, check, end)
        self._due[one] = asyncio.get_running_loop().time() + self._interval_s
        # Not reset when streams end: the timer fires, checks those that are left, and restarts.
        self._timer.start(self._interval_s)
        return one

    def remove(self, one: CheckedCaller) -> None:
        """Stop checking this request."""
        self._due.pop(one, None)

    def _check_due(self) -> float | None:
        now = asyncio.get_running_loop().time()
        # A few at a time: many streams may have been opened at the same moment.
        for one in list(itertools.islice(self._due, _CHECKS_AT_ONCE)):
            if self._due[one] > now:
                break
            # Before the check: after an unexpected error the check is repeated later.
            del self._due[one]
            self._due[one] = now + self._interval_s
            try:
                one.check(one.request)
            except IssuerUnavailable:
                pass  # its keys are being fetched; the next check decides
            except GatewayError as error:
                self._due.pop(one, None)
                one.end(error)
        return next(iter(self._due.values()), None)
