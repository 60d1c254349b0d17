"""Our process and OpenClaw are killed in the middle of turns; every turn is answered once."""

from contextlib import aclosing
from typing import Any

from tests.openclaw.a2a_client import message, text_of
from tests.openclaw.conftest import OpenClient, StartGateway
from tests.openclaw.openclaw_process import FakeModel, OpenClaw

Json = Any

COMPLETED = "TASK_STATE_COMPLETED"
HALF = "w1 w2 w3"
WHOLE = "w1 w2 w3 w4 w5 w6"


async def test_a_turn_continues_after_our_process_was_killed_and_restarted(
    our_gateway: Json, open_client: OpenClient, model: FakeModel, marker: str
) -> None:
    task_id, last = await _until_half(await open_client(our_gateway), marker)
    our_gateway.kill()
    our_gateway.start()
    client = await open_client(our_gateway)
    model.release(marker)
    stream = client.stream("SubscribeToTask", {"id": task_id}, last_event_id=last)
    numbers = [number async for number, _ in stream]
    task = await client.wait_state(task_id)
    assert task["status"]["state"] == COMPLETED
    assert text_of(task) == WHOLE
    assert numbers == list(range(last + 1, last + 1 + len(numbers)))
    assert len(model.requests(f"halt:{marker}")) == 1


async def test_an_answer_that_came_while_our_process_was_dead_is_not_lost(
    our_gateway: Json, open_client: OpenClient, model: FakeModel, marker: str
) -> None:
    task_id, _ = await _until_half(await open_client(our_gateway), marker)
    our_gateway.kill()
    model.release(marker)
    model.wait_for(f"halt:{marker}", outcome="done")
    our_gateway.start()
    task = await (await open_client(our_gateway)).wait_state(task_id)
    assert task["status"]["state"] == COMPLETED
    assert text_of(task) == WHOLE
    assert len(model.requests(f"halt:{marker}")) == 1


async def test_a_turn_continues_after_our_process_was_stopped(
    start_our_gateway: StartGateway,
    openclaw: OpenClaw,
    open_client: OpenClient,
    model: FakeModel,
    marker: str,
) -> None:
    our_gateway = start_our_gateway(openclaw, settings={"server": {"stopSeconds": 0}})
    task_id, _ = await _until_half(await open_client(our_gateway), marker)
    our_gateway.stop()
    assert model.requests(f"halt:{marker}", outcome="active")
    our_gateway.start()
    model.release(marker)
    task = await (await open_client(our_gateway)).wait_state(task_id)
    assert text_of(task) == WHOLE
    assert len(model.requests(f"halt:{marker}")) == 1


async def test_a_turn_is_done_once_when_openclaw_is_killed_and_started_again(
    start_our_gateway: StartGateway,
    killable_openclaw: OpenClaw,
    open_client: OpenClient,
    model: FakeModel,
    marker: str,
) -> None:
    client = await open_client(start_our_gateway(killable_openclaw))
    task = await client.start(f"hold:{marker}", contextId=marker)
    model.wait_for(f"hold:{marker}", outcome="active")
    queued = await client.start(f"after {marker}", contextId=marker)
    killable_openclaw.kill()
    killable_openclaw.start()
    model.release(marker)
    ended = await client.wait_state(task["id"])
    after = await client.wait_state(queued["id"])
    assert ended["status"]["state"] == COMPLETED
    assert after["status"]["state"] == COMPLETED
    done = [one for one in model.requests(marker) if one["outcome"] == "done"]
    work = [one for one in done if f"after {marker}" != one["last_user"]]
    assert len(work) == 1, [one["last_user"] for one in done]
    asked = [one["text"] for one in done[-1]["messages"] if one["role"] == "user"]
    assert sum(f"hold:{marker}" in text for text in asked) == 1


async def test_a_turn_is_done_once_when_both_are_killed_and_ours_is_back_first(
    start_our_gateway: StartGateway,
    killable_openclaw: OpenClaw,
    open_client: OpenClient,
    model: FakeModel,
    marker: str,
) -> None:
    our_gateway = start_our_gateway(killable_openclaw, agent={"connectSeconds": 1})
    task_id, _ = await _until_half(await open_client(our_gateway), marker)
    our_gateway.kill()
    killable_openclaw.kill()
    killable_openclaw.spawn()
    our_gateway.start()
    killable_openclaw.wait_until_ready()
    model.release(marker)
    ended = await (await open_client(our_gateway)).wait_state(task_id)
    assert ended["status"]["state"] == COMPLETED
    done = [one for one in model.requests(marker) if one["outcome"] == "done"]
    assert len(done) == 1, [one["last_user"] for one in done]


async def test_a_gateway_that_is_down_is_reported_and_used_again_when_it_is_up(
    start_our_gateway: StartGateway,
    killable_openclaw: OpenClaw,
    open_client: OpenClient,
    marker: str,
) -> None:
    killable_openclaw.kill()
    client = await open_client(start_our_gateway(killable_openclaw, agent={"connectSeconds": 1}))
    refused = await client.send(f"anybody there {marker}")
    assert refused["status"]["state"] == "TASK_STATE_FAILED"
    killable_openclaw.start()
    answered = await client.send(f"and now {marker}")
    assert text_of(answered) == f"echo: and now {marker}"


async def _until_half(client: Any, marker: str) -> tuple[str, int]:
    """Start a turn and read half of its answer: the task, and the number of the last event."""
    task_id, wait_processed = "", ""
    params = message(f"long:6@1 halt:{marker}", contextId=marker)
    async with aclosing(client.stream("SendStreamingMessage", params)) as events:
        async for number, event in events:
            task_id = task_id or event["task"]["id"]
            if "artifactUpdate" in event:
                wait_processed += text_of(event["artifactUpdate"]["artifact"])
            if wait_processed.strip() == HALF:
                return task_id, number
    raise AssertionError(f"the stream ended after {wait_processed!r}")
