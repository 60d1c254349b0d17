"""Requests are repeated only after failures that are safe to repeat."""

import asyncio

from tests.remote.scripted_peer import (
    hang_up,
    in_turn,
    message,
    result,
    rpc_error,
    scripted,
    task,
)
from tests.remote.tool_harness import one_target, open_tool

WORKING = result(task("WORKING")["task"])


async def test_a_safe_failure_is_repeated_after_a_growing_delay() -> None:
    answer = in_turn(hang_up, hang_up, WORKING)
    async with scripted(answer) as peer, open_tool(one_target(peer.url)) as harness:
        started_at = asyncio.get_running_loop().time()
        envelope = await harness.execute("status", task_id="t-1")
        assert envelope["ok"], envelope
        assert len(peer.calls) == 3
        assert asyncio.get_running_loop().time() - started_at >= 0.2 + 1.0


async def test_a_message_that_may_have_arrived_is_not_sent_again() -> None:
    answer = in_turn(hang_up, result(message()))
    async with scripted(answer) as peer, open_tool(one_target(peer.url)) as harness:
        await harness.fail_send()
        assert len(peer.calls) == 1


async def test_an_error_of_the_peer_is_not_repeated() -> None:
    answer = in_turn(rpc_error(-32603, "no"), WORKING)
    async with scripted(answer) as peer, open_tool(one_target(peer.url)) as harness:
        assert (await harness.fail("status", task_id="t-1"))["message"] == "no"
        assert len(peer.calls) == 1


async def test_the_failure_of_the_third_attempt_is_reported() -> None:
    answer = in_turn(hang_up, hang_up, rpc_error(-32001, "third"), WORKING)
    async with scripted(answer) as peer, open_tool(one_target(peer.url)) as harness:
        assert (await harness.fail("status", task_id="t-1"))["message"] == "third"
        assert len(peer.calls) == 3
    async with scripted(hang_up) as peer, open_tool(one_target(peer.url)) as harness:
        assert (await harness.fail("status", task_id="t-1"))["code"] == "A2A_SDK_ERROR"
        assert len(peer.calls) == 3
