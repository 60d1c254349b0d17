"""Task handles: issued for remote tasks, refreshed by use, expired and evicted."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.remote.config import HandleLimits, Transport
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure
from openclaw_a2a.remote.handles import TaskHandles
from openclaw_a2a.remote.targets import Target, TargetIdentity

PEER = Target(TargetIdentity("https://peer.example/", "/card", (Transport.JSONRPC,)), alias="peer")


class Hands:
    """Handles with a clock that the test moves."""

    def __init__(self, *, ttl_ms: int = 1000, most: int = 1000) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)
        numbers = itertools.count(1)
        limits = HandleLimits(ttl_ms, most)
        self.handles = TaskHandles(limits, now=lambda: self.time, new_id=lambda: f"{next(numbers)}")

    def wait(self, milliseconds: int) -> None:
        self.time += timedelta(milliseconds=milliseconds)

    def code_of(self, name: str) -> ErrorCode | None:
        try:
            self.handles.get(name)
        except RemoteFailure as failure:
            return failure.code
        return None


@pytest.mark.requirement("remote.handle.once", "remote.handle.life")
def test_a_handle_finds_its_task_until_it_expires() -> None:
    fixture = Hands()
    handle = fixture.handles.issue(PEER, "t-1", context_id="c-1")
    assert handle.name == "rah_1"
    assert fixture.handles.get("rah_1") == handle
    fixture.wait(999)
    assert fixture.code_of("rah_1") is None
    fixture.wait(1)
    assert fixture.code_of("rah_1") is ErrorCode.EXPIRED_HANDLE
    assert fixture.code_of("rah_1") is ErrorCode.UNKNOWN_HANDLE


@pytest.mark.requirement("remote.handle.context", "remote.handle.life")
def test_a_look_up_does_not_extend_a_handle_and_an_answer_does() -> None:
    fixture = Hands()
    fixture.handles.issue(PEER, "t-1", context_id="c-1")
    fixture.wait(600)
    fixture.handles.get("rah_1")
    again = fixture.handles.issue(PEER, "t-1", name="rah_1")
    assert (again.name, again.context_id) == ("rah_1", "c-1")
    fixture.wait(600)
    assert fixture.code_of("rah_1") is None


@pytest.mark.requirement("remote.handle.most")
def test_the_least_recently_used_handle_goes_when_there_are_too_many() -> None:
    fixture = Hands(most=2)
    fixture.handles.issue(PEER, "t-1")
    fixture.handles.issue(PEER, "t-2")
    fixture.handles.get("rah_1")
    fixture.handles.issue(PEER, "t-3")
    assert fixture.code_of("rah_2") is ErrorCode.UNKNOWN_HANDLE
    assert fixture.code_of("rah_1") is None


@pytest.mark.requirement("remote.handle.unknown")
def test_an_unknown_handle_says_how_to_continue() -> None:
    with pytest.raises(RemoteFailure) as raised:
        Hands().handles.get("rah_x")
    details = raised.value.details
    assert details["taskHandle"] == "rah_x"
    assert details["restartInvalidatesHandles"] is True
    assert details["suggested_action"] == "send"
    assert details["retryHint"]


@pytest.mark.requirement("remote.handle.expired")
def test_an_expired_handle_gives_a_continuation() -> None:
    fixture = Hands()
    handle = fixture.handles.issue(PEER, "t-1", context_id="c-1")
    fixture.wait(1000)
    with pytest.raises(RemoteFailure) as raised:
        fixture.handles.get(handle.name)
    details = raised.value.details
    assert details["expiresAt"] == round(handle.expires_at.timestamp() * 1000)
    assert (details["task_id"], details["context_id"]) == ("t-1", "c-1")
    assert details["suggested_actions"] == ["status", "send"]
    assert details["hint"]
    assert details["continuation"] == {
        "target": {
            "target_url": "https://peer.example/",
            "card_path": "/card",
            "preferred_transports": ["JSONRPC"],
            "target_alias": "peer",
        },
        "task": {"task_id": "t-1"},
        "conversation": {"context_id": "c-1"},
    }


@given(
    st.lists(st.tuples(st.sampled_from(["issue", "find", "wait"]), st.integers(0, 9)), max_size=60)
)
def test_handles_stay_within_limit_and_ttl(
    steps: list[tuple[str, int]],
) -> None:
    fixture = Hands(ttl_ms=5, most=3)
    expiry: dict[str, datetime] = {}
    for action, number in steps:
        if action == "issue":
            handle = fixture.handles.issue(PEER, f"t-{number}")
            expiry[handle.name] = handle.expires_at
        elif action == "wait":
            fixture.wait(number)
        else:
            name = f"rah_{number}"
            if fixture.code_of(name) is None:
                assert expiry[name] > fixture.time
        alive = [name for name in expiry if fixture.code_of(name) is None]
        assert len(alive) <= 3
