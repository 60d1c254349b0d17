"""Agents of a real OpenClaw call each other; each outcome returns to its caller once."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.openclaw.bare_client import BareClient, connect
from tests.openclaw.calls_setup import (
    CallsSetup,
    answer_prompt,
    call_prompt,
    calls_between_agents,
    debate_prompt,
    entries,
    outcome_text,
    run_in_thread,
    turn,
)
from tests.openclaw.openclaw_process import FakeModel

Json = Any


@pytest.fixture(scope="module")
def bed(model: FakeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CallsSetup]:
    with calls_between_agents(tmp_path_factory.mktemp("calling"), model) as running:
        yield running
        assert "Traceback" not in running.our_gateway.output() + running.far.output()


@pytest.fixture
async def client(bed: CallsSetup):
    async with connect(bed.openclaw.ws_url, bed.openclaw.token) as connected:
        yield connected


@pytest.fixture
def key(marker: str) -> str:
    """A session of agent main that is nobody's but the test's."""
    return f"agent:main:{marker}"


@pytest.mark.requirement("calls.routing.entry", "calls.routing.source")
async def test_the_answer_to_a_call_is_a_turn_of_the_session_that_called(
    bed: CallsSetup, client: BareClient, key: str, marker: str
) -> None:
    call = await turn(client, key, call_prompt("helper", answer_prompt({"said": marker})))
    assert call.get("status") == "pending", call
    assert await bed.note(call) == {
        "kind": "skill_response",
        "correlationId": call["correlationId"],
        "taskId": call["taskId"],
        "status": "completed",
        "output": {"said": marker},
        "confidence": 0.8,
        "assumptions": [],
        "caveats": [],
    }
    [wait_processed] = bed.notes(call)
    assert wait_processed["session"] == key
    assert any(marker in one["text"] for one in wait_processed["messages"] if one["role"] == "user")
    callee = f"agent:helper:call:{call['correlationId']}"
    [entry] = await entries(client, key, outcome_text(call))
    assert entry["provenance"] == {
        "kind": "inter_session",
        "sourceSessionKey": callee,
        "sourceTool": "agent_call",
    }


async def test_the_callee_is_asked_in_a_session_of_its_own(
    bed: CallsSetup, client: BareClient, key: str, marker: str
) -> None:
    forged = {"returnTo": "agent:judge:main", "correlationId": "mine"}
    call = await turn(client, key, call_prompt("helper", marker, timeoutSeconds=200, **forged))
    callee = f"agent:helper:call:{call['correlationId']}"
    await bed.until(call, "seen")
    [asked] = bed.model.requests(callee)
    assert asked["session"] == callee
    assert json.loads(asked["last_user"]) == {
        "kind": "skill_invocation",
        "skill": "work",
        "mode": "execute",
        "input": {"do": marker},
        "correlationId": call["correlationId"],
        "returnTo": key,
        "timeout": 200_000,
    }
    [entry] = await entries(client, callee, '{"kind": "skill_invocation"')
    assert entry["provenance"] == {
        "kind": "inter_session",
        "sourceSessionKey": key,
        "sourceTool": "agent_call",
    }


@pytest.mark.requirement("calls.routing.busy", "promise.calls.busy")
async def test_an_answer_waits_for_the_end_of_a_turn_that_is_under_way(
    bed: CallsSetup, client: BareClient, key: str, marker: str
) -> None:
    busy = asyncio.create_task(turn(client, key, f"{call_prompt('helper')} after:{marker}"))
    call = await call_under_way(bed, marker)
    await bed.until(call, "delivered")
    assert bed.notes(call) == []
    bed.model.release(marker)
    assert await busy == call
    await came_once(bed, client, call)
    _, held = bed.model.requests(f"after:{marker}")
    [wait_processed] = bed.notes(call)
    assert wait_processed["started"] >= held["started"] + held["seconds"]


@pytest.mark.requirement("promise.calls.restart")
@pytest.mark.parametrize("is_taken", [False, True])
async def test_an_answer_comes_once_though_our_gateway_dies_while_it_is_brought(
    bed: CallsSetup, client: BareClient, key: str, marker: str, is_taken: bool
) -> None:
    """Before OpenClaw has it, and when OpenClaw has it and we were not told so."""
    call = await turn(client, key, call_prompt("helper", f"hold:{marker}"))
    with bed.tap.losing(note_of(call), is_way_back=is_taken) as lost:
        bed.model.release(marker)
        assert await run_in_thread(lambda: lost.wait(240))
        shown = bed.shown(call)
        assert shown["status"] == "completed"
        assert "delivered" not in shown["times"]
        await run_in_thread(bed.our_gateway.kill)
    await run_in_thread(bed.our_gateway.start)
    await came_once(bed, client, call)


async def test_answers_of_a_cascade_come_back_one_by_one(
    bed: CallsSetup, client: BareClient, key: str, marker: str
) -> None:
    call = await turn(
        client, key, call_prompt("helper", call_prompt("critic", answer_prompt(marker)))
    )
    inner = (await bed.note(call))["output"]
    assert inner["status"] == "pending"
    assert (await bed.note(inner))["output"] == marker
    [wait_processed] = bed.notes(inner)
    assert wait_processed["session"] == f"agent:helper:call:{call['correlationId']}"
    assert bed.shown(call)["chain"] == ["main"]
    assert bed.shown(inner)["chain"] == ["main", "helper"]


async def test_a_chain_of_calls_may_not_return_to_its_first_caller(
    bed: CallsSetup, client: BareClient, key: str
) -> None:
    direct = await turn(client, key, call_prompt("helper", call_prompt("main")))
    around = await turn(
        client, key, call_prompt("helper", call_prompt("critic", call_prompt("main"), wait=True))
    )
    for call, path in ((direct, "helper"), (around, "helper -> critic")):
        refused = (await bed.note(call))["output"]
        assert refused["status"] == "error"
        assert refused["error"].startswith("loop: ")
        assert f"main -> {path} -> main" in refused["error"]


async def test_three_agents_debate_while_their_caller_waits(
    bed: CallsSetup, client: BareClient, key: str, marker: str
) -> None:
    result = await turn(client, key, debate_prompt(marker))
    assert result["status"] == "resolved", result
    assert result["confidenceHistory"] == [0.6, 0.9, 0.9]
    assert result["conclusion"]["skill"] == "resolve"
    [held] = result["rounds"]
    assert held["proposal"]["output"] == "first"
    assert [(one["agent"], one["flaws"]) for one in held["critiques"]] == [
        ("critic", ["seen by critique"])
    ]
    assert held["refinement"]["output"]["skill"] == "refine"
    assert bed.shown(result)["route"] == "waited"
    assert bed.notes(result) == []


@pytest.mark.requirement("calls.debate.restart")
async def test_a_debate_continues_after_a_crash_of_our_gateway(
    bed: CallsSetup, client: BareClient, key: str, marker: str
) -> None:
    call = await turn(client, key, debate_prompt(f"hold:{marker}", wait=False))
    assert call["status"] == "pending", call
    await run_in_thread(
        lambda: bed.model.wait_for(f"hold:{marker}", outcome="active", within_s=240)
    )
    await run_in_thread(bed.our_gateway.kill)
    await run_in_thread(bed.our_gateway.start)
    bed.model.release(marker)
    await came_once(bed, client, call)
    run_turn = await bed.note(call)
    assert run_turn["output"]["status"] == "resolved", run_turn
    assert run_turn["output"]["confidenceHistory"] == [0.6, 0.9, 0.9]
    steps = bed.model.requests(f'"returnTo": "agent:main:debate:{call["correlationId"]}"')
    asked = [json.loads(one["last_user"])["skill"] for one in steps]
    assert asked == ["propose", "critique", "refine", "resolve"]


async def test_a_caller_gets_one_timeout_and_may_read_the_late_answer(
    bed: CallsSetup, client: BareClient, key: str, marker: str
) -> None:
    call = await turn(client, key, call_prompt("helper", f"hold:{marker}", timeoutSeconds=1))
    run_turn = await bed.note(call, "skill_timeout")
    assert run_turn["status"] == "timeout"
    assert "1000 ms" in run_turn["message"]
    bed.model.release(marker)
    await bed.until(call, "answered")
    asked = json.dumps({"correlationId": call["correlationId"]})
    late = await turn(client, key, f"tool:agent_poll {asked}")
    assert late["status"] == "completed", late
    assert late["late"] is True
    assert late["output"]["skill"] == "work"
    await came_once(bed, client, call, "skill_timeout")
    assert bed.notes(call) == []


@pytest.mark.requirement("calls.remote.called")
async def test_a_remote_agent_is_called_like_any_other(
    bed: CallsSetup, client: BareClient, key: str, marker: str
) -> None:
    call = await turn(client, key, call_prompt("target:far", answer_prompt(marker)))
    run_turn = await bed.note(call)
    assert run_turn["output"] == marker, run_turn
    await came_once(bed, client, call)
    [asked] = bed.model.requests(f'"correlationId": "{call["correlationId"]}"')
    assert asked["session"].startswith("agent:helper:a2a:")
    assert json.loads(asked["last_user"])["kind"] == "skill_invocation"


@pytest.mark.requirement("calls.loop.metadata")
async def test_calls_go_in_no_circle_over_the_network(
    bed: CallsSetup, client: BareClient, key: str
) -> None:
    call = await turn(client, key, call_prompt("target:near", call_prompt("main")))
    refused = (await bed.note(call))["output"]
    assert refused["status"] == "error", refused
    assert "main -> helper -> main" in refused["error"]


@pytest.fixture
def announcing(bed: CallsSetup) -> Iterator[CallsSetup]:
    """Agents that are called answer in their channels too."""
    bed.restart_ours(responseRouting={"dualDelivery": True})
    yield bed
    bed.restart_ours()


@pytest.mark.requirement("calls.settings.dual")
async def test_a_callee_may_answer_in_its_channel_too(
    announcing: CallsSetup, client: BareClient, key: str, marker: str
) -> None:
    """Here it has none: that breaks nothing."""
    call = await turn(client, key, call_prompt("helper", answer_prompt(marker)))
    assert (await announcing.note(call))["output"] == marker
    await came_once(announcing, client, call)
    [asked] = announcing.tap.turns(f"agent:helper:call:{call['correlationId']}")
    assert (asked["deliver"], asked["bestEffortDeliver"]) == (True, True)
    [ended] = announcing.tap.results(asked["idempotencyKey"])
    assert ended["deliveryStatus"]["requested"] is True
    assert ended["deliveryStatus"]["reason"] == "channel_resolved_to_internal"


@pytest.mark.requirement("promise.calls.restart", "calls.host-down.lost")
async def test_answers_come_once_though_openclaw_dies(bed: CallsSetup, marker: str) -> None:
    """While the callee is at work; when its answer is on the way; when it waits for its turn."""
    names = [f"{marker}-{name}" for name in ("work", "way", "busy")]
    work, way, busy = (f"agent:main:{name}" for name in names)
    async with connect(bed.openclaw.ws_url, bed.openclaw.token) as client:
        calls = [await turn(client, work, call_prompt("helper", f"hold:{names[0]}"))]
        calls += [await turn(client, way, call_prompt("helper", f"hold:{names[1]}"))]
        words = f"{call_prompt('helper')} after:{names[2]}"
        asked = {"agentId": "main", "sessionKey": busy, "message": words}
        await client.call("agent", {**asked, "idempotencyKey": f"busy-{marker}"})
        calls += [await call_under_way(bed, names[2])]
        await bed.until(calls[2], "delivered")
        with bed.tap.losing(note_of(calls[1])) as lost:
            bed.model.release(names[1])
            assert await run_in_thread(lambda: lost.wait(240))
            await run_in_thread(bed.openclaw.kill)
    for name in names:
        bed.model.release(name)
    await run_in_thread(bed.openclaw.start)
    async with connect(bed.openclaw.ws_url, bed.openclaw.token) as client:
        for call in calls:
            await came_once(bed, client, call)


def note_of(call: Json) -> str:
    """The run with which a caller's session deals with what came of a call."""
    return f"session-note-{call['correlationId']}"


async def call_under_way(bed: CallsSetup, name: str) -> Json:
    """What the tool said in a turn that waits for `after:NAME`."""
    found = await run_in_thread(lambda: bed.model.wait_for(f"after:{name}", count=2, within_s=240))
    return json.loads(found[-1]["messages"][-1]["text"])


async def came_once(
    bed: CallsSetup, client: BareClient, call: Json, kind: str = "skill_response"
) -> None:
    """What came of a call came once: to the caller's model, and into its transcript."""
    await bed.note(call, kind)
    await bed.until(call, "seen")
    [wait_processed] = bed.notes(call, kind)
    session = wait_processed["session"]
    await client.agent(session.split(":")[1], session, "is there more?")
    assert len(bed.notes(call, kind)) == 1
    assert len(await entries(client, session, outcome_text(call, kind))) == 1
