"""The gateway is killed while late replies come; what was seen stays, and each is there once."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash import gateway_process as crash
from tests.crash.gateway_process import DEADLINE_S, GatewayProcess, Json
from tests.engine.background_replies.background_reply_server import REPLIES

ALL = [f"later {number}" for number in range(1, REPLIES + 1)]


@pytest.fixture(params=["sqlite", "json-file"])
def gateway_process(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[GatewayProcess]:
    """A gateway process whose agent talks after its runs."""
    monkeypatch.setattr(crash, "SERVER", Path(__file__).with_name("background_reply_server.py"))
    gateway = GatewayProcess(tmp_path, request.param)
    yield gateway
    gateway.close()


def said_later(task: Json) -> list[str]:
    late = [one for one in task["artifacts"] if one["artifactId"].startswith("queued-reply-")]
    return [one["parts"][0]["text"] for one in late]


async def get(gateway: GatewayProcess, task_id: str) -> Json:
    return (await gateway.call("default", "GetTask", {"id": task_id}))["result"]


async def wait_for(gateway: GatewayProcess, task_id: str, count: int) -> Json:
    """The task when it has so many late replies."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            task = await get(gateway, task_id)
            if len(said_later(task)) >= count:
                return task


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.requirement(
    "inbound.queued.once", "promise.commit.before-show", "promise.order.one-terminal"
)
async def test_late_replies_survive_kills_and_are_there_once(
    gateway_process: GatewayProcess, rounds: int | None
) -> None:
    chance = random.Random("late")
    for number in range(rounds or 2):
        await gateway_process.start()
        message = {"messageId": f"m-{number}", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        params = {"message": {**message, "contextId": f"c-{number}"}}
        sent = await gateway_process.call("default", "SendMessage", params)
        task_id = sent["result"]["task"]["id"]
        seen: list[str] = []
        for _ in range(3):
            count = min(len(seen) + chance.randint(1, 8), REPLIES)
            seen = said_later(await wait_for(gateway_process, task_id, count))
            gateway_process.kill()
            await gateway_process.start()
            assert said_later(await get(gateway_process, task_id))[: len(seen)] == seen
        task = await wait_for(gateway_process, task_id, REPLIES)
        assert said_later(task) == ALL
        follow = {"id": task_id}
        events = [
            event
            async for _, event in gateway_process.stream(
                "default", "SubscribeToTask", follow, last_event_id=0
            )
        ]
        states = [crash.state_of(event) for event in events]
        assert sum(state in crash.TERMINAL for state in states) == 1
        assert len(states) - 1 - states.index("TASK_STATE_COMPLETED") == REPLIES
        gateway_process.kill()
