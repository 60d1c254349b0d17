"""Outcomes reach a session in the order of completion."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.calls.call_gateway import (
    CallGateway,
    Json,
    ScriptedAgent,
    SessionHost,
    answers,
    call_gateway_in,
    main_session,
)
from tests.store.flat_store import FlatStore

from openclaw_a2a.calls.repository import MAX_SETTLED, CallRepository
from openclaw_a2a.model.call import CALL_KIND, Call, Caller, CallId, CallStatus, OutcomeRoute
from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.model.ids import AgentId, SessionKey, TaskId
from openclaw_a2a.ports import (
    DeliveryFailed,
    MessageAccepted,
    Record,
    SessionGone,
    SessionMessage,
    Store,
)
from openclaw_a2a.store import create_store

A = main_session("a")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Picky(SessionHost):
    """A host that refuses some messages, and holds the first of all when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.unwanted: set[int] = set()
        self.thought: asyncio.Event | None = None

    async def accept(
        self, message: SessionMessage
    ) -> MessageAccepted | SessionGone | DeliveryFailed:
        output = json.loads(message.text)["output"]
        if output == 0 and self.thought is not None:
            await self.thought.wait()
        if output in self.unwanted:
            self.attempts.append(message)
            self._news.set()
            return DeliveryFailed("it is too long", is_refused=True)
        return await super().accept(message)


@pytest.fixture(params=["sqlite", "json-file", "memory"])
async def closed_gateway(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CallGateway]:
    """A gateway that the test opens, and whose host may be picky."""
    monkeypatch.chdir(tmp_path)
    async with call_gateway_in(tmp_path, request.param) as one:
        one.host = Picky()
        one.agents = {name: ScriptedAgent(one.host, name) for name in one.agents}
        yield one


async def answered(closed_gateway: CallGateway, *outputs: int) -> None:
    """Calls that are settled one after the other."""
    for output in outputs:
        closed_gateway.agents["b"].answer = answers(json.dumps({"output": output}))
        call = await closed_gateway.call("a", "b")
        await settled(closed_gateway, call)


async def settled(closed_gateway: CallGateway, call: Json) -> None:
    while (await closed_gateway.describe(call))["status"] == "pending":
        pass


def outputs(outcome: list[Json]) -> list[int]:
    return [one["output"] for one in outcome]


@pytest.mark.requirement("calls.routing.order")
async def test_a_slow_host_gets_outcomes_in_the_order_of_completion(
    closed_gateway: CallGateway,
) -> None:
    await closed_gateway.open()
    assert isinstance(closed_gateway.host, Picky)
    closed_gateway.host.thought = asyncio.Event()
    await answered(closed_gateway, 0, 1, 2, 3)
    closed_gateway.host.thought.set()
    assert outputs(await closed_gateway.host.wait_messages(A, 4)) == [0, 1, 2, 3]


@pytest.mark.requirement("calls.routing.order")
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_host_that_was_away_gets_outcomes_in_the_order_of_completion(
    closed_gateway: CallGateway, is_restarted: bool
) -> None:
    await closed_gateway.open()
    closed_gateway.host.is_unavailable = True
    await answered(closed_gateway, *range(6))
    if is_restarted and closed_gateway.kind != "memory":
        await closed_gateway.close()
        closed_gateway.host.is_unavailable = False
        await closed_gateway.open()
    closed_gateway.host.is_unavailable = False
    assert outputs(await closed_gateway.host.wait_messages(A, 6)) == list(range(6))


@pytest.mark.requirement("calls.routing.order")
async def test_an_outcome_that_was_being_sent_is_still_the_first_after_a_restart(
    closed_gateway: CallGateway,
) -> None:
    await closed_gateway.open()
    assert isinstance(closed_gateway.host, Picky)
    closed_gateway.host.thought = asyncio.Event()
    await answered(closed_gateway, *range(6))
    if closed_gateway.kind != "memory":
        await closed_gateway.close()
        closed_gateway.host.thought = None
        await closed_gateway.open()
    else:
        closed_gateway.host.thought.set()
    assert outputs(await closed_gateway.host.wait_messages(A, 6)) == list(range(6))


