"""A question of a remote step is answered while either side is killed at random moments."""

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.gateway_process import DEADLINE_S, GatewayProcess, Json
from tests.crash.remote_steps_server import TRACES

SERVER = Path(__file__).with_name("remote_steps_server.py")


class Sides:
    """The gateway that executes the plan, and the peer that does its steps."""

    def __init__(self, folder: Path, kind: str) -> None:
        for name in ("peer", "gateway"):
            (folder / name).mkdir()
        self.peer = GatewayProcess(folder / "peer", kind, server=SERVER)
        url = f"http://127.0.0.1:{self.peer.port}"
        self.gateway = GatewayProcess(folder / "gateway", kind, url, server=SERVER)
        self.traces = folder / "peer" / TRACES

    async def call(self, method: str, **params: Json) -> Json:
        answer = await self.gateway.call("default", method, params)
        assert "result" in answer, answer
        return answer["result"]

    async def until(self, objective_id: str, *statuses: str) -> Json:
        """The objective, once it has one of these statuses."""
        async with asyncio.timeout(4 * DEADLINE_S):  # the circuit of a dead peer opens for a while
            while True:
                shown = (await self.call("objectives/get", id=objective_id))["objective"]
                if shown["status"] in statuses:
                    return shown
                await asyncio.sleep(0.02)  # another process does it, and is asked how far it is

    async def answer(self, task_id: str, text: str) -> None:
        """Send the answer under one message id until it is accepted."""
        message = {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}
        wait = {"returnImmediately": True}
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    await self.call(
                        "SendMessage", message={**message, "taskId": task_id}, configuration=wait
                    )
                except OSError:
                    await asyncio.sleep(0.02)  # the gateway is dead at the moment
                else:
                    return


@pytest.fixture
def sides(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Sides]:
    """Both processes, not started yet."""
    both = Sides(tmp_path, request.param)
    yield both
    both.gateway.close()
    both.peer.close()


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.requirement("promise.recovery.no-zombie")
@pytest.mark.parametrize(("sides", "usual"), [("sqlite", 6), ("json-file", 2)], indirect=["sides"])
async def test_an_accepted_answer_reaches_the_peer_and_the_question_is_asked_once(
    sides: Sides, usual: int, rounds: int | None
) -> None:
    chance = random.Random(os.environ.get("CRASH_SEED", "answers"))
    peer, gateway = sides.peer, sides.gateway
    await peer.start()
    await gateway.start()
    for number in range(rounds or usual):
        made = await sides.call("objectives/create", name="x", metadata={"agent": "target:far"})
        objective_id = made["objective"]["id"]
        await sides.call("plans/create", objectiveId=objective_id, name="p", tasks=[{"name": "s"}])
        await sides.call("objectives/run", id=objective_id)
        waiting = await sides.until(objective_id, "blocked")
        [step] = waiting["plans"][0]["tasks"]
        text = f"answer {number}"
        is_down = chance.random() < 0.6
        if is_down:
            peer.kill()
        answering = asyncio.ensure_future(sides.answer(step["a2aTaskId"], text))
        await asyncio.sleep(chance.uniform(0, 0.5))  # any moment
        if chance.random() < 0.5:
            gateway.kill()
            await gateway.start()
        if not is_down:
            peer.kill()
        await asyncio.sleep(chance.uniform(0, 0.5))  # any moment
        await peer.start()
        await answering
        ended = await sides.until(objective_id, "completed", "failed")
        assert ended["status"] == "completed", gateway.output()[-4000:]
        task = await sides.call("GetTask", id=step["a2aTaskId"])
        assert task["artifacts"][-1]["parts"][0]["text"] == f"took {text}"
        asked = [one for one in task["history"] if one["parts"][0]["text"] == "which one?"]
        assert len(asked) == 1
        assert text in sides.traces.read_text(encoding="utf-8").splitlines()
