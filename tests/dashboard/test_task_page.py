"""The page of a task: nested bars, what it cost, what it belongs to, and its events as chosen."""

from datetime import UTC, datetime
from itertools import pairwise

import msgspec
import pytest
from msgspec.structs import replace
from tests.conformance.protocol_clients import V1Client
from tests.conformance.scripted_agent import ScriptedAgent
from tests.dashboard.conftest import Json, OpenDashboard, Setup
from tests.dashboard.test_objectives import until
from tests.dashboard.test_wire import PEER, peer_with
from tests.server.admin.asking_agent import AskingAgent, approval
from tests.server.push.webhook_receiver import WebhookReceiver

from openclaw_a2a.dashboard.rendering import render_json_tree
from openclaw_a2a.model.agent_event import InputRequired, Reply, Report, ToolPhase, ToolProgress
from openclaw_a2a.model.ids import TaskId

CALLS = {"tools.agentToAgent.enabled": True, "tools.agentToAgent.allow": ["*"]}


async def post(setup: Setup, path: str, body: Json) -> Json:
    content = msgspec.json.encode(body)
    done = await setup.program.post(path, content, content_length=str(len(content)))
    assert done.status == 200, done.body
    return done.json


async def test_tools_are_bars_within_the_run_that_used_them(setup: Setup) -> None:
    task_id = await setup.start("draw")
    await setup.finish(
        ToolProgress(ToolPhase.START, "look", "c-1", {}),
        ToolProgress(ToolPhase.START, "draw", "c-2", {}),
        ToolProgress(ToolPhase.RESULT, "look", "c-1", {}),
        ToolProgress(ToolPhase.RESULT, "draw", "c-2", {"why": "no ink"}, is_error=True),
        ToolProgress(ToolPhase.START, "wait", "c-3", {}),
        Reply.of_text("done"),
    )
    page = await setup.json(f"/dashboard/tasks/{task_id}")
    bars = [(bar["kind"], bar["label"], bar["depth"]) for bar in page["timeline"]]
    assert bars == [
        ("task", "whole task", 0),
        ("queue", "queued", 1),
        ("run", "running", 1),
        ("tool", "look", 2),
        ("tool", "draw", 2),
        ("tool", "wait", 2),
    ]
    assert [bar["hasFailed"] for bar in page["timeline"][-3:]] == [False, True, False]
    run = page["timeline"][2]
    for tool in page["timeline"][3:]:
        # To the millisecond, as the wire has them.
        assert run["beganAt"][:22] <= tool["beganAt"][:22]
        assert tool["endedAt"] is not None
    html = (await (await setup.sign_in()).get(f"/dashboard/tasks/{task_id}")).body.decode()
    assert "k-tool d-2 has-failed" in html


async def test_an_open_approval_is_a_bar_within_the_run_that_waits_for_it(
    open_dashboard: OpenDashboard,
) -> None:
    asking = AskingAgent()
    setup = await open_dashboard(others={"other": asking})
    task_id = await setup.start()
    await setup.agent.next_run()
    address = f"/dashboard/tasks/{task_id}"
    await until(setup, address, lambda one: one["task"]["state"] == "working")
    asked = approval("a-1", command="make release")
    now = datetime.now(UTC)
    asking.waiting["a-1"] = replace(asked, task_id=TaskId(task_id), asked_at=now)
    page = await until(setup, address, lambda one: one["approval"] is not None)
    *_, run, wait = page["timeline"]
    assert (run["kind"], run["depth"]) == ("run", 1)
    assert (wait["kind"], wait["label"], wait["depth"]) == ("wait", "waits: approval", 2)
    assert wait["endedAt"] is None
    assert page["headline"]["text"] == "Waits for your decision: make release"


async def test_the_times_of_tools_are_in_the_events_that_clients_get(setup: Setup) -> None:
    task_id = await setup.start("draw")
    await setup.finish(
        ToolProgress(ToolPhase.START, "look", "c-1", {}),
        ToolProgress(ToolPhase.RESULT, "look", "c-1", {}),
    )
    lines = (await setup.program.get(f"/dashboard/tasks/{task_id}/events.jsonl")).body.splitlines()
    events = [msgspec.json.decode(line)["event"] for line in lines]
    times = [
        datetime.fromisoformat(one["artifactUpdate"]["metadata"]["timestamp"])
        for one in events
        if "artifactUpdate" in one
    ]
    assert len(times) == 2
    assert all(before <= after for before, after in pairwise(times))


