"""Push configurations: created, read, listed and deleted by their owner only."""

import msgspec
import pytest
from a2a import types as v1_types
from google.protobuf import json_format
from tests.server.push.conftest import Serve
from tests.server.push.gateways import (
    AsgiClient,
    Request,
    ScriptedAgent,
    V03Client,
    V1Client,
    peers,
    token_of,
    v1_message,
)
from tests.server.push.webhook_receiver import Json, WebhookReceiver

from openclaw_a2a.model.agent_event import Reply

REST = "/a2a/rest"
CREATE, GET = "CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig"
LIST, DELETE = "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig"
OLD = "tasks/pushNotificationConfig"
FULL = {"token": "k", "authentication": {"scheme": "Bearer", "credentials": "c"}}
FULL_OLD = {"token": "k", "authentication": {"schemes": ["Bearer", "Basic"], "credentials": "c"}}


def without_secrets(config: Json) -> Json:
    """A configuration as answers show it: nobody reads a token or credentials back."""
    scheme = {key: config["authentication"][key] for key in config["authentication"]}
    del scheme["credentials"]
    return {key: config[key] for key in config if key != "token"} | {"authentication": scheme}


async def make_task(serve: Serve, **more: Json) -> tuple[AsgiClient, str]:
    http = AsgiClient((await serve(ScriptedAgent(Reply.of_text("done")), **more)).asgi)
    return http, (await V1Client(http).send())["task"]["id"]


