"""Back-off: delays grow, stay below their maximum, and respect what the other side asks for."""

from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.model.backoff import Backoff

POLICIES = st.builds(
    Backoff,
    first_s=st.floats(0.0, 1e3),
    max_s=st.floats(0.0, 1e6),
    factor=st.floats(1.0, 10.0),
    jitter=st.floats(0.0, 1.0),
)
ROLLS = st.floats(0.0, 1.0)


def test_delays_double_up_to_the_maximum() -> None:
    backoff = Backoff(first_s=1.0, max_s=5.0)
    assert [backoff.delay_s(attempt) for attempt in (1, 2, 3, 4, 5)] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_the_other_side_may_ask_for_a_longer_delay_within_the_maximum() -> None:
    backoff = Backoff(first_s=1.0, max_s=60.0)
    assert backoff.delay_s(1, retry_after_s=30.0) == 30.0
    assert backoff.delay_s(1, retry_after_s=3600.0) == 60.0
    assert backoff.delay_s(6, retry_after_s=1.0) == 32.0


@given(POLICIES, st.integers(0, 10**6), ROLLS)
def test_a_delay_is_never_negative_or_above_the_maximum(
    backoff: Backoff, attempt: int, roll: float
) -> None:
    assert 0.0 <= backoff.delay_s(attempt, roll=roll) <= backoff.max_s


@given(POLICIES, st.integers(1, 100), ROLLS)
def test_delays_never_shrink_from_one_attempt_to_the_next(
    backoff: Backoff, attempt: int, roll: float
) -> None:
    assert backoff.delay_s(attempt, roll=roll) <= backoff.delay_s(attempt + 1, roll=roll)