async def test_webhooks_are_bars(open_dashboard: OpenDashboard, webhook: WebhookReceiver) -> None:
    setup = await open_dashboard({"push.allowPrivate": True})
    client = V1Client(setup.anyone)
    hook = {"url": webhook.url("/hook")}
    task = await client.start(
        "draw", configuration={"returnImmediately": True, "taskPushNotificationConfig": hook}
    )
    await setup.finish(Reply.of_text("done"))
    page = await setup.json(f"/dashboard/tasks/{task['id']}")
    [bar] = [bar for bar in page["timeline"] if bar["kind"] == "delivery"]
    assert bar["label"].startswith("push to 127.0.0.1")
    assert bar["depth"] == 1


async def test_a_call_and_its_outcome_are_bars_and_a_tree(open_dashboard: OpenDashboard) -> None:
    answering = ScriptedAgent(Reply.of_text('{"output": {"a": 1}, "confidence": 0.9}'))
    setup = await open_dashboard(CALLS, others={"other": answering})
    call: Json = {"agent": "other", "skill": "count", "input": {}, "wait": True}
    made = await post(setup, "/tools/agent_call", call)
    [found] = (await setup.json("/dashboard/calls"))["calls"]
    page = await setup.json(f"/dashboard/tasks/{found['task']}")
    assert made
    tree = [(one["kind"], one["label"], one["depth"], one["isThis"]) for one in page["related"]]
    assert tree == [("caller", "operator", 0, False), ("task", "count", 1, True)]
    html = (await (await setup.sign_in()).get(f"/dashboard/tasks/{found['task']}")).body.decode()
    assert "called by" in html


