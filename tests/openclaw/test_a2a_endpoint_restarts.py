"""Our process and OpenClaw are killed in the middle of turns; every turn is answered once."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

import httpx2
import pytest
from tests.openclaw.a2a_client import A2AClient, RpcFailed, message, status_text, text_of
from tests.openclaw.conftest import OpenClient, StartGateway
from tests.openclaw.openclaw_process import FakeModel, OpenClaw
from tests.openclaw.recording_proxy import RecordingProxy

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


@pytest.mark.timeout(1200)
async def test_a_client_that_prints_pieces_prints_each_once_whenever_our_process_is_killed(
    our_gateway: Json, open_client: OpenClient, model: FakeModel, marker: str
) -> None:
    seed = random.SystemRandom().randrange(10_000)
    moment = random.Random(seed)
    whole = " ".join(f"w{number + 1}" for number in range(60))
    for round_ in range(4):
        name = f"{marker}r{round_}"
        params = message(f"say:[First.] tool:agents_list {{}} {name}", contextId=f"{name}t")
        if round_ % 2:
            params = message(f"long:60@20 {name}", contextId=name)
        screen = Screen()
        client = await open_client(our_gateway)
        printing = asyncio.create_task(screen.print(client.stream("SendStreamingMessage", params)))
        await screen.began.wait()
        await asyncio.sleep(moment.random() * 1.5)
        our_gateway.kill()
        with suppress(httpx2.TransportError):
            await printing
        our_gateway.start()
        client = await open_client(our_gateway)
        await screen.resume(client)
        task = await client.wait_state(screen.task_id)
        assert task["status"]["state"] == COMPLETED, seed
        texts = {key: text for key, text in screen.texts.items() if key.startswith("assistant")}
        if round_ % 2:
            assert texts == {"assistant-output-0001": whole}, seed
        else:
            assert texts["assistant-output-0001"] == "First.", seed
        assert screen.replaced == [], seed


class Screen:
    """A client that prints the pieces of artifacts as they come."""

    def __init__(self) -> None:
        self.task_id = ""
        self.last_event_id = 0
        self.texts: dict[str, str] = {}
        self.replaced: list[str] = []
        self.began = asyncio.Event()

    async def print(self, stream: AsyncGenerator[tuple[int, Json]]) -> None:
        async with aclosing(stream) as events:
            async for number, event in events:
                assert number > self.last_event_id or not self.task_id
                self.last_event_id = number
                self.task_id = self.task_id or event["task"]["id"]
                self.began.set()
                if "artifactUpdate" in event:
                    self._print(event["artifactUpdate"])

    async def resume(self, client: A2AClient) -> None:
        """Print what was missed, and what follows."""
        params, last = {"id": self.task_id}, self.last_event_id
        with suppress(RpcFailed):  # it has ended, and nothing was missed
            await self.print(client.stream("SubscribeToTask", params, last_event_id=last))

    def _print(self, update: Json) -> None:
        artifact_id = update["artifact"]["artifactId"]
        if artifact_id.startswith("assistant"):
            if artifact_id in self.texts and not update.get("append"):
                self.replaced.append(artifact_id)
            self.texts[artifact_id] = self.texts.get(artifact_id, "") + text_of(update["artifact"])


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


@pytest.mark.timeout(1200)
async def test_text_before_a_tool_stays_when_both_are_killed_in_the_tool_turn(
    start_our_gateway: StartGateway,
    killable_openclaw: OpenClaw,
    open_client: OpenClient,
    model: FakeModel,
    marker: str,
) -> None:
    seed = random.SystemRandom().randrange(10_000)
    moment = random.Random(seed)
    our_gateway = start_our_gateway(killable_openclaw, agent={"connectSeconds": 1})
    screen = Screen()
    text = f"say:[First.] tool:agents_list {{}} after:{marker}"
    client = await open_client(our_gateway)
    stream = client.stream("SendStreamingMessage", message(text, contextId=marker))
    printing = asyncio.create_task(screen.print(stream))
    # The second request of the turn, with the result of the tool, is held.
    await asyncio.to_thread(partial(model.wait_for, f"after:{marker}", count=2))
    await asyncio.sleep(moment.random() * 0.3)
    killed = [our_gateway, killable_openclaw]
    moment.shuffle(killed)
    for one in killed:
        one.kill()
    with suppress(httpx2.TransportError):
        await printing
    model.release(marker)
    killable_openclaw.spawn()
    our_gateway.start()
    killable_openclaw.wait_until_ready()
    client = await open_client(our_gateway)
    ended = await client.wait_state(screen.task_id)
    assert ended["status"]["state"] == COMPLETED, (seed, status_text(ended))
    await screen.resume(client)
    assert screen.texts["assistant-output-0001"] == "First.", (seed, screen.texts)
    assert screen.replaced == [], seed


@pytest.mark.timeout(1200)
async def test_messages_that_openclaw_lost_before_it_asked_its_model_are_sent_again_once(
    start_our_gateway: StartGateway,
    killable_openclaw: OpenClaw,
    open_client: OpenClient,
    model: FakeModel,
    marker: str,
) -> None:
    """OpenClaw is killed at random moments after it accepted messages, each in its session."""
    seed = random.SystemRandom().randrange(10_000)
    moment = random.Random(seed)
    proxy = RecordingProxy(killable_openclaw.ws_url)
    try:
        gateway = start_our_gateway(killable_openclaw, agent={"url": proxy.url})
        client = await open_client(gateway)
        for round_ in range(2):
            names = [f"{marker}r{round_}x{number}" for number in range(8)]
            tasks = [await client.start(f"once {name}", contextId=name) for name in names]
            await asyncio.to_thread(_wait_accepted, proxy, f"once {marker}r{round_}", len(names))
            await asyncio.sleep(moment.random() * 0.1)
            killable_openclaw.kill()
            killable_openclaw.start()
            ended = [await client.wait_state(task["id"]) for task in tasks]
            states = [task["status"]["state"] for task in ended]
            assert states == [COMPLETED] * 8, (seed, list(map(status_text, ended)))
            for name in names:
                asked = model.requests(name)  # in its session, also by OpenClaw's own recovery
                done = [one for one in asked if one["outcome"] == "done"]
                assert sum(one["last_user"] == f"once {name}" for one in done) <= 1, seed
                users = [one["text"] for one in done[-1]["messages"] if one["role"] == "user"]
                assert sum(f"once {name}" in text for text in users) == 1, (seed, users)
    finally:
        proxy.close()
    sent = [one["params"]["idempotencyKey"] for one in proxy.asked if one["method"] == "agent"]
    assert any(key.endswith("-2") for key in sent), (seed, sent)


def _wait_accepted(proxy: RecordingProxy, words: str, count: int) -> None:
    """Return when OpenClaw has accepted so many messages with these words."""
    deadline = time.monotonic() + 240
    while True:
        answers = [one.get("payload") or {} for one in list(proxy.answers)]
        accepted = {one["runId"] for one in answers if one.get("status") == "accepted"}
        turns = [one["params"] for one in list(proxy.asked) if one["method"] == "agent"]
        fitting = [one for one in turns if words in one["message"]]
        if sum(one["idempotencyKey"] in accepted for one in fitting) >= count:
            return
        assert time.monotonic() < deadline, f"{len(accepted)} of {count} were accepted"
        time.sleep(0.002)  # the proxy is in a thread of its own and tells nobody


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