class HeldRecords(FlatStore):
    """A store that makes no update of a record while `gate` is closed, and refuses all if full."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.gate = asyncio.Event()
        self.gate.set()
        self.is_full = False

    def update_record(self, record: Record) -> Awaitable[bool]:
        return asyncio.ensure_future(self._update(record))

    async def _update(self, record: Record) -> bool:
        await self.gate.wait()
        if self.is_full:
            raise StoreUnavailable("the disk is full")
        return await self.inner.records.update_record(record)


@pytest.fixture
async def full_gateway(tmp_path: Path) -> AsyncIterator[tuple[CallGateway, Picky, Any]]:
    """A gateway with five outcomes for a session whose host thinks about the first one.

    With its host, and its store, which does not answer yet and will refuse everything.
    """
    store: Any = HeldRecords(create_store("memory", path=None))
    async with call_gateway_in(tmp_path) as gateway:
        host = gateway.host = Picky()
        gateway.agents = {name: ScriptedAgent(host, name) for name in gateway.agents}
        host.thought = asyncio.Event()
        await gateway.open(store=store)
        await answered(gateway, *range(5))
        store.gate.clear()
        store.is_full = True
        yield gateway, host, store


def attempted(host: SessionHost) -> Counter[int]:
    return Counter(json.loads(message.text)["output"] for message in host.attempts)


@pytest.mark.requirement("calls.routing.order")
async def test_an_outcome_follows_the_one_before_when_the_host_has_that_and_not_its_commit(
    tmp_path: Path,
) -> None:
    store: Json = HeldRecords(create_store("memory", path=None))
    async with call_gateway_in(tmp_path) as gateway:
        gateway.host.slow = A
        await gateway.open(store=store)
        await answered(gateway, *range(5))
        store.gate.clear()
        gateway.host.go.set()
        assert outputs(await gateway.host.wait_messages(A, 5)) == list(range(5))
        store.gate.set()
        for call in (await gateway.operator_client().get("/operator/calls")).json["calls"]:
            await gateway.poll("a", call, lambda polled: "seen" in polled["times"])
        assert len(gateway.host.attempts) == 5, "each is sent once"


async def test_a_store_that_fails_has_one_outcome_of_a_session_sent_again_and_not_all(
    full_gateway: tuple[CallGateway, Picky, Any],
) -> None:
    gateway, host, store = full_gateway
    assert host.thought is not None
    host.thought.set()
    await host.wait_messages(A, 5)
    store.gate.set()
    await host.wait_until(lambda: attempted(host)[0] >= 4)
    assert {attempted(host)[output] for output in range(1, 5)} == {1}
    store.is_full = False
    for call in (await gateway.operator_client().get("/operator/calls")).json["calls"]:
        await gateway.poll("a", call, lambda polled: "seen" in polled["times"])
    assert outputs(host.messages(A)) == list(range(5))


async def test_an_outcome_that_a_host_has_refused_waits_for_no_other(
    full_gateway: tuple[CallGateway, Picky, Any],
) -> None:
    _, host, store = full_gateway
    assert host.thought is not None
    host.unwanted = {1}
    host.thought.set()
    await host.wait_until(lambda: attempted(host)[1] == 1)
    host.thought.clear()
    store.gate.set()  # now the acceptance of the first one fails, and it is sent again
    host.unwanted = set()
    await host.wait_until(lambda: 1 in outputs(host.messages(A)))
    assert not host.thought.is_set(), "the host thinks about the first one"
    store.is_full = False
    host.thought.set()


async def test_an_outcome_that_a_host_refuses_holds_up_no_others(
    closed_gateway: CallGateway,
) -> None:
    await closed_gateway.open()
    assert isinstance(closed_gateway.host, Picky)
    closed_gateway.host.unwanted = {1}
    await answered(closed_gateway, 0, 1, 2, 3)
    assert outputs(await closed_gateway.host.wait_messages(A, 3)) == [0, 2, 3]
    closed_gateway.host.unwanted = set()
    assert outputs(await closed_gateway.host.wait_messages(A, 4)) == [0, 2, 3, 1]


async def test_polling_the_first_outcome_releases_the_next_ones(
    closed_gateway: CallGateway,
) -> None:
    await closed_gateway.open()
    closed_gateway.host.is_unavailable = True
    closed_gateway.agents["b"].answer = answers('{"output": 0}')
    first = await closed_gateway.call("a", "b")
    await settled(closed_gateway, first)
    await answered(closed_gateway, 1)
    await closed_gateway.host.wait_until(lambda: bool(closed_gateway.host.attempts))
    closed_gateway.host.is_unavailable = False
    assert (await closed_gateway.poll("a", first))["output"] == 0
    outcome = await closed_gateway.host.wait_messages(A)
    assert outputs(outcome)[-1] == 1


async def test_sessions_do_not_wait_for_each_other(closed_gateway: CallGateway) -> None:
    await closed_gateway.open()
    assert isinstance(closed_gateway.host, Picky)
    closed_gateway.host.gone.add(A)
    await answered(closed_gateway, 0)
    call = await closed_gateway.call("c", "b")
    await settled(closed_gateway, call)
    assert len(await closed_gateway.host.wait_messages(main_session("c"))) == 1


def over(number: int) -> Call:
    """A call that was delivered."""
    return Call(
        id=CallId(str(number)),
        task_id=TaskId(str(number)),
        caller=Caller(AgentId("a"), "a"),
        callee=AgentId("b"),
        skill="work",
        mode="execute",
        session_key=SessionKey("agent:b:call:1"),
        return_to=SessionKey("agent:a:inbox"),
        timeout_ms=60_000,
        accepted_at=NOW,
        route=OutcomeRoute.INBOX,
        status=CallStatus.COMPLETED,
        settled_at=NOW + timedelta(milliseconds=number),
        delivered_at=NOW,
    )


@pytest.mark.parametrize("body", [b"{", b"7", b'{"id":"\xff"}', b'{"x":' + b"[" * 9999])
async def test_an_unreadable_record_leaves_the_other_calls_alone(body: bytes) -> None:
    store = create_store("memory", path=None)
    await store.open()
    await store.records.put_record(Record(CALL_KIND, "bad", body, NOW))
    await store.records.put_record(Record(CALL_KIND, "5", msgspec.json.encode(over(5)), NOW))
    book = CallRepository(store.records, store.deliveries)
    await book.load()
    assert [call.id for call in book] == ["5"]


@pytest.mark.requirement("calls.state.most")
@pytest.mark.parametrize(("count", "left"), [(0, 10_000), (1, 9_001), (2_001, 10_000)])
async def test_the_oldest_outcomes_go_when_there_are_too_many(count: int, left: int) -> None:
    store = create_store("memory", path=None)
    await store.open()
    book = CallRepository(store.records, store.deliveries)
    for number in range(MAX_SETTLED + count):
        book.add(over(number))
    await book.purge(NOW)
    kept = [int(call.id) for call in book]
    assert kept == list(range(MAX_SETTLED + count - left, MAX_SETTLED + count))
