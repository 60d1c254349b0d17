"""Rules of the policy, which messages they fit; and functions that decide."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.engine.audit_log import AuditLog
from openclaw_a2a.engine.engine import AccountRules
from openclaw_a2a.engine.tasks.submit import SubmitRequest
from openclaw_a2a.engine.tasks.submit_policy import (
    Decision,
    PolicyCallable,
    PolicyRequest,
    PolicyRule,
    SubmitPolicy,
)
from openclaw_a2a.model.errors import NotAllowed
from openclaw_a2a.model.ids import AccountId, AgentId, MessageId, PeerName
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.turn import Scope

NOW = datetime(2026, 11, 16, 17, 30, tzinfo=UTC)  # a Monday
MESSAGE = Message(MessageId("m"), Role.USER, (Part.of_text("hello"),))


def request(at: datetime = NOW) -> PolicyRequest:
    names = (PeerName("alice"), AccountId("default"), AgentId("main"), "read-mail")
    return PolicyRequest(*names, 100, at, MESSAGE)


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        (PolicyRule(Decision.DENY), True),
        (PolicyRule(Decision.DENY, callers=("ali*",)), True),
        (PolicyRule(Decision.DENY, callers=("ALICE",)), True),
        (PolicyRule(Decision.DENY, callers=("bob", "alicex")), False),
        (PolicyRule(Decision.DENY, callers=("alice",), accounts=("other",)), False),
        (PolicyRule(Decision.DENY, agents=("main",), skills=("read*",)), True),
        (PolicyRule(Decision.DENY, skills=("write*",)), False),
        (PolicyRule(Decision.DENY, min_bytes=100), True),
        (PolicyRule(Decision.DENY, min_bytes=101), False),
        (PolicyRule(Decision.DENY, days=("mon",)), True),
        (PolicyRule(Decision.DENY, days=("tue", "sun")), False),
        (PolicyRule(Decision.DENY, hours=(17, 18)), True),
        (PolicyRule(Decision.DENY, hours=(8, 17)), False),
        (PolicyRule(Decision.DENY, hours=(18, 17)), False),
        (PolicyRule(Decision.DENY, hours=(22, 18)), True),
        (PolicyRule(Decision.DENY, hours=(0, 24)), True),
    ],
)
def test_a_rule_fits_when_all_of_its_conditions_do(rule: PolicyRule, *, fits: bool) -> None:
    assert rule.matches(request()) is fits


@pytest.mark.parametrize(
    ("skills", "has_odd_skill", "allowed", "denied"),
    [
        (("read-mail",), False, True, True),
        (("read-mail", "send-mail"), False, False, True),
        (("send-mail", "read-mail"), False, False, True),
        (("send-mail",), False, False, False),
        (("read-mail",), True, False, True),
        ((), True, False, True),
    ],
)
def test_a_rule_about_skills_looks_at_all_of_them(
    skills: tuple[str, ...], *, has_odd_skill: bool, allowed: bool, denied: bool
) -> None:
    asked = msgspec.structs.replace(
        request(), skill="".join(skills[:1]), skills=skills, has_odd_skill=has_odd_skill
    )
    assert PolicyRule(Decision.ALLOW, skills=("read*",)).matches(asked) is allowed
    for decision in (Decision.DENY, Decision.ASK):
        assert PolicyRule(decision, skills=("read*",)).matches(asked) is denied


@given(start=st.integers(0, 23), end=st.integers(0, 23), hour=st.integers(0, 23))
def test_hours_and_the_rest_of_the_day_share_it_exactly(start: int, end: int, hour: int) -> None:
    at = NOW.replace(hour=hour)
    inside = PolicyRule(Decision.ASK, hours=(start, end)).matches(request(at))
    outside = PolicyRule(Decision.ASK, hours=(end, start)).matches(request(at))
    assert inside != outside or start == end


@given(offset=st.integers(-12, 12))
def test_hours_and_days_are_those_of_utc(offset: int) -> None:
    at = NOW.astimezone(timezone(timedelta(hours=offset)))
    assert PolicyRule(Decision.ASK, hours=(17, 18), days=("mon",)).matches(request(at))


# ---------------------------------------------------------------- functions


async def is_allowed(decide: PolicyCallable, *, timeout_s: float = 60.0) -> bool:
    """Whether a policy with this function lets a message go on."""
    policy = SubmitPolicy(AuditLog(None, lambda: NOW), decide=decide, timeout_s=timeout_s)
    rules = AccountRules(AccountId("default"), AgentId("main"))
    submitted = SubmitRequest(Scope(PeerName("alice"), AccountId("default")), MESSAGE)
    try:
        return await policy.check(submitted, rules, now=NOW) is None
    except NotAllowed:
        return False


class Deciding:
    """An object that is called like a coroutine function."""

    async def __call__(self, _request: PolicyRequest) -> str:
        await asyncio.sleep(0)
        return "allow"


@pytest.mark.parametrize(
    "decide",
    [Deciding(), lambda asked: Deciding()(asked), lambda _: Decision.ALLOW, lambda _: None],
)
async def test_a_function_may_be_plain_or_a_coroutine_function(decide: PolicyCallable) -> None:
    assert await is_allowed(decide)


async def test_a_plain_function_is_not_called_on_the_event_loop() -> None:
    threads: list[int] = []

    def decide(_request: PolicyRequest) -> str:
        threads.append(threading.get_ident())
        return "allow"

    assert await is_allowed(decide)
    assert threading.get_ident() not in threads


async def test_what_is_decided_past_the_deadline_is_denied_however_it_was_decided() -> None:
    async def never_waits(_request: PolicyRequest) -> str:
        return "allow"

    async def goes_on(_request: PolicyRequest) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "allow"
        return "deny"

    for decide in (never_waits, goes_on, lambda _: "allow"):
        assert not await is_allowed(decide, timeout_s=0)


@pytest.mark.parametrize("error", [ValueError("no"), StopIteration(), SystemExit(1)])
async def test_a_plain_function_that_raises_denies(error: BaseException) -> None:
    def decide(_request: PolicyRequest) -> str:
        raise error

    assert not await is_allowed(decide)
