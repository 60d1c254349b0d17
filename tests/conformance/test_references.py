"""Messages that refer to much: each task once, few of them, and within a number of bytes."""

import pytest
from tests.conformance.conftest import Start
from tests.conformance.protocol_clients import V1Client, encode_call, v1_message
from tests.conformance.scripted_agent import ScriptedAgent

from openclaw_a2a.model.agent_event import Reply

TASKS = {"agentStyle": "task-generating"}


def _agent() -> ScriptedAgent:
    return ScriptedAgent(script=lambda turn: [Reply.of_text("x" * int(turn.body))])


@pytest.mark.requirement("promise.bounds.references")
async def test_a_task_that_is_referred_to_400_times_is_given_once(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent, account=TASKS))
    known = (await v1.send("10"))["task"]
    await v1.send("10", referenceTaskIds=[known["id"]] * 400)
    assert [task.id for task in agent.turns[1].reference_tasks] == [known["id"]]


@pytest.mark.parametrize("count", [16, 17])
@pytest.mark.requirement("promise.bounds.references")
async def test_more_than_sixteen_references_are_refused(start: Start, count: int) -> None:
    agent = _agent()
    http = await start(agent, account=TASKS)
    given = v1_message("10", referenceTaskIds=names(count))
    sent = (await http.post("/a2a/jsonrpc", encode_call("SendMessage", given))).json
    if count == 16:
        assert "result" in sent
    else:
        assert sent["error"]["code"] == -32602
        assert "limits.referenceTasks" in sent["error"]["message"]
        assert agent.turns == []


def names(count: int) -> list[str]:
    return [f"task-{number}" for number in range(count)]


@pytest.mark.requirement("promise.bounds.references")
async def test_references_past_the_bytes_are_left_out_and_named_to_the_agent(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent, account=TASKS, settings={"limits.referenceBytes": 100_000}))
    large, small = [(await v1.send(size))["task"]["id"] for size in ("200000", "10")]
    await v1.send("10", referenceTaskIds=[large, small])
    turn = agent.turns[-1]
    assert [task.id for task in turn.reference_tasks] == [small]
    (note,) = [note for note in turn.untrusted if large in note]
    assert "limits.referenceBytes" in note
