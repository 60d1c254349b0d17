"""The official client manages push configurations over both of its bindings."""

import asyncio
from typing import Any

import httpx
import pytest
from a2a.client import ClientConfig, create_client
from a2a.types import (
    AuthenticationInfo,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    TaskPushNotificationConfig,
)
from google.protobuf import json_format
from tests.server.push.webhook_receiver import TIMEOUT_S, WebhookReceiver

pytestmark = [pytest.mark.slow, pytest.mark.requirement("clients.official", "wire.push.configs")]


def message() -> SendMessageRequest:
    said = Message(message_id="m-1", role=Role.ROLE_USER, parts=[Part(text="hello")])
    return SendMessageRequest(message=said)


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_the_official_client_manages_configurations(
    start_gateway: Any, receiver: WebhookReceiver, binding: str
) -> None:
    gateway = start_gateway({"push": {"allowPrivate": True}})
    secret = AuthenticationInfo(scheme="Bearer", credentials="c")
    async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_S) as http:
        config = ClientConfig(
            httpx_client=http, streaming=False, supported_protocol_bindings=[binding]
        )
        client = await create_client(gateway.url, client_config=config)
        [sent] = [event async for event in client.send_message(message())]
        task = sent.task
        wish = TaskPushNotificationConfig(
            task_id=task.id, id="mine", url=receiver.url(), token="k", authentication=secret
        )
        shown = TaskPushNotificationConfig(
            task_id=task.id, id="mine", url=receiver.url(), authentication={"scheme": "Bearer"}
        )
        assert await client.create_task_push_notification_config(wish) == shown
        named = GetTaskPushNotificationConfigRequest(task_id=task.id, id="mine")
        assert await client.get_task_push_notification_config(named) == shown
        all_of_it = ListTaskPushNotificationConfigsRequest(task_id=task.id)
        listed = await client.list_task_push_notification_configs(all_of_it)
        assert list(listed.configs) == [shown]
        await receiver.wait_posts(1)  # what is deleted before it was sent is not sent
        gone = DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="mine")
        await client.delete_task_push_notification_config(gone)
        await client.delete_task_push_notification_config(gone)
        listed = await client.list_task_push_notification_configs(all_of_it)
        assert list(listed.configs) == []
    [post] = await receiver.wait_posts(1)
    told = json_format.ParseDict(post.json, StreamResponse())
    assert told.task.id == task.id
    assert post.headers["authorization"] == "Bearer c"


async def test_the_official_client_sends_a_configuration_with_a_message(
    start_gateway: Any, receiver: WebhookReceiver
) -> None:
    gateway = start_gateway({"push": {"allowPrivate": True}})
    async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_S) as http:
        hook = TaskPushNotificationConfig(url=receiver.url(), token="k")
        config = ClientConfig(httpx_client=http, streaming=True, push_notification_config=hook)
        client = await create_client(gateway.url, client_config=config)
        async with asyncio.timeout(TIMEOUT_S):
            events = [event async for event in client.send_message(message())]
    assert events
    posts = await receiver.wait_for_post(b"TASK_STATE_COMPLETED")
    for post in posts:
        json_format.ParseDict(post.json, StreamResponse())
        assert post.headers["x-a2a-notification-token"] == "k"
