"""Limits and logs wrong credentials, per address."""

import ipaddress
import time
from collections.abc import Callable

import msgspec

from openclaw_a2a.auth.request_origin import parse_address
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import TooManyAttempts

log = get_logger(__name__)

WINDOW_S = 60.0
MAX_ADDRESSES = 4096


class _Window(msgspec.Struct):
    ends_at: float
    count: int = 0


class FailedAttempts:
    """Counts the wrong credentials of each address in a minute.

    Only what has failed is counted and refused, so that nobody locks out an owner of right
    credentials who calls from the same address. A minute of an address is one line in the log.
    """

    def __init__(self, per_minute: int, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._monotonic = monotonic
        self._windows: dict[str, _Window] = {}

    def count(self, address: str | None) -> None:
        """Count a failed attempt. Raises: TooManyAttempts (429), past the limit."""
        key, now = _network(address), self._monotonic()
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


def _network(address: str | None) -> str:
    """The address; of IPv6 the /64 network, of which one client has all addresses."""
    parsed = parse_address(address)
    if parsed is None:
        return (address or "unknown")[:80]
    if parsed.version == 4:
        return str(parsed)
    return str(ipaddress.ip_network((parsed, 64), strict=False))
