"""Wrong credentials are counted per address and minute, in a bounded table."""

import pytest

from openclaw_a2a.auth.peers import MAX_ADDRESSES, WINDOW_S, FailedAttempts
from openclaw_a2a.model.errors import TooManyAttempts


class _Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


def test_attempts_past_the_limit_are_refused_until_the_minute_is_over(clock: _Clock) -> None:
    failures = FailedAttempts(2, monotonic=clock)
    for _ in range(2):
        failures.count("192.0.2.1")
    clock.now += 10
    with pytest.raises(TooManyAttempts, match="perAddressFailures") as refused:
        failures.count("192.0.2.1")
    assert refused.value.retry_after_s == WINDOW_S - 10
    failures.count("192.0.2.2")
    clock.now += WINDOW_S
    failures.count("192.0.2.1")


def test_addresses_of_one_ipv6_network_are_one(clock: _Clock) -> None:
    failures = FailedAttempts(1, monotonic=clock)
    failures.count("2001:db8::1")
    with pytest.raises(TooManyAttempts):
        failures.count("2001:db8::ffff:1")
    failures.count("2001:db8:0:1::1")


def test_the_table_of_addresses_is_bounded(clock: _Clock) -> None:
    failures = FailedAttempts(1, monotonic=clock)
    failures.count("192.0.2.1")
    for number in range(MAX_ADDRESSES):
        failures.count(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    failures.count("192.0.2.1")  # its window was the oldest
    with pytest.raises(TooManyAttempts):
        failures.count("10.0.15.255")  # a recent one is still known


def test_an_unknown_address_is_counted_too(clock: _Clock) -> None:
    failures = FailedAttempts(1, monotonic=clock)
    failures.count(None)
    with pytest.raises(TooManyAttempts):
        failures.count(None)
