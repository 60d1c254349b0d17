"""Outcomes reach a session in the order of completion."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

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

from openclaw_a2a.calls.repository import MAX_SETTLED, CallRepository
from openclaw_a2a.model.call import Call, Caller, CallId, CallStatus, OutcomeRoute
from openclaw_a2a.model.ids import AgentId, SessionKey, TaskId
from openclaw_a2a.ports import DeliveryFailed, MessageAccepted, SessionGone, SessionMessage
from openclaw_a2a.store import create_store

A = main_session("a")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Picky(SessionHost):
    """A host that does not want some notes, and thinks about the first of all if told to."""

    def __init__(self) -> None:
        super().__init__()
        self.unwanted: set[int] = set()
        self.thought: asyncio.Event | None = None

    async def accept(self, note: SessionMessage) -> MessageAccepted | SessionGone | DeliveryFailed:
        output = json.loads(note.text)["output"]
        if output == 0 and self.thought is not None:
            await self.thought.wait()
        if output in self.unwanted:
            self.attempts.append(note)
            self._news.set()
            return DeliveryFailed("it is too long", is_refused=True)
        return await super().accept(note)


@pytest.fixture(params=["sqlite", "json-file", "memory"])
async def gateway(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CallGateway]:
    """A gateway whose gateway is opened by the test, and whose host may be picky."""
    monkeypatch.chdir(tmp_path)
    async with call_gateway_in(tmp_path, request.param) as one:
        one.host = Picky()
        one.agents = {name: ScriptedAgent(one.host, name) for name in one.agents}
        yield one


async def answered(gateway: CallGateway, *outputs: int) -> None:
    """Calls that are settled one after the other."""
    for output in outputs:
        gateway.agents["b"].answer = answers(json.dumps({"output": output}))
        call = await gateway.call("a", "b")
        await settled(gateway, call)


async def settled(gateway: CallGateway, call: Json) -> None:
    while (await gateway.describe(call))["status"] == "pending":
        pass


def outputs(told: list[Json]) -> list[int]:
    return [one["output"] for one in told]


@pytest.mark.requirement("calls.routing.order")
async def test_a_slow_host_gets_outcomes_in_the_order_of_completion(gateway: CallGateway) -> None:
    await gateway.open()
    assert isinstance(gateway.host, Picky)
    gateway.host.thought = asyncio.Event()
    await answered(gateway, 0, 1, 2, 3)
    gateway.host.thought.set()
    assert outputs(await gateway.host.wait_messages(A, 4)) == [0, 1, 2, 3]


@pytest.mark.requirement("calls.routing.order")
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_host_that_was_away_gets_outcomes_in_the_order_of_completion(
    gateway: CallGateway, is_restarted: bool
) -> None:
    await gateway.open()
    gateway.host.is_unavailable = True
    await answered(gateway, *range(6))
    if is_restarted and gateway.kind != "memory":
        await gateway.close()
        gateway.host.is_unavailable = False
        await gateway.open()
    gateway.host.is_unavailable = False
    assert outputs(await gateway.host.wait_messages(A, 6)) == list(range(6))


async def test_an_outcome_that_a_host_refuses_holds_up_no_others(gateway: CallGateway) -> None:
    await gateway.open()
    assert isinstance(gateway.host, Picky)
    gateway.host.unwanted = {1}
    await answered(gateway, 0, 1, 2, 3)
    assert outputs(await gateway.host.wait_messages(A, 3)) == [0, 2, 3]
    gateway.host.unwanted = set()
    assert outputs(await gateway.host.wait_messages(A, 4)) == [0, 2, 3, 1]


async def test_polling_the_first_outcome_releases_the_next_ones(gateway: CallGateway) -> None:
    await gateway.open()
    gateway.host.is_unavailable = True
    gateway.agents["b"].answer = answers('{"output": 0}')
    first = await gateway.call("a", "b")
    await settled(gateway, first)
    await answered(gateway, 1)
    await gateway.host.wait_until(lambda: bool(gateway.host.attempts))
    gateway.host.is_unavailable = False
    assert (await gateway.poll("a", first))["output"] == 0
    told = await gateway.host.wait_messages(A)
    assert outputs(told)[-1] == 1


async def test_sessions_do_not_wait_for_each_other(gateway: CallGateway) -> None:
    await gateway.open()
    assert isinstance(gateway.host, Picky)
    gateway.host.gone.add(A)
    await answered(gateway, 0)
    call = await gateway.call("c", "b")
    await settled(gateway, call)
    assert len(await gateway.host.wait_messages(main_session("c"))) == 1


def over(number: int) -> Call:
    """A call that was brought."""
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


@pytest.mark.requirement("calls.state.most")
@pytest.mark.parametrize(("count", "left"), [(0, 10_000), (1, 9_001), (2_001, 10_000)])
async def test_the_oldest_outcomes_go_when_there_are_too_many(count: int, left: int) -> None:
    store = create_store("memory", path=None)
    await store.open()
    book = CallRepository(store.records, lambda: NOW)
    for number in range(MAX_SETTLED + count):
        book.add(over(number))
    await book.purge()
    kept = [int(call.id) for call in book]
    assert kept == list(range(MAX_SETTLED + count - left, MAX_SETTLED + count))
