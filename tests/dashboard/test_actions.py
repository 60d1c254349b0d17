"""What is done from a page is done, recorded, and shown."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.conformance.protocol_clients import V1Client
from tests.conformance.scripted_agent import ScriptedAgent
from tests.dashboard.conftest import OpenDashboard, Setup
from tests.server.admin.asking_agent import AskingAgent, approval
from tests.server.push.webhook_receiver import WebhookReceiver, eventually_found, status

from openclaw_a2a.auth.tokens import TokenStore
from openclaw_a2a.model.agent_event import Failed, InputRequired, Reply

Json = Any
QUICK_PUSH = {
    "push.allowPrivate": True,
    "push.attempts": 2,
    "push.backoffSeconds": 0.02,
    "push.mostBackoffSeconds": 0.1,
}


async def test_a_task_is_canceled_and_its_agent_has_stopped(setup: Setup) -> None:
    task_id = await setup.start()
    run = await setup.agent.next_run()
    done = await (await setup.sign_in()).act(f"/dashboard/tasks/{task_id}/cancel")
    assert (done.status, done.media_type) == (200, "text/html")
    assert run.has_stopped
    page = await setup.json(f"/dashboard/tasks/{task_id}")
    assert page["task"]["state"] == "canceled"


async def test_a_question_is_answered_for_its_caller(setup: Setup) -> None:
    task_id = await setup.start("paint")
    await setup.finish(InputRequired("Which colour?"))
    browser = await setup.sign_in()
    assert (await browser.act(f"/dashboard/tasks/{task_id}/answer", text="green")).status == 200
    run = await setup.agent.next_run()
    assert (run.turn.body, run.turn.principal) == ("green", "local")
    await setup.finish(Reply.of_text("done"), run=run)
    again = await browser.act(f"/dashboard/tasks/{task_id}/answer", text="red")
    assert again.status == 400
    assert b"notice bad" in again.body


async def test_a_task_is_done_again_as_a_new_one(setup: Setup) -> None:
    task_id = await setup.start("paint")
    await setup.finish(Failed("no paint left"))
    done = await (await setup.sign_in()).act(f"/dashboard/tasks/{task_id}/retry", follow="yes")
    run = await setup.agent.next_run()
    assert run.turn.body == "paint"
    assert run.turn.task_id != task_id
    assert done.headers["hx-redirect"] == f"/dashboard/tasks/{run.turn.task_id}"


@pytest.mark.parametrize("decision", ["allow", "deny"])
async def test_an_approval_is_decided(open_dashboard: OpenDashboard, decision: str) -> None:
    asking = AskingAgent(approval("a-1"))
    setup = await open_dashboard(others={"other": asking})
    assert len((await setup.json("/dashboard"))["approvals"]) == 1
    browser = await setup.sign_in()
    assert (await browser.act("/dashboard/approvals/a-1", decision=decision)).status == 200
    assert asking.decided == {"a-1": decision == "allow"}
    assert (await setup.json("/dashboard"))["approvals"] == []
    assert (await browser.act("/dashboard/approvals/a-1", decision="maybe")).status == 400


async def test_an_agent_is_asked_something(setup: Setup) -> None:
    browser = await setup.sign_in()
    done = await browser.act("/dashboard/agents/default/send", text="hello", follow="yes")
    run = await setup.agent.next_run()
    assert (run.turn.body, run.turn.principal) == ("hello", "operator")
    assert done.headers["hx-redirect"] == f"/dashboard/tasks/{run.turn.task_id}"
    assert (await browser.act("/dashboard/agents/default/send", text=" ")).status == 400
    assert (await browser.act("/dashboard/agents/nobody/send", text="x")).status == 404


async def test_programs_act_with_json(setup: Setup) -> None:
    task_id = await setup.start()
    await setup.agent.next_run()
    path = f"/dashboard/tasks/{task_id}/cancel"
    done = await setup.program.post(path, b"{}", content_length="2")
    assert (done.status, done.json["id"]) == (200, task_id)


async def test_actions_are_in_the_audit_log(setup: Setup, tmp_path: Path) -> None:
    task_id = await setup.start()
    await setup.agent.next_run()
    browser = await setup.sign_in()
    await browser.act(f"/dashboard/tasks/{task_id}/cancel")
    await browser.act(f"/dashboard/tasks/{task_id}/cancel")
    log = tmp_path / "data" / "audit.jsonl"
    async with asyncio.timeout(240):
        while True:
            data = log.read_bytes()
            whole = data[: data.rfind(b"\n") + 1]  # the last line may be half written
            lines = [msgspec.json.decode(one) for one in whole.splitlines()]
            canceled = [one for one in lines if one["event"] == "task-canceled"]
            if len(canceled) == 2:
                break
            await asyncio.sleep(0.02)  # another thread writes it; nothing here can be awaited
    assert [(one["who"], one["task"], one.get("outcome")) for one in canceled] == [
        ("operator", task_id, "ok"),
        ("operator", task_id, "refused"),
    ]


async def test_a_token_is_made_shown_once_and_revoked(setup: Setup, tmp_path: Path) -> None:
    browser = await setup.sign_in()
    made = await browser.act("/dashboard/callers", name="alice", scope="a2a", days="30")
    assert made.status == 200, made.body
    text = made.body.decode().partition("not shown again: ")[2].split()[0].partition("<")[0]
    peer = setup.anyone.with_headers(authorization=f"Bearer {text}")
    assert (await V1Client(peer).start("hello"))["id"]
    page = await setup.program.get("/dashboard/callers")
    [token] = page.json["tokens"]
    assert (token["name"], token["scopes"], token["isValid"]) == ("alice", ["a2a"], True)
    assert text.encode() not in page.body
    revoked = await browser.act(f"/dashboard/callers/{token['id']}/revoke")
    assert revoked.status == 200
    assert (await setup.json("/dashboard/callers"))["tokens"] == []
    assert TokenStore(tmp_path / "data").find(text.encode()) is None


@pytest.mark.parametrize(
    "form",
    [
        {"name": "boss", "scope": "admin"},
        {"name": "x y", "scope": "a2a"},
        {"name": "late", "scope": "a2a", "days": "0"},
        {"name": "", "scope": "a2a"},
    ],
)
async def test_a_token_that_may_not_be_made_here_is_refused(
    setup: Setup, form: dict[str, str]
) -> None:
    refused = await (await setup.sign_in()).act("/dashboard/callers", **form)
    assert refused.status == 400
    assert (await setup.json("/dashboard/callers"))["tokens"] == []


async def test_a_delivery_that_was_given_up_is_tried_again(
    open_dashboard: OpenDashboard, webhook: WebhookReceiver
) -> None:
    webhook.always = status(503)
    setup = await open_dashboard(QUICK_PUSH, agent=ScriptedAgent(Reply.of_text("hi")))
    hook = {"url": webhook.url("/SECRET-PATH?key=SECRET"), "token": "SECRET-TOKEN"}
    sent = await V1Client(setup.anyone).send(configuration={"taskPushNotificationConfig": hook})

    async def look_given_up() -> Json | None:
        page = await setup.json("/dashboard/deliveries")
        return page["deliveries"] if page["counts"]["dead"] else None

    [shown] = await eventually_found(look_given_up)
    assert (shown["taskId"], shown["kind"], shown["state"]) == (sent["task"]["id"], "push", "dead")
    assert (shown["to"], shown["attempts"]) == (f"127.0.0.1:{webhook.port}", 2)
    browser = await setup.sign_in()
    html = (await browser.get("/dashboard/deliveries")).body.decode()
    path = f"/dashboard/deliveries/{shown['id']}/redeliver"
    assert f'hx-post="{path}"' in html
    assert "it answered 503" in html
    assert "SECRET" not in html

    webhook.always = status(200)
    webhook.posts.clear()
    done = await browser.act(path)
    assert (done.status, b"It is tried again now." in done.body) == (200, True)
    await webhook.wait_for_post(b"TASK_STATE_COMPLETED")

    async def look_delivered() -> bool | None:
        return (await setup.json("/dashboard/deliveries"))["deliveries"] == [] or None

    assert await eventually_found(look_delivered)
    again = await browser.act(path)
    assert (again.status, b"Nothing of it had failed." in again.body) == (200, True)
    assert (await browser.act("/dashboard/deliveries/none/redeliver")).status == 404

    async def look_audited() -> Json | None:
        entries = (await setup.json("/dashboard/audit"))["entries"]
        found = [one for one in entries if one.get("action") == "dashboard/redeliver"]
        return found if len(found) == 3 else None

    audited = await eventually_found(look_audited)
    assert [(one["who"], one["target"], one["outcome"]) for one in reversed(audited)] == [
        ("operator", shown["id"], "ok"),
        ("operator", shown["id"], "ok"),
        ("operator", "none", "refused"),
    ]


async def test_deliveries_are_grouped_and_chosen_by_receiver(
    open_dashboard: OpenDashboard, webhook: WebhookReceiver
) -> None:
    webhook.always = status(503)
    setup = await open_dashboard(QUICK_PUSH, agent=ScriptedAgent(Reply.of_text("hi")))
    here = f"127.0.0.1:{webhook.port}"
    there = f"localhost:{webhook.port}"
    for host in (here, here, there):
        hook = {"taskPushNotificationConfig": {"url": f"http://{host}/hook"}}
        await V1Client(setup.anyone).send(configuration=hook)

    async def look_given_up() -> Json | None:
        page = await setup.json("/dashboard/deliveries")
        return page if page["counts"]["dead"] == 3 else None

    page = await eventually_found(look_given_up)
    assert page["groups"] == [
        {"kind": "push", "to": here, "count": 2},
        {"kind": "push", "to": there, "count": 1},
    ]
    chosen = await setup.json(f"/dashboard/deliveries?kind=push&to={there}")
    assert [one["to"] for one in chosen["deliveries"]] == [there]
    assert chosen["counts"] == page["counts"]
    html = (await (await setup.sign_in()).get("/dashboard/deliveries")).body.decode()
    assert f"to=localhost%3A{webhook.port}" in html
    other = await setup.json("/dashboard/deliveries?kind=call")
    assert other["deliveries"] == []
    # The command prints the same records.
    listed = (await setup.json("/operator/deliveries"))["deliveries"]
    assert sorted(listed, key=lambda one: one["id"]) == sorted(
        page["deliveries"], key=lambda one: one["id"]
    )
