"""Requests of one peer: so many a second, so many a minute, and exact about when to come back."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.http.rate_limit import RateLimit, RequestAdmission
from openclaw_a2a.model.errors import Overloaded
from openclaw_a2a.model.ids import PeerName

ALICE, BOB = PeerName("alice"), PeerName("bob")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def count(limit: RateLimit, peer: PeerName) -> Overloaded | None:
    try:
        limit.count(peer)
    except Overloaded as error:
        return error
    return None


@given(
    pauses=st.lists(st.floats(0, 30), max_size=60),
    per_second=st.sampled_from([0, 0.5, 2]),
    per_minute=st.sampled_from([0, 3, 20]),
)
def test_a_peer_never_gets_more_than_its_rate_and_is_served_after_retry_after(
    pauses: list[float], per_second: float, per_minute: float
) -> None:
    clock = Clock()
    limit = RateLimit(per_second=per_second, per_minute=per_minute, monotonic=clock)
    served: list[float] = []
    for pause in pauses:
        clock.now += pause
        refused = count(limit, ALICE)
        if refused is not None:
            clock.now += refused.retry_after_s + 1e-6
            # One bucket may be ready before the other; it then says when the other is.
            while (again := count(limit, ALICE)) is not None:
                clock.now += again.retry_after_s + 1e-6
        served.append(clock.now)
    for number, end in enumerate(served):
        for first, start in enumerate(served[: number + 1]):
            made, passed = number - first + 1, end - start
            if per_second:
                assert made <= max(1.0, per_second * 2) + passed * per_second + 1e-3
            if per_minute:
                assert made <= per_minute + passed * per_minute / 60 + 1e-3


@pytest.mark.parametrize(
    ("rates", "setting"),
    [((1.0, 0.0), "limits.perPeerRate"), ((0.0, 2.0), "limits.perPeerRequests")],
)
def test_a_refusal_names_the_setting(rates: tuple[float, float], setting: str) -> None:
    limit = RateLimit(per_second=rates[0], per_minute=rates[1], monotonic=Clock())
    assert [count(limit, ALICE) for _ in range(2)] == [None, None]
    refused = count(limit, ALICE)
    assert refused is not None
    assert f"({setting})" in refused.message
    assert count(limit, BOB) is None


def test_a_peer_over_its_rate_stays_so_however_many_others_come() -> None:
    clock = Clock()
    limit = RateLimit(per_second=1, per_minute=60, monotonic=clock)
    for number in range(20_000):  # more than are remembered; these have all they may again
        assert count(limit, PeerName(f"early-{number}")) is None
    clock.now += 61
    assert [count(limit, ALICE) for _ in range(2)] == [None, None]
    for number in range(20_000):
        assert count(limit, PeerName(f"late-{number}")) is None
    assert count(limit, ALICE) is not None


async def test_a_flood_of_refusals_does_not_make_the_next_ones_wait_for_ever() -> None:
    """Each that waits is a request in memory, also when its client has left."""
    admission = RequestAdmission(RateLimit(per_second=0.001, per_minute=0, monotonic=Clock()))
    await admission.admit(ALICE)
    async with asyncio.timeout(240):  # with a gap between any two it would take minutes
        outcomes = await asyncio.gather(
            *[admission.admit(ALICE) for _ in range(20_000)], return_exceptions=True
        )
    assert all(isinstance(outcome, Overloaded) for outcome in outcomes)
