"""Every page answers JSON and HTML at one address, and says what the store says."""

from typing import Any

import msgspec
import pytest
from tests.conformance.asgi_client import Request
from tests.conformance.protocol_clients import V1Client
from tests.conformance.scripted_agent import ScriptedAgent
from tests.dashboard.conftest import OpenDashboard, Setup
from tests.dashboard.test_calls import ENABLED, use_tool
from tests.dashboard.test_objectives import make_objective, steps
from tests.server.admin.asking_agent import AskingAgent, approval
from tests.server.push.webhook_receiver import eventually_found

from openclaw_a2a.dashboard.endpoint import Dashboard
from openclaw_a2a.model.agent_event import (
    Failed,
    InputRequired,
    Note,
    PartDelta,
    Reply,
    Report,
    TextDelta,
    ToolPhase,
    ToolProgress,
)
from openclaw_a2a.model.message import Part

Json = Any
PICTURE = b"\x89PNG\r\n\x1a\n" + b"0" * 20


async def test_every_page_is_html_for_browsers_and_json_for_programs(
    open_dashboard: OpenDashboard,
) -> None:
    agent = ScriptedAgent(Reply.of_text("done"))
    setup = await open_dashboard({**ENABLED, "opt.enabled": True}, agent=agent)
    task = await setup.start("work")
    await setup.program.get(f"/operator/tasks/{task}/events")
    call = await use_tool(setup, "agent_call", {"agent": "main", "skill": "ping", "input": {}})
    objective = await make_objective(setup, {"name": "One", "tasks": steps("Dig")})
    addresses = {
        "/dashboard": "/dashboard",
        "/dashboard/tasks": "/dashboard/tasks",
        "/dashboard/tasks/{}": f"/dashboard/tasks/{task}",
        "/dashboard/tasks/{}/wire": f"/dashboard/tasks/{task}/wire",
        "/dashboard/calls": "/dashboard/calls",
        "/dashboard/calls/{}": f"/dashboard/calls/{call['correlationId']}",
        "/dashboard/objectives": "/dashboard/objectives",
        "/dashboard/objectives/{}": objective,
        "/dashboard/objectives/{}/edit/{}": f"{objective}/edit/{objective.rpartition('/')[2]}",
        "/dashboard/agents": "/dashboard/agents",
        "/dashboard/agents/{}": "/dashboard/agents/default",
        "/dashboard/remote": "/dashboard/remote",
        "/dashboard/deliveries": "/dashboard/deliveries",
        "/dashboard/callers": "/dashboard/callers",
        "/dashboard/audit": "/dashboard/audit",
        "/dashboard/system": "/dashboard/system",
    }
    downloads = {"/dashboard/tasks/{}/events.jsonl", "/dashboard/tasks/{}/files/{}"}
    handler, _ = setup.gateway.asgi.router.find("GET", "/dashboard/x") or (None, ())
    dashboard = getattr(handler, "__self__", None)
    assert isinstance(dashboard, Dashboard)
    pages = {path for method, path in dashboard.routes if method == "GET"} - downloads
    assert pages == set(addresses), "a new page needs an address here"
    browser = await setup.sign_in()
    for page in addresses.values():
        html = await browser.get(page)
        assert (html.status, html.media_type) == (200, "text/html"), page
        assert html.body.startswith(b"<!doctype html>")
        # A browser's session or a token: who names JSON, or names nothing, gets it.
        for client, accept in ((browser.http, "application/json"), (setup.program, "*/*")):
            twin = await client.get(page, accept=accept)
            assert (twin.status, twin.media_type) == (200, "application/json"), page
            assert isinstance(twin.json, dict)
    gone = await setup.program.get("/dashboard/calls/none", accept="application/json")
    assert (gone.status, gone.json["error"]["code"]) == (404, "route-not-found")