@pytest.mark.requirement("wire.push.configs", "wire.push.shapes", "inbound.account.push-on")
async def test_a_1_0_configuration_is_created_read_listed_and_deleted(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    http, task_id = await make_task(serve)
    v1 = V1Client(http)
    wish = {"taskId": task_id, "id": "mine", "url": receiver.url(), **FULL}
    shown = without_secrets(wish)
    assert await v1.call(CREATE, wish) == shown
    assert await v1.call(CREATE, wish) == shown
    assert await v1.call(GET, {"taskId": task_id, "id": "mine"}) == shown
    listed = await v1.call(LIST, {"taskId": task_id})
    assert listed == {"configs": [shown], "nextPageToken": ""}
    assert await v1.call(DELETE, {"taskId": task_id, "id": "mine"}) is None
    assert (await v1.call(LIST, {"taskId": task_id}))["configs"] == []


@pytest.mark.requirement("wire.push.configs", "wire.push.shapes", "inbound.account.push-on")
async def test_a_0_3_configuration_is_created_read_listed_and_deleted(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    http, task_id = await make_task(serve)
    v03 = V03Client(http)
    nested = {"id": "mine", "url": receiver.url(), **FULL_OLD}
    wish = {"taskId": task_id, "pushNotificationConfig": nested}
    shown = {"taskId": task_id, "pushNotificationConfig": without_secrets(nested)}
    assert await v03.call(f"{OLD}/set", wish) == shown
    named = {"id": task_id, "pushNotificationConfigId": "mine"}
    assert await v03.call(f"{OLD}/get", named) == shown
    assert await v03.call(f"{OLD}/get", {"id": task_id}) == shown, "the only one needs no name"
    assert await v03.call(f"{OLD}/list", {"id": task_id}) == [shown]
    assert await v03.call(f"{OLD}/delete", named) is None
    assert await v03.call(f"{OLD}/list", {"id": task_id}) == []


@pytest.mark.requirement("wire.push.configs", "wire.push.shapes")
async def test_a_configuration_is_created_read_listed_and_deleted_over_http_json(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    http, task_id = await make_task(serve)
    path = f"{REST}/tasks/{task_id}/pushNotificationConfigs"
    wish = {"id": "mine/1", "url": receiver.url(), **FULL}
    made = await http.post(path, msgspec.json.encode(wish))
    assert (made.status, made.media_type) == (200, "application/a2a+json")
    assert made.json == {"taskId": task_id, **without_secrets(wish)}
    json_format.ParseDict(made.json, v1_types.TaskPushNotificationConfig())
    assert (await http.get(f"{path}/mine/1")).json == made.json
    listed = (await http.get(path)).json
    assert listed["configs"] == [made.json]
    json_format.ParseDict(listed, v1_types.ListTaskPushNotificationConfigsResponse())
    for _ in range(2):
        gone = await http.request(Request("DELETE", f"{path}/mine/1", {}, (b"",)))
        assert (gone.status, gone.json) == (200, {})
    missing = await http.get(f"{path}/mine/1")
    assert missing.status == 404
    info = missing.json["error"]["details"][0]
    assert (info["reason"], info["domain"]) == ("TASK_NOT_FOUND", "a2a-protocol.org")
    assert info["metadata"]["code"] == "push-config-not-found"
    wrong = await http.request(Request("PUT", path, {}, (b"",)))
    assert (wrong.status, wrong.headers["allow"]) == (405, "GET, POST")


@pytest.mark.requirement("wire.push.shapes")
async def test_each_version_reads_the_configurations_of_the_other(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    http, task_id = await make_task(serve)
    nested = {"id": "old", "url": receiver.url(), **FULL_OLD}
    await V03Client(http).call(f"{OLD}/set", {"taskId": task_id, "pushNotificationConfig": nested})
    flat = await V1Client(http).call(GET, {"taskId": task_id, "id": "old"})
    whole = {"taskId": task_id, "id": "old", "url": receiver.url(), **FULL}
    assert flat == without_secrets(whole)


@pytest.mark.requirement("wire.push.default-id")
async def test_a_configuration_without_an_id_gets_the_id_of_its_task(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    http, task_id = await make_task(serve)
    v1, v03 = V1Client(http), V03Client(http)
    made = await v1.call(CREATE, {"taskId": task_id, "url": receiver.url()})
    assert made["id"] == task_id
    nested = {"url": receiver.url("/other")}
    await v03.call(f"{OLD}/set", {"taskId": task_id, "pushNotificationConfig": nested})
    [config] = (await v1.call(LIST, {"taskId": task_id}))["configs"]
    assert config["url"] == receiver.url("/other"), "the second took the place of the first"


@pytest.mark.requirement("wire.push.several")
async def test_a_task_has_several_configurations_up_to_a_limit(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    agent = ScriptedAgent()
    http = AsgiClient((await serve(agent, settings={"push.perTask": 3})).asgi)
    v1 = V1Client(http)
    task_id = (await v1.start())["id"]
    for name in ("a", "b", "c"):
        await v1.call(CREATE, {"taskId": task_id, "id": name, "url": receiver.url()})
    one_more = {"taskId": task_id, "id": "d", "url": receiver.url()}
    failed = await v1.post(CREATE, one_more)
    assert (failed.status, failed.json["error"]["code"]) == (429, -32602)
    assert "3 push configurations" in failed.json["error"]["message"]
    inline = {"taskPushNotificationConfig": {"id": "e", "url": receiver.url()}}
    failed = await v1.post("SendMessage", v1_message(taskId=task_id, configuration=inline))
    assert (failed.status, failed.json["error"]["code"]) == (429, -32602)
    await v1.call(CREATE, {"taskId": task_id, "id": "a", "url": receiver.url("/again")})
    await v1.call(DELETE, {"taskId": task_id, "id": "b"})
    await v1.call(CREATE, one_more)
    first = await v1.call(LIST, {"taskId": task_id, "pageSize": 2})
    rest = await v1.call(LIST, {"taskId": task_id, "pageToken": first["nextPageToken"]})
    assert rest["nextPageToken"] == ""
    names = [config["id"] for config in (*first["configs"], *rest["configs"])]
    assert sorted(names) == ["a", "c", "d"]
    assert (await v1.error(LIST, {"taskId": task_id, "pageToken": "zzz"})).code == -32602


@pytest.mark.requirement("wire.push.delete-again", "wire.push.not-found")
async def test_deleting_twice_is_no_error_and_reading_a_missing_one_is(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    http, task_id = await make_task(serve)
    v1, v03 = V1Client(http), V03Client(http)
    assert await v1.call(DELETE, {"taskId": task_id, "id": "none"}) is None
    failed = await v1.error(GET, {"taskId": task_id, "id": "none"})
    assert failed.code == -32001
    assert failed.error["data"][0]["reason"] == "TASK_NOT_FOUND"
    assert failed.error["data"][0]["metadata"]["code"] == "push-config-not-found"
    gone = {"id": task_id, "pushNotificationConfigId": "none"}
    assert await v03.call(f"{OLD}/delete", gone) is None
    assert (await v03.error(f"{OLD}/get", gone)).code == -32001
    assert (await v03.error(f"{OLD}/get", {"id": task_id})).code == -32001


@pytest.mark.requirement("wire.push.not-found")
async def test_the_configurations_of_another_callers_task_are_not_found(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    agent = ScriptedAgent(Reply.of_text("done"))
    http = AsgiClient((await serve(agent, settings=peers("alice", "bob"))).asgi)
    alice = V1Client(http.with_headers(authorization=f"Bearer {token_of('alice')}"))
    task_id = (await alice.send())["task"]["id"]
    await alice.call(CREATE, {"taskId": task_id, "url": receiver.url()})
    bob = V1Client(http.with_headers(authorization=f"Bearer {token_of('bob')}"))
    for method, params in (
        (CREATE, {"taskId": task_id, "url": receiver.url()}),
        (GET, {"taskId": task_id, "id": task_id}),
        (LIST, {"taskId": task_id}),
        (DELETE, {"taskId": task_id, "id": task_id}),
        (LIST, {"taskId": "no-such-task"}),
        (DELETE, {"taskId": "no-such-task", "id": "x"}),
    ):
        failed = await bob.error(method, params)
        assert failed.code == -32001
        assert failed.error["data"][0]["reason"] == "TASK_NOT_FOUND"
    assert len((await alice.call(LIST, {"taskId": task_id}))["configs"]) == 1


async def test_a_tenant_is_refused(serve: Serve, receiver: WebhookReceiver) -> None:
    http, task_id = await make_task(serve)
    for method, params in (
        (CREATE, {"url": receiver.url()}),
        (GET, {"id": "x"}),
        (LIST, {}),
        (DELETE, {"id": "x"}),
    ):
        wanted = {"taskId": task_id, "tenant": "acme", **params}
        assert (await V1Client(http).error(method, wanted)).code == -32602


async def test_a_deleted_configuration_gets_no_more_notifications(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(AsgiClient((await serve(agent)).asgi))
    task_id = (await v1.start())["id"]
    await v1.call(CREATE, {"taskId": task_id, "id": "a", "url": receiver.url("/a")})
    await v1.call(CREATE, {"taskId": task_id, "id": "b", "url": receiver.url("/b")})
    await receiver.wait_posts(2)
    await v1.call(DELETE, {"taskId": task_id, "id": "a"})
    await (await agent.next_run()).finish(Reply.of_text("done"))
    posts = await receiver.wait_for_post(b"TASK_STATE_COMPLETED")
    assert [post.path for post in posts[2:]] == ["/b"] * len(posts[2:])


async def test_a_replaced_configuration_gets_what_follows(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(AsgiClient((await serve(agent)).asgi))
    task_id = (await v1.start())["id"]
    run = await agent.next_run()
    await v1.call(CREATE, {"taskId": task_id, "url": receiver.url("/old")})
    await receiver.wait_posts(1)
    await v1.call(CREATE, {"taskId": task_id, "url": receiver.url("/new")})
    await receiver.wait_posts(2)
    await run.finish(Reply.of_text("done"))
    posts = await receiver.wait_for_post(b"TASK_STATE_COMPLETED")
    assert [post.path for post in posts] == ["/old", *["/new"] * (len(posts) - 1)]
    assert "task" in posts[1].json


async def test_configurations_are_deleted_with_their_task(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    http, task_id = await make_task(serve, kind="sqlite")
    v1 = V1Client(http)
    await v1.call(CREATE, {"taskId": task_id, "url": receiver.url()})
    assert (
        await http.request(Request("DELETE", f"{REST}/tasks/{task_id}", {}, (b"",)))
    ).status == 200
    failed = await v1.error(LIST, {"taskId": task_id})
    assert failed.error["data"][0]["reason"] == "TASK_NOT_FOUND"
