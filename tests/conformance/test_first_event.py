"""The first response: the requested history, and the answer to an empty message."""

from collections.abc import Callable

import pytest
from tests.conformance.asgi_client import AsgiClient
from tests.conformance.conftest import Start
from tests.conformance.protocol_clients import (
    Json,
    RpcClient,
    V03Client,
    V1Client,
    v03_message,
    v1_message,
)
from tests.conformance.scripted_agent import ScriptedAgent
from tests.conformance.stream_outline import events

from openclaw_a2a.model.agent_event import InputRequired, Reply

TASKS = {"agentStyle": "task-generating"}
MESSAGES: dict[str, Callable[..., Json]] = {
    "SendMessage": v1_message,
    "SendStreamingMessage": v1_message,
    "message/send": v03_message,
    "message/stream": v03_message,
}


def _client(http: AsgiClient, method: str) -> RpcClient:
    return V03Client(http) if "/" in method else V1Client(http)


async def _first(http: AsgiClient, method: str, params: Json) -> Json:
    """The message or task that a call shows first."""
    client = _client(http, method)
    if "tream" in method:
        return events(await client.events(method, params))[0]
    result = await client.call(method, params)
    return result.get("message", result.get("task", result)) if "/" not in method else result


@pytest.mark.requirement("wire.history.length")
@pytest.mark.parametrize("method", ["SendStreamingMessage", "message/stream"])
async def test_stream_begins_with_as_much_history_as_is_wanted(start: Start, method: str) -> None:
    agent = ScriptedAgent(script=lambda turn: [InputRequired("Which?")])
    http = await start(agent, account=TASKS)
    whole = await _first(http, method, MESSAGES[method]("first"))
    assert len(whole["history"]) == 1
    wanted = {0: 0, 1: 1}
    for length, expected in wanted.items():
        configuration = {"historyLength": length}
        params = MESSAGES[method]("more", taskId=whole["id"], configuration=configuration)
        task = await _first(http, method, params)
        assert task["id"] == whole["id"]
        assert len(task.get("history", [])) == expected


def _empty(method: str, **members: Json) -> Json:
    """A message with a part that says nothing."""
    return MESSAGES[method](" ", **members)


@pytest.mark.requirement("inbound.turn.nothing-usable")
@pytest.mark.parametrize("method", MESSAGES)
async def test_answer_to_a_message_without_content_has_a_context(start: Start, method: str) -> None:
    agent = ScriptedAgent(Reply.of_text("hello"))
    http = await start(agent, account=TASKS)
    response = await _first(http, method, _empty(method, contextId="mine"))
    assert response["contextId"] == "mine"
    other = await _first(http, method, _empty(method))
    assert other["contextId"] not in ("", "mine")
    assert agent.turns == []


@pytest.mark.requirement("inbound.turn.nothing-usable")
@pytest.mark.parametrize("method", ["SendMessage", "message/send"])
async def test_message_without_content_for_an_unknown_task_is_not_found(
    start: Start, method: str
) -> None:
    http = await start(ScriptedAgent(InputRequired("Which?")), account=TASKS)
    client = _client(http, method)
    assert (await client.error(method, _empty(method, taskId="nobody's"))).code == -32001
    task = await _first(http, method, MESSAGES[method]("hello"))
    response = await _first(http, method, _empty(method, taskId=task["id"]))
    assert response["contextId"] == task["contextId"]
