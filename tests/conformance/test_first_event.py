"""What is first shown: the history the caller wants, and an answer to what says nothing."""

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


def _client(door: AsgiClient, method: str) -> RpcClient:
    return V03Client(door) if "/" in method else V1Client(door)


async def _first(door: AsgiClient, method: str, params: Json) -> Json:
    """The message or task that a call shows first."""
    client = _client(door, method)
    if "tream" in method:
        return events(await client.events(method, params))[0]
    result = await client.call(method, params)
    return result.get("message", result.get("task", result)) if "/" not in method else result


@pytest.mark.requirement("wire.history.length")
@pytest.mark.parametrize("method", ["SendStreamingMessage", "message/stream"])
async def test_stream_begins_with_as_much_history_as_is_wanted(start: Start, method: str) -> None:
    agent = ScriptedAgent(script=lambda turn: [InputRequired("Which?")])
    door = await start(agent, account=TASKS)
    whole = await _first(door, method, MESSAGES[method]("first"))
    assert len(whole["history"]) == 1
    wanted = {0: 0, 1: 1}
    for length, expected in wanted.items():
        configuration = {"historyLength": length}
        params = MESSAGES[method]("more", taskId=whole["id"], configuration=configuration)
        task = await _first(door, method, params)
        assert task["id"] == whole["id"]
        assert len(task.get("history", [])) == expected


def _empty(method: str, **members: Json) -> Json:
    """A message with a part that says nothing."""
    return MESSAGES[method](" ", **members)


@pytest.mark.requirement("inbound.turn.nothing-usable")
@pytest.mark.parametrize("method", MESSAGES)
async def test_answer_to_a_message_without_content_has_a_context(start: Start, method: str) -> None:
    agent = ScriptedAgent(Reply.of_text("hello"))
    door = await start(agent, account=TASKS)
    answer = await _first(door, method, _empty(method, contextId="mine"))
    assert answer["contextId"] == "mine"
    other = await _first(door, method, _empty(method))
    assert other["contextId"] not in ("", "mine")
    assert agent.turns == []


@pytest.mark.requirement("inbound.turn.nothing-usable")
@pytest.mark.parametrize("method", ["SendMessage", "message/send"])
async def test_message_without_content_for_an_unknown_task_is_not_found(
    start: Start, method: str
) -> None:
    door = await start(ScriptedAgent(InputRequired("Which?")), account=TASKS)
    client = _client(door, method)
    assert (await client.error(method, _empty(method, taskId="nobody's"))).code == -32001
    task = await _first(door, method, MESSAGES[method]("hello"))
    answer = await _first(door, method, _empty(method, taskId=task["id"]))
    assert answer["contextId"] == task["contextId"]