async def test_empty_pages_say_the_next_command(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard({**ENABLED, "opt.enabled": True, "outbound.enabled": True})
    browser = await setup.sign_in()
    for page, hint in {
        "/dashboard": "openclaw-a2a send",
        "/dashboard/tasks": "openclaw-a2a send",
        "/dashboard/calls": "openclaw-a2a call",
        "/dashboard/objectives": "openclaw-a2a objectives create",
        "/dashboard/remote": "openclaw-a2a targets add",
        "/dashboard/callers": "openclaw-a2a token create",
        "/dashboard/deliveries": "What fails appears here",
        "/dashboard/agents/default": "Nobody has asked it anything yet.",
    }.items():
        html = (await browser.get(page)).body.decode()
        assert hint in html.partition("<main")[2], page


async def test_pages_of_what_is_off_say_how_it_is_switched_on(setup: Setup) -> None:
    browser = await setup.sign_in()
    for page, setting in {
        "/dashboard/calls": "agentToAgent",
        "/dashboard/objectives": "opt: {",
        "/dashboard/remote": "outbound: {",
    }.items():
        html = (await browser.get(page)).body.decode()
        assert setting in html, page


async def test_now_has_what_waits_what_is_worked_on_and_what_has_ended(setup: Setup) -> None:
    done = await setup.start("first")
    await setup.finish(Reply.of_text("done"))
    asked = await setup.start("second")
    await setup.finish(InputRequired("Which colour?"))
    failed = await setup.start("third")
    await setup.finish(Failed("no paint left"))
    active = await setup.start("fourth")
    await setup.agent.next_run()
    now = await setup.json("/dashboard")
    [waiting] = now["waiting"]
    assert (waiting["id"], waiting["note"], waiting["state"]) == (
        asked,
        "Which colour?",
        "input-required",
    )
    assert [one["id"] for one in now["working"]] == [active]
    assert [(one["id"], one["title"]) for one in now["recent"]] == [
        (failed, "third"),
        (done, "first"),
    ]
    assert now["recent"][0]["note"] == "no paint left"
    assert now["counts"] == {
        "all": 4,
        "waiting": 1,
        "working": 1,
        "completed": 1,
        "failed": 1,
        "canceled": 0,
    }
    assert (sum(now["activity"]["ended"]), sum(now["activity"]["failed"])) == (2, 1)
    assert now["health"]["agentsAvailable"] == now["health"]["agents"] == 1
    html = (await (await setup.sign_in()).get("/dashboard")).body.decode()
    for text in ("Which colour?", "no paint left", "fourth", "first"):
        assert text in html


async def test_now_has_the_approvals_of_agents(open_dashboard: OpenDashboard) -> None:
    asking = AskingAgent(approval("a-1", command="rm -rf build"))
    setup = await open_dashboard(others={"other": asking})
    now = await setup.json("/dashboard")
    assert [(one["id"], one["command"]) for one in now["approvals"]] == [("a-1", "rm -rf build")]
    html = (await (await setup.sign_in()).get("/dashboard")).body.decode()
    assert "rm -rf build" in html
    assert "/dashboard/approvals/a-1" in html


async def test_tasks_are_paged_by_key_and_every_task_comes_once(
    open_dashboard: OpenDashboard,
) -> None:
    setup = await open_dashboard(agent=ScriptedAgent(Reply.of_text("ok")))
    client = V1Client(setup.anyone)
    made = [(await client.send(f"number {n}"))["task"]["id"] for n in range(120)]
    found: list[str] = []
    after = ""
    while True:
        page = await setup.json(f"/dashboard/tasks?after={after.replace('+', '%2B')}")
        found += [one["id"] for one in page["tasks"]]
        assert page["totalSize"] == 120
        after = page["next"]
        if not after:
            break
        assert len(page["tasks"]) == 50
    assert sorted(found) == sorted(made)


async def test_tasks_are_chosen_by_tab_caller_agent_and_text(setup: Setup) -> None:
    first = await setup.start("paint the fence")
    await setup.finish(Reply.of_text("It is GREEN now"))
    second = await setup.start("mow the lawn")
    await setup.finish(Failed("rain"))

    async def ids(query: str) -> list[str]:
        return [one["id"] for one in (await setup.json(f"/dashboard/tasks?{query}"))["tasks"]]

    assert await ids("tab=completed") == [first]
    assert await ids("tab=failed") == [second]
    assert await ids("q=fence") == [first]
    assert await ids("q=green") == [first]
    assert await ids(f"q={second[:13]}") == [second]
    assert await ids("caller=local") == [second, first]
    assert await ids("caller=somebody") == []
    assert await ids("agent=main&tab=failed") == [second]
    assert await ids("agent=other") == []


@pytest.mark.parametrize("query", ["tab=none", "after=x", "after=2026-01-01T00:00:00~t"])
async def test_a_query_that_makes_no_sense_is_refused(setup: Setup, query: str) -> None:
    response = await setup.program.get(f"/dashboard/tasks?{query}")
    assert (response.status, response.json["error"]["code"]) == (400, "invalid-params")


async def test_a_task_tells_its_story(setup: Setup) -> None:
    task_id = await setup.start("draw a fence")
    run = await setup.agent.next_run()
    await run.emit(
        Note("looking for a pencil"),
        ToolProgress(ToolPhase.START, "draw", "call-1", {"what": "fence"}),
        ToolProgress(ToolPhase.RESULT, "draw", "call-1", {"ok": True}),
        TextDelta("Here "),
        TextDelta("it **is**"),
        PartDelta(Part.of_bytes(PICTURE, media_type="image/png", filename="fence.png")),
    )
    await setup.finish(Report({"model": "pencil-2", "usage": {"tokens": 12}}), run=run)
    page = await setup.json(f"/dashboard/tasks/{task_id}")
    assert page["headline"]["text"].startswith("main completed it in ")
    kinds = [one["kind"] for one in page["conversation"]]
    assert kinds == ["user", "note", "tool", "agent", "agent"]
    [answer], [picture] = (one["parts"] for one in page["conversation"][-2:])
    assert (answer["kind"], answer["text"]) == ("text", "Here it **is**")
    assert (picture["kind"], picture["name"]) == ("image", "fence.png")
    assert page["facts"] == {"model": "pencil-2", "usage": {"tokens": 12}}
    assert [bar["kind"] for bar in page["timeline"]][:3] == ["task", "queue", "run"]
    assert page["events"][-1]["state"] == "completed"
    assert (page["canCancel"], page["canAnswer"], page["canRetry"]) == (False, False, True)
    assert "draw a fence" in page["commands"]["cli"]
    html = (await (await setup.sign_in()).get(f"/dashboard/tasks/{task_id}")).body.decode()
    assert "it <strong>is</strong>" in html
    assert "pencil-2" in html


@pytest.mark.parametrize(
    ("last", "headline"),
    [
        (Failed("no paint left"), "Failed after"),
        (InputRequired("Which colour?"), "Waits for an answer of local: Which colour?"),
        (RuntimeError("broken"), "Failed after"),
    ],
)
async def test_one_sentence_says_what_a_task_waits_for_or_how_it_ended(
    setup: Setup, last: Json, headline: str
) -> None:
    task_id = await setup.start()
    await setup.finish(last)
    page = await setup.json(f"/dashboard/tasks/{task_id}")
    assert page["headline"]["text"].startswith(headline)


async def test_a_queued_task_says_what_comes_first(setup: Setup) -> None:
    client = V1Client(setup.anyone)
    first = await client.start("one")
    await setup.agent.next_run()
    second = await client.start("two", contextId=first["contextId"])
    page = await setup.json(f"/dashboard/tasks/{second['id']}")
    assert page["headline"]["text"].startswith("Queued: 1 other run of its session")


async def test_a_conversation_has_answers_where_they_were_given(setup: Setup) -> None:
    task_id = await setup.start("paint")
    await setup.finish(InputRequired("Which colour?"))
    browser = await setup.sign_in()
    await browser.act(f"/dashboard/tasks/{task_id}/answer", text="green")
    await setup.finish(Reply.of_text("It is green."))
    page = await setup.json(f"/dashboard/tasks/{task_id}")
    said = [(one["kind"], one["parts"][0]["text"]) for one in page["conversation"]]
    assert said == [
        ("user", "paint"),
        ("question", "Which colour?"),
        ("user", "green"),
        ("agent", "It is green."),
    ]
    kinds = [bar["kind"] for bar in page["timeline"]]
    assert kinds == ["task", "queue", "run", "wait", "queue", "run"]


async def test_files_and_events_are_downloaded(setup: Setup) -> None:
    task_id = await setup.start()
    run = await setup.agent.next_run()
    picture = Part.of_bytes(PICTURE, media_type="image/png", filename="fence.png")
    page_file = Part.of_bytes(b"<script>", media_type="text/html", filename="a.html")
    await setup.finish(PartDelta(picture), PartDelta(page_file), run=run)
    page = await setup.json(f"/dashboard/tasks/{task_id}")
    shown = [part for one in page["conversation"] for part in one["parts"] if part["file"]]
    assert [(one["kind"], one["name"], one["size"]) for one in shown] == [
        ("image", "fence.png", len(PICTURE)),
        ("file", "a.html", 8),
    ]
    types = []
    for part in shown:
        got = await setup.program.get(f"/dashboard/tasks/{task_id}/files/{part['file']}")
        assert got.status == 200
        assert got.headers["content-disposition"].startswith("attachment")
        assert "sandbox" in got.headers["content-security-policy"]
        types.append(got.media_type)
    # A page of an agent is no page of the dashboard.
    assert types == ["image/png", "application/octet-stream"]
    lines = (await setup.program.get(f"/dashboard/tasks/{task_id}/events.jsonl")).body.splitlines()
    assert len(lines) == page["eventCount"]


async def test_a_task_that_is_not_there_says_why(setup: Setup) -> None:
    browser = await setup.sign_in()
    html = await browser.get("/dashboard/tasks/nothing")
    assert html.status == 404
    assert b"it never existed here, or it was deleted" in html.body
    # Whoever is signed in gets on from there by the menu; a stranger does not see it.
    assert b'class="menu"' in html.body
    stranger = await setup.anyone.get("/dashboard/tasks/nothing", accept="text/html")
    assert (stranger.status, b'class="menu"' in stranger.body) == (401, False)
    assert (await browser.get("/dashboard/nothing")).status == 404


async def test_an_agent_is_shown_with_its_card_and_its_work(setup: Setup) -> None:
    task_id = await setup.start("paint")
    [agent] = (await setup.json("/dashboard/agents"))["agents"]
    assert (agent["account"], agent["adapter"], agent["isAvailable"]) == ("default", "python", True)
    page = await setup.json("/dashboard/agents/default")
    assert [one["id"] for one in page["recent"]] == [task_id]
    assert page["agent"]["card"]["name"]
    html = (await (await setup.sign_in()).get("/dashboard/agents/default")).body.decode()
    assert "/dashboard/agents/default/send" in html


async def test_the_bare_address_leads_browsers_to_the_dashboard_and_nobody_else(
    setup: Setup,
) -> None:
    browser = await setup.anyone.get("/", accept="text/html")
    assert (browser.status, browser.headers["location"]) == (303, "/dashboard")
    for accept in ("application/json", "*/*", ""):
        other = await setup.anyone.get("/", accept=accept)
        assert (other.status, other.json["error"]["code"]) == (404, "A2A_ROUTE_NOT_FOUND")


async def test_an_account_at_the_bare_address_keeps_it(open_dashboard: OpenDashboard) -> None:
    account = {"defaultAgentId": "main", "jsonRpcPath": "/"}
    setup = await open_dashboard({"channels.a2a.accounts.default": account})
    refused = await setup.anyone.get("/", accept="application/json")
    assert (refused.status, refused.headers["allow"]) == (405, "POST")
    browser = await setup.anyone.get("/", accept="text/html")
    assert browser.status == 303
    refused = await setup.anyone.request(Request("PUT", "/", {"accept": "text/html"}))
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD, POST")


@pytest.mark.requirement("inbound.account.method-unknown")
@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", "GET, HEAD"),
        ("/dashboard", "GET, HEAD"),
        ("/dashboard/", "GET, HEAD"),
        ("/dashboard/tasks", "GET, HEAD"),
        ("/dashboard/tasks/", "GET, HEAD"),
        ("/dashboard/tasks/x/cancel", "POST"),
        ("/dashboard/tasks/x/cancel/", "POST"),
        ("/dashboard/tasks/x/events.jsonl", "GET, HEAD"),
        ("/dashboard/login", "GET, HEAD, POST"),
        ("/dashboard/live", "GET"),
        ("/dashboard/logout", "POST"),
        ("/dashboard/static/dashboard.css", "GET, HEAD"),
    ],
)
async def test_other_methods_of_a_path_are_405_with_those_it_has(
    setup: Setup, path: str, allowed: str
) -> None:
    browser = await setup.sign_in()
    methods = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"} - set(allowed.split(", "))
    for method in sorted(methods):
        named = {"accept": "text/html"}
        refused = await browser.http.request(Request(method, path, named))
        assert (refused.status, refused.headers.get("allow")) == (405, allowed), method
        if path != "/":  # there for browsers alone
            refused = await browser.http.request(Request(method, path))
            assert (refused.status, refused.headers.get("allow")) == (405, allowed), method
            assert refused.json["error"]["code"] == "method-not-allowed"
    assert (await browser.get("/dashboard")).status == 200, "still signed in"


