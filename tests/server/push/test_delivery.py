"""Webhooks get the events of a task, in the protocol version that configured them."""

import asyncio

import msgspec
import pytest
from a2a import types as v1_types
from a2a.compat.v0_3 import types as v03_types
from google.protobuf import json_format
from tests.server.push.conftest import OpenReceiver, Serve
from tests.server.push.gateways import (
    AsgiClient,
    ScriptedAgent,
    V03Client,
    V1Client,
    v03_message,
    v1_message,
)
from tests.server.push.webhook_receiver import (
    TIMEOUT_S,
    Json,
    Post,
    WebhookReceiver,
    eventually,
    status,
)

from openclaw_a2a.model.agent_event import Reply, TextDelta
from openclaw_a2a.model.delivery import DeliveryId

COMPLETED = b"TASK_STATE_COMPLETED"


def hook(receiver: WebhookReceiver, **more: Json) -> Json:
    return {"taskPushNotificationConfig": {"url": receiver.url(), **more}}


def hook_v03(receiver: WebhookReceiver, **more: Json) -> Json:
    return {"pushNotificationConfig": {"url": receiver.url(), **more}}


def strictly(post: Post) -> str:
    """The member of a 1.0 notification, after the official type has parsed it strictly."""
    json_format.ParseDict(post.json, v1_types.StreamResponse())
    [member] = post.json
    return member


def state_of(post: Post) -> str:
    return post.json["statusUpdate"]["status"]["state"].removeprefix("TASK_STATE_")


