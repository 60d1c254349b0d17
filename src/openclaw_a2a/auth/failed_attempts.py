"""Limits and logs wrong credentials, per address."""

import time
from collections.abc import Callable

import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import TooManyAttempts
from openclaw_a2a.model.url_policy import client_network

log = get_logger(__name__)

WINDOW_S = 60.0
MAX_ADDRESSES = 4096


class _Window(msgspec.Struct):
    ends_at: float
    count: int = 0


class FailedAttempts:
    """Counts the wrong credentials of each address in a minute.

    Only what has failed is counted and refused, so that no client locks out an owner of right
    credentials who calls from the same address. A minute of an address is one line in the log.
    """

    def __init__(self, per_minute: int, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._monotonic = monotonic
        self._windows: dict[str, _Window] = {}

    def is_exceeded(self, address: str | None) -> bool:
        """True when the next failed attempt of an address is past the limit."""
        window = self._windows.get(client_network(address or "unknown")[0])
        return (
            window is not None
            and window.count >= self._per_minute
            and window.ends_at > self._monotonic()
        )

    def count(self, address: str | None) -> None:
        """Count a failed attempt. Raises: TooManyAttempts (429), past the limit."""
        key, now = client_network(address or "unknown")[0], self._monotonic()
        window = self._windows.get(key)
        if window is None or window.ends_at <= now:
            before = 0 if window is None else window.count
            log.warning("auth.credentials_refused", address=key, refused_before=before)
            # At the end of the dict: the oldest window is the first to go when the table is full.
            self._windows.pop(key, None)
            if len(self._windows) >= MAX_ADDRESSES:
                del self._windows[next(iter(self._windows))]
            window = self._windows[key] = _Window(now + WINDOW_S)
        window.count += 1
        if window.count > self._per_minute:
            raise TooManyAttempts(
                f"more than {self._per_minute} wrong credentials in a minute came from your"
                " address; wait, and send right ones",
                retry_after_s=window.ends_at - now,
                setting="limits.perAddressFailures",
            )
