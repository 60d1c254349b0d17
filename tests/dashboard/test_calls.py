"""Calls on their pages: the tree across hops, how far each came, and debates as threads."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.calls.call_gateway import call_gateway_in
from tests.calls.test_retention import wait_for, wait_seen
from tests.captured_logs import capture_logs
from tests.conformance.manual_clock import ManualClock
from tests.conformance.scripted_agent import ScriptedAgent
from tests.dashboard.conftest import OpenDashboard, Setup
from tests.dashboard.test_untrusted_content import CORPUS, problems_of

from openclaw_a2a.model.agent_event import Failed, Reply

Json = Any
ENABLED = {"tools.agentToAgent.enabled": True, "tools.agentToAgent.allow": ["*"]}
DEBATE = {
    "topic": "Which fence?",
    "proposer": {"agent": "main", "skill": "propose"},
    "critics": [
        {"agent": "first", "perspective": "costs", "weight": 0.5},
        {"agent": "second"},
    ],
    "resolver": {"agent": "judge", "skill": "judge"},
    "input": {},
    "rounds": 1,
    "wait": False,
}


async def use_tool(setup: Setup, name: str, arguments: Json) -> Json:
    body = msgspec.json.encode(arguments)
    done = await setup.program.post(f"/tools/{name}", body, content_length=str(len(body)))
    assert done.status == 200, done.body
    return done.json


def says(output: Json, confidence: float) -> Reply:
    return Reply.of_text(msgspec.json.encode({"output": output, "confidence": confidence}).decode())


async def open_debate(open_dashboard: OpenDashboard, *critiques: ScriptedAgent) -> Setup:
    first, second = critiques
    judge = ScriptedAgent(says({"decision": "Wood, in **green**."}, 0.9))
    return await open_dashboard(ENABLED, others={"first": first, "second": second, "judge": judge})


async def test_a_debate_is_a_thread_that_grows_until_the_verdict(
    open_dashboard: OpenDashboard,
) -> None:
    first = ScriptedAgent(says({"flaws": ["It rots."], "alternatives": ["Metal."]}, 0.7))
    setup = await open_debate(open_dashboard, first, ScriptedAgent(Failed("no time")))
    made = await use_tool(setup, "debate_call", DEBATE)
    page = f"/dashboard/calls/{made['correlationId']}"
    propose = await setup.agent.next_run()

    begun = await setup.json(page)
    thread = begun["debate"]
    assert (thread["topic"], thread["verdict"]) == ("Which fence?", None)
    assert [(one["role"], one["agent"]) for one in thread["participants"]] == [
        ("proposer", "main"),
        ("critic", "first"),
        ("critic", "second"),
        ("resolver", "judge"),
    ]
    assert thread["participants"][1]["perspective"] == "costs"
    [[proposal]] = [one["contributions"] for one in thread["rounds"]]
    assert (proposal["role"], proposal["status"]) == ("proposal", "pending")
    assert proposal["deadline"]

    await setup.finish(says({"plan": "Wood."}, 0.5), run=propose)
    refine = await setup.agent.next_run()
    await setup.finish(says({"plan": "Painted wood."}, 0.88), run=refine)
    async with setup.follow(page) as events:
        while True:
            ended = msgspec.json.decode((await events.next())[1])
            if ended["debate"]["verdict"] is not None:
                break
    rounds = ended["debate"]["rounds"]
    said = [(one["role"], one["agent"], one["text"]) for r in rounds for one in r["contributions"]]
    assert said == [
        ("proposal", "main", "Wood."),
        ("critique", "first", ""),
        ("critique", "second", ""),
        ("refinement", "main", "Painted wood."),
        ("conclusion", "judge", "Wood, in **green**."),
    ]
    critique, failed = rounds[1]["contributions"][:2]
    assert (critique["flaws"], critique["alternatives"]) == (["It rots."], ["Metal."])
    assert failed["error"] == "no time"
    verdict = ended["debate"]["verdict"]
    assert (verdict["status"], verdict["confidence"]) == ("resolved", 0.9)
    assert verdict["confidences"] == [0.5, 0.88, 0.9]
    html = (await (await setup.sign_in()).get(page)).body.decode()
    assert "Verdict: resolved" in html
    assert "Wood, in <strong>green</strong>." in html


async def test_the_steps_of_a_debate_are_below_it_in_the_tree(
    open_dashboard: OpenDashboard,
) -> None:
    setup = await open_debate(open_dashboard, ScriptedAgent(), ScriptedAgent())
    made = await use_tool(setup, "debate_call", DEBATE)
    await setup.finish(says({"plan": "Wood."}, 0.96))  # so sure that nobody is asked
    async with setup.follow("/dashboard/calls") as events:
        while True:
            page = msgspec.json.decode((await events.next())[1])
            if all(one["status"] == "completed" for one in page["calls"]):
                break
    shown = [(one["depth"], one["callee"], one["step"], one["isDebate"]) for one in page["calls"]]
    assert shown == [
        (0, "debate", "", True),
        (1, "main", "propose", False),
        (1, "judge", "resolve", False),
    ]
    assert page["calls"][1]["parent"] == made["correlationId"]
    html = (await (await setup.sign_in()).get("/dashboard/calls")).body.decode()
    assert f'href="/dashboard/calls/{made["correlationId"]}"' in html


async def test_a_call_shows_what_was_asked_what_came_back_and_how_far_it_came(
    open_dashboard: OpenDashboard,
) -> None:
    other = ScriptedAgent()
    setup = await open_dashboard(ENABLED, others={"other": other})
    asked = {"agent": "other", "skill": "count", "input": {"what": "posts"}, "timeoutSeconds": 60}
    call = (await use_tool(setup, "agent_call", asked))["correlationId"]
    run = await other.next_run()
    page = await setup.json(f"/dashboard/calls/{call}")
    assert (page["call"]["status"], page["text"], page["error"]) == ("pending", "", "")
    assert '"what"' in page["asked"]
    browser = await setup.sign_in()
    html = (await browser.get(f"/dashboard/calls/{call}")).body.decode()
    assert f'data-until="{page["call"]["deadline"][:19]}' in html
    await setup.finish(says({"posts": 12}, 0.8), run=run)
    page = await setup.json(f"/dashboard/calls/{call}")
    assert (page["data"], page["confidence"]) == ("12", 0.8)
    await use_tool(setup, "agent_poll", {"correlationId": call})
    seen = (await setup.json(f"/dashboard/calls/{call}"))["call"]
    assert seen["settledAt"]
    assert seen["seenAt"] or seen["deliveredAt"]


async def test_calls_are_chosen_by_their_status(open_dashboard: OpenDashboard) -> None:
    failing, idle = ScriptedAgent(Failed("no luck")), ScriptedAgent()
    setup = await open_dashboard(ENABLED, others={"failing": failing, "idle": idle})
    for agent, wait in (("failing", True), ("idle", False)):
        asked = {"agent": agent, "skill": "work", "input": {}, "wait": wait}
        await use_tool(setup, "agent_call", asked)
    page = await setup.json("/dashboard/calls?status=error")
    assert [one["callee"] for one in page["calls"]] == ["failing"]
    assert (page["counts"]["error"], page["counts"]["pending"]) == (1, 1)
    refused = await setup.program.get("/dashboard/calls?status=lost", accept="application/json")
    assert refused.status == 400
    assert b"must be one of pending" in refused.body


async def test_calls_are_shown_after_their_records_are_purged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with call_gateway_in(tmp_path) as gateway:
        clock = ManualClock()
        with capture_logs() as logs:
            await gateway.open(clock=clock)
            call = await gateway.call("a", "b", timeoutSeconds=30)
            await wait_seen(gateway, call)
            clock.advance(timedelta(minutes=2))
            await wait_for(lambda: "calls.purged" in {one["event"] for one in logs})
        # For agents it is gone; a person still sees it, with what was asked and answered.
        assert (await gateway.poll("a", call))["status"] == "error"
        operator, call_id = gateway.operator_client(), call["correlationId"]
        [shown] = (await operator.get("/dashboard/calls")).json["calls"]
        assert (shown["id"], shown["status"], shown["callee"]) == (call_id, "completed", "b")
        details = await operator.get(f"/dashboard/calls/{call_id}")
        assert (details.status, details.json["text"]) == (200, "done")
        task = (await operator.get(f"/dashboard/tasks/{shown['task']}")).json
        assert [one["id"] for one in task["calls"]] == [call_id]


async def test_a_call_that_is_gone_says_why(setup: Setup) -> None:
    gone = await setup.program.get("/dashboard/calls/none", accept="application/json")
    assert gone.status == 404
    assert "never existed here" in gone.json["error"]["message"]


async def test_what_participants_say_runs_nothing(open_dashboard: OpenDashboard) -> None:
    texts = [text for text in CORPUS if text.strip()]
    every = "\n\n".join(texts)
    critic = ScriptedAgent(says({"flaws": texts, "alternatives": texts}, 0.5))
    setup = await open_debate(open_dashboard, critic, ScriptedAgent(Failed(every)))
    made = await use_tool(setup, "debate_call", {**DEBATE, "topic": every})
    page = f"/dashboard/calls/{made['correlationId']}"
    await setup.finish(says({"plan": every}, 0.5))
    await setup.finish(says({"plan": every, "and": texts}, 0.5))
    async with setup.follow(page) as events:
        while msgspec.json.decode((await events.next())[1])["debate"]["verdict"] is None:
            pass
    browser = await setup.sign_in()
    for address in (page, "/dashboard/calls"):
        response = await browser.get(address)
        assert response.status == 200
        assert problems_of(response.body.decode()) == []
