"""Many calls that are due in the same moment, and hosts that take their time."""

from typing import Any

import anyio
import msgspec
from anyio.lowlevel import checkpoint
from tests.calls.call_gateway import CallGateway, HeldAnswer
from tests.conformance.asgi_client import TIMEOUT_S

from openclaw_a2a.model.call import CALL_KIND, Call, CallStatus

Json = Any
MANY = 100
PLACES = 64


async def place(village: CallGateway, session: str, **more: Json) -> Json:
    arguments: Json = {"agent": "b", "skill": "work", "input": {}, **more}
    return await village.call_tool(village.client("a", session), "agent_call", arguments)


async def answered_together(village: CallGateway, session: str, count: int) -> list[Json]:
    village.agents["b"].answer = held = HeldAnswer('{"output": "done"}')
    calls = [await place(village, session) for _ in range(count)]
    held.go.set()
    return calls


async def kept(village: CallGateway) -> list[Call]:
    assert village.gateway is not None
    [engine] = village.gateway.engines.values()
    return [
        msgspec.json.decode(record.body, type=Call)
        for record in await engine.store.records.list_records(CALL_KIND)
    ]


async def until_settled(village: CallGateway, status: CallStatus, count: int) -> None:
    with anyio.fail_after(TIMEOUT_S):
        while True:
            if sum(call.status is status for call in await kept(village)) >= count:
                return
            await checkpoint()


async def test_calls_are_settled_at_their_deadlines_however_slow_the_host_is(
    village: CallGateway,
) -> None:
    host = village.host
    host.slow = "agent:a:"
    village.agents["b"].answer = HeldAnswer()
    for number in range(MANY):
        await place(village, f"agent:a:s{number}", timeout=50)
    await until_settled(village, CallStatus.TIMEOUT, MANY)
    await host.wait_until(lambda: len(host.attempts) == PLACES)
    host.go.set()
    await host.wait_until(lambda: len(host.accepted) == MANY)
    assert len(host.attempts) == MANY, "each is brought once"
    assert {host.messages(f"agent:a:s{number}")[0]["status"] for number in range(MANY)} == {
        "timeout"
    }


async def test_a_session_with_much_to_hear_in_a_slow_host_holds_up_no_other(
    village: CallGateway,
) -> None:
    host = village.host
    host.slow = "agent:a:slow"
    await answered_together(village, "agent:a:slow", MANY)
    await until_settled(village, CallStatus.COMPLETED, MANY)
    await host.wait_messages("agent:a:slow")
    await place(village, "agent:a:quick")
    await host.wait_messages("agent:a:quick")
    assert len(host.messages("agent:a:slow")) == 1
    host.go.set()
    await host.wait_messages("agent:a:slow", MANY)
    assert len(host.attempts) == MANY + 1, "each is brought once"


async def test_an_answer_is_asked_for_while_it_waits_for_its_turn_and_not_told_again(
    village: CallGateway,
) -> None:
    host = village.host
    host.slow = "agent:a:slow"
    calls = await answered_together(village, "agent:a:slow", 2)
    await until_settled(village, CallStatus.COMPLETED, len(calls))
    [told] = await host.wait_messages("agent:a:slow")
    [waiting] = [call for call in calls if call["correlationId"] != told["correlationId"]]
    assert (await village.poll("a", waiting))["output"] == "done"
    host.go.set()
    for call in calls:
        await village.poll("a", call, lambda polled: "seen" in polled["times"])
    assert len(host.attempts) == 1
