"""The gateway process is killed before its notifications are sent; the next one sends them."""

import asyncio
from typing import Any

import httpx2
import pytest
from tests.server.push.gateways import v03_message, v1_message
from tests.server.push.webhook_receiver import (
    TIMEOUT_S,
    Json,
    WebhookReceiver,
    eventually,
    status,
)

pytestmark = pytest.mark.slow

SETTINGS: dict[str, object] = {
    "push": {"allowPrivate": True, "timeoutSeconds": 30, "backoffSeconds": 0.05},
    "agents": {"main": {"adapter": "echo"}},
}


async def call(url: str, method: str, params: Json) -> Json:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with httpx2.AsyncClient(trust_env=False, timeout=TIMEOUT_S) as client:
        response = await client.post(f"{url}/a2a/jsonrpc", json=body)
    return response.json()["result"]


@pytest.mark.requirement("promise.push.durable")
@pytest.mark.parametrize("kind", ["sqlite", "json-file"])
async def test_a_notification_is_delivered_after_a_kill_between_end_and_delivery(
    start_gateway: Any, receiver: WebhookReceiver, kind: str
) -> None:
    receiver.always = None
    gateway = start_gateway({**SETTINGS, "store": {"kind": kind}})
    new = {"taskPushNotificationConfig": {"url": receiver.url("/new"), "token": "t"}}
    old = {"pushNotificationConfig": {"url": receiver.url("/old")}}
    sent = await call(gateway.url, "SendMessage", v1_message(configuration=new))
    assert sent["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    sent_old = await call(gateway.url, "message/send", v03_message(configuration=old))
    assert sent_old["status"]["state"] == "completed"
    await receiver.wait_posts(2)
    gateway.kill()
    del receiver.posts[:]
    receiver.always = status(200)
    await asyncio.to_thread(gateway.start)  # the webhook answers meanwhile
    await receiver.wait_for_post(b"TASK_STATE_COMPLETED")
    await receiver.wait_for_post(b'"completed"')
    new_posts = [post for post in receiver.posts if post.path == "/new"]
    assert {post.headers["x-a2a-notification-token"] for post in new_posts} == {"t"}
    updates = [post.json["statusUpdate"] for post in new_posts if "statusUpdate" in post.json]
    states = [update["status"]["state"].removeprefix("TASK_STATE_") for update in updates]
    assert states == ["SUBMITTED", "WORKING", "COMPLETED"]


@pytest.mark.requirement("promise.push.durable")
async def test_every_webhook_is_notified_after_a_kill_right_after_the_response(
    start_gateway: Any, receiver: WebhookReceiver
) -> None:
    gateway = start_gateway({**SETTINGS, "store": {"kind": "sqlite"}})
    tasks: list[str] = []
    for number in range(20):
        config = {"taskPushNotificationConfig": {"url": receiver.url(f"/{number}")}}
        config["returnImmediately"] = True
        sent = await call(gateway.url, "SendMessage", v1_message(configuration=config))
        tasks.append(sent["task"]["id"])
    gateway.kill()
    await asyncio.to_thread(gateway.start)  # the webhook answers meanwhile

    def told() -> set[str]:
        ends = [post for post in receiver.posts if b"TASK_STATE_COMPLETED" in post.body]
        return {post.json["statusUpdate"]["taskId"] for post in ends}

    await eventually(lambda: told() == set(tasks))
