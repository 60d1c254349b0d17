"""What was transcoded once is kept for the next reader, within a bound."""

from openclaw_a2a.server.jsonrpc import remember


class Counted:
    """Makes each body three times as long, and counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, body: bytes) -> bytes:
        self.count += 1
        return body * 3


def _bodies(count: int, size: int) -> list[bytes]:
    return [b"%06d" % number + b"x" * size for number in range(count)]


def test_result_is_kept_for_the_same_bytes() -> None:
    function = Counted()
    recall = remember(function, most_bytes=100_000)
    body = _bodies(1, 100)[0]
    assert recall(body) is recall(body)
    assert function.count == 1


def test_oldest_results_go_when_the_bytes_are_used_up() -> None:
    function = Counted()
    recall = remember(function, most_bytes=100_000)
    bodies = _bodies(100, 1_000)
    for body in bodies:
        recall(body)
    recall(bodies[-1])
    assert function.count == 100
    recall(bodies[0])
    assert function.count == 101


def test_small_results_are_bounded_too() -> None:
    function = Counted()
    recall = remember(function, most_bytes=10_000)
    bodies = _bodies(1_000, 1)
    for body in bodies:
        recall(body)
    recall(bodies[0])
    assert function.count == 1_001


def test_large_events_are_not_kept_and_push_nothing_out() -> None:
    function = Counted()
    recall = remember(function, most_bytes=100_000)
    small, large = _bodies(1, 10)[0], _bodies(1, 50_000)[0]
    recall(small)
    assert recall(large) == recall(large)
    recall(small)
    assert function.count == 3
