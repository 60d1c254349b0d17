"""Sending messages that belong to an objective."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.conformance.asgi_client import Response
from tests.conformance.protocol_clients import (
    V03Client,
    V1Client,
    encode_call,
    unwrap,
    v03_message,
    v1_message,
)
from tests.conformance.scripted_agent import ScriptedAgent
from tests.conformance.stream_outline import outline, state_of
from tests.server.objectives.conftest import Build, ObjectivesServer, ask
from tests.server.objectives.scripted_planning import into_objective

from openclaw_a2a.model.agent_event import InputRequired, Reply
from openclaw_a2a.model.errors import PlanLimitExceeded
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.planning.steps import EXTENSION_URI

Json = Any
KEYS = {"opt/v1/objectiveId": "obj-123", "opt/v1/planId": "plan-1", "opt/v1/taskIndex": 0}
WISH = {"opt/v1/objective": {"id": "obj-123", "name": "Garden party", "status": "submitted"}}
VERY_REQUEST = b"""{"jsonrpc":"2.0","method":"message/send","id":"1","params":{"message":{
  "role":"user","parts":[{"text":"Organise a garden party for twenty guests"}],
  "metadata":{"opt/v1/objective":{"id":"obj-123","name":"Garden party","status":"submitted"}}}}}"""


def _v1(server: ObjectivesServer) -> V1Client:
    server.planning.take = into_objective("obj-123")
    return V1Client(server.activated)


def _v03(server: ObjectivesServer) -> V03Client:
    server.planning.take = into_objective("obj-123")
    return V03Client(server.activated)


async def _rest(server: ObjectivesServer, params: Json, verb: str = "send") -> Response:
    server.planning.take = into_objective("obj-123")
    return await ask(server.activated, f"POST /message:{verb}", msgspec.json.encode(params))


@pytest.mark.requirement("opt.message.bare")
async def test_the_request_of_the_contract_works_as_it_stands(server: ObjectivesServer) -> None:
    server.planning.take = into_objective("obj-123")
    headers = {"A2A-Extensions": EXTENSION_URI}
    answer = await server.client.with_headers(**headers).post("/a2a/jsonrpc", VERY_REQUEST)
    task = answer.json["result"]
    assert (answer.json["id"], answer.headers["a2a-extensions"]) == ("1", EXTENSION_URI)
    assert (task["kind"], task["contextId"], task["metadata"]) == ("task", "obj-123", KEYS)
    assert task["status"]["state"] == "completed"
    [message] = server.planning.taken
    assert message.text == "Organise a garden party for twenty guests"
    assert (message.metadata, bool(message.message_id)) == (WISH, True)


async def test_without_activation_that_request_needs_a_message_id(server: ObjectivesServer) -> None:
    answer = await server.client.post("/a2a/jsonrpc", VERY_REQUEST)
    assert answer.json["error"]["code"] == -32602
    assert "messageId" in answer.json["error"]["message"]
    assert server.agent.turns == []


@pytest.mark.requirement("opt.message.bare")
@pytest.mark.parametrize("members", [{}, {"messageId": ""}, {"messageId": "  "}])
async def test_missing_message_id_is_made_on_every_wire(
    server: ObjectivesServer, members: Json
) -> None:
    server.planning.take = into_objective("obj-123")
    for method, params in (("SendMessage", v1_message()), ("message/send", v03_message())):
        del params["message"]["messageId"]
        params["message"] |= members
        body = encode_call(method, params)
        assert "result" in (await server.activated.post("/a2a/jsonrpc", body)).json
    params = v1_message()
    del params["message"]["messageId"]
    assert (await _rest(server, params)).status == 200
    ids = [message.message_id for message in server.planning.taken]
    assert len(set(ids)) == 3
    assert all(one.strip() for one in ids)


async def test_task_of_an_objective_carries_its_keys_everywhere(server: ObjectivesServer) -> None:
    v1, v03 = _v1(server), _v03(server)
    sent = (await v1.send(metadata=WISH))["task"]
    old = await v03.send(metadata=WISH)
    bare = (await _rest(server, v1_message(metadata=WISH))).json["task"]
    for task in (sent, old, bare, await v1.get(sent["id"]), await v03.get(sent["id"])):
        assert (task["contextId"], task["metadata"]) == ("obj-123", KEYS)
        assert state_of(task) == "completed"
    assert (await v1.list(contextId="obj-123"))["totalSize"] == 3
    assert {turn.session_key for turn in server.agent.turns} == {"agent:main:a2a:obj:obj-123"}


async def test_streams_start_with_the_task_of_the_objective(server: ObjectivesServer) -> None:
    frames = await _v1(server).events("SendStreamingMessage", v1_message(metadata=WISH))
    old = await _v03(server).events("message/stream", v03_message(metadata=WISH))
    assert outline(frames) == outline(old)
    assert outline(frames)[0] == "task submitted"
    for task in (unwrap(frames[0].json)["task"], unwrap(old[0].json)):
        assert (task["contextId"], task["metadata"]) == ("obj-123", KEYS)
    bare = await _rest(server, v1_message(metadata=WISH), "stream")
    assert b'"opt/v1/planId":"plan-1"' in bare.body.split(b"\n\n")[0]


async def test_the_delivery_to_the_objective_is_stored_with_the_task(
    server: ObjectivesServer,
) -> None:
    task = (await _v1(server).send(metadata=WISH))["task"]
    [delivery] = await server.engine.store.deliveries.list_task_deliveries(None, TaskId(task["id"]))
    assert (delivery.kind, delivery.cursor) == ("plan", 0)


async def test_message_without_an_objective_is_a_plain_message(server: ObjectivesServer) -> None:
    answer = await V1Client(server.activated).send()
    assert [message.text for message in server.planning.taken] == ["hello"]
    assert "message" in answer


@pytest.mark.requirement("opt.activation.off-messages")
async def test_without_activation_the_metadata_is_only_metadata(server: ObjectivesServer) -> None:
    server.planning.take = into_objective("obj-123")
    task = await V1Client(server.client).start(metadata=WISH)
    assert server.planning.taken == []
    assert "metadata" not in task
    assert task["contextId"] != "obj-123"
    assert task["history"][0]["metadata"] == WISH


async def test_error_of_planning_is_returned_and_nothing_runs(server: ObjectivesServer) -> None:
    server.planning.error = PlanLimitExceeded("50 tasks are the most")
    assert (await V1Client(server.activated).error("SendMessage", v1_message())).code == -32052
    assert (await V03Client(server.activated).error("message/send", v03_message())).code == -32052
    assert (await _rest(server, v1_message())).status == 413
    assert server.agent.turns == []


async def test_message_again_is_the_same_task_and_planning_is_asked_once(
    server: ObjectivesServer,
) -> None:
    v1, params = _v1(server), v1_message(metadata=WISH)
    first = await v1.call("SendMessage", params)
    server.planning.error = PlanLimitExceeded("50 tasks are the most")
    assert await v1.call("SendMessage", params) == first
    assert len(server.planning.taken) == len(server.agent.turns) == 1


async def test_another_message_with_the_same_id_is_rejected_before_planning(
    server: ObjectivesServer,
) -> None:
    v1, params = _v1(server), v1_message(metadata=WISH)
    await v1.call("SendMessage", params)
    params["message"]["parts"] = [{"text": "something else"}]
    assert (await v1.error("SendMessage", params)).code == -32602
    assert len(server.planning.taken) == 1


async def test_concurrent_messages_with_one_id_are_one_task(build: Build) -> None:
    agent = ScriptedAgent()
    server = await build(agent)
    v1, params = _v1(server), v1_message(metadata=WISH)

    async def run() -> None:
        await (await agent.next_run()).finish(Reply.of_text("done"))

    first, second, _ = await asyncio.gather(
        v1.call("SendMessage", params), v1.call("SendMessage", params), run()
    )
    assert first == second
    assert len(agent.turns) == 1


async def test_message_that_the_agent_does_not_accept_never_reaches_planning(
    server: ObjectivesServer,
) -> None:
    parts = [{"raw": "aGk=", "mediaType": "image/png"}]
    params = v1_message(parts=parts, metadata=WISH)
    assert (await _v1(server).error("SendMessage", params)).code == -32005
    assert server.planning.taken == []


async def test_answer_continues_the_task_that_waits(build: Build) -> None:
    agent = ScriptedAgent(
        script=lambda turn: [
            Reply.of_text("booked") if turn.resume else InputRequired("which hotel?", resume="h")
        ]
    )
    server = await build(agent)
    v1 = _v1(server)
    waiting = (await v1.send("book", metadata=WISH))["task"]
    assert state_of(waiting) == "input-required"
    server.planning.take = into_objective("obj-123", answers=lambda: waiting["id"])
    answer = v1_message("the one by the sea", metadata={"opt/v1/taskId": "task-x"})
    done = (await v1.call("SendMessage", answer))["task"]
    assert (done["id"], state_of(done)) == (waiting["id"], "completed")
    assert (done["contextId"], done["metadata"]) == ("obj-123", KEYS)
    assert await v1.call("SendMessage", answer) == {"task": done}
    assert len(agent.turns) == 2


async def test_webhook_and_objective_both_get_the_task(server: ObjectivesServer) -> None:
    hook = {"url": "http://127.0.0.1:9/hook"}
    params = v1_message(metadata=WISH, configuration={"taskPushNotificationConfig": hook})
    task = (await _v1(server).call("SendMessage", params))["task"]
    deliveries = await server.engine.store.deliveries.list_task_deliveries(None, TaskId(task["id"]))
    assert {delivery.kind for delivery in deliveries} == {"plan", "push"}
    assert (await _v1(server).call("SendMessage", params))["task"]["id"] == task["id"]
    assert (
        len(await server.engine.store.deliveries.list_task_deliveries(None, TaskId(task["id"])))
        == 2
    )
