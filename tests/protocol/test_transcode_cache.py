"""The cache of transcoded events: shared by subscribers, bounded in bytes."""

from openclaw_a2a.protocol.v03 import cached_by_identity


class Counted:
    """Triples a body, and counts its calls."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, body: bytes) -> bytes:
        self.count += 1
        return body * 3


def _bodies(count: int, size: int) -> list[bytes]:
    return [b"%06d" % number + b"x" * size for number in range(count)]


def test_the_result_for_the_same_bytes_is_cached() -> None:
    function = Counted()
    transcode = cached_by_identity(function, max_bytes=100_000)
    body = _bodies(1, 100)[0]
    assert transcode(body) is transcode(body)
    assert function.count == 1


def test_the_oldest_results_are_dropped_at_the_size_limit() -> None:
    function = Counted()
    transcode = cached_by_identity(function, max_bytes=100_000)
    bodies = _bodies(100, 1_000)
    for body in bodies:
        transcode(body)
    transcode(bodies[-1])
    assert function.count == 100
    transcode(bodies[0])
    assert function.count == 101


def test_the_overhead_of_small_results_counts_too() -> None:
    function = Counted()
    transcode = cached_by_identity(function, max_bytes=10_000)
    bodies = _bodies(1_000, 1)
    for body in bodies:
        transcode(body)
    transcode(bodies[0])
    assert function.count == 1_001


def test_large_results_are_not_cached_and_drop_nothing() -> None:
    function = Counted()
    transcode = cached_by_identity(function, max_bytes=100_000)
    small, large = _bodies(1, 10)[0], _bodies(1, 50_000)[0]
    transcode(small)
    assert transcode(large) == transcode(large)
    transcode(small)
    assert function.count == 3
