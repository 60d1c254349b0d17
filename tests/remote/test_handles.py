"""Task handles: issued for remote tasks, refreshed by use, expired and evicted."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.model.ids import PeerName
from openclaw_a2a.remote.config import HandleLimits, Transport
from openclaw_a2a.remote.handles import TaskHandles
from openclaw_a2a.remote.result import ErrorCode, RemoteFailure
from openclaw_a2a.remote.targets import Target

PEER = Target(
    "peer",
    "https://peer.example/",
    card_path="/card",
    preferred_transports=(Transport.JSONRPC,),
)

ME, OTHER, OPERATOR = PeerName("me"), PeerName("other"), PeerName("operator")


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
            self.handles.get(ME, name)
        except RemoteFailure as failure:
            return failure.code
        return None


@pytest.mark.requirement("remote.handle.once", "remote.handle.life")
def test_a_handle_finds_its_task_until_it_expires() -> None:
    fixture = Hands()
    handle = fixture.handles.issue(ME, PEER, "t-1", context_id="c-1")
    assert handle.name == "rah_1"
    assert fixture.handles.get(ME, "rah_1") == handle
    fixture.wait(999)
    assert fixture.code_of("rah_1") is None
    fixture.wait(1)
    assert fixture.code_of("rah_1") is ErrorCode.EXPIRED_HANDLE
    assert fixture.code_of("rah_1") is ErrorCode.UNKNOWN_HANDLE


@pytest.mark.requirement("remote.handle.context", "remote.handle.life")
def test_a_look_up_does_not_extend_a_handle_and_an_answer_does() -> None:
    fixture = Hands()
    fixture.handles.issue(ME, PEER, "t-1", context_id="c-1")
    fixture.wait(600)
    fixture.handles.get(ME, "rah_1")
    again = fixture.handles.issue(ME, PEER, "t-1", name="rah_1")
    assert (again.name, again.context_id) == ("rah_1", "c-1")
    fixture.wait(600)
    assert fixture.code_of("rah_1") is None


@pytest.mark.requirement("remote.handle.most")
def test_the_least_recently_used_handle_goes_when_there_are_too_many() -> None:
    fixture = Hands(most=2)
    fixture.handles.issue(ME, PEER, "t-1")
    fixture.handles.issue(ME, PEER, "t-2")
    fixture.handles.get(ME, "rah_1")
    fixture.handles.issue(ME, PEER, "t-3")
    assert fixture.code_of("rah_2") is ErrorCode.UNKNOWN_HANDLE
    assert fixture.code_of("rah_1") is None


@pytest.mark.requirement("remote.handle.unknown")
def test_an_unknown_handle_says_how_to_continue() -> None:
    with pytest.raises(RemoteFailure) as raised:
        Hands().handles.get(ME, "rah_x")
    details = raised.value.details
    assert details["taskHandle"] == "rah_x"
    assert details["restartInvalidatesHandles"] is True
    assert details["suggested_action"] == "send"
    assert details["retryHint"]


@pytest.mark.requirement("remote.handle.expired")
def test_an_expired_handle_gives_a_continuation() -> None:
    fixture = Hands()
    handle = fixture.handles.issue(ME, PEER, "t-1", context_id="c-1")
    fixture.wait(1000)
    with pytest.raises(RemoteFailure) as raised:
        fixture.handles.get(ME, handle.name)
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


def test_a_handle_of_another_owner_is_one_that_does_not_exist() -> None:
    fixture = Hands()
    fixture.handles.issue(OTHER, PEER, "t-1")
    with pytest.raises(RemoteFailure) as refused:
        fixture.handles.get(ME, "rah_1")
    with pytest.raises(RemoteFailure) as nothing:
        fixture.handles.get(ME, "rah_2")
    assert refused.value.code is ErrorCode.UNKNOWN_HANDLE
    assert str(refused.value.as_object()).replace("rah_1", "rah_2") == str(
        nothing.value.as_object()
    )
    assert fixture.handles.has_target(OTHER, PEER)
    assert not fixture.handles.has_target(ME, PEER)


def test_the_operator_may_use_every_handle_and_takes_none_away() -> None:
    fixture = Hands()
    fixture.handles.issue(ME, PEER, "t-1")
    for owner in (OPERATOR, None):
        assert fixture.handles.get(owner, "rah_1").owner == ME
        assert fixture.handles.issue(owner, PEER, "t-1", name="rah_1").owner == ME
    assert fixture.code_of("rah_1") is None


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ({"task_ids": ["t-1"], "context_id": None}, ErrorCode.PEER),
        ({"task_ids": ["t-9", "t-1"], "context_id": None}, ErrorCode.PEER),
        ({"task_ids": [], "context_id": "c-1"}, ErrorCode.VALIDATION),
        ({"task_ids": ["t-9"], "context_id": "c-9"}, None),
    ],
)
def test_tasks_and_contexts_that_only_others_have_handles_of_cannot_be_named(named, code) -> None:
    fixture = Hands()
    fixture.handles.issue(OTHER, PEER, "t-1", context_id="c-1")
    for owner, expected in ((ME, code), (OTHER, None), (OPERATOR, None), (None, None)):
        try:
            fixture.handles.check_owner(owner, PEER, **named)
        except RemoteFailure as failure:
            assert failure.code is expected
        else:
            assert expected is None, owner
    elsewhere = Target("", "https://other.example/")
    fixture.handles.check_owner(ME, elsewhere, **named)
    fixture.handles.issue(ME, PEER, "t-1", context_id="c-1")  # the peer gave it to both
    fixture.handles.check_owner(ME, PEER, **named)


def test_tasks_of_handles_without_an_owner_may_be_anybodys() -> None:
    fixture = Hands()
    fixture.handles.issue(None, PEER, "t-1", context_id="c-1")
    assert fixture.code_of("rah_1") is ErrorCode.UNKNOWN_HANDLE
    fixture.handles.check_owner(ME, PEER, task_ids=["t-1"], context_id="c-1")


def test_an_owner_with_many_handles_takes_none_from_the_others() -> None:
    fixture = Hands(most=4)
    fixture.handles.issue(ME, PEER, "t-1")
    for number in range(2, 12):
        fixture.handles.issue(OTHER, PEER, f"t-{number}")
    assert [one.name for one in fixture.handles.all] == ["rah_11", "rah_10", "rah_9", "rah_1"]


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
            handle = fixture.handles.issue(ME, PEER, f"t-{number}")
            expiry[handle.name] = handle.expires_at
        elif action == "wait":
            fixture.wait(number)
        else:
            name = f"rah_{number}"
            if fixture.code_of(name) is None:
                assert expiry[name] > fixture.time
        alive = [name for name in expiry if fixture.code_of(name) is None]
        assert len(alive) <= 3
