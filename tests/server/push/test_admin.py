"""The operator lists failing deliveries and retries them, over HTTP and by command."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.server.push.conftest import Serve
from tests.server.push.gateways import AsgiClient, Request, ScriptedAgent, V1Client, v1_message
from tests.server.push.test_kill import call
from tests.server.push.webhook_receiver import (
    Json,
    WebhookReceiver,
    eventually,
    eventually_found,
    status,
)

from openclaw_a2a.auth.admin_token import ADMIN_TOKEN_FILE
from openclaw_a2a.model.agent_event import Reply

COMPLETED = b"TASK_STATE_COMPLETED"
SECRETS = {
    "token": "SECRET-TOKEN",
    "authentication": {"scheme": "Bearer", "credentials": "SECRET-CREDENTIALS"},
}


def operator_at(http: AsgiClient, folder: Path) -> AsgiClient:
    token = (folder / ADMIN_TOKEN_FILE).read_text(encoding="utf-8").strip()
    return http.with_headers(authorization=f"Bearer {token}")


async def in_trouble(operator: AsgiClient) -> list[Json]:
    response = await operator.get("/operator/deliveries")
    assert response.status == 200
    assert b"SECRET" not in response.body
    return response.json["deliveries"]


@pytest.mark.requirement("promise.push.dead-letter", "promise.push.secret")
async def test_the_operator_lists_failing_deliveries_and_retries_them(
    serve: Serve, receiver: WebhookReceiver, tmp_path: Path
) -> None:
    receiver.always = status(503)
    agent = ScriptedAgent(Reply.of_text("hi"))
    http = AsgiClient((await serve(agent, settings={"push.attempts": 3})).asgi)
    operator = operator_at(http, tmp_path)
    assert await in_trouble(operator) == []
    hook = {"url": receiver.url("/SECRET-PATH?key=SECRET"), **SECRETS}
    sent = await V1Client(http).send(configuration={"taskPushNotificationConfig": hook})

    async def look() -> Json | None:
        found = await in_trouble(operator)
        return found[0] if found and found[0]["state"] == "dead" else None

    shown = await eventually_found(look)
    assert shown["taskId"] == sent["task"]["id"]
    assert (shown["to"], shown["kind"]) == (f"127.0.0.1:{receiver.port}", "push")
    assert (shown["attempts"], shown["reason"], shown["nextAt"]) == (3, "it answered 503", None)
    receiver.always = status(200)
    request = Request("POST", f"/operator/deliveries/{shown['id']}/redeliver", {}, (b"",))
    response = await operator.request(request)
    assert (response.status, response.json["state"]) == (200, "waiting")
    await receiver.wait_for_post(COMPLETED)
    unknown = await operator.request(
        Request("POST", "/operator/deliveries/none/redeliver", {}, (b"",))
    )
    assert (unknown.status, unknown.json["error"]["code"]) == (404, "delivery-not-found")
    assert (await http.get("/operator/deliveries")).status == 401


@pytest.mark.requirement("promise.push.dead-letter")
async def test_a_waiting_delivery_is_listed_with_its_next_attempt(
    serve: Serve, receiver: WebhookReceiver, tmp_path: Path
) -> None:
    receiver.always = status(500, Retry_After="30")
    settings = {"push.mostBackoffSeconds": 60.0}
    http = AsgiClient((await serve(ScriptedAgent(Reply.of_text("hi")), settings=settings)).asgi)
    operator = operator_at(http, tmp_path)
    hook = {"taskPushNotificationConfig": {"url": receiver.url()}}
    await V1Client(http).send(configuration=hook)

    async def look() -> Json | None:
        return next(iter(await in_trouble(operator)), None)

    shown = await eventually_found(look)
    assert (shown["state"], shown["attempts"]) == ("waiting", 1)
    assert shown["nextAt"] > shown["updatedAt"]


@pytest.mark.slow
async def test_the_command_lists_and_redelivers(
    start_gateway: Any, receiver: WebhookReceiver
) -> None:
    receiver.always = status(500)
    push = {"allowPrivate": True, "attempts": 1}
    gateway = start_gateway({"push": push, "data": "data"})

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-c", "from openclaw_a2a.cli import main; main()", "deliveries"]
        more = ["--config", str(gateway.config), "--url", gateway.url]
        return subprocess.run(
            [*line, *arguments, *more],
            capture_output=True,
            text=True,
            timeout=240,
            cwd=gateway.home,
            check=False,
        )

    empty = command("list")
    assert (empty.returncode, empty.stdout) == (0, ""), empty.stderr
    hook = {"taskPushNotificationConfig": {"url": receiver.url(), **SECRETS}}
    sent = await call(gateway.url, "SendMessage", v1_message(configuration=hook))

    async def look() -> Json | None:
        return next(iter(json.loads(command("list", "--json").stdout)["deliveries"]), None)

    shown = await eventually_found(look)
    assert shown["state"] == "dead"
    table = command("list").stdout
    assert "it answered 500" in table
    assert sent["task"]["id"][:8] in table
    assert f"127.0.0.1:{receiver.port}" in table
    assert "SECRET" not in table
    receiver.always = status(200)
    wrong = command("redeliver", "zzz")
    assert wrong.returncode == 1
    assert "deliveries list" in wrong.stderr
    done = command("redeliver", shown["id"][:12])
    assert done.returncode == 0, done.stderr
    assert "tried again" in done.stdout
    await receiver.wait_for_post(COMPLETED)
    await eventually(lambda: command("list", "--json").stdout.find('"deliveries": []') >= 0)
    again = json.loads(command("redeliver", shown["id"], "--json").stdout)
    assert again["state"] == "idle"