async def test_a_plan_step_leads_to_its_objective(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard({"opt.enabled": True})
    made = await post(setup, "/operator/objectives", {"name": "A fence"})
    plan = {"name": "One step", "tasks": [{"name": "Dig"}]}
    await post(setup, f"/operator/objectives/{made['id']}/plans", {"plans": [plan]})
    await post(setup, f"/operator/objectives/{made['id']}/run", {})
    run = await setup.agent.next_run()
    page = await setup.json(f"/dashboard/tasks/{run.turn.task_id}")
    above, this = page["related"]
    assert (above["kind"], above["label"], above["location"]) == (
        "objective",
        "A fence",
        f"/dashboard/objectives/{made['id']}",
    )
    assert (above["note"], this["isThis"], this["depth"]) == ("step 1", True, 1)
    await run.finish(Reply.of_text("dug"))


async def test_a_task_alone_has_no_tree(setup: Setup) -> None:
    task_id = await setup.start()
    assert (await setup.json(f"/dashboard/tasks/{task_id}"))["related"] == []


@pytest.mark.parametrize(
    ("report", "usage"),
    [
        (
            {"openclaw": {"model": "m", "provider": "p", "usage": {"input": 7, "output": 5}}},
            {"model": "m", "provider": "p", "inputTokens": 7, "outputTokens": 5, "totalTokens": 12},
        ),
        (
            {"usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 13}},
            {"inputTokens": 7, "outputTokens": 5, "totalTokens": 13},
        ),
        ({"model": "m", "costUsd": 0.25}, {"model": "m", "costUsd": 0.25}),
        ({"usage": {"cost": {"total": 0.5}, "cacheRead": 3}}, {"costUsd": 0.5, "cachedTokens": 3}),
        ({"model": 7, "usage": [1], "costUsd": "much"}, None),
        ({"usage": {"input": -1, "output": True}}, None),
        ({}, None),
    ],
)
async def test_model_tokens_and_cost_are_shown_in_whatever_spelling(
    setup: Setup, report: Json, usage: Json
) -> None:
    task_id = await setup.start()
    await setup.finish(Report(report), Reply.of_text("done"))
    page = await setup.json(f"/dashboard/tasks/{task_id}")
    shown = page["usage"]
    if usage is None:
        assert shown is None
    else:
        assert {name: value for name, value in shown.items() if value} == usage


async def test_costs_of_all_runs_of_a_task_are_added(setup: Setup) -> None:
    task_id = await setup.start()
    spent = Report({"model": "m", "usage": {"input": 10, "output": 2}, "costUsd": 0.5})
    await setup.finish(spent, InputRequired("Which?"))
    browser = await setup.sign_in()
    await browser.act(f"/dashboard/tasks/{task_id}/answer", text="this")
    await setup.finish(spent, Reply.of_text("done"))
    usage = (await setup.json(f"/dashboard/tasks/{task_id}"))["usage"]
    assert (usage["model"], usage["totalTokens"], usage["costUsd"]) == ("m", 24, 1.0)
    html = (await browser.get(f"/dashboard/tasks/{task_id}")).body.decode()
    assert "$1.0000" in html


async def test_a_session_of_openclaw_is_opened_in_its_own_interface(
    open_dashboard: OpenDashboard,
) -> None:
    # The agent is not there: the message is accepted, and its task fails.
    gateway = {"adapter": "openclaw-gateway", "url": "wss://user:secret@claw.example:18789/ui/"}
    account = {"defaultAgentId": "claw", "agentStyle": "task-generating"}
    setup = await open_dashboard(
        {
            "agents.claw": gateway,
            "channels.a2a.accounts.claw": account,
        }
    )
    client = V1Client(setup.anyone, path="/agents/claw/a2a/jsonrpc")
    task = await client.start("hello")
    page = await setup.json(f"/dashboard/tasks/{task['id']}")
    assert page["sessionUrl"].startswith(
        "https://claw.example:18789/ui/chat?session=agent%3Aclaw%3Aa2a%3A"
    )
    assert "secret" not in page["sessionUrl"]
    other = await setup.json(f"/dashboard/tasks/{await setup.start()}")
    assert other["sessionUrl"] == ""


async def test_events_are_filtered_and_ordered_by_the_address(setup: Setup) -> None:
    task_id = await setup.start()
    await setup.finish(ToolProgress(ToolPhase.START, "look", "c-1", {}), Reply.of_text("done"))
    address = f"/dashboard/tasks/{task_id}"

    async def kinds(query: str) -> list[str]:
        return [one["kind"] for one in (await setup.json(f"{address}?{query}"))["events"]]

    everything = await kinds("")
    assert set(everything) == {"status", "tool", "artifact"}
    assert await kinds("show=tool") == ["tool"]
    [used] = (await setup.json(f"{address}?show=tool"))["events"]
    assert used["summary"] == "Started: look"
    assert await kinds("order=newest") == everything[::-1]
    refused = await setup.program.get(f"{address}?show=nothing")
    assert (refused.status, refused.json["error"]["code"]) == (400, "invalid-params")


@pytest.mark.parametrize(
    "text",
    ['{\n  "a": [\n    1,\n    {}\n  ]\n}', '{\n  "a": [\n    "cut', "no JSON <b>", "]\n}", ""],
)
def test_json_folds_and_stays_what_it_was(text: str) -> None:
    html = str(render_json_tree(text))
    assert (
        html.count("<details") == html.count("</details>") == text.count("[\n") + text.count("{\n")
    )
    assert "<b>" not in html


async def test_commands_name_a_token_where_callers_need_one_and_show_none(
    open_dashboard: OpenDashboard,
) -> None:
    setup = await open_dashboard(
        {PEER: peer_with("s3cret")}, agent=ScriptedAgent(Reply.of_text("done"))
    )
    http = setup.anyone.with_headers(authorization="Bearer s3cret")
    task_id = (await V1Client(http).send("paint"))["task"]["id"]
    shown = (await setup.json(f"/dashboard/tasks/{task_id}"))["commands"]
    assert '-H "Authorization: Bearer $OPENCLAW_A2A_TOKEN"' in shown["curl"]
    assert "'Bearer ' + os.environ['OPENCLAW_A2A_TOKEN']" in shown["python"]
    compile(shown["python"], "copied", "exec")
    assert "s3cret" not in str(shown)
