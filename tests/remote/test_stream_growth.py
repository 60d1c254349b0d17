"""Following a long answer costs time and memory in proportion to its length, not to its square."""

import asyncio
import json
import tracemalloc
import uuid

import pytest
from anyio import fail_after
from tests.remote.scripted_peer import (
    PeerRequest,
    PeerWriter,
    artifact_update,
    scripted,
    status_update,
    task,
)
from tests.remote.test_agent_adapter import QUICK, turn_of
from tests.remote.tool_harness import one_target, open_tool

from openclaw_a2a import RemoteAgents
from openclaw_a2a.engine.engine import SystemClock
from openclaw_a2a.model.agent_event import AgentEvent, TextDelta
from openclaw_a2a.remote.agent_adapter import RemoteTargetAgent
from openclaw_a2a.remote.result_builder import StreamUpdate
from openclaw_a2a.store.memory.store import MemoryStore

CHUNKS = 1500
CHUNK = "x" * 40
MEGABYTE = 1024 * 1024
MORE_THAN_SOCKETS_HOLD = ("x" * 65536, 400)


class LongAnswer:
    """Streams an answer in many chunks; `sent` counts those that the reader's side has taken."""

    def __init__(self, chunk: str = CHUNK, chunks: int = CHUNKS) -> None:
        self.chunk = chunk
        self.chunks = chunks
        self.sent = 0

    async def __call__(self, received: PeerRequest, writer: PeerWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        events = [task("WORKING")]
        events += [artifact_update(self.chunk, append=n > 0) for n in range(self.chunks)]
        for event in [*events, status_update("COMPLETED")]:
            reply = {"jsonrpc": "2.0", "id": received.json["id"], "result": event}
            writer.write(f"data: {json.dumps(reply)}\n\n".encode())
            await writer.drain()
            self.sent += 1


async def settled(answer: LongAnswer) -> int:
    """How many events were sent once no more are: the reader has stopped reading."""
    sent = -1
    while sent != answer.sent:
        sent = answer.sent
        for _ in range(2000):
            await asyncio.sleep(0)
    return sent


async def test_an_update_holds_its_event_and_not_the_answer_so_far() -> None:
    updates: list[StreamUpdate] = []

    async def keep(update: StreamUpdate) -> None:
        updates.append(update)

    async with scripted(LongAnswer()) as peer, open_tool(one_target(peer.url)) as harness:
        await harness.tool.open()
        request = {"action": "send", "parts": [{"kind": "text", "text": "hi"}]}
        tracemalloc.start()
        try:
            with fail_after(240):
                envelope = await harness.tool.execute({**request, "follow_updates": True}, keep)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert envelope["summary"]["message_text"] == CHUNK * CHUNKS
    assert len(updates) == CHUNKS + 2
    # Copies of the answer so far would be 45 MB: 1500 updates of 30 KB on average.
    assert peak < 20 * MEGABYTE
    assert updates[-1].envelope()["summary"]["message_text"] == CHUNK * CHUNKS


async def test_a_run_that_nobody_reads_stops_reading_its_peer() -> None:
    store = MemoryStore()
    await store.open()
    answer = LongAnswer(*MORE_THAN_SOCKETS_HOLD)
    async with (
        scripted(answer) as peer,
        open_tool(one_target(peer.url), limit=64 * MEGABYTE) as harness,
    ):
        agent = RemoteTargetAgent(
            "peer", harness.tool, records=store.records, clock=SystemClock(), timeouts=QUICK
        )
        events: list[AgentEvent] = []
        with fail_after(240):
            run = agent.run(turn_of("hi", run_id=str(uuid.uuid4())))
            events.append(await anext(run))
            assert await settled(answer) < answer.chunks, "the peer is not slowed down"
            events += [event async for event in run]
        await agent.close()
    texts = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(texts) == answer.chunk * answer.chunks
    await store.close()


@pytest.mark.parametrize("reads", [1, 5])
async def test_a_script_that_reads_slowly_slows_its_peer_down(reads: int) -> None:
    answer = LongAnswer(*MORE_THAN_SOCKETS_HOLD)
    async with scripted(answer) as peer, RemoteAgents(one_target(peer.url)) as remote:
        with fail_after(240):
            updates = remote.stream("peer", "hi")
            seen = [await anext(updates) for _ in range(reads)]
            assert await settled(answer) < answer.chunks, "the peer is not slowed down"
            assert [len(one.text) for one in seen] == [len(answer.chunk) * n for n in range(reads)]
            await updates.aclose()
