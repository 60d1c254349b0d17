"""Credentials are found in a fixed number of steps; wrong ones are counted per address."""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytest

from openclaw_a2a.auth.peers import MAX_ADDRESSES, WINDOW_S, Credentials, FailedAttempts
from openclaw_a2a.auth.tokens import TOKENS_FILE, TokenStore, token_digest
from openclaw_a2a.http.asgi import AsgiRequest, Receive, Send
from openclaw_a2a.model.errors import TooManyAttempts, Unauthenticated
from openclaw_a2a.model.ids import PeerName
from openclaw_a2a.settings import PeerSettings, Secret


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


def _request(token: str) -> AsgiRequest:
    headers = [(b"authorization", b"Bearer " + token.encode())]
    scope = {"method": "POST", "path": "/", "headers": headers, "client": ("127.0.0.1", 1)}
    return AsgiRequest(scope, cast("Receive", None), cast("Send", None))


def _count_lines(work: Callable[[], object]) -> int:
    """How many lines of Python are executed by it."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def _write_tokens(folder: Path, count: int) -> TokenStore:
    created_at = datetime.now(UTC).isoformat()
    tokens = [
        {"name": f"p{n}", "sha256": token_digest(f"file-{n}".encode()).hex(), "kind": "peer"}
        for n in range(count)
    ]
    folder.mkdir()
    file = {"tokens": [{**one, "createdAt": created_at} for one in tokens]}
    (folder / TOKENS_FILE).write_text(json.dumps(file), encoding="utf-8")
    return TokenStore(folder)


def test_a_caller_is_found_in_as_many_steps_among_many_as_among_few(tmp_path: Path) -> None:
    lines: dict[int, list[int]] = {}
    for count in (2, 2000):
        peers = [
            PeerSettings(PeerName(f"s{n}"), (Secret.from_text("sha256", f"set-{n}"),))
            for n in range(count)
        ]
        credentials = Credentials(peers, tokens=_write_tokens(tmp_path / str(count), count))
        assert credentials.authenticate(_request("file-1")).name == "p1"  # the file is read now

        def identify(token: str, credentials: Credentials = credentials) -> None:
            with suppress(Unauthenticated):
                credentials.authenticate(_request(token))

        lines[count] = [
            _count_lines(lambda token=token: identify(token))
            for token in ("set-1", "file-1", "wrong")
        ]
    assert lines[2000] == lines[2]