async def test_other_methods_are_405_for_strangers_where_no_sign_in_is_needed(
    setup: Setup,
) -> None:
    for path, status in {
        "/dashboard/login": 405,
        "/dashboard/static/dashboard.css": 405,
        "/dashboard/static/nothing.css": 404,
        "/dashboard/live": 401,
        "/dashboard/logout": 401,
        "/dashboard/tasks": 401,
        "/dashboard/nothing": 401,
    }.items():
        refused = await setup.anyone.request(Request("PUT", path))
        assert (refused.status, "allow" in refused.headers) == (status, status == 405), path


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 303),
        ("/dashboard/", 200),
        ("/dashboard/tasks", 200),
        ("/dashboard/login", 200),
        ("/dashboard/static/dashboard.css", 200),
        ("/dashboard/nothing", 404),
        ("/dashboard/static/nothing.css", 404),
    ],
)
async def test_head_has_the_headers_of_get(setup: Setup, path: str, status: int) -> None:
    browser = await setup.sign_in()
    named = {"accept": "text/html"}
    head, whole = [
        await browser.http.request(Request(method, path, named)) for method in ("HEAD", "GET")
    ]
    assert head.status == whole.status == status
    assert {**head.headers, "content-length": ""} == {**whole.headers, "content-length": ""}


