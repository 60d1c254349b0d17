"""The pages say what callers use of their limits, and what failed most."""

import hashlib

import pytest
from tests.conformance.protocol_clients import V1Client, v1_message
from tests.conformance.scripted_agent import ScriptedAgent
from tests.dashboard.conftest import Json, OpenDashboard, Setup

from openclaw_a2a.http.request_limits import RefusalCounts
from openclaw_a2a.model.agent_event import Failed, Reply

ALICE = "channels.a2a.security.peers.alice"
PEERS = {ALICE: {"tokens": [f"sha256:{hashlib.sha256(b'known').hexdigest()}"]}}


async def usage_of(setup: Setup, name: str) -> Json:
    page = await setup.json("/dashboard/callers")
    return next(one for one in page["usage"] if one["name"] == name)


async def test_what_a_caller_uses_is_shown_beside_its_limits(open_dashboard: OpenDashboard) -> None:
    settings = {**PEERS, "limits.perPeerRequests": 60, "limits.perPeerStreams": 7}
    setup = await open_dashboard(settings)
    client = V1Client(setup.anyone.with_headers(authorization="Bearer known"))
    before = await usage_of(setup, "alice")
    assert (before["isPeer"], before["requests"], before["tasks"]) == (True, 0, 0)
    async with client.stream("SendStreamingMessage", v1_message("paint")) as frames:
        [first] = await frames.take(1)
        run = await setup.agent.next_run()
        await client.start("and mow", contextId=first.json["result"]["task"]["contextId"])
        await client.error("GetTask", {"id": "nothing"})
        during = await usage_of(setup, "alice")
        assert (during["requests"], during["streams"]) == (3, 1)
        assert (during["runs"], during["queued"]) == (1, 1)
        assert (during["refusals"], during["tasks"]) == (1, 2)
        await run.finish(Failed("no paint"))
        await frames.rest()
    await setup.finish(Reply.of_text("mown"))
    after = await usage_of(setup, "alice")
    assert (after["streams"], after["runs"], after["failed"]) == (0, 0, 1)
    limits = (await setup.json("/dashboard/callers"))["limits"]
    assert (limits["requests"], limits["streams"]) == (60, 7)
    html = (await (await setup.sign_in()).get("/dashboard/callers")).body.decode()
    assert "60 requests a minute" in html
    assert "/dashboard/tasks?caller=alice&amp;tab=failed" in html


async def test_callers_without_tokens_are_shown_by_what_they_sent(setup: Setup) -> None:
    await setup.start()
    one = await usage_of(setup, "local")
    assert (one["tasks"], one["isPeer"], one["tokens"]) == (1, False, 0)


async def test_failures_are_counted_by_code_and_by_reason(
    open_dashboard: OpenDashboard,
) -> None:
    agent = ScriptedAgent(
        script=lambda turn: [Failed(f"order {len(turn.body)}: the shop answered 503")]
    )
    setup = await open_dashboard(agent=agent)
    client = V1Client(setup.anyone)
    await client.send("a")
    await client.send("two words")
    await client.error("GetTask", {"id": "nothing"})
    page = await setup.json("/dashboard")
    assert page["failures"] == [
        {"kind": "task", "what": "order …: the shop answered …", "count": 2},
        {"kind": "request", "what": "task-not-found", "count": 1},
    ]
    html = (await (await setup.sign_in()).get("/dashboard")).body.decode()
    assert "<code>task-not-found</code>" in html
    assert "order …: the shop answered …" in html


async def test_how_long_tasks_take_is_shown_by_the_minute(
    open_dashboard: OpenDashboard,
) -> None:
    setup = await open_dashboard(agent=ScriptedAgent(Reply.of_text("done")))
    await V1Client(setup.anyone).send("paint")
    activity = (await setup.json("/dashboard"))["activity"]
    known = [one for one in activity["seconds"] if one is not None]
    assert known == [activity["medianSeconds"]]
    assert len(activity["seconds"]) == len(activity["ended"]) == 30


async def test_what_waits_longest_is_named(setup: Setup) -> None:
    assert (await setup.json("/dashboard"))["waitingSince"] is None


def test_refusals_are_forgotten_after_half_an_hour() -> None:
    seconds = 0.0
    counts = RefusalCounts(lambda: seconds)
    counts.count("overloaded", "alice")
    seconds = 600.0
    counts.count("overloaded", "alice")
    counts.count("task-not-found", None)
    assert counts.by_code() == {"overloaded": 2, "task-not-found": 1}
    seconds = 1900.0
    assert counts.by_code() == {"overloaded": 1, "task-not-found": 1}
    seconds = 7200.0
    assert counts.by_code() == {}
    assert counts.by_caller == {"alice": 2}


@pytest.mark.parametrize("adapter", ["openclaw-gateway"])
async def test_links_to_openclaw_are_counted(open_dashboard: OpenDashboard, adapter: str) -> None:
    setup = await open_dashboard(
        {
            "agents.claw": {"adapter": adapter, "url": "ws://127.0.0.1:9"},
            "channels.a2a.accounts.claw": {"defaultAgentId": "claw"},
        }
    )
    health = (await setup.json("/dashboard"))["health"]
    assert (health["openclaw"], health["openclawLinked"]) == (1, 0)
    html = (await (await setup.sign_in()).get("/dashboard")).body.decode()
    assert "OpenClaw linked" in html
