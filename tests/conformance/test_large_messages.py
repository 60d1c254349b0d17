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
DURABLE = {"store.kind": "sqlite"}
MESSAGES = 12


@pytest.mark.requirement("store.task.few-events")
async def test_a_large_message_and_its_answer_are_not_stored_again_when_the_task_ends(
    serve: Serve, tmp_path: Path
) -> None:
    text = base64.b64encode(random.Random(1).randbytes(600_000)).decode()
    agent = ScriptedAgent(script=lambda turn: [Reply.of_text(turn.body)])
    async with serve(agent, account=TASKS, settings=DURABLE) as gateway:
        client = V1Client(AsgiClient(gateway.asgi))
        sent = [
            (await client.call("SendMessage", v1_message(text, messageId=f"m{number}")))["task"]
            for number in range(MESSAGES)
        ]
    # The message and its answer; the answer is an artifact and the text of the last status. The
    # pages of a run that ended are free for the next one.
    assert stored_bytes(tmp_path) < 2.2 * len(text) * MESSAGES
    async with serve(agent, account=TASKS, settings=DURABLE) as gateway:
        client = V1Client(AsgiClient(gateway.asgi))
        for task in sent:
            assert await client.call("GetTask", {"id": task["id"]}) == task


def stored_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.db*"))
