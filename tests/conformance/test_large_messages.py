"""Large messages and answers: what they cost in the store."""

import base64
import random
from pathlib import Path

import pytest
from tests.conformance.asgi_client import AsgiClient
from tests.conformance.conftest import Serve
from tests.conformance.protocol_clients import V1Client, v1_message
from tests.conformance.scripted_agent import ScriptedAgent

from openclaw_a2a.model.agent_event import Reply

TASKS = {"agentStyle": "task-generating"}
MESSAGES = 12
ENVELOPE = 32 * 1024
"""What a task needs beside its contents: ids, times, journal, rows and pages."""


@pytest.mark.requirement("store.task.few-events")
@pytest.mark.parametrize("kind", ["sqlite", "json-file"])
async def test_a_large_message_and_its_answer_are_each_stored_once(
    serve: Serve, tmp_path: Path, kind: str
) -> None:
    text = random_text(1)
    # The answer is an artifact, the text of the last status, and part of the history.
    agent = ScriptedAgent(script=lambda turn: [Reply.of_text(turn.body[::-1])])
    durable = {"store.kind": kind}
    async with serve(agent, account=TASKS, settings=durable) as gateway:
        client = V1Client(AsgiClient(gateway.asgi))
        sent = [
            (await client.call("SendMessage", v1_message(text, messageId=f"m{number}")))["task"]
            for number in range(MESSAGES)
        ]
    assert stored_bytes(tmp_path) < (2 * len(text) + ENVELOPE) * MESSAGES
    async with serve(agent, account=TASKS, settings=durable) as gateway:
        client = V1Client(AsgiClient(gateway.asgi))
        for task in sent:
            assert await client.call("GetTask", {"id": task["id"]}) == task


def random_text(seed: int) -> str:
    return base64.b64encode(random.Random(seed).randbytes(600_000)).decode()


def stored_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