@pytest.mark.requirement("wire.push.delivery", "wire.push.inline", "wire.push.media-type")
async def test_a_webhook_of_1_0_gets_each_status_and_the_finished_artifact(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    agent = ScriptedAgent(TextDelta("hel"), TextDelta("lo"), Reply.of_text("hello"))
    v1 = V1Client(AsgiClient((await serve(agent)).asgi))
    task = (await v1.send(configuration=hook(receiver)))["task"]
    posts = await receiver.wait_for_post(COMPLETED)
    members = [strictly(post) for post in posts]
    assert members == ["statusUpdate", "statusUpdate", "artifactUpdate", "statusUpdate"]
    assert [state_of(posts[index]) for index in (0, 1, 3)] == ["SUBMITTED", "WORKING", "COMPLETED"]
    update = posts[2].json["artifactUpdate"]
    assert "".join(part["text"] for part in update["artifact"]["parts"]) == "hello"
    assert update["lastChunk"] is True
    assert not update.get("append")
    assert {post.headers["content-type"] for post in posts} == {"application/a2a+json"}
    assert {post.method for post in posts} == {"POST"}
    assert posts[0].json["statusUpdate"]["taskId"] == task["id"]


@pytest.mark.requirement("wire.push.delivery", "wire.push.inline", "wire.push.media-type")
async def test_a_webhook_of_0_3_gets_the_whole_task(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    v03 = V03Client(AsgiClient((await serve(ScriptedAgent(Reply.of_text("hello")))).asgi))
    task = await v03.send(configuration=hook_v03(receiver))
    last = (await receiver.wait_for_post(b'"completed"'))[-1]
    v03_types.Task.model_validate(last.json)
    assert last.json == await v03.get(task["id"])
    assert last.json["artifacts"][0]["parts"] == [{"kind": "text", "text": "hello"}]
    assert last.headers["content-type"] == "application/json"


@pytest.mark.requirement("wire.push.token", "wire.push.authentication")
@pytest.mark.parametrize("scheme", ["Bearer", "Basic", "Custom-1"])
async def test_each_notification_has_the_token_and_the_credentials(
    serve: Serve, receiver: WebhookReceiver, scheme: str
) -> None:
    http = AsgiClient((await serve(ScriptedAgent(Reply.of_text("hello")))).asgi)
    flat = {"token": "tok-1", "authentication": {"scheme": scheme, "credentials": "cred-1"}}
    await V1Client(http).send(configuration=hook(receiver, **flat))
    await receiver.wait_for_post(COMPLETED)
    nested = {"token": "tok-2", "authentication": {"schemes": [scheme], "credentials": "cred-2"}}
    await V03Client(http).send(configuration=hook_v03(receiver, **nested))
    await receiver.wait_for_post(b'"completed"')
    for number, posts in (("1", receiver.posts[:4]), ("2", receiver.posts[4:])):
        for post in posts:
            assert post.headers["x-a2a-notification-token"] == f"tok-{number}"
            assert post.headers["authorization"] == f"{scheme} cred-{number}"


async def test_without_token_and_credentials_no_such_headers_are_sent(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    v1 = V1Client(AsgiClient((await serve(ScriptedAgent(Reply.of_text("hi")))).asgi))
    await v1.send(configuration=hook(receiver))
    for post in await receiver.wait_for_post(COMPLETED):
        assert not {"authorization", "x-a2a-notification-token", "cookie"} & post.headers.keys()
        assert post.headers["host"] == f"127.0.0.1:{receiver.port}"


@pytest.mark.requirement("wire.push.delivery")
async def test_a_configuration_added_later_gets_the_current_task_and_then_the_rest(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(AsgiClient((await serve(agent)).asgi))
    task = await v1.start()
    run = await agent.next_run()
    config = {"taskId": task["id"], "url": receiver.url()}
    await v1.call("CreateTaskPushNotificationConfig", config)
    await receiver.wait_posts(1)
    await run.finish(Reply.of_text("done"))
    posts = await receiver.wait_for_post(COMPLETED)
    assert [strictly(post) for post in posts] == ["task", "artifactUpdate", "statusUpdate"]
    assert posts[0].json["task"]["id"] == task["id"]


@pytest.mark.requirement("wire.push.delivery")
@pytest.mark.parametrize("wire", ["1.0", "0.3"])
async def test_a_configuration_added_after_the_end_gets_the_finished_task(
    serve: Serve, receiver: WebhookReceiver, wire: str
) -> None:
    http = AsgiClient((await serve(ScriptedAgent(Reply.of_text("done")))).asgi)
    task = (await V1Client(http).send())["task"]
    if wire == "1.0":
        config = {"taskId": task["id"], "url": receiver.url()}
        await V1Client(http).call("CreateTaskPushNotificationConfig", config)
        [post] = await receiver.wait_posts(1)
        assert post.json == {"task": await V1Client(http).get(task["id"])}
    else:
        nested = {"taskId": task["id"], "pushNotificationConfig": {"url": receiver.url()}}
        await V03Client(http).call("tasks/pushNotificationConfig/set", nested)
        [post] = await receiver.wait_posts(1)
        assert post.json == await V03Client(http).get(task["id"])


@pytest.mark.requirement("promise.push.few")
async def test_a_long_stream_makes_few_notifications(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    chunks = [TextDelta(f"{number} ") for number in range(2000)]
    gateway = await serve(ScriptedAgent(*chunks), settings={"limits.joinDeltas": False})
    v1 = V1Client(AsgiClient(gateway.asgi))
    task = (await v1.send(configuration=hook(receiver)))["task"]
    posts = await receiver.wait_for_post(COMPLETED)
    assert [strictly(post) for post in posts].count("artifactUpdate") == 1
    assert len(posts) <= 4
    parts = next(post for post in posts if strictly(post) == "artifactUpdate").json[
        "artifactUpdate"
    ]["artifact"]["parts"]
    told = "".join(part["text"] for part in parts)
    assert told == "".join(chunk.text for chunk in chunks)
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.requirement("promise.push.order")
async def test_a_slow_webhook_gets_everything_in_order(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    receiver.responses = [status(500), status(200), status(503), status(500), status(200)]
    agent = ScriptedAgent(Reply.of_text("one"), Reply.of_text("two"))
    v1 = V1Client(AsgiClient((await serve(agent)).asgi))
    task = (await v1.send(configuration=hook(receiver)))["task"]
    posts = await receiver.wait_for_post(COMPLETED)
    distinct = [post.body for index, post in enumerate(posts) if post.body != posts[index - 1].body]
    streamed = [
        body
        for body in await _streamed(v1, task["id"])
        if b"statusUpdate" in body or b'"lastChunk":true' in body
    ]
    assert len(distinct) == len(streamed)
    assert [body[:16] for body in distinct] == [body[:16] for body in streamed]


async def _streamed(v1: V1Client, task_id: str) -> list[bytes]:
    frames = await v1.events("SubscribeToTask", {"id": task_id}, last_event_id="0")
    return [msgspec.json.encode(frame.json["result"]) for frame in frames]


@pytest.mark.requirement("wire.push.several")
async def test_several_webhooks_get_the_same_events_each_in_its_protocol_version(
    serve: Serve, open_receiver: OpenReceiver
) -> None:
    agent = ScriptedAgent()
    http = AsgiClient((await serve(agent)).asgi)
    old, new, other = [await open_receiver() for _ in range(3)]
    task = await V1Client(http).start(configuration=hook(new))
    more = {"taskId": task["id"], "id": "other", "url": other.url()}
    await V1Client(http).call("CreateTaskPushNotificationConfig", more)
    nested = {"url": old.url(), "id": "old"}
    await V03Client(http).call(
        "tasks/pushNotificationConfig/set",
        {"taskId": task["id"], "pushNotificationConfig": nested},
    )
    await (await agent.next_run()).finish(Reply.of_text("done"))
    await new.wait_for_post(COMPLETED)
    await other.wait_for_post(COMPLETED)
    assert (await old.wait_for_post(b'"completed"'))[-1].json["kind"] == "task"


@pytest.mark.requirement("promise.push.back-off")
async def test_a_webhook_that_fails_twice_gets_the_third_attempt(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    receiver.responses = [status(500), status(500)]
    v1 = V1Client(AsgiClient((await serve(ScriptedAgent(Reply.of_text("hi")))).asgi))
    await v1.send(configuration=hook(receiver))
    posts = await receiver.wait_for_post(COMPLETED)
    assert [state_of(post) for post in posts[:3]] == ["SUBMITTED"] * 3
    assert len(posts) == 6


@pytest.mark.requirement("promise.push.isolated")
async def test_a_webhook_that_never_answers_delays_neither_the_task_nor_another(
    serve: Serve, open_receiver: OpenReceiver
) -> None:
    silent, lively = await open_receiver(), await open_receiver()
    silent.always = None
    # No post is given up before the end: after each another one would be sent to the same receiver.
    settings = {"push.timeoutSeconds": 600.0}
    gateway = await serve(ScriptedAgent(Reply.of_text("hi")), settings=settings)
    v1 = V1Client(AsgiClient(gateway.asgi))
    async with asyncio.timeout(TIMEOUT_S):
        for _ in range(50):
            sent = await v1.send(configuration=hook(silent))
            assert sent["task"]["status"]["state"] == COMPLETED.decode()
        await v1.send(configuration=hook(lively))
        await lively.wait_for_post(COMPLETED)
    assert len(silent.posts) <= 8, "one receiver has at most a quarter of the places"


@pytest.mark.requirement("wire.push.no-redirects")
@pytest.mark.parametrize("code", [301, 302, 307, 308])
async def test_redirects_are_not_followed(
    serve: Serve, open_receiver: OpenReceiver, code: int
) -> None:
    receiver, elsewhere = await open_receiver(), await open_receiver()
    receiver.always = status(code, Location=elsewhere.url())
    gateway = await serve(ScriptedAgent(Reply.of_text("hi")), settings={"push.attempts": 2})
    await V1Client(AsgiClient(gateway.asgi)).send(configuration=hook(receiver))
    await receiver.wait_posts(2)
    assert elsewhere.posts == []


async def test_an_endless_response_is_not_read_to_its_end(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    endless = b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n" + b"x" * 100_000
    receiver.always = endless
    v1 = V1Client(AsgiClient((await serve(ScriptedAgent(Reply.of_text("hi")))).asgi))
    await v1.send(configuration=hook(receiver))
    assert len(await receiver.wait_for_post(COMPLETED)) == 4


@pytest.mark.parametrize("body", [b"", b"only a bit"])
async def test_only_the_status_of_a_response_counts(
    serve: Serve, receiver: WebhookReceiver, body: bytes
) -> None:
    receiver.always = b"HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\n" + body
    v1 = V1Client(AsgiClient((await serve(ScriptedAgent(Reply.of_text("hi")))).asgi))
    await v1.send(configuration=hook(receiver))
    assert len(await receiver.wait_for_post(COMPLETED)) == 4


async def test_a_direct_answer_causes_no_notification_and_no_delivery(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    agent = ScriptedAgent(Reply.of_text("hi"))
    gateway = await serve(agent, account={"agentStyle": "hybrid"}, kind="sqlite")
    v1 = V1Client(AsgiClient(gateway.asgi))
    assert "message" in await v1.send(configuration=hook(receiver))
    [engine] = gateway.engines.values()
    await eventually(lambda: not engine.wakeups.subscribed)
    page = await engine.store.deliveries.list_unfinished_deliveries(after=DeliveryId(""), limit=9)
    assert page.deliveries == ()
    assert receiver.posts == []


@pytest.mark.requirement("wire.push.inline")
async def test_a_run_that_becomes_a_task_later_causes_notifications(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    agent = ScriptedAgent(Reply.of_text("one"), Reply.of_text("two"))
    gateway = await serve(agent, account={"agentStyle": "hybrid"})
    sent = await V1Client(AsgiClient(gateway.asgi)).send(configuration=hook(receiver))
    assert sent["task"]["id"]
    await receiver.wait_for_post(COMPLETED)


@pytest.mark.requirement("wire.push.inline")
async def test_a_repeated_send_adds_the_webhook_it_lacked_and_keeps_one_it_has(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    v1 = V1Client(AsgiClient((await serve(ScriptedAgent(Reply.of_text("hi")))).asgi))
    params = v1_message()
    task = (await v1.call("SendMessage", params))["task"]
    params["configuration"] = hook(receiver)
    await v1.call("SendMessage", params)
    [post] = await receiver.wait_posts(1)
    assert post.json["task"]["id"] == task["id"]
    await v1.call("SendMessage", params)
    listed = await v1.call("ListTaskPushNotificationConfigs", {"taskId": task["id"]})
    assert [config["id"] for config in listed["configs"]] == [task["id"]]
    await V03Client(v1.http).call("message/send", v03_message())
    assert len(receiver.posts) == 1


@pytest.mark.requirement("promise.push.late")
@pytest.mark.parametrize("wire", ["1.0", "0.3"])
async def test_events_after_the_end_are_pushed_too(
    serve: Serve, receiver: WebhookReceiver, wire: str
) -> None:
    gateway = await serve(ScriptedAgent(Reply.of_text("hi")))
    http = AsgiClient(gateway.asgi)
    if wire == "1.0":
        task = (await V1Client(http).send(configuration=hook(receiver)))["task"]
        await receiver.wait_for_post(COMPLETED)
    else:
        task = await V03Client(http).send(configuration=hook_v03(receiver))
        await receiver.wait_for_post(b'"completed"')
    result = await gateway.deliver_queued_reply("a2a:default", task["id"], {"text": "one more"})
    assert result.ok
    assert (await receiver.wait_for_post(b"one more"))[-1]
