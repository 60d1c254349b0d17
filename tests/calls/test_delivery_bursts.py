"""Many calls that are due at the same moment, with slow hosts."""

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


async def place(gateway: CallGateway, session: str, **more: Json) -> Json:
    arguments: Json = {"agent": "b", "skill": "work", "input": {}, **more}
    return await gateway.call_tool(gateway.client("a", session), "agent_call", arguments)


async def answered_together(gateway: CallGateway, session: str, count: int) -> list[Json]:
    gateway.agents["b"].answer = held = HeldAnswer('{"output": "done"}')
    calls = [await place(gateway, session) for _ in range(count)]
    held.go.set()
    return calls


async def kept(gateway: CallGateway) -> list[Call]:
    assert gateway.running is not None
    [engine] = gateway.running.engines.values()
    return [
        msgspec.json.decode(record.body, type=Call)
        for record in await engine.store.records.list_records(CALL_KIND)
    ]


async def until_settled(gateway: CallGateway, status: CallStatus, count: int) -> None:
    with anyio.fail_after(TIMEOUT_S):
        while True:
            if sum(call.status is status for call in await kept(gateway)) >= count:
                return
            await checkpoint()


async def test_calls_are_settled_at_their_deadlines_however_slow_the_host_is(
    gateway: CallGateway,
) -> None:
    host = gateway.host
    host.slow = "agent:a:"
    gateway.agents["b"].answer = HeldAnswer()
    for number in range(MANY):
        await place(gateway, f"agent:a:s{number}", timeout=50)
    await until_settled(gateway, CallStatus.TIMEOUT, MANY)
    await host.wait_until(lambda: len(host.attempts) == PLACES)
    host.go.set()
    await host.wait_until(lambda: len(host.accepted) == MANY)
    assert len(host.attempts) == MANY, "each is sent once"
    assert {host.messages(f"agent:a:s{number}")[0]["status"] for number in range(MANY)} == {
        "timeout"
    }


async def test_a_session_with_much_to_hear_in_a_slow_host_holds_up_no_other(
    gateway: CallGateway,
) -> None:
    host = gateway.host
    host.slow = "agent:a:slow"
    await answered_together(gateway, "agent:a:slow", MANY)
    # The first is stored with its delivery, which the host holds up.
    await until_settled(gateway, CallStatus.COMPLETED, MANY - 1)
    await host.wait_messages("agent:a:slow")
    await place(gateway, "agent:a:quick")
    await host.wait_messages("agent:a:quick")
    assert len(host.messages("agent:a:slow")) == 1
    host.go.set()
    await host.wait_messages("agent:a:slow", MANY)
    assert len(host.attempts) == MANY + 1, "each is sent once"


async def test_an_outcome_polled_while_it_is_queued_is_not_sent(
    gateway: CallGateway,
) -> None:
    host = gateway.host
    host.slow = "agent:a:slow"
    calls = await answered_together(gateway, "agent:a:slow", 2)
    await until_settled(gateway, CallStatus.COMPLETED, len(calls) - 1)
    [outcome] = await host.wait_messages("agent:a:slow")
    [waiting] = [call for call in calls if call["correlationId"] != outcome["correlationId"]]
    assert (await gateway.poll("a", waiting))["output"] == "done"
    host.go.set()
    for call in calls:
        await gateway.poll("a", call, lambda polled: "seen" in polled["times"])
    assert len(host.attempts) == 1