async def test_head_and_wrong_methods_do_not_use_up_a_link(setup: Setup) -> None:
    link = await setup.link()
    statuses = [
        (await setup.anyone.request(Request(method, link))).status
        for method in ("HEAD", "PUT", "DELETE")
    ]
    assert statuses == [200, 405, 405]
    assert (await setup.anyone.get(link)).status == 303


async def test_without_the_dashboard_there_are_no_pages(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard({"dashboard.enabled": False})
    assert (await setup.program.get("/dashboard")).status == 404
    assert (await setup.anyone.get("/", accept="text/html")).status == 404
    link = await setup.program.post("/operator/dashboard/link", b"{}", content_length="2")
    assert link.status == 400


async def test_calls_are_a_tree_with_what_became_of_each(open_dashboard: OpenDashboard) -> None:
    calls = {"tools.agentToAgent.enabled": True, "tools.agentToAgent.allow": ["*"]}
    answering = ScriptedAgent(Reply.of_text('{"output": {"a": 1}, "confidence": 0.9}'))
    setup = await open_dashboard(calls, others={"other": answering})
    assert (await setup.json("/dashboard/calls"))["calls"] == []
    body = b'{"agent": "other", "skill": "count", "input": {}, "wait": true}'
    made = await setup.program.post("/tools/agent_call", body, content_length=str(len(body)))
    assert made.status == 200, made.body
    page = await setup.json("/dashboard/calls")
    [call] = page["calls"]
    assert (call["caller"], call["callee"], call["skill"]) == ("operator", "other", "count")
    assert (call["status"], call["depth"], call["parent"]) == ("completed", 0, None)
    assert page["counts"]["completed"] == 1
    task = await setup.json(f"/dashboard/tasks/{call['task']}")
    assert task["task"]["title"] == "count"
    assert [(one["direction"], one["callee"]) for one in task["calls"]] == [("in", "other")]
    html = (await (await setup.sign_in()).get("/dashboard/calls")).body.decode()
    assert "operator → other" in html


async def test_an_objective_is_shown_and_steered(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard({"opt.enabled": True})

    async def post(path: str, body: Json) -> Json:
        content = msgspec.json.encode(body)
        done = await setup.program.post(path, content, content_length=str(len(content)))
        assert done.status == 200, done.body
        return done.json

    made = await post("/operator/objectives", {"name": "A fence"})
    root = f"/dashboard/objectives/{made['id']}"
    plan = {"name": "Two steps", "tasks": [{"name": "Dig"}, {"name": "Paint"}]}
    plan["tasks"][1]["dependencies"] = ["task-0"]
    await post(f"/operator/objectives/{made['id']}/plans", {"plans": [plan]})
    listed = await setup.json("/dashboard/objectives")
    assert [one["name"] for one in listed["objectives"]] == ["A fence"]
    browser = await setup.sign_in()
    html = (await browser.get(root)).body.decode()
    assert "Dig" in html
    assert "Paint" in html
    assert (await browser.act(f"{root}/run")).status == 200
    run = await setup.agent.next_run()
    assert (await setup.json(root))["actions"] == ["pause", "cancel"]
    assert (await browser.act(f"{root}/pause")).status == 200
    assert (await setup.json(root))["actions"] == ["resume", "cancel"]
    assert (await browser.act(f"{root}/burn")).status == 400
    assert (await browser.act(f"{root}/cancel")).status == 200
    await run.wait_stopped()
    page = await setup.json(root)
    assert (page["objective"]["status"], page["actions"]) == ("canceled", [])


async def test_the_gateway_shows_itself_without_its_secrets(
    open_dashboard: OpenDashboard,
) -> None:
    peers = {"channels.a2a.security.peers.alice": {"tokens": ["sha256:" + "ab" * 32]}}
    setup = await open_dashboard(peers)
    response = await setup.program.get("/dashboard/system")
    settings = {one["path"]: one for one in response.json["settings"]}
    assert settings["dashboard.readOnly"]["value"] == "false"
    assert b"abababab" not in response.body
    [store] = response.json["stores"]
    assert store["size"] > 0
    assert store["free"] > 0
    assert store["schema"] > 0
    assert (store["kind"], store["problem"]) == ("sqlite", "")


async def test_each_setting_says_where_it_comes_from(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard({"dashboard.sessionSeconds": 1234})
    page = await setup.json("/dashboard/system")
    origins = {one["path"]: (one["value"], one["origin"]) for one in page["settings"]}
    value, origin = origins["dashboard.sessionSeconds"]
    assert (float(value), origin) == (1234, "flag")
    assert origins["dashboard.readOnly"] == ("false", "default")
    html = (await (await setup.sign_in()).get("/dashboard/system")).body.decode()
    assert ">flag</td>" in html


async def test_settings_that_were_set_come_first_and_defaults_are_folded(
    open_dashboard: OpenDashboard,
) -> None:
    setup = await open_dashboard({"dashboard.sessionSeconds": 7200})
    html = (await (await setup.sign_in()).get("/dashboard/system")).body.decode()
    given, _, defaults = html.partition("<details")
    assert "dashboard.sessionSeconds" in given
    assert "server.heartbeatSeconds" not in given
    assert "server.heartbeatSeconds" in defaults
    settings = (await setup.json("/dashboard/system"))["settings"]
    count = sum(one["origin"] == "default" for one in settings)
    assert f"{count} defaults" in defaults


async def test_findings_name_what_an_operator_should_mend(open_dashboard: OpenDashboard) -> None:
    class Away(ScriptedAgent):
        """An agent that cannot answer now."""

        def unavailable_reason(self) -> str | None:
            return "its host is down; start it"

    setup = await open_dashboard(agent=Away())
    page = await setup.json("/dashboard/system")
    assert {"what": "agent main", "level": "broken", "text": "its host is down; start it"} in page[
        "findings"
    ]
    html = (await (await setup.sign_in()).get("/dashboard/system")).body.decode()
    assert "its host is down" in html


async def test_a_healthy_gateway_has_no_findings(setup: Setup) -> None:
    page = await setup.json("/dashboard/system")
    assert (page["findings"], page["replicas"]) == ([], [])


async def test_the_audit_log_is_filtered(setup: Setup) -> None:
    browser = await setup.sign_in()
    for name in ("one", "two"):
        # Not for A2A: from the first such token on, the task below would need one.
        assert (await browser.act("/dashboard/callers", name=name, scope="tools")).status == 200
    task_id = await setup.start()
    assert (await browser.act(f"/dashboard/tasks/{task_id}/cancel")).status == 200

    async def look() -> Json | None:
        page = await setup.json("/dashboard/audit?event=task-canceled")
        return page if page["entries"] else None

    page = await eventually_found(look)
    assert {one["event"] for one in page["entries"]} == {"task-canceled"}
    assert "task-canceled" in page["choices"]["event"]
    assert len(page["choices"]["event"]) > 1
    found = await setup.json("/dashboard/audit?q=TWO")
    assert {one["target"] for one in found["entries"]} == {"two"}
    none = await setup.json("/dashboard/audit?who=nobody")
    assert (none["entries"], none["searched"] > 0) == ([], True)
    html = (await browser.get("/dashboard/audit?who=nobody")).body.decode()
    assert "<option selected>nobody</option>" in html
