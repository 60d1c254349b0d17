"""The ten-line server answers an official client, and leaves when it is told to."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, SendMessageRequest

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "ten_line_server.py"


@pytest.fixture
def address():
    """Where the example listens: it takes a free port and says which."""
    with subprocess.Popen(
        [sys.executable, str(EXAMPLE), "0"], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            ready = json.loads(process.stderr.readline())
            assert ready["event"] == "gateway.ready"
            yield ready["url"]
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(240) == 0


async def test_example_answers_an_official_client(address):
    async with httpx.AsyncClient(timeout=240) as http:
        card = await A2ACardResolver(http, address.rstrip("/")).get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http)).create(card)
        message = Message(message_id="m-1", role=Role.ROLE_USER, parts=[Part(text="hello")])
        events = [one async for one in client.send_message(SendMessageRequest(message=message))]
    assert card.name == "shout"
    last = (
        events[-1].task.status if events[-1].HasField("task") else events[-1].status_update.status
    )
    assert last.message.parts[0].text == "HELLO!"
